"""Subqueries anywhere in a query, correlated by anything, give after each epoch what DuckDB gives, over tables that come and go."""

from __future__ import annotations

import cloudpickle
import pyarrow as pa
import pytest

import rayad as rd
from rayad.sql.planning import whole
from rayad.sql.planning.name_rules import confuses_tables, is_in_a_join, looks_beyond
from rayad.sql.planning.whole import planned
from tests.sql.against_duckdb import verify
from tests.sql.test_queries import SEEDS, D, T, U, tables

QUERIES = {
    "less": "select t.a, t.b from t where t.b < (select count(*) from u where u.c < t.a)",
    "exists as a column": "select t.a, exists (select 1 from u where u.c < t.a) e from t",
    "exists or": "select t.a from t where t.a = 2 or exists (select 1 from u where u.c < t.a)",
    "not exists in case": "select case when not exists (select 1 from u where u.c < t.a and u.s = t.s) then 1 else b end x from t",
    "in as a value": "select a, a in (select a from u) x, a not in (select c from u where u.s is not null) y from t",
    "not in or": "select a from t where b not in (select c from u where c is not null) or a = 1",
    "in correlated": "select a, b, b in (select c from u where u.a < t.a) x from t",
    "not in correlated or": "select a, b from t where b not in (select c from u where u.a < t.a) or s = 'x'",
    "not in itself": "select a from t where a not in (select c from u where u.a <> t.a)",
    "constant not in": "select a from t where 1 not in (select c from u where u.a <> t.a)",
    "in of null": "select a, null in (select c from u where u.a < t.a) x, 1 in (select c from u where u.a = t.a) z from t",
    "in of other types": "select a, b in (select f from t) x, s in (select s from u where u.a <> t.a) y from t",
    "any and all": (
        "select a, b, a < any (select c from u where u.a <> t.b) x, a >= all (select c from u) y, a <> any (select a from u) z, "
        "a = all (select c from u where c = 1) w from t"
    ),
    "subquery in subquery": "select a from t where (select max(c) from u where u.a < t.a) in (select c from u) or b = 5",
    "case in": "select case when a = 1 then b else a end in (select c from u where u.a <> t.a) x from t",
    "first of sorted": "select a, (select s from u where u.c < t.a order by c desc, s limit 1 offset 1) v from t",
    "having": "select a, sum(b) s from t group by a having sum(b) > (select min(c) from u where u.a < t.a)",
    "not in in having": "select a from t group by a having a not in (select c from u) or count(*) > 1",
    "key": "select (select count(*) from u where u.c < t.a) k, count(*) n from t group by (select count(*) from u where u.c < t.a)",
    "nested": (
        "select a from t where exists (select 1 from u where u.a > t.a and u.c < (select count(*) from t x where x.a < u.a and x.b <> t.b))"
    ),
    "beyond the next": (
        "select t.a from t where t.a = 1 or exists (select 1 from u where exists (select 1 from t y where y.a < t.a "
        "and y.b > 1) and u.c = 1)"
    ),
    "derived": "select a, (select sum(x.n) from (select c, count(*) n from u where u.a <> t.a group by c) x where x.c < t.b) y from t",
    "distinct inside": "select a, (select count(*) from (select distinct s from u where u.a < t.a) x) y from t",
    "window inside": (
        "select a, (select max(r) from (select row_number() over (partition by s order by c, a) r from u where u.a < t.a) x) y from t"
    ),
    "left join inside": "select t.a, (select count(x.a) from u left join t x on x.a = u.a and x.b < t.b) y from t",
    "right join inside": "select t.a, (select count(*) from (select u.a from u where u.c < t.a) u right join t x on x.a = u.a) y from t",
    "full join inside": (
        "select t.a, (select count(*) from (select u.a from u where u.c < t.a) u full join (select * from t x where x.b <> t.b) x "
        "on x.a = u.a) y from t"
    ),
    "cross join inside": "select a, (select count(*) from u, (select b from t x where x.a <> t.a) y where u.c < y.b) n from t",
    "semi join inside": "select a, (select count(*) from u where u.c < t.a and u.a in (select x.a from t x where x.b <> u.c)) n from t",
    "union inside": (
        "select t.a, (select count(*) from (select a from u where u.c < t.a union select b from t x where x.a = t.a) q) y from t"
    ),
    "union all inside": "select t.a, (select sum(a) from (select a from u union all select b from t x where x.a = t.a) q) y from t",
    "except inside": "select a from t where a in (select a from u where u.c < t.b except select c from u where u.a <> t.a) or b = 1",
    "values inside": "select a, (select max(v) from (values (t.a), (t.b), (2)) x(v)) y from t",
    "groups inside": (
        "select a, exists (select max(c) from u where u.c < t.a) x, exists (select 1 from u where u.c < t.a having count(*) > 1) y from t"
    ),
    "sets of groups inside": (
        "select a, (select count(*) from (select u.s, count(*) from u where u.c < t.a group by rollup(u.s)) z) x from t"
    ),
    "distinct values inside": (
        "select a, (select count(distinct u.s) from u where u.c < t.a) x, (select sum(t.b + u.c) from u where u.c < t.a) y from t"
    ),
    "ordered inside": (
        "select a, (select string_agg(s, ',' order by s, c) from u where u.c < 2) n, exists (select 1 from u where u.c > t.a) y from t"
    ),
    "with": "with x as (select a, c from u where c is not null) select a, (select count(*) from x where x.c < t.a) n from t",
    "with inside": "select a, (with x as (select c from u where u.a < t.a) select count(*) + max(x.c) from x) n from t",
    "on of a left join": "select t.a, u.c from t left join u on t.a = u.a and exists (select 1 from t x where x.b < u.c and x.a >= t.b)",
    "on of a full join": "select t.a x, u.c y from t full join u on t.a = u.a and u.c < (select max(x.b) from t x where x.a <> t.b)",
    "aggregated": "select s, sum((select count(*) from u where u.a < t.a)) n from t group by s",
    "in FILTER": (
        "select s, count(*) filter (where exists (select 1 from u where u.c < t.a)) n, sum(a) filter (where b not in "
        "(select c from u where u.a <> t.a)) m from t group by s"
    ),
    "in an order": "select a, b from t order by (select count(*) from u where u.c < t.a), a, b, s, f, flag limit 4",
    "in a window": (
        "select a, row_number() over (partition by (select count(*) from u where u.c < t.a) order by a, b, s, f, flag) r from t"
    ),
    "several": (
        "select a, (select count(*) from u where u.c < t.a) x, (select count(*) from u where u.c < t.b) y, "
        "(select count(*) from u where u.c < t.a) z from t"
    ),
    "without FROM": "select (select count(*) from t) + (select count(*) from u) as n, exists (select 1 from u where c = 7) e",
    "null meets null": (
        "select a, (select count(*) from u where u.s = t.s) x, (select count(*) from u where u.s is not distinct from t.s) y from t "
        "where a = 1 or exists (select 1 from u where (u.s is not distinct from t.s) and u.c <> t.b)"
    ),
    "texts": "select s, (select max(u.s) from u where u.s < t.s) x, exists (select 1 from u where u.s ilike t.s) y from t",
    "moments": (
        "select day, (select max(day) from d y where y.day < x.day) p, (select count(*) from d y where y.ts between x.ts - interval "
        "'1 day' and x.ts) n, (select max(big) from d y where y.k <> x.k) z from d x"
    ),
    "names in quotes": 'select "x y"."a b" k, exists (select 1 from u where u.c < "x y"."a b") e from (select a as "a b" from t) "x y"',
    "in a recursion": (
        "with recursive r(a) as (select 1 union select a + 1 from r where a < 4 and exists (select 1 from u where u.c < r.a)) "
        "select r.a, (select count(*) from r y where y.a < r.a) n from r"
    ),
    "exists of an aggregate": "select a from t where exists (select count(*) from u where u.a = t.a)",
    "exists of no group": "select a from t where exists (select max(c) from u where u.a = t.a having count(*) = 0)",
    "in of a count": "select a from t where b - 1 in (select count(*) from u where u.a = t.a)",
    "not in of a count": "select a from t where b - 1 not in (select count(*) from u where u.a = t.a)",
    "exists beyond the first": "select a from t where exists (select c from u where u.a = t.a offset 1)",
    "in of a window": "select a from t where b in (select row_number() over (order by c) from u where u.a = t.a)",
    "exists over a left join": (
        "select a from t where exists (select 1 from u left join (select * from t w where w.a = t.a) v on v.a = u.a where v.b is null)"
    ),
    "one name in two tables": "select a, (select count(*) from u, t v where u.a = t.a and v.a = t.b) m from t",
    "value over a right join": (
        "select x.a, (select max(q.a) from (select y.a, y.b from t y where y.a = x.b) p right join t q on p.a = q.a) as v from t x"
    ),
    "all of an aggregate": (
        "select a, b from t where (cast(null as bigint) >= all (select max(c) from u where u.a = t.b)) or coalesce(a, 0) is null"
    ),
    "null is not in": "select a from t where null not in (select c from u)",
    "intersect all": "select a, s from t intersect all select a, s from u",
    "except all": "select a, s from t except all select a, s from u",
    "bags of bags": "select a from t except all select c from u intersect all select a from u",
    "bags one by one": "select a from t union all select b from t except all select c from u except all select a from u where a = 1",
    "bags of other types": "select b from t except all select c from u order by 1 limit 3",
    "bags inside": (
        "select a, (select count(*) from (select c from u except all select b from t x where x.s = t.s) q) n, (select sum(c) from "
        "(select c from u where u.a < t.a intersect all select b from t x) q) m from t"
    ),
}


