"""Tuples and records in columns have the hashes, and become the rows, that they have as Python objects."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from rayad.dataflow.records.batches import has_tuples, mark_keyed, mark_tuples, to_rows
from rayad.dataflow.records.key_hashing import hash_values, stable_hash
from rayad.dataflow.records.values import Row, is_tuple, tuple_array, values_of

LEAVES: dict[pa.DataType, st.SearchStrategy[Any]] = {
    pa.int64(): st.integers(-(1 << 63), (1 << 63) - 1),
    pa.string(): st.text(max_size=5),
    pa.float64(): st.floats(allow_nan=False),
    pa.bool_(): st.booleans(),
}


@given(st.data())
def test_a_struct_has_the_hash_of_the_record(data: st.DataObject) -> None:
    kinds = data.draw(st.lists(st.sampled_from(list(LEAVES)), min_size=1, max_size=3))
    rows = data.draw(st.lists(st.tuples(*(st.none() | LEAVES[kind] for kind in kinds)), max_size=5))
    columns = [pa.array([row[i] for row in rows], kind) for i, kind in enumerate(kinds)]
    names = data.draw(st.permutations(["b", "a", "c"]))[: len(kinds)]
    named = pa.StructArray.from_arrays(columns, names=names)
    tuples = tuple_array(columns)
    nested = tuple_array([named, tuples])
    assert not is_tuple(named.type)
    for column, values in (
        (named, [Row(zip(names, row, strict=True)) for row in rows]),
        (tuples, rows),
        (nested, [(Row(zip(names, row, strict=True)), row) for row in rows]),
    ):
        assert values_of(column) == values
        assert hash_values(column).tolist() == [stable_hash(value) for value in values]


def test_a_null_struct_is_none() -> None:
    column = pa.array([{"a": 1}, None])
    assert values_of(column) == [Row(a=1), None]
    assert hash_values(column).tolist() == [stable_hash(Row(a=1)), stable_hash(None)]


def test_only_marked_batches_have_tuples() -> None:
    batch = pa.RecordBatch.from_arrays([tuple_array([pa.array([1]), pa.array(["x"])]), pa.array([-1])], names=["record", "diff"])
    assert to_rows(mark_tuples(batch)) == [((1, "x"), -1)]
    assert to_rows(mark_keyed(batch, 1)) == [({"0": 1, "1": "x"}, -1)]
    assert [has_tuples(one) for one in (batch, mark_keyed(batch, 1), mark_tuples(batch), [])] == [False, False, True, False]
