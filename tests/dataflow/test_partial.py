"""Partials: the laws that each must keep, and that a new one needs no edit in any other file."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import rayad as rd
from rayad.dataflow.operators.aggregates.aggregators import Sum
from rayad.dataflow.operators.aggregates.by_name import by_name
from rayad.dataflow.operators.aggregates.known_functions import LargestOfPairs, SmallestOfPairs, TotalOfPairs
from rayad.dataflow.operators.aggregates.partial import COUNT_ALL, COUNT_VALID, LARGEST, SMALLEST, TOTAL, Partial, Partials, merged_runs
from rayad.dataflow.operators.aggregates.variance import Dispersion
from rayad.dataflow.operators.keys.group_functions import MAX, MIN
from tests.thorough import examples

EACH: dict[str, tuple[Partial, list[pa.DataType]]] = {
    "total": (TOTAL, [pa.int64()]),
    "total of floats": (TOTAL, [pa.float64()]),
    "smallest": (SMALLEST, [pa.int32()]),
    "largest of floats": (LARGEST, [pa.float64()]),
    "total of pairs": (TotalOfPairs(), [pa.int64()]),
    "smallest of pairs": (SmallestOfPairs(), [pa.int32()]),
    "largest of pairs": (LargestOfPairs(), [pa.int32()]),
    "count": (COUNT_ALL, [pa.int64()]),
    "count of values": (COUNT_VALID, [pa.int64()]),
    "dispersion": (Dispersion(), [pa.int64(), pa.float64(), pa.float64()]),
}
ROWS = st.lists(st.tuples(st.integers(0, 3), st.none() | st.integers(-50, 50)), min_size=1, max_size=24)


def of_each(name: str, values: Sequence[Any]) -> list[pa.Array]:
    partial, kinds = EACH[name]
    values = [0 if value is None and "pairs" in name else value for value in values]
    column = pa.array(values, pa.float64() if "floats" in name else pa.int32())
    made = partial.of_each(column, len(column), kinds)
    assert made is not None
    return made


@pytest.mark.parametrize("name", EACH)
@examples(each_run=9, soak=25)
@given(rows=ROWS)
def test_merging_by_group_by_run_and_at_slots_gives_the_same(name: str, rows: list[tuple[int, int | None]]) -> None:
    partial, kinds = EACH[name]
    partials = Partials([partial])
    rows.sort(key=lambda row: row[0])
    keys = np.array([key for key, _ in rows])
    columns = of_each(name, [value for _, value in rows])
    groups, lengths = np.unique(keys, return_counts=True)

    runs = merged_runs(partial, partials.filled(columns), lengths)

    fields = [("key", pa.int64()), *zip(partial.columns, kinds, strict=True)]
    by_group = partials.group(pa.table([pa.array(keys), *columns], schema=pa.schema(fields)), 1, pa.schema(fields))
    assert by_group is not None
    assert by_group.column(0).to_pylist() == groups.tolist()
    arrays = [np.full(4, partials.neutral(i, np.dtype(k.to_pandas_dtype())), k.to_pandas_dtype()) for i, k in enumerate(kinds)]
    for at, key in enumerate(keys.tolist()):
        partials.merge_at(arrays, np.array([key]), [column[at : at + 1] for column in partials.filled(columns)])
    for run, grouped, array in zip(runs, partials.filled(by_group.columns[1:]), arrays, strict=True):
        np.testing.assert_allclose(run, grouped, atol=1e-9)
        np.testing.assert_allclose(run, array[groups], atol=1e-9)


@pytest.mark.parametrize("name", EACH)
def test_the_neutral_element_changes_nothing(name: str) -> None:
    partial, _ = EACH[name]
    columns = Partials([partial]).filled(of_each(name, [7, -3, None]))
    neutral = [np.full(3, partial.neutral(i, column.dtype), column.dtype) for i, column in enumerate(columns)]
    for merged in (partial.merged(columns, neutral), partial.merged(neutral, columns)):
        for now, before in zip(merged, columns, strict=True):
            np.testing.assert_array_equal(now, before)


def test_a_sum_that_leaves_64_bits_changes_nothing() -> None:
    partials = Partials([COUNT_ALL, TOTAL])
    arrays = [np.array([1, 1]), np.array([2**62, 5])]
    with pytest.raises(OverflowError, match="could leave 64 bits"):
        partials.merge_at(arrays, np.array([0]), [np.array([1]), np.array([2**62])])
    assert [array.tolist() for array in arrays] == [[1, 1], [2**62, 5]]
    table = pa.table({"k": [1, 2], "n": [1, 1], "s": [2**62, 2**62]})
    assert partials.group(table, 1, table.schema) is None


def test_a_subclass_of_an_aggregation_works_on_rows_unless_it_declares_partials() -> None:
    class Doubled(Sum):
        def create(self, value: Any) -> Any:
            return 2 * value

    assert Doubled().partials == ()
    assert by_name("sum").partials == (TOTAL, COUNT_VALID)


class Range(rd.Aggregator):
    """A user's aggregation with partials: it works on columns wherever the built-in ones do."""

    name = "range"
    partials = (SMALLEST, LARGEST, COUNT_VALID)

    def create(self, value: Any) -> Any:
        return None if value is None else (value, value)

    def merge(self, left: Any, right: Any) -> Any:
        if left is None or right is None:
            return right if left is None else left
        return min(left[0], right[0]), max(left[1], right[1])

    def result(self, accumulator: Any) -> Any:
        return None if accumulator is None else accumulator[1] - accumulator[0]

    def accumulator(self, partials: Sequence[Any]) -> Any:
        return tuple(partials[:2]) if partials[2] else None

    def finish(self, totals: Sequence[Any]) -> pa.Array:
        return pa.array(totals[1] - totals[0], mask=totals[2] == 0)