@pytest.mark.parametrize("name", QUERIES)
def test_query(name: str) -> None:
    for seed in SEEDS:
        verify(QUERIES[name], tables(seed), seed, rows=(seed + len(name)) % 3 == 0)


@pytest.mark.parametrize("name", ["nested", "any and all", "bags inside", "in a window"])
def test_what_a_query_becomes_can_be_sent_to_replicas(name: str) -> None:
    flow = rd.Dataflow("sent")
    flow.sql(QUERIES[name], **{table: flow.collection(table, schema=one.schema) for table, one in tables(0).items()}).collect("out")
    for node in flow.graph.nodes:
        cloudpickle.loads(cloudpickle.dumps(node.op))


def _functions(query: str) -> int:
    return len(planned(query, {"t": T, "u": U, "d": D}).subqueries)


def test_datafusion_has_the_subqueries_of_which_it_makes_joins() -> None:
    assert _functions("select a from t where a in (select a from u) and exists (select 1 from u where u.a = t.a and u.c < t.b)") == 0
    assert _functions("select a, (select sum(c) from u where u.a = t.a) x from t where b > (select avg(c) from u)") == 0
    assert _functions("select a, (select max(c) from u where u.c < t.b) m from t where a in (select a from u)") == 1


TRUSTED = (
    "beyond the next",
    "on of a left join",
    "null is not in",
    "except inside",
    "exists of an aggregate",
    "in of a count",
    "exists beyond the first",
    "in of a window",
    "exists over a left join",
    "one name in two tables",
)


