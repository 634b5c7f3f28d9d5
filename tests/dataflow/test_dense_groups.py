"""Group-by with keys as array indexes (``dense_group``) equals Arrow's group-by where it applies, and gives None where it does not."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rayad.dataflow.operators.keys import dense_groups
from rayad.dataflow.operators.keys.dense_groups import dense_group, has_dense_range
from rayad.dataflow.operators.keys.group_functions import COUNT_ROWS, COUNT_VALUES, MAX, MEAN, MIN, SUM
from tests.thorough import examples

KINDS = [pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32()]
VALUES = [pa.int32(), pa.int64(), pa.uint32(), pa.uint64(), pa.int8()]


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dense_groups, "ROWS_MIN", 1)


def of_arrow(aggregations: list[Any]) -> list[Any]:
    return [([] if column is None else column, function.arrow) for column, function in aggregations]


def by_arrow(table: pa.Table, aggregations: list[Any]) -> dict[Any, tuple[Any, ...]]:
    out = table.group_by("k", use_threads=False).aggregate(of_arrow(aggregations))
    columns = [out.column(i).to_pylist() for i in range(1, out.num_columns)]
    return dict(zip(out.column("k").to_pylist(), zip(*columns, strict=True), strict=True))


@examples(each_run=70, soak=200)
@given(st.data(), st.sampled_from(KINDS), st.sampled_from(VALUES))
def test_dense_groups_equal_those_of_arrow(data: st.DataObject, kind: pa.DataType, value: pa.DataType) -> None:
    keys = data.draw(st.lists(st.integers(0 if str(kind).startswith("u") else -20, 100), min_size=1, max_size=60))
    low = 0 if str(value).startswith("u") else -100
    values = data.draw(st.lists(st.none() | st.integers(low, 100), min_size=len(keys), max_size=len(keys)))
    cut = data.draw(st.integers(0, len(keys)))
    whole = pa.table({"k": pa.array(keys, kind), "v": pa.array(values, value)})
    table = pa.concat_tables([whole.slice(0, cut), whole.slice(cut)])
    aggregations = [("v", SUM), (None, COUNT_ROWS), ("v", COUNT_VALUES), ("v", MIN), ("v", MAX)]
    dense = dense_group(table, "k", aggregations)
    if dense is None:
        assert max(keys) - min(keys) >= dense_groups.ROWS_PER_PLACE * len(keys)
        return
    assert dense[0].type == kind
    assert dense[0].to_pylist() == sorted(set(keys))
    found = dict(zip(dense[0].to_pylist(), zip(*(column.to_pylist() for column in dense[1:]), strict=True), strict=True))
    assert found == by_arrow(table, aggregations)
    arrow_types = [field.type for field in table.group_by("k").aggregate(of_arrow(aggregations)).schema][1:]
    assert [column.type for column in dense[1:]] == arrow_types


@examples(each_run=18, soak=50)
@given(st.lists(st.tuples(st.integers(0, 9), st.none() | st.floats(allow_nan=True, width=32)), min_size=1, max_size=40))
def test_floats_are_added_in_the_order_of_the_rows(rows: list[tuple[int, float | None]]) -> None:
    table = pa.table({"k": pa.array([k for k, _ in rows], pa.int64()), "v": pa.array([v for _, v in rows], pa.float64())})
    dense = dense_group(table, "k", [("v", SUM)])
    assert dense is not None
    expected: dict[int, float | None] = {}
    for key, value in rows:
        before = expected.get(key)
        expected[key] = before if value is None else (before or 0.0) + value
    assert [repr(v) for v in dense[1].to_pylist()] == [repr(expected[k]) for k in sorted(expected)]


@pytest.mark.parametrize(
    "table",
    [
        pa.table({"k": ["a", "b"], "v": [1, 2]}),
        pa.table({"k": [0.5, 1.5], "v": [1, 2]}),
        pa.table({"k": pa.array([1, None]), "v": [1, 2]}),
        pa.table({"k": pa.array([1, 2], pa.uint64()), "v": [1, 2]}),
        pa.table({"k": [0, 1 << 40], "v": [1, 2]}),
        pa.table({"k": [-(2**63), 2**63 - 1], "v": [1, 2]}),
        pa.table({"k": pa.array([], pa.int64()), "v": pa.array([], pa.int64())}),
        pa.table({"k": [True, False], "v": [1, 2]}),
    ],
    ids=["strings", "floats", "nulls", "uint64", "wide", "widest", "empty", "bool"],
)
def test_other_keys_are_left_to_arrow(table: pa.Table) -> None:
    assert dense_group(table, "k", [("v", SUM)]) is None


def test_functions_with_rules_of_their_own_are_left_to_arrow() -> None:
    table = pa.table({"k": [1, 2], "v": [0.5, float("nan")], "s": ["a", "b"]})
    assert dense_group(table, "k", [("v", MIN)]) is None
    assert dense_group(table, "k", [("s", SUM)]) is None
    assert dense_group(table, "k", [("v", MEAN)]) is None


def test_the_range_is_compared_with_the_expected_number_of_rows() -> None:
    keys = pa.array([0, 1000])
    assert not has_dense_range(keys, 10)
    assert has_dense_range(keys, 1000)