class Extremes(Partial):
    """A partial of two columns, the least and the largest value and 0: Arrow's functions make it, and only numpy merges it."""

    columns = ("low", "high")
    of_rows = (MIN, MAX)
    goes_on = True

    def made(self, columns: Sequence[pa.Array]) -> Sequence[pa.Array]:
        return [column.fill_null(0) for column in columns]

    def of_each(self, values: Any, rows: int, kinds: Sequence[pa.DataType]) -> list[pa.Array] | None:
        return None

    def neutral(self, at: int, dtype: Any) -> Any:
        return 0

    def merged(self, left: Sequence[Any], right: Sequence[Any]) -> list[Any]:
        return [np.minimum(left[0], right[0]), np.maximum(left[1], right[1])]


class Reach(Range):
    """The largest distance from 0."""

    name = "reach"
    partials = (Extremes(), COUNT_VALID)

    def result(self, accumulator: Any) -> Any:
        return None if accumulator is None else max(0, accumulator[1], -accumulator[0])

    def finish(self, totals: Sequence[Any]) -> pa.Array:
        return pa.array(np.maximum(np.maximum(totals[1], 0), -totals[0]), mask=totals[2] == 0)


RECORD = st.fixed_dictionaries({"k": st.sampled_from("abc"), "t": st.integers(0, 20), "v": st.none() | st.integers(-9, 9)})
SCHEMA = pa.schema([("k", pa.string()), ("t", pa.int64()), ("v", pa.int64())])
WINDOWS = {"per epoch": rd.windows.per_epoch(), "tumbling": rd.windows.tumbling(5), "session": rd.windows.session(2)}


@pytest.mark.parametrize(
    "aggregator", [Range(), Reach(), {"range": (Range(), "v"), "reach": (Reach(), "v"), "n": "count"}], ids=["arrow", "numpy", "several"]
)
@examples(each_run=5, soak=15)
@given(epochs=st.lists(st.lists(RECORD, min_size=1, max_size=8), min_size=1, max_size=3), seed=st.integers(0, 99))
def test_a_users_aggregation_gives_the_same_in_rows_and_columns(aggregator: Any, epochs: list[list[Any]], seed: int) -> None:
    def results(columnar: bool) -> dict[str, Any]:
        flow = rd.Dataflow()
        made = [pa.RecordBatch.from_pylist(rows, schema=SCHEMA) for rows in epochs] if columnar else epochs
        stream = flow.from_epochs(made).assign_timestamps("t", max_delay=30)
        value = None if isinstance(aggregator, dict) else "v"
        keyed = stream.key_by("k")
        keyed.aggregate(aggregator, value).collect("running")
        for name, windows in (
            ("per epoch", rd.windows.per_epoch()),
            ("tumbling", rd.windows.tumbling(5)),
            ("session", rd.windows.session(2)),
        ):
            keyed.window(windows).aggregate(aggregator, value).collect(name)
        found = flow.run(runtime="local", parallelism=2, seed=seed)
        return {name: sorted(map(repr, found[name])) for name in ("running", *WINDOWS)}

    assert results(True) == results(False)
