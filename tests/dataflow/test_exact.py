"""Values become columns, and columns become columns of other types, exactly; or the conversion is refused."""

from __future__ import annotations

import datetime as dt
import decimal
import enum
import math
import uuid
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import rayad as rd
from rayad.dataflow.records.batches import one_array, one_or_more, to_record_batch, to_rows
from rayad.dataflow.records.exact import Inexact, array_of, cast_exactly, wider_type
from rayad.dataflow.records.output_form import OutputForm
from rayad.dataflow.windows import Window
from tests.thorough import examples

UTC = dt.UTC
DAY, NOON = dt.date(2020, 1, 1), dt.datetime(2020, 1, 1, 12)


class Level(enum.Enum):
    LOW = 1


class Number(enum.IntEnum):
    ONE = 1


REFUSED: list[tuple[list[Any], pa.DataType | None, str]] = [
    ([1.5], pa.int64(), "column 'a' cannot hold 1.5, a float, as int64: it would become 1"),
    ([-0.0], pa.int64(), "column 'a' cannot hold -0.0, a float, as int64: it would become 0"),
    ([Decimal("1.5")], pa.int64(), "column 'a' cannot hold Decimal('1.5'), a Decimal, as int64: it would become 1"),
    ([0.1], pa.float32(), "column 'a' cannot hold 0.1, a float, as float: it would become 0.10000000149011612"),
    ([NOON], pa.date32(), "column 'a' cannot hold datetime.datetime(2020, 1, 1, 12, 0), a datetime, as date32[day]: it would become "
     "datetime.date(2020, 1, 1)"),
    ([{"x": 1, "y": 2}], pa.struct([("x", pa.int64())]), "column 'a' cannot hold {'x': 1, 'y': 2}, a dict, as struct<x: int64>: it "
     "would become {'x': 1}"),
    ([[{"x": [1.5]}]], pa.list_(pa.struct([("x", pa.list_(pa.int64()))])), "column 'a' cannot hold [{'x': [1.5]}], a list, as "
     "list<item: struct<x: list<item: int64>>>: it would become [{'x': [1]}]"),
    ([5], pa.date32(), "column 'a' cannot hold 5, an int, as date32[day]: it would become datetime.date(1970, 1, 6)"),
    ([b"a"], pa.string(), "column 'a' cannot hold b'a', a bytes, as string: it would become 'a'"),
    (["a", b"b"], None, "column 'a' cannot hold 'a', a str, as binary: it would become b'a'"),
    ([1, "x"], None, "column 'a' holds int and str, which have no type in common: Could not convert 'x' with type str: tried to convert "
     "to int64"),
    ([2**64], None, "column 'a' cannot hold 18446744073709551616, an int, as any type of column: Python int too large to convert to C "
     "unsigned long"),
]  # fmt: skip


@pytest.mark.parametrize(("values", "kind", "message"), REFUSED, ids=str)
def test_values_that_a_type_cannot_hold_are_refused_with_value_and_types(values: list[Any], kind: pa.DataType | None, message: str) -> None:
    with pytest.raises(Inexact) as caught:
        array_of(values, kind, "a")
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([NOON, NOON.replace(tzinfo=UTC)], None),
        ([NOON], pa.timestamp("us", "UTC")),
        ([NOON.replace(tzinfo=UTC)], pa.timestamp("us")),
        ([NOON.replace(microsecond=1)], pa.timestamp("ms")),
        ([dt.timedelta(microseconds=1)], pa.duration("ms")),
        ([dt.time(5, tzinfo=UTC)], None),
        ([np.datetime64("2020-01-01T00:00:00.000000001")], pa.timestamp("us")),
        ([pd.Timestamp("2020-01-01T00:00:00.000000001")], pa.timestamp("us")),
        ([Decimal("NaN")], None),
        ([2**53 + 1, 0.5], None),
        ([1, True], None),
        ([Level.LOW], None),
        ([2**63, -1], None),
        ([frozenset([1])], None),
        ([1 + 2j], None),
    ],
    ids=str,
)
def test_other_values_without_an_exact_column_are_refused(values: list[Any], kind: pa.DataType | None) -> None:
    with pytest.raises(Inexact):
        array_of(values, kind)


