"""Keys in columns have the slots that a dict of Python objects gives them, whatever their types, and however few or many come at a time."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rayad.dataflow.operators.state.slots import key_index, row_index
from rayad.dataflow.operators.state.slots.key_index import KeyIndex
from rayad.dataflow.operators.state.slots.row_index import IndexedRows
from rayad.dataflow.records.moments import keys_in
from tests.thorough import examples

UTC = dt.UTC
VALUES: dict[pa.DataType, list[Any]] = {
    pa.string(): ["", "a", "b", "aa", "a" * 9, None],
    pa.large_string(): ["", "x", None],
    pa.string_view(): ["", "x", "long enough to be no part of a view"],
    pa.binary(): [b"", b"a", b"\x00", b"\x00\x00", None],
    pa.binary(2): [b"ab", b"ba"],
    pa.int32(): [0, 1, -1, 7, None],
    pa.int64(): [0, 1, 1 << 62, None],
    pa.uint64(): [0, (1 << 64) - 1],
    pa.bool_(): [True, False, None],
    pa.float64(): [0.0, -0.0, 1.0, 0.5, 1e300, None],
    pa.float32(): [0.0, 1.0, 0.5],
    pa.decimal128(6, 2): [Decimal("1.00"), Decimal("-1.50"), None],
    pa.date32(): [dt.date(2020, 1, 1), dt.date(1960, 2, 3), None],
    pa.timestamp("us"): [dt.datetime(2020, 1, 1), dt.datetime(1960, 1, 1, 1), None],
    pa.timestamp("ms", "UTC"): [dt.datetime(2020, 1, 1, tzinfo=UTC), dt.datetime(2020, 1, 1, 1, tzinfo=UTC)],
    pa.duration("us"): [dt.timedelta(0), dt.timedelta(seconds=3)],
    pa.dictionary(pa.int32(), pa.string()): ["a", "b", None],
}
OTHERS: list[Any] = ["nobody", b"nobody", 1, 1.0, True, 0, -0.0, 0.5, 7, Fraction(1, 2), Fraction(1, 3), Decimal(1), 1e400, 1 << 70, None]
OTHERS += [dt.date(2020, 1, 1), dt.datetime(2020, 1, 1), dt.datetime(2020, 1, 1, 2, tzinfo=dt.timezone(dt.timedelta(hours=2)))]


@contextmanager
def columns_from(rows: int, code_bits: int = 64) -> Iterator[None]:
    """A batch of so many rows is enough for columns; codes have so many bits."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(key_index, "MANY_KEYS", rows)
        if code_bits < 64:
            codes = row_index.content_codes
            patch.setattr(row_index, "content_codes", lambda contents: codes(contents) & ((1 << code_bits) - 1))
        yield


def column(values: list[Any], kind: pa.DataType) -> pa.Array:
    return pa.array(values, kind.value_type).dictionary_encode() if pa.types.is_dictionary(kind) else pa.array(values, kind)


@examples(60, soak=600)
@given(data=st.data())
def test_slots_are_those_of_a_dict(data: st.DataObject) -> None:
    kinds = data.draw(st.lists(st.sampled_from(list(VALUES)), min_size=1, max_size=2))
    rows = st.lists(st.tuples(*(st.sampled_from(VALUES[kind]) for kind in kinds)), min_size=1, max_size=12)
    model: dict[Any, int] = {}
    with columns_from(data.draw(st.sampled_from([1, 6, 100])), data.draw(st.sampled_from([0, 1, 64]))):
        index = KeyIndex(len(kinds))
        for batch in data.draw(st.lists(rows, min_size=1, max_size=5)):
            columns = [column(list(values), kind) for values, kind in zip(zip(*batch, strict=True), kinds, strict=True)]
            wanted = [model.setdefault(key, len(model)) for key in keys_in(columns)]
            assert index.slots_of(columns).tolist() == wanted
            if data.draw(st.booleans()):
                stored = index.key_columns(kinds)
                index = KeyIndex(len(kinds))
                index.restore(stored)
        keys = list(model)
        assert index.keys() == keys
        asked = data.draw(st.permutations([*keys, *OTHERS, *([(a, b) for a in OTHERS for b in OTHERS[:4]] if len(kinds) > 1 else [])]))
        assert index.found(asked).tolist() == [model.get(key, -1) for key in asked]
        some = np.array(data.draw(st.lists(st.sampled_from(range(len(keys))))), np.int64)
        there = index.keys_at(some, kinds)
        assert [each.type for each in there] == kinds
        assert keys_in(there) == [keys[slot] for slot in some.tolist()]


def test_keys_of_another_type_make_it_a_dict_and_keep_their_slots() -> None:
    with columns_from(1):
        index = KeyIndex(1)
        assert index.slots_of([pa.array(["a", "b"])]).tolist() == [0, 1]
        assert index.slots_of([pa.array([3, None])]).tolist() == [2, 3]
        assert index.slots_of([pa.array(["b", "c"], pa.large_string())]).tolist() == [1, 4]
    assert index.keys() == ["a", "b", 3, None, "c"]


def test_keys_that_a_dict_has_become_columns_with_the_first_large_batch() -> None:
    with columns_from(3):
        index = KeyIndex(1)
        index.slots_of([pa.array(["b", "a"])])
        of_a_dict = index.nbytes
        assert index.slots_of([pa.array(["c", "a", "b"])]).tolist() == [2, 1, 0]
        assert isinstance(index.slot_keys(), tuple)
        assert index.nbytes < 2 * of_a_dict


def test_what_a_look_up_copies_does_not_grow_with_what_is_there() -> None:
    rows = IndexedRows(1)
    for at in range(0, 1 << 17, 1 << 14):
        rows.slots_of(pa.record_batch({"x": [f"{number:040d}" for number in range(at, at + (1 << 14))]}))
    rows.slots_of(pa.record_batch({"x": ["last"]}))
    assert len(rows.batches) > 1
    before = pa.default_memory_pool().total_bytes_allocated()
    some = rows.at(np.array([1 << 17, 5, 1 << 16, 5]))
    assert pa.default_memory_pool().total_bytes_allocated() - before < 1 << 14
    assert some.column(0).to_pylist() == ["last", f"{5:040d}", f"{1 << 16:040d}", f"{5:040d}"]
