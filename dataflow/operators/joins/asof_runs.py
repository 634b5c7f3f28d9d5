"""The as-of join's columnar half: left records that are settled are searched for, by key and event time at once, in the runs of the right
side.

Of each left record that looks ahead it is known up to which tick it waits: that is told it by the right records that come, and it asks
those that are here when it comes. Of each right record of a run it is known which tick makes it needless: that of the next one of its key.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from operator import itemgetter
from typing import Any

import numpy as np
import pyarrow as pa

from rayad.dataflow.operators.joins.asof_rows import AsOfHow, AsOfRows
from rayad.dataflow.operators.joins.kept_runs import KeptRuns, passed_by
from rayad.dataflow.operators.joins.matching import Stretches
from rayad.dataflow.operators.joins.pairs import joined_batch
from rayad.dataflow.operators.keys.column_keys import beginnings, equal_keys
from rayad.dataflow.operators.keys.key_first import record_of
from rayad.dataflow.operators.state.runs.order import Positions, Ticks, order_of
from rayad.dataflow.operators.state.runs.run import Run
from rayad.dataflow.records.batches import take_rows, to_rows
from rayad.dataflow.records.event_times import TICKS_MAX, exact_moment
from rayad.dataflow.windows import AsOf

_NEVER = np.iinfo(np.int64).max
_NONE = np.uint64(np.iinfo(np.uint64).max)


class AsOfColumns(KeptRuns):
    """Left records that are not settled, and right records that they or later ones may meet, in columns. ``more`` are their epochs.

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
    def ends_of(self, side: int, run: Run) -> Ticks:
        """Of a left record that looks ahead what the right ones that are here tell it; of a right one see :meth:`in_order`."""
        if side == 1 or not self._ahead:
            return super().ends_of(side, run)
        run.beside["ends"] = np.full(len(run), _NEVER)
        for right in self.near(1, run.place):
            self._wait(run, np.arange(len(run)), right)
        return run.beside["ends"]  # type: ignore[no-any-return]

    def bits(self, run: Run) -> Any:
        """Which are not over."""
        return run.beside["ends"] >= passed_by(run)

    def put_bits(self, side: int, run: Run, bits: Any) -> None:
        """The ends of what is over are not found out anew: a left record would give its result twice."""
        ends = self.ends_of(0, run) if side == 0 else self._last_of_each_tick(run).beside["ends"]
        run.beside["ends"] = np.where(bits, ends, -_NEVER)

    def in_order(self, side: int, runs: list[Run]) -> list[Run]:
        if side == 0:
            return runs
        out, (waiting,) = [], runs
        while len(waiting):
            heads = beginnings(waiting.place)
            first = np.repeat(heads, np.diff(np.append(heads, len(waiting))))
            same = self._equal(waiting.rows, np.arange(len(first)), waiting.rows, first)
            out.append(self._last_of_each_tick(waiting.some(same)))
            waiting = waiting.at(np.flatnonzero(~same))
        return out

    def _equal(self, rows: pa.RecordBatch, at: Positions, others: pa.RecordBatch, at_others: Positions) -> Any:
        """Whether the keys of rows at some positions are those of others, one by one."""
        mine, theirs = pa.array(at), pa.array(at_others)
        columns = range(self.keys(1))
        return np.logical_and.reduce([equal_keys(rows.column(i).take(mine), others.column(i).take(theirs)) for i in columns])

    def _last_of_each_tick(self, run: Run) -> Run:
        """Of right records with one key and event time that of the latest epoch, of one epoch that whose ``repr`` is greatest."""
        if len(run) > 1:
            same = _follows(run) & (run.tick[1:] == run.tick[:-1])
            if same.any():
                run = self._without_doubles(run)
        ends = np.full(len(run), _NEVER)
        if not self._behind:
            ends = run.tick.copy()
        elif len(run) > 1:
            follows = _follows(run)
            needless = run.tick[1:] if self.rule.exact or not self._ahead else 2 * run.tick[1:] - run.tick[:-1]
            ends[:-1][follows] = needless[follows]
        run.beside["ends"] = ends
        return run

    def _without_doubles(self, run: Run) -> Run:
        order = order_of(run.place, run.tick, run.beside["more"])
        run = run if order is None else run.at(order)
        same = _follows(run) & (run.tick[1:] == run.tick[:-1])
        epochs = run.beside["more"]
        last = np.append(~same, True)
        group = np.cumsum(np.append(True, ~same)) - 1
        newest = epochs == epochs[last][group]
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
        runs = self.come(side, batch, np.full(batch.num_rows, told[1], np.int64))
        if side == 1 and self._ahead:
            for run in runs:
                self._tell(run)
        self.side(side).add(runs)
        return []

    def _tell(self, right: Run) -> None:
        """Left records of the keys of a right run learn of it."""
        left_side = self.parts[0]
        if left_side is not None:
            for left, concerned in left_side.having(right.place[beginnings(right.place)]):
                self._wait(left, concerned, right)

    def _wait(self, left: Run, at: Positions, right: Run) -> None:
        for lefts, rights, _ in self._candidates(left, at, right):
            same = self._equal(left.rows, lefts, right.rows, rights)
            lefts, rights = lefts[same], rights[same]
            ends, at_left = left.beside["ends"], left.tick[lefts]
            ends[lefts] = np.minimum(ends[lefts], at_left + np.abs(right.tick[rights] - at_left))

    def _candidates(self, left: Run, at: Positions, right: Run) -> Iterator[tuple[Positions, Positions, bool]]:
        """Positions of left records, each with the last right one behind it, and with the first ahead, and whether it is that: of those
        within the tolerance with an equal code."""
        stretches = _stretches(right)
        hits, where = stretches.of(left.place[at])
        at, (_, begin, end) = at[hits], where
        moments = left.tick[at]
        for ahead in (False, True):
            if not (self._ahead if ahead else self._behind):
                continue
            found = stretches.reached(where, moments + (ahead != self.rule.exact)) - (not ahead)
            there = (found < end) & (found >= begin)
            if self._reach is not None:
                there[there] = np.abs(right.tick[found[there]] - moments[there]) <= -self.first(0, -self._reach)
            if there.any():
                yield at[there], found[there], ahead

    # -- results -------------------------------------------------------------------
    def settle(self, mark: Any) -> list[Any]:
        """The results of the left records that are settled."""
        out: list[Any] = []
        for side, runs in enumerate(self.parts):
            if runs is not None:
                runs.change(partial(self._left_of, side, mark, out))
        return out

    def _left_of(self, side: int, mark: Any, out: list[Any], run: Run) -> Run | None:
        """What is left of a run; ``out`` gets the results of what is settled."""
        limit = TICKS_MAX if mark is None else self.first(side, exact_moment(mark))
        ends = run.beside["ends"]
        over = ends < limit if mark is not None or side == 1 else np.full(len(ends), True)
        if self._reach is not None and mark is not None:
            reach = self._reach * (2 if side == 1 and self._ahead else 1)
            over |= run.tick < self.first(side, exact_moment(mark) - reach)
        if not over.any():
            return run
        if side == 0:
            out += self._results(run.some(over & (ends >= passed_by(run))))
        run.beside["ends"] = np.where(over, -_NEVER, ends)
        return self.side(side).left_at(run, limit)

    def _results(self, left: Run) -> Iterator[Any]:
        """Each of these left records with the right one that it meets."""
        distance = np.full(len(left), _NONE)  # twice, and one more for what is ahead
        epochs = np.zeros(len(left), np.int64)
        where, found = np.full(len(left), -1), np.zeros(len(left), np.int64)
        everything = np.arange(len(left))
        rights_near = self.near(1, left.place)
        for number, right in enumerate(rights_near):
            for lefts, rights, ahead in self._candidates(left, everything, right):
                away = np.abs(right.tick[rights] - left.tick[lefts]).astype(np.uint64) * np.uint64(2) + np.uint64(ahead)
                nearer = (away < distance[lefts]) | ((away == distance[lefts]) & (right.beside["more"][rights] > epochs[lefts]))
                lefts, rights, away = lefts[nearer], rights[nearer], away[nearer]
                same = self._equal(left.rows, lefts, right.rows, rights)
                lefts, rights = lefts[same], rights[same]
                distance[lefts], epochs[lefts] = away[same], right.beside["more"][rights]
                where[lefts], found[lefts] = number, rights
        for number, right in enumerate(rights_near):
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


def _follows(run: Run) -> Any:
    """Whether each row but the first has the key of the one before it."""
    return run.place[1:] == run.place[:-1]


def _stretches(run: Run) -> Stretches:
    """An index of its places and ticks; it is as large as the run, so that of one on disk is not kept."""
    if run.on_disk:
        return Stretches(run.place, run.tick)
    if run.index is None:
        run.index = Stretches(run.place, run.tick)
    return run.index  # type: ignore[no-any-return]


__all__ = ["AsOfColumns"]