def infers_uuids() -> bool:
    """Whether this version of Arrow makes columns of UUIDs; with earlier ones they stay in rows."""
    try:
        pa.array([uuid.UUID(int=1)])
    except pa.ArrowInvalid:
        return False
    return True


@pytest.mark.parametrize(
    ("values", "back"),
    [
        ([2**63, None, 0], None),
        ([1, 1.5], [1.0, 1.5]),
        ([1, Decimal("1.5")], [Decimal(1), Decimal("1.5")]),
        ([Decimal("1E+40")], None),
        ([DAY, NOON, None], [dt.datetime(2020, 1, 1), NOON, None]),
        ([NOON.replace(tzinfo=UTC)], None),
        ([(1, 2), [3]], [[1, 2], [3]]),
        ([{"x": 1}, {"y": [None]}], [{"x": 1, "y": None}, {"x": None, "y": [None]}]),
        ([Number.ONE], [1]),
        ([np.int8(1), np.float32(0.5)], [1.0, 0.5]),
        ([np.array([1, 2])], [[1, 2]]),
        ([bytearray(b"a")], [b"a"]),
        pytest.param([uuid.UUID(int=1)], None, marks=pytest.mark.skipif(not infers_uuids(), reason="an Arrow that has no type for UUIDs")),
        ([None, None], None),
        ([Window(0, 10), None], None),
    ],
    ids=str,
)
def test_values_that_columns_can_hold_come_back(values: list[Any], back: list[Any] | None) -> None:
    array = array_of(values)
    assert array.to_pylist() == (values if back is None else back)


def test_nan_and_the_sign_of_zero_stay() -> None:
    nan, zero = array_of([math.nan, -0.0]).to_pylist()
    assert math.isnan(nan)
    assert math.copysign(1, zero) == -1


leaves = st.one_of(
    st.none(), st.integers(-(2**70), 2**70), st.floats(), st.booleans(), st.text(max_size=2), st.binary(max_size=2), st.dates(),
    st.datetimes(), st.datetimes(timezones=st.just(UTC)), st.timedeltas(), st.times(), st.decimals(),
)  # fmt: skip
values_of_records = st.recursive(leaves, lambda v: st.lists(v, max_size=2) | st.dictionaries(st.sampled_from("xy"), v, max_size=2))
kinds = st.sampled_from([
    None, pa.int8(), pa.uint64(),
    pa.int64(), pa.float32(), pa.float64(), pa.decimal128(5, 2), pa.string(), pa.binary(), pa.bool_(), pa.date32(),
    pa.timestamp("s"), pa.timestamp("us"), pa.timestamp("us", "UTC"), pa.duration("ms"), pa.time32("s"), pa.list_(pa.int64()),
    pa.struct([("x", pa.int64())]),
])  # fmt: skip


def alike(value: Any, back: Any) -> bool:
    """Python's equality, but NaN equals NaN, a missing field of a struct is null, a date equals its midnight, and a bool is no number."""
    if isinstance(value, float) and value != value:
        return bool(back != back)
    if isinstance(value, dict):
        return isinstance(back, dict) and set(value) <= set(back) and all(alike(value.get(k), v) for k, v in back.items())
    if isinstance(value, list):
        return isinstance(back, list) and len(value) == len(back) and all(map(alike, value, back))
    if type(value) is dt.date and isinstance(back, dt.datetime):
        return back == dt.datetime.combine(value, dt.time())
    return bool(value == back) and isinstance(value, bool) is isinstance(back, bool)


@examples(each_run=40, soak=100)
@given(st.lists(values_of_records, max_size=4), kinds)
def test_any_values_are_held_as_they_are_or_refused(values: list[Any], kind: pa.DataType | None) -> None:
    try:
        array = array_of(values, kind)
    except Inexact:
        return
    assert all(map(alike, values, array.to_pylist())), (values, array)