@pytest.mark.parametrize("name", TRUSTED)
def test_what_datafusion_makes_of_it_alone_is_wrong(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that the rules that refuse such plans may go when it is no longer so."""
    for rule in ("is_in_a_join", "is_pulled_too_far", "looks_beyond", "confuses_tables", "require_not_in", "require_columns"):
        monkeypatch.setattr(whole, rule, lambda *given: False)
    with pytest.raises((AssertionError, rd.DataflowError)):
        _verify_all(QUERIES[name])


def _verify_all(query: str) -> None:
    for seed in range(8):
        verify(query, tables(seed), seed)


def test_names_in_the_text_of_a_plan() -> None:
    def written(query: str) -> str:
        return str(planned(query, {"t": T, "u": U, "d": D}).written.display_indent())

    near = "select a from t where a in (select a from u where c in (select c from u y where y.a < u.a))"
    assert not looks_beyond(written(near))
    told = """Filter: EXISTS (<subquery>)
      Subquery:
        Filter: EXISTS (<subquery>)
          Subquery:
            Filter: y.a < outer_ref(t.a)
              SubqueryAlias: y
                TableScan: t
          SubqueryAlias: x
            TableScan: t
      TableScan: t"""
    assert looks_beyond(told)
    assert not looks_beyond(told.replace("SubqueryAlias: x", "SubqueryAlias: t"))
    assert confuses_tables(told)
    assert not confuses_tables(told.replace("outer_ref(t.a)", "outer_ref(x.a)"))
    assert is_in_a_join("Inner Join:  Filter: EXISTS (<subquery>)")
    assert not is_in_a_join("Filter: EXISTS (<subquery>)\n  Inner Join: a = b")


def test_a_subquery_that_is_there_twice_is_computed_once() -> None:
    one = "(select count(*) from u where u.c < t.a)"
    assert _functions(f"select {one} as x, {one} + 1 as y from t where {one} > 0") == 1
    flow = rd.Dataflow("once")
    made = {"t": flow.collection("t", schema=T), "u": flow.collection("u", schema=U)}
    flow.sql(f"select {one} as x, {one} + 1 as y from t", **made)
    assert sum(node.name.startswith("aggregate") for node in flow.graph.nodes) == 1


def test_an_equality_is_the_key_of_the_join_with_the_values_around() -> None:
    flow = rd.Dataflow("keys")
    made = {"t": flow.collection("t", schema=T), "u": flow.collection("u", schema=U)}
    flow.sql("select a, exists (select 1 from u where u.a = t.a and u.c < t.b) e from t", **made).collect("e")
    keyed = [element.key for node in flow.graph.nodes for element in getattr(node.op, "elements", ()) if getattr(element, "key", None)]
    assert all(key.columns for key in keyed), "rows are joined on no key, in one replica"


def test_a_subquery_for_one_value_that_gives_more_ends_the_job() -> None:
    flow = rd.Dataflow("several")
    t = flow.from_arrow(pa.table({"a": [1, 2, 3]})).as_collection()
    flow.sql("select a, (select x.a from t x where x.a > t.a) n from t", t=t).collect("out")
    with pytest.raises(rd.DataflowError, match="a subquery that stands for one value gives 2 rows"):
        flow.run(runtime="local")


def test_a_value_that_is_there_twice_is_more_than_one() -> None:
    flow = rd.Dataflow("twice")
    t = flow.from_arrow(pa.table({"a": [1, 2, 2]})).as_collection()
    flow.sql("select a, (select x.a from t x where x.a > t.a) n from t", t=t).collect("out")
    with pytest.raises(rd.DataflowError, match="a subquery that stands for one value gives 2 rows"):
        flow.run(runtime="local")
