"""A bit a row: what a mask of a byte a row would have, in an eighth of the memory; those of totals beyond memory are in files, too."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rayad.actors.worker.state_files import StateFiles
from rayad.dataflow.operators.state.runs.bits import Bits
from rayad.dataflow.operators.state.runs.disk import MemoryBound
from rayad.dataflow.operators.state.runs.rows_that_leave import HERE
from rayad.dataflow.operators.totals.below import TotalsBelow
from rayad.dataflow.records.batches import mark_keyed


@given(data=st.data(), rows=st.integers(0, 40))
def test_bits_are_what_a_mask_would_be(data: st.DataObject, rows: int) -> None:
    bits, mask = Bits.ones(rows), np.ones(rows, np.bool_)
    for _ in range(data.draw(st.integers(0, 4))):
        low = data.draw(st.integers(0, len(bits)))
        high = data.draw(st.integers(low, len(bits)))
        which = data.draw(st.sampled_from([slice(low, high), np.arange(low, high)[::-1]]))
        bits, mask = bits[which], mask[which]
        gone = np.array(data.draw(st.lists(st.integers(0, max(0, len(bits) - 1)), max_size=5)) if len(bits) else [], np.int64)
        alone = bits.copy()
        bits.clear(gone)
        assert alone.mask().tolist() == mask.tolist()
        mask[gone] = False
        assert bits.mask().tolist() == bits.at(np.arange(len(bits))).tolist() == mask.tolist()


def test_bits_of_a_range_are_the_same_ones() -> None:
    bits = Bits.ones(20)
    bits[5:15].clear(np.array([0, 9]))
    assert np.flatnonzero(~bits.mask()).tolist() == [5, 14]


def _totals(keys: np.ndarray[Any, Any]) -> pa.RecordBatch:
    return mark_keyed(pa.record_batch({"key": keys, "n": keys}), 1)


def _taken_out(below: TotalsBelow, keys: np.ndarray[Any, Any]) -> int:
    _, rows = below.taken_out([pa.array(keys)])
    return 0 if rows is None else int(rows.num_rows)


@pytest.mark.parametrize("bytes_max", [1 << 13, 1 << 30])
def test_a_row_is_taken_out_once_wherever_its_bit_is(bytes_max: int) -> None:
    below, chance = TotalsBelow(1), np.random.default_rng(3)
    below.memory = MemoryBound(bytes_max, StateFiles("totals", None))
    for part in range(4):
        below.put(_totals(np.arange(part * 5_000, (part + 1) * 5_000)))
    left = np.ones(20_000, np.bool_)
    for _ in range(30):
        keys = np.unique(chance.integers(0, 25_000, 300))
        known = keys[keys < 20_000]
        assert _taken_out(below, keys) == np.count_nonzero(left[known])
        left[known] = False
        changed = [run.beside[HERE] for run in below.all() if HERE in run.beside and run.beside[HERE].in_memory]
        assert sum(bits.packed.nbytes for bits in changed) <= bytes_max // 16
    assert sorted(key for run in below.each_live() for key in run.rows.column(0).to_pylist()) == np.flatnonzero(left).tolist()


def test_bits_are_stored_only_of_runs_of_which_rows_are_gone() -> None:
    below, again = TotalsBelow(1), TotalsBelow(1)
    below.put(_totals(np.arange(100)))
    (run,) = below.all()
    assert below.marks(run) is None
    assert _taken_out(below, np.array([7, 200])) == 1
    again.add([again.read(run.rows)])
    (other,) = again.all()
    again.marked(other, below.marks(run))
    assert other.beside[HERE].mask().tolist() == run.beside[HERE].mask().tolist()