@pytest.mark.parametrize(
    ("column", "kind"),
    [
        (pa.array([0.1]), pa.float32()),
        (pa.array([-0.0]), pa.int64()),
        (pa.array([math.nan]), pa.int64()),
        (pa.array([NOON]), pa.date32()),
        (pa.array([NOON]), pa.timestamp("us", "UTC")),
        (pa.array([NOON.replace(tzinfo=UTC)]), pa.timestamp("us")),
        (pa.array([{"x": 1, "y": 2}]), pa.struct([("x", pa.int64())])),
        (pa.array(["007"]), pa.int64()),
        (pa.array([Decimal("1.55")]), pa.decimal128(5, 1)),
        (pa.array([2**53 + 1]), pa.float64()),
        (pa.array([[0.1]]), pa.list_(pa.float32())),
        (pa.array([1001], pa.timestamp("ns")), pa.timestamp("us")),
        (pa.array([2**63], pa.uint64()), pa.int64()),
    ],
    ids=str,
)
def test_a_cast_that_would_lose_something_is_refused(column: pa.Array, kind: pa.DataType) -> None:
    with pytest.raises(Inexact, match="column 'a' of type"):
        cast_exactly(column, kind, "a")


@pytest.mark.parametrize(
    ("column", "kind"),
    [
        (pa.array([0.5, None, math.nan, -0.0]), pa.float32()),
        (pa.array([1, None]), pa.float64()),
        (pa.array([1, None]), pa.decimal128(38, 2)),
        (pa.array([[1], None]), pa.list_(pa.float64())),
        (pa.array(["a", None]).dictionary_encode(), pa.string()),
        (pa.array([None]), pa.struct([("x", pa.int64())])),
        (pa.array([{"x": 1}]), pa.struct([("x", pa.int64()), ("y", pa.int64())])),
        (pa.array([DAY]), pa.timestamp("us")),
        (pa.array(["a"]), pa.large_string()),
    ],
    ids=str,
)
def test_a_cast_that_loses_nothing_is_done(column: pa.Array, kind: pa.DataType) -> None:
    out = cast_exactly(column, kind)
    assert out.type == kind
    assert all(map(alike, column.to_pylist(), out.to_pylist()))


@pytest.mark.parametrize(
    ("left", "right", "wide"),
    [
        (pa.null(), pa.int8(), pa.int8()),
        (pa.int32(), pa.int64(), pa.int64()),
        (pa.int64(), pa.float32(), pa.float64()),
        (pa.int64(), pa.decimal128(3, 1), pa.decimal128(20, 1)),
        (pa.decimal128(3, 1), pa.decimal128(6, 3), pa.decimal128(6, 3)),
        (pa.decimal128(38, 0), pa.decimal128(38, 10), pa.decimal256(48, 10)),
        (pa.date32(), pa.timestamp("us"), pa.timestamp("us")),
        (pa.list_(pa.null()), pa.list_(pa.int64()), pa.list_(pa.int64())),
        (pa.struct([("x", pa.int64())]), pa.struct([("y", pa.int64())]), pa.struct([("x", pa.int64()), ("y", pa.int64())])),
        (pa.string(), pa.binary(), None),
        (pa.int64(), pa.string(), None),
        (pa.bool_(), pa.int64(), None),
        (pa.decimal128(3, 1), pa.float64(), None),
        (pa.timestamp("us"), pa.timestamp("us", "UTC"), None),
    ],
    ids=str,
)
def test_the_common_type_of_two_columns(left: pa.DataType, right: pa.DataType, wide: pa.DataType | None) -> None:
    assert wider_type(left, right) == wider_type(right, left) == wide or (wide is not None and pa.types.is_struct(wide))
    assert wider_type(left, right) == wide


def test_a_column_with_values_that_python_cannot_hold_is_refused() -> None:
    for column in (pa.array([1001], pa.time64("ns")), pa.array([5], pa.int64()).view(pa.date64())):
        with pytest.raises(Inexact, match="column 'a' of type"):
            to_rows(pa.record_batch({"a": column}))
        with pytest.raises(Inexact, match=r"column 'a\[\]' of type"):
            to_rows(pa.record_batch({"a": pa.ListArray.from_arrays(pa.array([0, 1], pa.int32()), column)}))
    assert to_rows(pa.record_batch({"a": pa.array([1000], pa.time64("ns"))})) == [{"a": dt.time(0, 0, 0, 1)}]


