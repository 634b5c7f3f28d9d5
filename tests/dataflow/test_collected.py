"""What collect() gives: a list of (Timestamp, record) as it always was, and a table without a tuple for each record."""

from __future__ import annotations

import pickle
import random
from collections.abc import Callable
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import rayad as rd
from rayad.dataflow.collected import Collected, TimedBatches
from rayad.dataflow.operators.results import window_array
from rayad.dataflow.records.batches import mark_keyed
from tests.every_type import arrays

T0, T1 = rd.Timestamp(0), rd.Timestamp(1)


NOT_IN_POLARS = {
    "bool8", "decimal256(76, 20)", "dense_union", "json", "large_list_view", "list_view", "map", "month_day_nano_interval",
    "run_end_encoded", "sparse_union", "uuid",
}  # fmt: skip


def collected() -> Collected:
    """Columns, keyed columns and rows, in two epochs."""
    return Collected(
        [
            (T0, pa.record_batch({"a": [1, 2]})),
            (T0, mark_keyed(pa.record_batch({"k": ["x"], "n": [3]}), 1)),
            (T1, [{"a": 4}, ("y", 5), 6]),
        ]
    )


PAIRS = [(T0, {"a": 1}), (T0, {"a": 2}), (T0, ("x", 3)), (T1, {"a": 4}), (T1, ("y", 5)), (T1, 6)]


@pytest.mark.parametrize(
    "use",
    [
        len,
        list,
        repr,
        bool,
        lambda x: x[2],
        lambda x: x[-1],
        lambda x: x[1:4],
        lambda x: x[::-2],
        lambda x: [*reversed(x)],
        lambda x: sorted(x, key=repr),
        lambda x: (T1, 6) in x,
        lambda x: x.index((T1, 6)),
        lambda x: x.count((T1, 6)),
        lambda x: x + [1],  # noqa: RUF005
        lambda x: [1] + x,  # noqa: RUF005
        lambda x: x * 2,
        lambda x: 2 * x,
        lambda x: x.copy(),
        lambda x: {repr(record): time for time, record in x},
        lambda x: x < [(T1, 0)],
        lambda x: x >= [(T1, 0)],
        lambda x: random.Random(7).choice(x),
    ],
)
def test_it_does_what_a_list_does(use: Callable[[Any], Any]) -> None:
    assert use(collected()) == use(list(PAIRS))


@pytest.mark.parametrize(
    "change",
    [
        lambda x: x.append((T1, 7)),
        lambda x: x.insert(0, (T0, 0)),
        lambda x: x.extend([(T1, 7), (T1, 8)]),
        lambda x: x.sort(key=repr, reverse=True),
        lambda x: x.reverse(),
        lambda x: x.pop(),
        lambda x: x.__setitem__(0, (T0, "new")),
        lambda x: x.__delitem__(slice(0, 3)),
        lambda x: x.clear(),
    ],
)
def test_it_changes_as_a_list_does_and_stays_changed_when_it_is_pickled(change: Callable[[Any], Any]) -> None:
    ours, plain = collected(), list(PAIRS)
    assert change(ours) == change(plain)
    assert ours == plain
    assert plain == ours
    assert pickle.loads(pickle.dumps(ours)) == plain


def test_it_equals_lists_and_itself_and_has_no_hash() -> None:
    assert collected() == PAIRS
    assert collected() == PAIRS
    assert collected() == collected()
    assert collected() != PAIRS[1:]
    assert collected() != tuple(PAIRS)
    with pytest.raises(TypeError, match="unhashable"):
        hash(collected())
    with pytest.raises(TypeError):
        assert collected() < 5


def test_the_first_pairs_are_made_without_the_others() -> None:
    class Untouched(list[Any]):
        def __iter__(self) -> Any:
            raise AssertionError("these records were not asked for")

    found = Collected([(T0, pa.record_batch({"a": [1, 2]})), (T1, Untouched([3]))])
    assert found.first(2) == PAIRS[:2]
    assert collected().first(100) == PAIRS


def test_a_record_that_was_looked_at_stays_the_same_object() -> None:
    found = collected()
    found[0][1]["a"] = "changed"
    assert found[0] == (T0, {"a": "changed"})


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_pickled_columns_stay_columns_and_rows_that_a_slice_leaves_out_do_not_travel(protocol: int) -> None:
    big = pa.record_batch({"a": range(100_000)})
    found = Collected([(T0, big.slice(10, 3)), (T0, [1]), (T1, big.slice(0, 1))])
    data = pickle.dumps(found, protocol)
    back = pickle.loads(data)
    assert len(data) < 5_000
    assert back == found
    assert back == [(T0, {"a": 10}), (T0, {"a": 11}), (T0, {"a": 12}), (T0, 1), (T1, {"a": 0})]


def test_columns_travel_outside_of_the_pickle_where_that_can_be() -> None:
    buffers: list[Any] = []
    found = TimedBatches([(T0, pa.record_batch({"a": range(10_000)})), (T1, pa.record_batch({"a": range(10_000)}))])
    data = pickle.dumps(found, 5, buffer_callback=buffers.append)
    assert len(data) < 1_000
    assert len(buffers) == 1, "one stream of Arrow's IPC for batches of one schema"
    assert list(pickle.loads(data, buffers=buffers)) == list(found)


