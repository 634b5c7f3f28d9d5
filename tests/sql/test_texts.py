"""The text of a query: where the queries in it are, and what it says in other words."""

from __future__ import annotations

import pyarrow as pa
import pytest

import rayad as rd
from rayad.sql.planning.rewording import with_bags, with_names
from rayad.sql.planning.scanning import Query, Role, Scanned


def _told(scanned: Scanned, query: Query) -> tuple[str, str]:
    start, end = query.span if query.is_value else (query.start, query.end)
    return query.role.name, scanned.text[scanned.tokens[start].start : scanned.tokens[end - 1].end]


def _queries(text: str) -> list[tuple[str, str]]:
    scanned = Scanned(text)
    return [_told(scanned, query) for query in scanned.queries()]


STRUCTURES = {
    "select (select 1) from t": [("VALUE", "(select 1)")],
    "select sum((select 1)) from t": [("VALUE", "(select 1)")],
    "select a from (select a from t) x": [("TABLE", "select a from t")],
    "select a from t join (u join (select 1) z on f((select 2), 1) = 1) on true": [("TABLE", "select 1"), ("VALUE", "(select 2)")],
    "select a from t, lateral (select 1) x": [("TABLE", "select 1")],
    "select a from t where a + 1 not in (select b from u) and b = 1": [("IN", "a + 1 not in (select b from u)")],
    "select a from t where a in (1, (select 2))": [("VALUE", "(select 2)")],
    "select a from t where a in ((select 1) union (select 2))": [
        ("IN", "a in ((select 1) union (select 2))"),
        ("OPERAND", "select 1"),
        ("OPERAND", "select 2"),
    ],
    "select case when a then b end in (select 1) from t": [("IN", "case when a then b end in (select 1)")],
    "select case when a in (select 1) then 2 end from t": [("IN", "a in (select 1)")],
    "select f(a, b) < all (select 1), c from t": [("ANY", "f(a, b) < all (select 1)")],
    "select a from t where not exists (select 1) or b": [("EXISTS", "exists (select 1)")],
    "with x as (select 1), y(a, b) as (select 2) select (select 3)": [
        ("BODY", "select 1"),
        ("BODY", "select 2"),
        ("VALUE", "(select 3)"),
    ],
    "select '(select 1)', \"(select 2)\" -- (select 3)\n from t /* (select 4) */": [],
    "select extract(year from a) from t where a is distinct from (select 1)": [("VALUE", "(select 1)")],
    "select count(*) filter (where a in (select 1)) over (order by b) from t": [("IN", "a in (select 1)")],
    "values (1, (select 2))": [("VALUE", "(select 2)")],
    "select a from t union all select (select 1) order by 1": [("VALUE", "(select 1)")],
}


@pytest.mark.parametrize("text", STRUCTURES)
def test_structure(text: str) -> None:
    assert _queries(text) == STRUCTURES[text]


def test_clauses_of_a_select() -> None:
    scanned = Scanned("select distinct a from t where a is not distinct from 1 group by a having count(*) > 1 order by a limit 1")
    (core,) = scanned.whole.cores
    words = {name: " ".join(token.text.lower() for token in scanned.tokens[slice(*place)]) for name, place in core.clauses.items()}
    assert words == {
        "SELECT": "distinct a",
        "FROM": "t",
        "WHERE": "a is not distinct from 1",
        "GROUP": "by a",
        "HAVING": "count ( * ) > 1",
        "ORDER": "by a",
        "LIMIT": "1",
    }
    assert scanned.whole.cores[0].query.role is Role.WHOLE


@pytest.mark.parametrize("text", ["select (a from t", "select a) from t", "with x select a"])
def test_what_cannot_be_read(text: str) -> None:
    with pytest.raises(ValueError, match=r"parenthes|AS"):
        Scanned(text)


def test_the_right_side_of_bags() -> None:
    def told(text: str) -> str:
        return " ".join(with_bags(Scanned(text)).replace("__rayad_bag", "B").split())

    assert told("select 1 except all select 2 order by 1") == "select 1 except all (select * from ( select 2) as B) order by 1"
    assert told("select 1 except all select 2 intersect all select 3 union select 4") == (
        "select 1 except all (select * from ( select 2 intersect all (select * from ( select 3) as B) ) as B) union select 4"
    )
    assert told("select 1 except select 2 union all select 3") == "select 1 except select 2 union all select 3"


NAMES = {
    "select a, a from t": 'select a, a as "a_1" from t',
    "select a, b as a, c a_1 from t": 'select a, b as "a_2" , c a_1 from t',
    "select t.a, count(*), A, count( * ) from t": 'select t.a, count(*), A as "a_1" , count( * ) from t',
    "select 1 x, 2 x union select 3, 3": 'select 1 x, 2 as "x_1" union select 3, 3 as "3_1"',
    "select *, a from t": 'select *, a as "a_1" from t',
    "select distinct on (a, b) a, a from t": 'select distinct on (a, b) a, a as "a_1" from t',
    "select a, + a, (+ (a)), - a, - a from t": 'select a, + a as "a_1" , (+ (a)) as "a_2" , - a, - a as "- a_1" from t',
    "select a is null, a is null, not b x, c from t": 'select a is null, a is null as "a is null_1" , not b x, c from t',
    "select (select 1), (select 2)": 'select (select 1), (select 2) as "subquery_1"',
    "select a from (select b, b from t)": "select a from (select b, b from t)",
}


@pytest.mark.parametrize("text", NAMES)
def test_columns_of_one_name(text: str) -> None:
    assert " ".join(with_names(Scanned(text)).split()) == NAMES[text]


COLUMNS = {
    "select a, a from t": ["a", "a_1"],
    "select a, b as a, a as a_1, a from t": ["a", "a_2", "a_1", "a_3"],
    "select x.a, y.a from t x join t y on x.a = y.b": ["a", "a_1"],
    "select * from t x join t y on x.a = y.b": ["a", "b", "a_1", "b_1"],
    "select *, a from t": ["a", "b", "a_1"],
    "select count(*), count(*) from t": ["count(*)", "count(*)_1"],
    "select a as x, (select count(*) from t y where y.a < t.a) as x from t": ["x", "x_1"],
}


@pytest.mark.parametrize("query", COLUMNS)
def test_a_result_has_each_name_once(query: str) -> None:
    flow = rd.Dataflow("names")
    t = flow.from_arrow(pa.table({"a": [1], "b": [2]})).as_collection()
    made = flow.sql(query, t=t)
    assert made.schema is not None
    assert made.schema.names == COLUMNS[query]
    made.collect("out")
    assert all(list(record) == COLUMNS[query] for _, (record, _) in flow.run(runtime="local")["out"])