def test_a_form_does_not_depend_on_how_records_were_cut() -> None:
    rows = [{"a": None}, {"a": 1}, {"a": 1.5, "b": [1]}, {"a": 2, "b": [None, Decimal("0.5")]}]
    whole = to_record_batch(rows)
    form = OutputForm(None, "here")
    parts = [form.fit([row]) for row in rows]
    assert [r for part in parts for r in form.again(part).to_pylist()] == whole.to_pylist()
    form.settle()
    with pytest.raises(rd.DataflowError) as caught:
        form.fit([{"a": "x"}])
    assert str(caught.value).startswith("here: 1 records do not fit the schema ")
    assert str(caught.value).endswith(
        "column 'a' cannot hold 'x', a str, as double: Could not convert 'x' with type str: tried to convert to double; first record: "
        "{'a': 'x'}; convert them with map() before this step, or give a schema that holds them; the types are those of earlier records: "
        "give schema="
    )


def test_keyed_rows_take_the_columns_of_keyed_columns() -> None:
    flow = rd.Dataflow()
    columns = flow.from_items(pa.table({"a": ["x"], "b": [1], "v": [2]})).key_by(["a", "b"]).aggregate({"n": "count", "s": ("sum", "v")})
    rows = flow.from_items([{"a": "y", "b": 2, "v": 3}]).key_by(["a", "b"]).aggregate({"n": "count", "s": ("sum", "v")})
    columns.union(rows).collect("out", columnar=True)
    table = flow.run(runtime="local")["out"]
    assert sorted(to_rows(table)) == [(("x", 1), {"n": 1, "s": 2}), (("y", 2), {"n": 1, "s": 3})]


class TwoGiB:
    """Stands for a table whose string column is more than one array can hold: Arrow combines it into several chunks."""

    def __init__(self) -> None:
        self.whole = pa.table({"s": pa.chunked_array([["a"], ["b"]])})
        self.columns = self.whole.columns

    def combine_chunks(self) -> pa.Table:
        return self.whole


class TooLong:
    """Stands for a string column of more than 2 GiB, on whose chunks ``concat_arrays`` raises."""

    num_chunks, type = 2, pa.string()
    chunks = ("not", "arrays")

    def cast(self, kind: pa.DataType) -> pa.ChunkedArray:
        return pa.chunked_array([["a"], ["b"]], kind)


def test_nothing_beyond_two_gib_of_strings_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    assert [batch.to_pydict() for batch in one_or_more(TwoGiB())] == [{"s": ["a"]}, {"s": ["b"]}]
    concat = pa.concat_arrays

    def bounded(chunks: Any) -> pa.Array:
        if chunks == TooLong.chunks:
            raise pa.ArrowInvalid("offset overflow while concatenating arrays")
        return concat(chunks)

    monkeypatch.setattr(pa, "concat_arrays", bounded)
    assert one_array(TooLong()) == pa.array(["a", "b"], pa.large_string())
    monkeypatch.setattr("rayad.dataflow.operators.map_batches.one_or_more", pa.Table.to_batches)
    monkeypatch.setattr("rayad.dataflow.items.one_or_more", pa.Table.to_batches)
    flow = rd.Dataflow()
    table = pa.table({"s": pa.chunked_array([["a"], ["b"]])})
    flow.from_items(table).map_batches(lambda batch: pa.concat_tables([pa.Table.from_batches([batch])] * 2)).collect("out")
    assert [row["s"] for _, row in flow.run(runtime="local")["out"]] == ["a", "a", "b", "b"]


def test_two_columns_with_one_name_are_refused_where_they_enter() -> None:
    table = pa.table([[1], [2]], names=["a", "a"])
    says = "has 2 columns 'a' of ['a', 'a']: names must differ, rename them"
    with pytest.raises(rd.DataflowError) as caught:
        rd.Dataflow().from_items(table)
    assert str(caught.value) == f"items {says}"
    with pytest.raises(rd.DataflowError) as caught:
        rd.Dataflow().from_arrow(table)
    assert str(caught.value) == f"from_arrow {says}"

    class Sends(rd.Vertex):
        def on_recv(self, edge: int, batch: Any, time: rd.Timestamp) -> None:
            self.send_by(0, table.to_batches()[0], time)

    for build in (lambda s: s.map_batches(lambda batch: table), lambda s: s.vertex(Sends)):
        flow = rd.Dataflow()
        build(flow.from_items([1])).collect()
        with pytest.raises(rd.DataflowError, match="names must differ, rename them"):
            flow.run(runtime="local")


def test_decimal_context_does_not_matter() -> None:
    with decimal.localcontext(prec=3):
        assert array_of([Decimal("1.23456789"), 1]).to_pylist() == [Decimal("1.23456789"), Decimal(1)]
