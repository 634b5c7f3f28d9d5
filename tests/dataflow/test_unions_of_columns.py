"""Unions of streams whose columns have unlike names: refused at the user's line, or filled with null where that is asked for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

import rayad as rd
from tests.every_type.arrays import COLUMNS
from tests.thorough import examples

HERE = r"test_unions_of_columns\.py:\d+"
ORDERS = pa.table({"user": ["a", "b"], "price": pa.array([3, 5], pa.int32())})
CLICKS = pa.table({"page": ["x"], "user": ["a"], "price": pa.array([7], pa.int64())})


def streams(flow: rd.Dataflow) -> tuple[rd.Stream, rd.Stream]:
    return flow.from_arrow(ORDERS, name="orders"), flow.from_arrow(CLICKS, name="clicks")


def test_unlike_names_are_refused_and_nothing_is_added() -> None:
    orders, clicks = streams(rd.Dataflow())
    with pytest.raises(
        rd.DataflowError,
        match=rf"^union at {HERE}: columns have unlike names, \['page'\] only in 'clicks': give allow_missing_columns=True for null "
        "where a stream has no such column, or bring them to the same names by select or rename$",
    ):
        orders.union(clicks)
    with pytest.raises(rd.DataflowError, match=r"unlike names, \['sum'\] only in 'rename' and \['price'\] only in 'orders-2'"):
        orders.rename({"price": "sum"}).union(orders.flow.from_arrow(ORDERS, name="orders-2"))
    assert len(orders.flow.graph.nodes) == 4


FORMS: dict[str, Callable[[rd.Stream], rd.Stream]] = {
    "columns": lambda s: s,
    "rows": lambda s: s.filter(lambda row: True),  # the columns are known, the records are dicts
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("other", FORMS)
def test_missing_columns_are_null(form: str, other: str) -> None:
    flow = rd.Dataflow()
    orders, clicks = streams(flow)
    both = FORMS[form](orders).union(FORMS[other](clicks), allow_missing_columns=True)
    assert both.schema == pa.schema({"user": pa.string(), "price": pa.int64(), "page": pa.string()})
    both.collect("out")
    both.map(list).collect("names")
    both.filter(pc.is_null(pc.field("page"))).key_by("user").sum("price").collect("sums")
    result = flow.run(runtime="local")
    assert sorted((record for _, record in result["out"]), key=str) == [
        {"user": "a", "price": 3, "page": None},
        {"user": "a", "price": 7, "page": "x"},
        {"user": "b", "price": 5, "page": None},
    ]
    assert {tuple(names) for _, names in result["names"]} == {("user", "price", "page")}
    assert sorted(record for _, record in result["sums"]) == [("a", 3), ("b", 5)]


@pytest.mark.parametrize("kind", COLUMNS)
def test_every_type_can_be_missing(kind: str) -> None:
    column = COLUMNS[kind]
    flow = rd.Dataflow()
    whole = flow.from_arrow(pa.table({"k": pa.array(range(len(column))), "v": column}))
    nothing = flow.from_arrow(pa.table({"k": [-1]}))
    both = nothing.union(whole, allow_missing_columns=True)
    assert both.schema is not None
    assert both.schema.field("v").type == column.type
    both.filter(pc.field("k") < 0).select("k").collect("k")
    both.map_batches(lambda batch: [batch.column("v").to_pylist() if batch.num_rows == 1 else None]).collect("seen")
    result = flow.run(runtime="local")
    assert [record for _, record in result["k"]] == [{"k": -1}]
    assert [None] in [record for _, record in result["seen"]]


def test_three_streams_keep_their_event_times() -> None:
    flow = rd.Dataflow()
    tables = {"a": pa.table({"t": [1]}), "b": pa.table({"t": [7], "v": [1]}), "c": pa.table({"w": [2.5], "t": [8]})}
    first, *rest = (flow.from_arrow(table, name=name).assign_timestamps("t") for name, table in tables.items())
    both = first.union(*rest, allow_missing_columns=True)
    both.window(rd.windows.tumbling(5)).aggregate({"v": ("sum", "v"), "w": ("max", "w"), "n": "count"}).collect("out")
    assert sorted((record for _, record in flow.run(runtime="local")["out"]), key=str) == [
        (rd.Window(0, 5), {"v": None, "w": None, "n": 1}),
        (rd.Window(5, 10), {"v": 1, "w": 2.5, "n": 2}),
    ]


def test_what_cannot_be_filled_is_refused() -> None:
    orders, clicks = streams(rd.Dataflow())
    start = rf"^union\(allow_missing_columns=True\) at {HERE}: "
    with pytest.raises(rd.DataflowError, match=rf"{start}the columns of 'map' are not known; give schema= to the function before it$"):
        orders.union(clicks.map(lambda row: row), allow_missing_columns=True)
    with pytest.raises(rd.DataflowError, match=rf"{start}the columns of 'sum' are of tuples; call as_columns\(\) on it$"):
        orders.union(clicks.key_by("user").sum("price"), allow_missing_columns=True)
    with pytest.raises(rd.DataflowError, match="the column 'price' is int32 in 'orders' and string in 'text': no type holds"):
        orders.union(orders.flow.from_arrow(pa.table({"price": ["x"]}), name="text"), allow_missing_columns=True)
    with pytest.raises(rd.DataflowError, match="union: allow_missing_columns is 1"):
        orders.union(clicks, allow_missing_columns=1)  # type: ignore[arg-type]


def test_tuples_of_keyed_operators_have_no_names_and_meet_as_they_are() -> None:
    flow = rd.Dataflow()
    orders, clicks = streams(flow)
    both = orders.key_by("user").sum("price").union(clicks.key_by("page").count())
    assert both.schema is None
    both.collect("out")
    assert sorted(record for _, record in flow.run(runtime="local")["out"]) == [("a", 3), ("b", 5), ("x", 1)]


ROWS = st.lists(st.fixed_dictionaries({}, optional={name: st.integers(0, 9) | st.none() for name in "abc"}), max_size=5)


@examples(each_run=10, soak=30)
@given(sides=st.lists(st.tuples(st.sets(st.sampled_from("abc"), min_size=1), ROWS), min_size=2, max_size=3), seed=st.integers(0, 9))
def test_as_arrow_unifies_tables(sides: list[tuple[set[str], list[dict[str, Any]]]], seed: int) -> None:
    tables = [pa.Table.from_pylist(rows, schema=pa.schema({name: pa.int64() for name in sorted(names)})) for names, rows in sides]
    flow = rd.Dataflow()
    first, *rest = map(flow.from_arrow, tables)
    first.union(*rest, allow_missing_columns=True).collect("out")
    wanted = pa.concat_tables(tables, promote_options="default").to_pylist()
    assert sorted((record for _, record in flow.run(runtime="local", seed=seed)["out"]), key=str) == sorted(wanted, key=str)