def test_what_is_passed_on_is_neither_read_nor_written_again() -> None:
    """The coordinator gets what replicas have collected, chains it, and sends it to the driver."""
    batches = [(T0, pa.record_batch({"a": range(10_000)})), (T0, [7]), (T1, pa.record_batch({"a": [1]}))]
    buffers: list[Any] = []
    come = pickle.loads(pickle.dumps(TimedBatches(batches), 5, buffer_callback=buffers.append), buffers=buffers)
    chained = TimedBatches.chained([come, TimedBatches([(T1, [8])]), [(T1, [9])], come])
    sent: list[Any] = []
    data = pickle.dumps(chained, 5, buffer_callback=sent.append)
    places = [[pa.py_buffer(each.raw()).address for each in some] for some in (buffers, sent)]
    assert set(places[0]) <= set(places[1]), "the same memory, not a copy of it"
    assert list(pickle.loads(data, buffers=sent)) == [*batches, (T1, [8]), (T1, [9]), *batches]
    assert list(chained) == [*batches, (T1, [8]), (T1, [9]), *batches]
    chained.append(T1, [10])
    assert (len(chained), chained[-1], len(come)) == (9, (T1, [10]), 3)


def test_windows_and_types_that_nobody_has_registered_are_the_same_after_pickling() -> None:
    class Own(pa.ExtensionType):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__(pa.int64(), "tests.own")

        def __arrow_ext_serialize__(self) -> bytes:
            return b""

        @classmethod
        def __arrow_ext_deserialize__(cls, storage: pa.DataType, serialized: bytes) -> Any:
            return cls()

    globals()["Own"] = Own
    Own.__qualname__ = "Own"
    batch = pa.record_batch({"w": window_array(pa.array([0]), pa.array([10])), "o": pa.ExtensionArray.from_storage(Own(), pa.array([1]))})
    ((_, back),) = pickle.loads(pickle.dumps(TimedBatches([(T0, batch)])))
    assert back.schema == batch.schema
    assert back.column("w").to_pylist() == [rd.Window(0, 10)]


def test_tables_have_the_records_in_order_and_the_epoch_where_it_is_asked_for() -> None:
    found = Collected([(T0, pa.record_batch({"a": [1, 2]})), (T1, [{"a": 2.5}])])
    assert found.to_arrow().to_pydict() == {"a": [1.0, 2.0, 2.5]}
    assert found.to_arrow(epoch_column="e").to_pydict() == {"a": [1.0, 2.0, 2.5], "e": [0, 0, 1]}
    pd.testing.assert_frame_equal(found.to_pandas(epoch_column="e"), pd.DataFrame({"a": [1.0, 2.0, 2.5], "e": [0, 0, 1]}))
    assert found.to_polars(epoch_column="e").equals(pl.DataFrame({"a": [1.0, 2.0, 2.5], "e": [0, 0, 1]}))
    with pytest.raises(rd.DataflowError, match="epoch_column='a' is already a column of the records"):
        found.to_arrow(epoch_column="a")
    with pytest.raises(rd.DataflowError, match="dtype_backend is 'numpy'"):
        found.to_pandas(dtype_backend="numpy")  # type: ignore[arg-type]


def test_a_changed_list_is_the_table() -> None:
    found = Collected([(T0, pa.record_batch({"a": [1, 2]}))])
    found.append((T1, {"a": 3}))
    assert found.to_arrow(epoch_column="e").to_pydict() == {"a": [1, 2, 3], "e": [0, 0, 1]}


def test_records_that_no_column_holds_are_refused_by_column_and_value() -> None:
    with pytest.raises(rd.DataflowError, match=r"column 'a'.*'x'"):
        Collected([(T0, [{"a": 1}]), (T0, [{"a": "x"}])]).to_pandas()


def test_a_result_without_records_has_the_columns_that_the_program_tells() -> None:
    flow = rd.Dataflow("empty")
    flow.from_arrow(pa.table({"a": [1], "b": ["x"]})).filter(rd.col("a") > 1).collect("none")
    none = flow.run(runtime="local")["none"]
    assert none == []
    assert not none
    assert none.to_arrow().schema == pa.schema({"a": pa.int64(), "b": pa.string()})
    assert list(none.to_pandas().columns) == list(none.to_polars().columns) == ["a", "b"]
    assert Collected().to_pandas().empty


@pytest.mark.parametrize("kind", sorted(arrays.COLUMNS))
def test_every_type_is_in_a_frame_what_it_was_or_refused_by_name(kind: str) -> None:
    """pandas holds all; of Polars a column comes back with the same values."""
    column = arrays.COLUMNS[kind]
    found = Collected([(T0, pa.record_batch({"x": column}))])
    for backend in (None, "pyarrow"):
        series = found.to_pandas(dtype_backend=backend)["x"]  # type: ignore[arg-type]
        back = pa.Array.from_pandas(series, type=None if isinstance(series.dtype, pd.ArrowDtype) else column.type)
        assert (pa.concat_arrays(back.chunks) if isinstance(back, pa.ChunkedArray) else back).to_pylist() == column.to_pylist()
    if kind in NOT_IN_POLARS:
        with pytest.raises(rd.DataflowError, match="to_polars: column 'x' of type"):
            found.to_polars()
        return
    polars = found.to_polars()["x"]
    plain = column.cast(column.type.value_type) if isinstance(column, pa.DictionaryArray) else column
    assert polars.to_arrow().cast(plain.type).to_pylist() == plain.to_pylist()


def test_windows_are_windows_in_pandas_and_structs_in_polars() -> None:
    flow = rd.Dataflow("windows")
    events = flow.from_arrow(pa.table({"k": ["a", "b"], "t": [1, 12], "v": [5, 6]})).assign_timestamps("t")
    events.key_by("k").window(rd.windows.tumbling(10)).sum("v").collect("sums")
    sums = flow.run(runtime="local")["sums"]
    assert sums.to_pandas()["window"].to_list() == [rd.Window(0, 10), rd.Window(10, 20)]
    assert sums.to_polars()["window"].to_list() == [{"start": 0, "end": 10}, {"start": 10, "end": 20}]
