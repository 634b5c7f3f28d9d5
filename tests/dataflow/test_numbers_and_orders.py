"""Numbers for keys, and the order of numbers: beside what Python says of the same values."""

from __future__ import annotations

import datetime as dt
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rayad.dataflow.operators.keys.column_keys import key_numbers
from rayad.dataflow.records.sorting import by_one_sort, stable_order

ENDS = {name: (int(np.iinfo(name).min), int(np.iinfo(name).max)) for name in ("int8", "uint8", "int16", "int32", "int64", "uint64")}


@given(st.data(), st.sampled_from(sorted(ENDS)))
def test_equal_values_stay_in_the_order_in_which_they_are(data: st.DataObject, kind: str) -> None:
    low, high = ENDS[kind]
    some = st.one_of(st.integers(low, high), st.sampled_from([low, high, 0, 1]), st.integers(max(low, -3), 3))
    values = np.array(data.draw(st.lists(some, max_size=30)), kind)
    assert stable_order(values).tolist() == sorted(range(len(values)), key=lambda at: int(values[at]))


def test_other_values_than_integers_are_ordered_too() -> None:
    values = np.array([0.5, -1.0, 0.5, np.inf])
    assert stable_order(values).tolist() == [1, 0, 2, 3]
    assert by_one_sort(values) is None


@pytest.mark.parametrize(("low", "high", "fits"), [(0, (1 << 61) - 1, True), (0, 1 << 61, False), (-(1 << 60), (1 << 60) - 1, True)])
def test_values_are_sorted_as_one_number_with_their_positions_where_63_bits_hold_both(low: int, high: int, fits: bool) -> None:
    values = np.array([high, low, high, low])
    assert (by_one_sort(values) is not None) is fits
    assert stable_order(values).tolist() == [1, 3, 0, 2]


def test_numbers_of_wide_columns_do_not_leave_64_bits() -> None:
    wide = (1 << 62) - 1
    left, right = pa.array([0, 4, 1, 2, 3, 0]), pa.array([0, 0, wide, wide, wide, wide])
    assert len(set(key_numbers([left, right]).tolist())) == 6, "4 times 2**62 is 0 where only 64 bits are kept"
    assert len(set(key_numbers([right, left, right]).tolist())) == 6


MOMENT = st.datetimes(dt.datetime(1900, 1, 1), dt.datetime(2100, 1, 1))
COLUMNS: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "int8": (pa.int8(), st.integers(-128, 127)),
    "int64": (pa.int64(), st.one_of(st.integers(-(1 << 63), (1 << 63) - 1), st.integers(0, 2))),
    "uint64": (pa.uint64(), st.one_of(st.integers(0, (1 << 64) - 1), st.integers(0, 2))),
    "text": (pa.string(), st.text(max_size=2)),
    "timestamp": (pa.timestamp("us"), MOMENT),
    "zoned": (pa.timestamp("ms", "UTC"), MOMENT.map(lambda at: at.replace(microsecond=0, tzinfo=dt.UTC))),
    "date32": (pa.date32(), MOMENT.map(dt.datetime.date)),
    "date64": (pa.date64(), MOMENT.map(dt.datetime.date)),
    "time32": (pa.time32("s"), MOMENT.map(lambda at: at.time().replace(microsecond=0))),
    "time64": (pa.time64("us"), MOMENT.map(dt.datetime.time)),
    "duration": (pa.duration("us"), st.timedeltas(dt.timedelta(-90_000), dt.timedelta(90_000))),
    "float": (pa.float64(), st.floats(allow_nan=False)),
    "bool": (pa.bool_(), st.booleans()),
}


@given(st.data(), st.lists(st.sampled_from(sorted(COLUMNS)), min_size=1, max_size=4), st.booleans(), st.booleans())
def test_rows_have_one_number_exactly_where_all_columns_are_equal(data: st.DataObject, kinds: list[str], nulls: bool, parts: bool) -> None:
    count = data.draw(st.integers(1, 12))
    columns = []
    for kind in kinds:
        arrow, values = COLUMNS[kind]
        few = data.draw(st.lists(st.none() | values if nulls else values, min_size=1, max_size=3))
        column = pa.array([data.draw(st.sampled_from(few)) for _ in range(count)], arrow)
        columns.append(pa.chunked_array([column[: count // 2], column[count // 2 :]]) if parts else column)
    rows = list(zip(*(column.to_pylist() for column in columns), strict=True))
    numbers = key_numbers(columns).tolist()
    assert [a == b for a in numbers for b in numbers] == [a == b for a in rows for b in rows]
