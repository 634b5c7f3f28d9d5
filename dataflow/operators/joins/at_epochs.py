"""A join over all time in columns at epochs: rows stay, and each tells its time, so nothing has to be kept for those who read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import pyarrow as pa

from rayad.dataflow.operators.keys.key_first import pairs_of
from rayad.dataflow.operators.state.reads.at_epochs import AtEpochs
from rayad.dataflow.operators.state.reads.lists import entries_of_sides
from rayad.dataflow.operators.state.runs.order import places_of_hashes
from rayad.dataflow.records.batches import take_rows
from rayad.dataflow.records.key_hashing import hash_keys

if TYPE_CHECKING:
    from rayad.dataflow.operators.joins.numbers_of_times import NumbersOfTimes
    from rayad.dataflow.operators.state.runs.runs import Runs
    from rayad.dataflow.operators.state.tables import Entries


class Sides(Protocol):
    """Both sides of a join in columns."""

    @property
    def numbers(self) -> NumbersOfTimes:
        """What the numbers beside the rows stand for."""

    @property
    def parts(self) -> Sequence[Runs | None]:
        """The rows of each side; beside each is the number of its time."""


class JoinAtEpochs(AtEpochs):
    """Both sides of a join in columns.

    Args:
        state: the sides.
    """

    has_one_row = False
    rows_tell_times = True
    since = -1

    def __init__(self, state: Sides) -> None:
        self._state = state

    def begin_now(self) -> None:
        """Whatever comes tells its time."""

    def forget(self, epoch: int) -> None:
        """Nothing is kept."""

    def of_keys(self, epoch: int, keys: Sequence[Any], part: str = "") -> Entries:
        return entries_of_sides(self._rows_of(epoch, keys), part)

    def of_all(self, epoch: int, part: str = "") -> Entries:
        return entries_of_sides(self._rows_of(epoch, None), part)

    def _rows_of(self, epoch: int, keys: Sequence[Any] | None) -> Iterator[tuple[Any, int, Any, Any]]:
        times = self._state.numbers
        wanted = None if keys is None else set(keys)
        for side, rows, numbers in self._found(keys):
            there = np.flatnonzero(times.in_epochs_until(epoch, numbers))
            for (key, value), number in zip(pairs_of(take_rows(rows, pa.array(there))), numbers[there].tolist(), strict=True):
                if wanted is None or key in wanted:
                    yield key, side, value, times.time(number)

    def _found(self, keys: Sequence[Any] | None) -> Iterator[tuple[int, pa.RecordBatch, Any]]:
        """By side rows in which all of these keys are (None: all rows), and the numbers of their times."""
        for side, runs in enumerate(self._state.parts):
            if runs is None:
                continue
            if keys is None:
                for run in runs.each_live():
                    yield side, run.rows, np.broadcast_to(run.beside["time"], len(run))
            else:
                for run, at in runs.having(np.unique(places_of_hashes(hash_keys(list(keys)), runs.key_groups))):
                    yield side, take_rows(run.rows, pa.array(at)), np.broadcast_to(run.beside["time"], len(run))[at]

    def give(self, groups: frozenset[int], key_groups: int) -> None:
        """Nothing besides the rows."""

    def take(self, given: None) -> None:
        """Nothing besides the rows."""


__all__ = ["JoinAtEpochs"]
