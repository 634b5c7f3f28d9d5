"""The join's columnar half: both sides in sorted runs of columns, each arriving batch matched in bulk.

A batch that arrives is sorted by the places of its keys, searched for in the runs of the other side, and becomes a run. Where the key is
one integer column on both sides, places are equal for equal keys alone; else the keys of what matches are compared as well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rayad.dataflow.operators.joins.at_epochs import JoinAtEpochs
from rayad.dataflow.operators.joins.both_sides import BothSides
from rayad.dataflow.operators.joins.matching import matches
from rayad.dataflow.operators.joins.numbers_of_times import EpochNumbers, ListedTimes, NumbersOfTimes
from rayad.dataflow.operators.joins.pairs import NotColumnar, joined_batch
from rayad.dataflow.operators.keys.column_keys import equal_keys
from rayad.dataflow.operators.keys.key_first import pairs_of
from rayad.dataflow.operators.state.reads.at_epochs import AtEpochs, Epochs
from rayad.dataflow.operators.state.runs.run import Run
from rayad.dataflow.operators.state.runs.runs import Runs
from rayad.dataflow.operators.state.stored_columns import narrow
from rayad.dataflow.records.batches import keyed_columns, no_rows
from rayad.dataflow.records.sorting import stable_order
from rayad.progress import Timestamp

Sides: TypeAlias = tuple[dict[Any, list[Any]], dict[Any, list[Any]]]
"""Rows of both sides as ``{key: [(record, time)]}``."""


class ColumnJoin(BothSides[Runs]):
    """All rows of both sides so far. Beside each is the number of its time."""

    has_moments = False

    def __init__(self) -> None:
        super().__init__()
        self.numbers: NumbersOfTimes = EpochNumbers()
        self._times_written = 0
        self.exact = True
        """Whether keys with one place are equal."""

    def made(self, side: int, schema: pa.Schema) -> Runs:
        keys, kind = keyed_columns(schema) or 0, schema.field(0).type
        self.exact = self.exact and keys == 1 and bool(pa.types.is_integer(kind)) and kind != pa.uint64()
        runs = Runs(keys, among=lambda: self.rows)
        runs.gives_files = self.numbers.listed is None
        return runs

    def accept(self, side: int, batch: pa.RecordBatch, time: Timestamp) -> Iterator[tuple[Timestamp, pa.RecordBatch]]:
        """Take a batch in and give its pairs with the other side's rows. Raises NotColumnar, at once, when rows must do it."""
        if time.counters and self.numbers.listed is None:
            self.numbers = ListedTimes()
        self.check(side, [batch])
        self.exact = self.exact and not batch.column(0).null_count
        runs = self.side(side)
        (run,) = runs.arranged(runs.read(batch, time=self.numbers.number(time)))
        runs.add([run])
        return self._pairs(side, run, time)

    def _pairs(self, side: int, batch: Run, time: Timestamp) -> Iterator[tuple[Timestamp, pa.RecordBatch]]:
        other = self.parts[1 - side]
        for run in [] if other is None else other.near(batch.place):
            if self.exact and _are_apart(batch, run):
                continue
            times = run.beside["time"]
            for mine, theirs in matches(batch.place, run.place):
                if isinstance(times, int):
                    ats, which = [time.join(self.numbers.time(times))], None
                else:
                    ats, which = self.numbers.upper(time, times[theirs])
                if which is not None:  # the pairs of one time beside each other
                    order = stable_order(which)
                    which, mine, theirs = which[order], mine[order], theirs[order]
                joined, same = self._met(side, batch.rows, mine, run.rows, theirs)
                if which is None:
                    yield from [(ats[0], joined)] if joined.num_rows else []
                    continue
                counts = np.bincount(which if same is None else which[same], minlength=len(ats))
                for at, end, count in zip(ats, np.cumsum(counts).tolist(), counts.tolist(), strict=True):
                    if count:
                        yield at, joined.slice(end - count, count)

    def _met(self, side: int, batch: pa.RecordBatch, mine: Any, others: pa.RecordBatch, theirs: Any) -> tuple[pa.RecordBatch, Any]:
        """Pairs of these rows, and, where not all of them have equal keys, which of them have, as a mask."""
        met = batch.take(pa.array(mine)), others.take(pa.array(theirs))
        left, right = met if side == 0 else met[::-1]
        same = None
        if not self.exact:
            same = np.logical_and.reduce([equal_keys(left.column(i), right.column(i)) for i in range(self.keys(0))])
            if same.all():
                same = None
            else:
                left, right = left.filter(pa.array(same)), right.filter(pa.array(same))
        return joined_batch(left, right, self.schemas), same

    # -- snapshots -----------------------------------------------------------------
    def checkpoint(self) -> Any:
        return self.numbers.listed, self.exact, super().checkpoint()

    def restore(self, state: Any) -> None:
        times, self.exact, sides = state
        self.numbers = EpochNumbers() if times is None else ListedTimes(times)
        super().restore(sides)

    def take_changes(self) -> Callable[[], Any] | None:
        known, exact, changed = self._times_written, self.exact, super().take_changes()
        listed = self.numbers.listed
        self._times_written = len(listed or ())
        return None if changed is None else lambda: (None if listed is None else listed[known:], exact, changed())

    def restore_changes(self, changes: Any) -> None:
        times, self.exact, sides = changes
        self._know(times)
        super().restore_changes(sides)

    def _know(self, times: list[Timestamp] | None) -> list[int]:
        """More times; gives their numbers here."""
        if times is None:
            return []
        if self.numbers.listed is None:
            self.numbers = ListedTimes()
        return list(map(self.numbers.number, times))

    # -- to other replicas ---------------------------------------------------------
    def give(self, groups: frozenset[int], key_groups: int) -> Any:
        """With the times that the rows have, and none besides; None where they are epochs."""
        given, listed = super().give(groups, key_groups), self.numbers.listed
        if given is None or listed is None:
            return given and (None, self.exact, given)
        used: dict[int, int] = {}
        schemas, sides = given
        numbered = _with_times(sides, lambda numbers: _renumbered(numbers, used))
        return [listed[number] for number in used], self.exact, (schemas, numbered)

    def fits(self, given: Any) -> bool:
        return super().fits(given[2])

    def take(self, given: Any) -> None:
        times, exact, (schemas, sides) = given
        self.exact = self.exact and exact
        if times is not None:
            own = np.array(self._know(times), np.int64)
            sides = _with_times(sides, lambda numbers: int(own[numbers]) if isinstance(numbers, int) else own[numbers])
        super().take((schemas, sides))

    # -- to others, while it runs ----------------------------------------------------
    def at_epochs(self, epochs: Epochs) -> AtEpochs:
        return JoinAtEpochs(self)

    # -- to rows -------------------------------------------------------------------
    def as_rows(self) -> Sides:
        """All rows as ``{key: [(record, time)]}``."""
        out: Sides = ({}, {})
        for side, runs in enumerate(self.parts):
            for run in [] if runs is None else runs.each_live():
                times = np.broadcast_to(run.beside["time"], len(run)).tolist()
                for (key, record), number in zip(pairs_of(run.rows), times, strict=True):
                    out[side].setdefault(key, []).append((record, self.numbers.time(number)))
        return out

    def schema_of(self, inputs: Sequence[pa.Schema | None]) -> pa.Schema | None:
        """Of pairs, as long as both sides are like these; to be asked before anything comes."""
        left, right = [None if schema is None else no_rows(schema) for schema in inputs]
        if left is None or right is None:
            return None
        try:
            self.check(0, [left])
            self.check(1, [right])
        except NotColumnar:
            return None
        return joined_batch(left, right, self.schemas).schema


def _are_apart(batch: Run, run: Run) -> bool:
    """Whether no key of one can be in the other, going by their least and greatest: so it is where keys grow with time."""
    (low, high), (least, greatest) = map(_reach, (batch, run))
    return bool(high < least or greatest < low)


def _reach(run: Run) -> tuple[Any, Any]:
    if run.index is None:
        run.index = tuple(pc.min_max(run.rows.column(0)).as_py().values())
    return run.index  # type: ignore[no-any-return]


def _with_times(sides: Sequence[Any], numbers_of: Callable[[Any], Any]) -> list[Any]:
    """Stored runs of both sides with other numbers of times."""
    return [runs and [(rows, {"time": numbers_of(beside["time"])}, passed) for rows, beside, passed in runs] for runs in sides]


def _renumbered(numbers: Any, used: dict[int, int]) -> Any:
    """Numbers of times as numbers among those that are used."""
    if isinstance(numbers, int):
        return used.setdefault(numbers, len(used))
    found, which = np.unique(numbers, return_inverse=True)
    return narrow(np.array([used.setdefault(number, len(used)) for number in found.tolist()], np.int64)[which])


__all__ = ["ColumnJoin"]
