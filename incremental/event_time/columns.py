"""Windows and joins by event time in columns: the same as in rows (``functions.py``), where the event time is a field."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from rayad.dataflow.operators.state.runs.order import Positions, Ticks
from rayad.dataflow.operators.windows.pane_ticks import Grid, as_bounds, grid_of, have_windows, length_ticks, ticks_of, windows_holding
from rayad.dataflow.records.batches import rows_at
from rayad.dataflow.records.event_times import Lengths
from rayad.dataflow.records.values import fields_of, is_tuple, tuple_array, values_of, windows_of
from rayad.dataflow.windows import AsOf, Between, Session, Sliding, Tumbling
from rayad.incremental.columns.form import DIFF, KEY, RECORD, NotColumns, field_of, keyed_changes, valid_keys, weights_of
from rayad.incremental.columns.grouped import Records
from rayad.incremental.columns.ordered import in_order
from rayad.incremental.event_time.limits import Numbers, floats_of, in_order_of, numbers_of
from rayad.incremental.event_time.needing import LimitOf, Needing

_FAR = np.uint64(2**64 - 1)
"""Further than any two moments are apart."""


@dataclass(frozen=True, slots=True)
class Timed:
    """The changes of records that have an event time.

    Args:
        field: with it.
        keyed: whether the key must not be null, either.
        turned: give the others.
    """

    field: str
    keyed: bool = False
    turned: bool = False

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch | None:
        try:
            times = field_of(batch.column(RECORD), self.field)
        except NotColumns:
            return None
        there = times.is_valid().to_numpy(zero_copy_only=False)
        keys = valid_keys(batch.column(KEY)) if self.keyed else None
        there = there if keys is None else there & keys
        return rows_at(batch, np.flatnonzero(there != self.turned))


@dataclass(frozen=True, slots=True)
class Largest:
    """The largest event time of the records that are inserted, alone in a list.

    Args:
        field: with the event time.
    """

    field: str

    def __call__(self, batch: pa.RecordBatch) -> list[Any] | None:
        try:
            times = field_of(batch.column(RECORD), self.field)
            there = (weights_of(batch) > 0) & times.is_valid().to_numpy(zero_copy_only=False)
            times = rows_at(times, np.flatnonzero(there))
            at = numbers_of(times).at
        except NotColumns:
            return None
        return values_of(times.slice(int(at.argmax()), 1)) if len(at) else []


@dataclass(frozen=True, slots=True)
class Within:
    """The changes of joined pairs whose event times are so far from each other. None of these is null.

    Args:
        fields: with the event times of left and right records.
    """

    within: Between
    fields: tuple[str, str]

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch | None:
        pair = batch.column(RECORD).field(1)
        try:
            left, right = (ticks_of(field_of(record, name), self.within) for record, name in zip(fields_of(pair), self.fields, strict=True))
        except NotColumns:
            return None
        scale = self.within.scale
        if left is None or right is None or left[1] != right[1] or scale.kind not in (Lengths.WHOLE, Lengths.SPAN):
            return None
        lower, upper = (length_ticks(scale.ticks(bound), scale, left[1]) for bound in (self.within.lower, self.within.upper))
        if lower is None or upper is None:
            return None
        apart = right[0] - left[0]
        return rows_at(batch, np.flatnonzero((lower <= apart) & (apart <= upper)))


@dataclass(frozen=True, slots=True)
class OnSide:
    """The records of keyed changes as left or right ones of pairs of which the other one is None."""

    side: int

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        record, nothing = batch.column(RECORD), pa.nulls(batch.num_rows)
        return keyed_changes(batch.column(KEY), tuple_array([nothing, record] if self.side else [record, nothing]), batch.column(DIFF))


@dataclass(frozen=True, slots=True)
class Latest(Needing):
    """Each left record with the right one that an as-of join picks. Records are pairs as of :class:`OnSide`, and have event times.

    Args:
        fields: with the event times of left and right records.
        inner: whether a left record without a right one is left out.
    """

    rule: AsOf
    fields: tuple[str, str]
    inner: bool

    def results(self, there: Records) -> Records:
        left, right = fields_of(there.record)
        mine, theirs, lefts, rights = self._sides(there)
        found = self._best(self._ways(lefts, rights))[0]
        if self.inner:
            mine, found = mine[found >= 0], found[found >= 0]
        met = right.take(pa.array(theirs[found], mask=found < 0)) if len(theirs) else pa.nulls(len(mine))
        return Records(there.group[mine], tuple_array([rows_at(left, mine), met]), there.weights[mine])

    def _sides(self, there: Records) -> tuple[Positions, Positions, _Timed, _Timed]:
        """The positions of left records, and of right ones in order by key, time and contents; and both with their times. Raises
        NotColumns."""
        left, right = fields_of(there.record)
        is_left = left.is_valid().to_numpy(zero_copy_only=False)
        mine, theirs = np.flatnonzero(is_left), np.flatnonzero(~is_left)
        (at, others), kind = self._ticks(rows_at(left, mine), rows_at(right, theirs))
        tolerance = self._tolerance(kind)
        order = in_order(there.group[theirs], rows_at(right, theirs), [pa.array(others)])
        others, theirs = others[order], theirs[order]
        return mine, theirs, _Timed(there.group[mine], at, tolerance), _Timed(there.group[theirs], others, tolerance)

    def _ticks(self, left: pa.Array, right: pa.Array) -> tuple[tuple[Ticks, Ticks], pa.DataType]:
        """The event times of left and of right records, in one unit, and which that is. Raises NotColumns."""
        ticks: list[Ticks] = []
        kinds: list[pa.DataType] = []
        for some, name in zip((left, right), self.fields, strict=True):
            if not len(some):
                ticks.append(np.zeros(0, np.int64))
                continue
            at, kind = numbers_of(field_of(some, name))
            ticks.append(in_order_of(at, kind))
            kinds.append(kind)
        if kinds[0] != kinds[-1] or (kinds[0] == pa.float64() and (self.rule.direction == "nearest" or self.rule.scale is not None)):
            raise NotColumns  # of floats the order is known, and not how far they are from each other
        return (ticks[0], ticks[1]), kinds[0]

    def _tolerance(self, kind: pa.DataType) -> int | None:
        """In ticks; None: there is none. Raises NotColumns."""
        scale = self.rule.scale
        if scale is None:
            return None
        exact = scale.kind in (Lengths.WHOLE, Lengths.SPAN)
        tolerance = length_ticks(scale.ticks(self.rule.tolerance), scale, kind) if exact else None
        if tolerance is None:
            raise NotColumns
        return tolerance

    def _ways(self, lefts: _Timed, rights: _Timed) -> list[tuple[Positions, Any]]:
        """The position of the right record of each left one, and how far it is, ``_FAR`` for none, by each way that is looked."""
        group, at, _ = lefts
        groups, others, _ = rights
        if not len(others):
            return [(np.full(len(at), -1), np.full(len(at), _FAR))]
        times = np.unique(others)
        there = groups * (2 * len(times) + 2) + 2 * np.searchsorted(times, others) + 1  # by key, then by time
        here = group * (2 * len(times) + 2) + np.searchsorted(times, at) + np.searchsorted(times, at, "right")  # a time between two is even
        before = np.searchsorted(there, here, "right" if self.rule.exact else "left") - 1
        first = np.searchsorted(there, here, "left" if self.rule.exact else "right")
        after = np.searchsorted(there, there[np.minimum(first, len(there) - 1)], "right") - 1  # the last one of that time
        ways = {"backward": (before, before < 0), "forward": (after, first == len(there))}
        asked = ways if self.rule.direction == "nearest" else [self.rule.direction]
        return [self._near(lefts, rights, *ways[way]) for way in asked]

    def _near(self, lefts: _Timed, rights: _Timed, found: Positions, misses: Any) -> tuple[Positions, Any]:
        """What was found, and how far it is."""
        group, at, tolerance = lefts
        groups, others, _ = rights
        far = np.maximum(at, others[found]).view(np.uint64) - np.minimum(at, others[found]).view(np.uint64)
        near = (groups[found] == group) & ~misses
        return found, np.where(near if tolerance is None else near & (far <= np.uint64(tolerance)), far, _FAR)

    def _best(self, ways: list[tuple[Positions, Any]]) -> tuple[Positions, Any]:
        """The nearest one, the first way where both are as near; -1 for none."""
        (found, far), (other, on) = ways[0], ways[-1]
        nearest = np.minimum(far, on)
        return np.where(nearest == _FAR, -1, np.where(far <= on, found, other)), nearest

    # -- what it needs: see the same of rows -----------------------------------------------------------------
    def looks(self, rows: pa.RecordBatch) -> Numbers:
        left, right = fields_of(rows.column(1))
        is_left = left.is_valid().to_numpy(zero_copy_only=False)
        times, kind = self._ticks(rows_at(left, np.flatnonzero(is_left)), rows_at(right, np.flatnonzero(~is_left)))
        self._tolerance(kind)
        at = np.empty(len(is_left), np.int64)
        at[is_left], at[~is_left] = times
        return Numbers(floats_of(at) if kind == pa.float64() else at, kind)

    def later(self, kind: pa.DataType) -> Sequence[int]:
        tolerance = self._tolerance(kind)
        return (0,) if tolerance is None or self.rule.direction == "forward" else (0, tolerance)

    def needed(self, there: Records, limit_of: LimitOf) -> tuple[Any, Positions]:
        if not len(there.group):
            return np.zeros(0, np.bool_), there.group
        kind = self.looks(pa.RecordBatch.from_arrays([there.record, there.record], names=["", RECORD])).kind
        limits = np.broadcast_to(in_order_of(limit_of(kind), kind), len(there.group))
        mine, theirs, lefts, rights = self._sides(there)
        limit, other_limit = limits[mine], limits[theirs]
        kept = np.zeros(len(there.group), np.bool_)
        kept[mine], kept[theirs] = lefts.at >= limit, rights.at >= other_limit
        old = np.flatnonzero(rights.at < other_limit)
        olds = _Timed(rights.group[old], rights.at[old], rights.tolerance)
        waits = np.flatnonzero((lefts.at < limit) & ~self._are_final(lefts, rights, limit))
        kept[mine[waits]] = True
        for found, far in self._ways(_Timed(lefts.group[waits], lefts.at[waits], lefts.tolerance), olds):
            kept[theirs[old[found[far < _FAR]]]] = True
        if self.rule.direction != "forward" and len(old):
            last = np.flatnonzero(np.append(olds.group[1:] != olds.group[:-1], True))
            kept[theirs[old[last[_reaches(olds.at[last], olds.tolerance, other_limit[old[last]])]]]] = True
        return kept, np.unique(lefts.group[waits])

    def _are_final(self, lefts: _Timed, rights: _Timed, limit: Ticks) -> Any:
        """Whether no change at a limit, or later, changes what left records before it have."""
        if self.rule.direction == "backward":
            return np.ones(len(limit), np.bool_)
        final = ~_reaches(lefts.at, lefts.tolerance, limit)
        found, far = self._best(self._ways(lefts, rights))
        if len(rights.at):
            met = (found >= 0) & (rights.at[found] < limit)
            final |= met if self.rule.direction == "forward" else met & (far < limit.view(np.uint64) - lefts.at.view(np.uint64))
        return final


class _Timed(NamedTuple):
    """Records with the numbers of their keys and their event times, both shape (rows,), and how far others may be; None: any."""

    group: Positions
    at: Ticks
    tolerance: int | None


def _reaches(at: Ticks, tolerance: int | None, limit: Ticks) -> Any:
    """Whether moments before a limit are as near to it as they may be."""
    if tolerance is None:
        return np.ones(len(at), np.bool_)
    return limit.view(np.uint64) - at.view(np.uint64) <= np.uint64(tolerance)


@dataclass(frozen=True, slots=True)
class Assigned:
    """Changes by their key and each of their windows; one without an event time is in none.

    Args:
        field: with the event time.
    """

    windows: Tumbling | Sliding
    field: str

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch | None:
        timed = Timed(self.field)(batch)
        found = None if timed is None else windows_holding(field_of(timed.column(RECORD), self.field), self.windows)
        if timed is None or found is None:
            return None
        where, starts, ends = found
        held = rows_at(timed, where)
        return keyed_changes(tuple_array([held.column(KEY), windows_of(starts, ends)]), held.column(RECORD), held.column(DIFF))


@dataclass(frozen=True, slots=True)
class Sessions(Needing):
    """Each record of a key with the session that it is in. Records have event times.

    Args:
        field: with the event time.
    """

    windows: Session
    field: str

    def results(self, there: Records) -> Records:
        at, grid, bound = self._ticks(there.record)
        found = _found(there.group, at, grid.size)
        first = at[found.order[found.first]][found.session]
        windows = windows_of(as_bounds(first, bound), as_bounds(found.end[found.session], bound))
        record = rows_at(there.record, found.order)
        return Records(there.group[found.order], tuple_array([windows, record]), there.weights[found.order])

    def _ticks(self, record: pa.Array) -> tuple[Ticks, Grid, pa.DataType]:
        """Event times, the grid of their windows, and what they are. Raises NotColumns."""
        found = ticks_of(field_of(record, self.field), self.windows)
        grid = None if found is None else grid_of(self.windows, found[1])
        if found is None or grid is None or not have_windows(found[0], grid, found[1], self.windows):
            raise NotColumns
        return found[0], grid, found[1]

    # -- what it needs: see the same of rows -----------------------------------------------------------------
    def looks(self, rows: pa.RecordBatch) -> Numbers:
        at, grid, kind = self._ticks(rows.column(1))
        return Numbers(at + grid.size, kind)

    def needed(self, there: Records, limit_of: LimitOf) -> tuple[Any, Positions]:
        if not len(there.group):
            return np.zeros(0, np.bool_), there.group
        at, grid, kind = self._ticks(there.record)
        found = _found(there.group, at, grid.size)
        needed = np.empty(len(at), np.bool_)
        needed[found.order] = found.end[found.session] >= np.broadcast_to(limit_of(kind), len(at))[found.order]
        return needed, there.group[:0]


class _Found(NamedTuple):
    """Sessions.

    Args:
        order: the positions of records by key and time.
        session: the number of the session of each, in that order.
        first: where in that order sessions begin.
        end: of each session.
    """

    order: Positions
    session: Positions
    first: Positions
    end: Ticks


def _found(group: Positions, at: Ticks, gap: int) -> _Found:
    """The sessions of records with these keys and times, of which there are some."""
    order = np.lexsort((at, group))
    group, at = group[order], at[order]
    begins = np.append(True, (group[1:] != group[:-1]) | (at[1:] - at[:-1] > gap))
    first = np.flatnonzero(begins)
    return _Found(order, np.cumsum(begins) - 1, first, at[np.append(first[1:], len(at)) - 1] + gap)


def by_window(batch: pa.RecordBatch) -> pa.RecordBatch | None:
    """What :class:`Sessions` gives, by key and window."""
    record = batch.column(RECORD)
    if not is_tuple(record.type) or not is_tuple(record.type.field(1).type):
        return None
    key, found = record.field(0), record.field(1)
    return keyed_changes(tuple_array([key, found.field(0)]), found.field(1), batch.column(DIFF))


__all__ = ["Assigned", "Largest", "Latest", "OnSide", "Sessions", "Timed", "Within", "by_window"]
