"""Rows that take others away go with them, however many there are: what is gone is not searched for ever."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from rayad.dataflow.operators.state.runs import runs as runs_module
from rayad.dataflow.records.key_hashing import DEFAULT_KEY_GROUPS
from rayad.incremental.columns.form import KEY, RECORD
from rayad.incremental.columns.weighted_runs import COUNT, WeightedRuns

RECORDS, SMALL = 20_000, 32
SCHEMA = pa.schema({KEY: pa.int64(), RECORD: pa.int64()})


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs of this size are merged in pieces."""
    monkeypatch.setattr(runs_module, "PIECE_ROWS", 1 << 10)
    monkeypatch.setattr(runs_module, "SMALL_RUN", SMALL)


def made() -> WeightedRuns:
    return WeightedRuns(SCHEMA, 0, (COUNT,), DEFAULT_KEY_GROUPS)


def changed(runs: WeightedRuns, records: Any, weight: int) -> None:
    """Records of eight keys come, or go."""
    rows = pa.RecordBatch.from_arrays([pa.array(records % 8), pa.array(records)], schema=SCHEMA)
    runs.add([runs.at_moment(rows, (), **{COUNT: np.full(len(records), weight)})])


def test_what_comes_and_goes_between_two_searches_is_not_kept() -> None:
    runs, records = made(), np.arange(RECORDS)
    changed(runs, records, 1)
    changed(runs, records[10:], -1)
    assert sum(map(len, runs.all())) == 10


def test_what_goes_at_once_is_not_searched_any_more() -> None:
    runs, records = made(), np.arange(RECORDS)
    changed(runs, records, 1)
    runs.all()
    changed(runs, records[10:], -1)
    assert sum(map(len, runs.all())) == 10


def test_what_goes_little_by_little_is_not_searched_for_long() -> None:
    """An eighth as many rows as are merged must come before a merge is over."""
    runs, records, each = made(), np.arange(RECORDS), 50
    changed(runs, records, 1)
    runs.all()
    for first in range(0, RECORDS, each):
        changed(runs, records[first : first + each], -1)
        left = RECORDS - first - each
        assert sum(map(len, runs.all())) <= 5 * left // 2 + 40 * SMALL
    assert sum(map(len, runs.all())) < 40 * SMALL


def test_more_that_went_than_came_is_not_merged_again_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    runs, records, merges = made(), np.arange(RECORDS), list[int]()
    real = runs._merged
    monkeypatch.setattr(runs, "_merged", lambda some: merges.append(sum(map(len, some))) or real(some))
    changed(runs, records, -1)
    for first in range(0, 2_000, 10):
        changed(runs, RECORDS + records[first : first + 10], 1)
        runs.all()
    assert sum(size > RECORDS // 2 for size in merges) <= 3
