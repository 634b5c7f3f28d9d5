"""The as-of join's columnar half: left records that are settled are searched for, by key and event time at once, in the runs of the right
side.

Of each left record that looks ahead it is known up to which tick it waits: that is told it by the right records that come, and it asks
those that are here when it comes. Of each right record of a run it is known which tick makes it needless: that of the next one of its key.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from operator import itemgetter
from typing import Any

import numpy as np
import pyarrow as pa

from rayad.dataflow.operators.joins.asof_rows import AsOfHow, AsOfRows
from rayad.dataflow.operators.joins.columns import joined_batch
from rayad.dataflow.operators.joins.kept_runs import KeptRuns, Run
from rayad.dataflow.operators.joins.matching import Positions, ranges
from rayad.dataflow.operators.keys.column_keys import beginnings, equal_keys
from rayad.dataflow.operators.keys.key_first import record_of
from rayad.dataflow.records.batches import one_batch, take_rows, to_rows
from rayad.dataflow.records.event_times import TICKS_MAX, exact_moment
from rayad.dataflow.windows import AsOf

_NEVER = np.iinfo(np.int64).max
_NONE = np.uint64(np.iinfo(np.uint64).max)


class AsOfColumns(KeptRuns):
    """Left records that are not settled, and right records that they or later ones may meet, in columns. ``Run.more`` are their epochs.

    In a right run are no two keys with one hash, and no two records of one key and event time.
    """

    def __init__(self, rule: AsOf, how: AsOfHow) -> None:
        super().__init__()
        self.rule = rule
        self.how = how
        self._reach = None if rule.tolerance is None else exact_moment(rule.tolerance)
        self._behind = rule.direction != "forward"
        self._ahead = rule.direction != "backward"

    # -- runs ----------------------------------------------------------------------
    def runs_of(self, side: int, rows: pa.RecordBatch, more: Any) -> list[Run]:
        if side == 0:
            return [self._told(Run.of(rows, self.keys(0), more))]
        out, waiting = [], Run.of(rows, self.keys(1), more)
        while len(waiting.codes):
            heads = beginnings(waiting.codes)
            first = np.repeat(heads, np.diff(np.append(heads, len(waiting.codes))))
            same = self._equal(waiting.rows, np.arange(len(first)), waiting.rows, first)
            out.append(self._last_of_each_tick(waiting.some(same)))
            waiting = waiting.at(np.flatnonzero(~same))
        return out

    def together(self, side: int, runs: Sequence[Run]) -> list[Run]:
        if side == 1 or not self._ahead:
            return super().together(side, runs)
        runs = [run.live() for run in runs]
        rows = one_batch(pa.Table.from_batches([run.rows for run in runs]))
        more, ends = (np.concatenate([getattr(run, name) for run in runs]) for name in ("more", "ends"))
        return [Run.of(rows, self.keys(0), more, ends)]

    def _equal(self, rows: pa.RecordBatch, at: Positions, others: pa.RecordBatch, at_others: Positions) -> Any:
        """Whether the keys of rows at some positions are those of others, one by one."""
        mine, theirs = pa.array(at), pa.array(at_others)
        columns = range(self.keys(1))
        return np.logical_and.reduce([equal_keys(rows.column(i).take(mine), others.column(i).take(theirs)) for i in columns])

    def _last_of_each_tick(self, run: Run) -> Run:
        """Of right records with one key and event time that of the latest epoch, of one epoch that whose ``repr`` is greatest."""
        if len(run.codes) > 1:
            same = (run.codes[1:] == run.codes[:-1]) & (run.ticks[1:] == run.ticks[:-1])
            if same.any():
                run = self._without_doubles(run, same)
        ends = np.full(len(run.codes), _NEVER)
        if not self._behind:
            ends = run.ticks.copy()
        elif len(run.codes) > 1:
            follows = run.codes[1:] == run.codes[:-1]
            needless = run.ticks[1:] if self.rule.exact or not self._ahead else 2 * run.ticks[1:] - run.ticks[:-1]
            ends[:-1][follows] = needless[follows]
        run.ends = ends
        return run

    def _without_doubles(self, run: Run, same: Any) -> Run:
        last = np.append(~same, True)
        group = np.cumsum(np.append(True, ~same)) - 1
        newest = run.more == run.more[last][group]
        rivals = np.flatnonzero(newest & (np.bincount(group, newest)[group] > 1))
        best = np.flatnonzero(last)
        if len(rivals):
            schema = self.schemas[1]
            assert schema is not None
            shown = map(repr, to_rows(record_of(take_rows(run.rows, pa.array(rivals)), schema)))
            for at, _, position in sorted(zip(group[rivals].tolist(), shown, rivals.tolist(), strict=True)):
                best[at] = position
        return run.at(best)

    # -- records -------------------------------------------------------------------
    def taken_in(self, side: int, batch: pa.RecordBatch, *told: Any) -> list[Any]:
        runs = self.runs_of(side, batch, np.full(batch.num_rows, told[1], np.int64))
        if side == 1 and self._ahead:
            for run in runs:
                self._tell(run)
        self.keep(side, runs)
        return []

    def _told(self, left: Run) -> Run:
        """A left run that has asked the right records that are here up to which ticks it waits."""
        if self._ahead:
            left.ends = np.full(len(left.codes), _NEVER)
            for right in self.runs[1]:
                self._wait(left, np.arange(len(left.codes)), right)
        return left

    def _tell(self, right: Run) -> None:
        """Left records of the keys of a right run learn of it."""
        codes = right.codes[beginnings(right.codes)]
        for left in self.runs[0]:
            low, high = (np.searchsorted(left.codes, codes, side=side) for side in ("left", "right"))
            concerned = ranges(low[high > low], (high - low)[high > low])
            if len(concerned):
                self._wait(left, concerned, right)

    def _wait(self, left: Run, at: Positions, right: Run) -> None:
        for lefts, rights, _ in self._candidates(left, at, right):
            same = self._equal(left.rows, lefts, right.rows, rights)
            lefts, rights = lefts[same], rights[same]
            left.ends[lefts] = np.minimum(left.ends[lefts], left.ticks[lefts] + np.abs(right.ticks[rights] - left.ticks[lefts]))

    def _candidates(self, left: Run, at: Positions, right: Run) -> Iterator[tuple[Positions, Positions, bool]]:
        """Positions of left records, each with the last right one behind it, and with the first ahead, and whether it is that: of those
        within the tolerance with an equal code."""
        hits, where = right.stretches.of(left.codes[at])
        at, (_, begin, end) = at[hits], where
        moments = left.ticks[at]
        for ahead in (False, True):
            if not (self._ahead if ahead else self._behind):
                continue
            found = right.stretches.reached(where, moments + (ahead != self.rule.exact)) - (not ahead)
            there = (found < end) & (found >= begin)
            if self._reach is not None:
                there[there] = np.abs(right.ticks[found[there]] - moments[there]) <= -self.first(0, -self._reach)
            if there.any():
                yield at[there], found[there], ahead

    # -- results -------------------------------------------------------------------
    def settle(self, mark: Any) -> list[Any]:
        """The results of the left records that are settled."""
        out: list[Any] = []
        for side in (0, 1):
            self.runs[side] = [left for run in self.runs[side] if (left := self._left_of(side, run, mark, out)) is not None]
        return out

    def _left_of(self, side: int, run: Run, mark: Any, out: list[Any]) -> Run | None:
        """What is left of a run; ``out`` gets the results of what is settled."""
        limit = TICKS_MAX if mark is None else self.first(side, exact_moment(mark))
        over = run.ends < limit if mark is not None or side == 1 else np.full(len(run.ends), True)
        if self._reach is not None and mark is not None:
            reach = self._reach * (2 if side == 1 and self._ahead else 1)
            over |= run.ticks < self.first(side, exact_moment(mark) - reach)
        if not over.any():
            return run
        if side == 0:
            out += self._results(run.some(over & (run.ends >= run.limit)))
        run.ends = np.where(over, -_NEVER, run.ends)
        return run.left_at(limit)

    def _results(self, left: Run) -> Iterator[Any]:
        """Each of these left records with the right one that it meets."""
        distance = np.full(len(left.codes), _NONE)  # twice, and one more for what is ahead
        epochs = np.zeros(len(left.codes), np.int64)
        where, found = np.full(len(left.codes), -1), np.zeros(len(left.codes), np.int64)
        everything = np.arange(len(left.codes))
        for number, right in enumerate(self.runs[1]):
            for lefts, rights, ahead in self._candidates(left, everything, right):
                away = np.abs(right.ticks[rights] - left.ticks[lefts]).astype(np.uint64) * np.uint64(2) + np.uint64(ahead)
                nearer = (away < distance[lefts]) | ((away == distance[lefts]) & (right.more[rights] > epochs[lefts]))
                lefts, rights, away = lefts[nearer], rights[nearer], away[nearer]
                same = self._equal(left.rows, lefts, right.rows, rights)
                lefts, rights = lefts[same], rights[same]
                distance[lefts], epochs[lefts] = away[same], right.more[rights]
                where[lefts], found[lefts] = number, rights
        for number, right in enumerate(self.runs[1]):
            met = np.flatnonzero(where == number)
            if len(met):
                yield self.results(take_rows(left.rows, pa.array(met)), take_rows(right.rows, pa.array(found[met])))
        if self.how == "left" and (where < 0).any():
            yield self.alone(0, left.some(where < 0).rows)

    def results(self, left: pa.RecordBatch, right: pa.RecordBatch) -> pa.RecordBatch:
        """Rows that have met, as they are given."""
        return joined_batch(left, right, self.schemas)

    # -- as rows ---------------------------------------------------------------------
    def checkpoint(self) -> Any:
        return (*super().checkpoint(), self.settled)

    def restore(self, state: Any) -> None:
        super().restore(state[:2])
        self.settled = state[2]

    def as_rows(self) -> Any:
        found = super().as_rows()
        for _, rights in found.values():  # runs may have one event time each
            newest = {tick: [tick, *others] for tick, *others in sorted(rights, key=itemgetter(0, 3))}
            rights[:] = newest.values()
        rows = AsOfRows(self.rule, self.how)
        rows.take(found)
        rows.forget(self.settled)
        return rows.kept


__all__ = ["AsOfColumns"]
