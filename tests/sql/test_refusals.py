"""What is not supported, or wrong, is refused when the program is written: the error names the query, what, and what to do."""

from __future__ import annotations

import sys

import pyarrow as pa
import pytest

import rayad as rd

T = pa.schema([("a", pa.int64()), ("b", pa.int64()), ("s", pa.string()), ("at", pa.timestamp("us"))])

REFUSED = {
    "selec a from t": "flow.sql('selec a from t'): ",
    "select x from t": "flow.sql('select x from t'): No field named x. The columns there are: t.a, t.b, t.s, t.at.",
    "select a from missing": "flow.sql('select a from missing'): table 'missing' not found; the tables that were given are ",
    "create table x (a int)": "flow.sql('create table x (a int)'): DDL not supported: CreateMemoryTable",
    "delete from t": "flow.sql('delete from t'): DML not supported: Delete",
    'select "A" from t': "Names are lower-case unless they are in double quotes: t.a. The columns there are: t.a, t.b, t.s, t.at.",
    "select a, (select a, b from t) x from t": "The subquery should only return one column",
    "select a from t where (a, b) in (select a, b from t)": "flow.sql(",
    "with recursive r(a) as (select 1 union select a + 1 from r where (select count(*) from r y where y.a < r.a) < 3) select a from r": (
        "a subquery that reads 'r', in the recursion of 'r' itself, is not supported: use a join"
    ),
    "select a, (select sum(t.b) filter (where x.a > 1) from t x where x.a < t.a) s from t": "CASE in its place",
    "select a, (with recursive r(n) as (select t.a union select n + 1 from r where n < 3) select max(n) from r) m from t": (
        "WITH RECURSIVE in a subquery that uses columns of the query around is not supported: use a join"
    ),
    "select now() n, a from t": "now() gives something else each time",
    "select a from t where at < current_date": "current_date() gives something else each time",
    "select random() r, a from t": "random() gives something else each time",
    "select a from t tablesample bernoulli(10)": "TABLESAMPLE is not supported: DataFusion would leave it out",
    "select a, sum(b) x from t group by a with rollup": "WITH ROLLUP is not supported",
    "select value from generate_series(1, 3)": "none of the tables that were given",
    "explain select a from t": "Explain",
    "select interval '1 day' i from t": "a column of the type month_day_nano_interval is not supported",
    "select md5(s) m from t": "the function md5, in 'md5(t.s)', is not supported: apply it to the table before",
    "select array_agg(a) x from t": "the aggregate array_agg, in 'array_agg(t.a)', is not supported",
    "select approx_distinct(a) x from t": "the aggregate approx_distinct, in 'approx_distinct(t.a)', is not supported",
    "select first_value(a) x from t group by b": "first_value needs an ORDER BY in its parentheses",
    "select lag(a) ignore nulls over (order by b) x from t": "IGNORE NULLS of a window function",
    "select sum(a) over (order by at range between 1 preceding and current row) x from t": "a frame by RANGE with a number",
    "select a, (select b, b from t x where x.a < t.a) y from t": "two columns have one name",
    'select a as "0", b as "1" from t': "would be a tuple: give them names with AS",
    "select a from t where a = $1": "$1",
    "select make_array(a) x from t": "the function make_array",
}


def _table(flow: rd.Dataflow) -> rd.Collection:
    return flow.collection("t", schema=T)


@pytest.mark.parametrize("query", REFUSED)
def test_refused(query: str) -> None:
    flow = rd.Dataflow("refused")
    with pytest.raises(rd.DataflowError) as caught:
        flow.sql(query, t=_table(flow))
    assert str(caught.value).startswith("flow.sql("), caught.value
    assert REFUSED[query] in str(caught.value)


def test_columns_must_be_known() -> None:
    flow = rd.Dataflow("unknown")
    with pytest.raises(rd.DataflowError) as caught:
        flow.sql("select a from t", t=flow.from_items([{"a": 1}]).as_collection())
    assert "are not known: say which with .with_schema(pa.schema([...])), or, of a live collection" in str(caught.value)
    with pytest.raises(rd.DataflowError, match=r"flow.sql\(t=...\) was given \[1\]: give a collection"):
        flow.sql("select a from t", t=[1])  # type: ignore[arg-type]
    other = rd.Dataflow("other")
    with pytest.raises(rd.DataflowError, match="a collection of another dataflow, 'other'"):
        flow.sql("select a from t", t=_table(other))
    with pytest.raises(rd.DataflowError, match=r"with_schema\(\) was given \['a'\]: give a pyarrow.schema"):
        flow.from_items([{"a": 1}]).as_collection().with_schema(["a"])  # type: ignore[arg-type]


def test_a_record_that_is_not_as_its_schema_says_ends_the_job() -> None:
    flow = rd.Dataflow("wrong")
    items = flow.from_items([{"a": 1, "b": "x"}]).as_collection()
    flow.sql("select b + 1 as c from t", t=items.with_schema(pa.schema([("b", pa.int64())]))).collect("out")
    told = r"\(test_refusals.py:\d+\) failed at \(0\): flow.sql\('select b \+ 1 as c from t'\): column 'b' cannot hold 'x'"
    with pytest.raises(rd.DataflowError, match=told):
        flow.run(runtime="local")
    flow = rd.Dataflow("missing")
    items = flow.from_items([{"a": 1}]).as_collection()
    flow.sql("select b from t", t=items.with_schema(pa.schema([("b", pa.int64())]))).collect("out")
    with pytest.raises(rd.DataflowError, match=r"\{'a': 1\} has no field 'b', which its schema says"):
        flow.run(runtime="local")


def test_a_subquery_for_one_value_that_gives_more() -> None:
    flow = rd.Dataflow("several")
    table = flow.from_arrow(pa.table({"a": [1, 2]})).as_collection()
    flow.sql("select a, (select a from t) x from t", t=table).collect("out")
    with pytest.raises(rd.DataflowError, match="a subquery that stands for one value gives 2 rows"):
        flow.run(runtime="local")


def test_without_datafusion(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datafusion", None)
    flow = rd.Dataflow("none")
    with pytest.raises(rd.DataflowError, match=r"flow.sql\(\) needs the package datafusion: pip install 'rayad\[sql\]'"):
        flow.sql("select a from t", t=_table(flow))
