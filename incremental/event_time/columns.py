"""Windows and joins by event time in columns: the same as in rows (``functions.py``), where the event time is a field."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from rayad.dataflow.operators.state.runs.order import Positions, Ticks
from rayad.dataflow.operators.windows.pane_ticks import as_bounds, grid_of, have_windows, length_ticks, ticks_of, windows_holding
from rayad.dataflow.records.batches import rows_at
from rayad.dataflow.records.event_times import Lengths
from rayad.dataflow.records.values import fields_of, is_tuple, tuple_array, values_of, windows_of
from rayad.dataflow.windows import AsOf, Between, Session, Sliding, Tumbling
from rayad.incremental.columns.form import DIFF, KEY, RECORD, NotColumns, field_of, keyed_changes, valid_keys, weights_of
from rayad.incremental.columns.grouped import Grouped, Records
from rayad.incremental.columns.ordered import in_order
from rayad.incremental.event_time.limits import numbers_of

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
class Latest(Grouped):
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
        is_left = left.is_valid().to_numpy(zero_copy_only=False)
        mine, theirs = np.flatnonzero(is_left), np.flatnonzero(~is_left)
        at, others, tolerance = self._ticks(rows_at(left, mine), rows_at(right, theirs))
        order = in_order(there.group[theirs], rows_at(right, theirs), [pa.array(others)])
        others, theirs = others[order], theirs[order]
        found = self._found((there.group[mine], at), (there.group[theirs], others), tolerance)
        if self.inner:
            mine, found = mine[found >= 0], found[found >= 0]
        met = right.take(pa.array(theirs[found], mask=found < 0)) if len(theirs) else pa.nulls(len(mine))
        return Records(there.group[mine], tuple_array([rows_at(left, mine), met]), there.weights[mine])

    def _ticks(self, left: pa.Array, right: pa.Array) -> tuple[Ticks, Ticks, int | None]:
        """The event times of left and of right records, and the tolerance, in one unit. Raises NotColumns."""
        ticks, bounds = [], []
        for some, name in zip((left, right), self.fields, strict=True):
            found = ticks_of(field_of(some, name), self.rule) if len(some) else (np.zeros(0, np.int64), None)
            if found is None:
                raise NotColumns
            ticks.append(found[0])
            bounds += [] if found[1] is None else [found[1]]
        scale, tolerance = self.rule.scale, None
        if bounds[0] != bounds[-1]:
            raise NotColumns
        if scale is not None:
            exact = scale.kind in (Lengths.WHOLE, Lengths.SPAN)
            tolerance = length_ticks(scale.ticks(self.rule.tolerance), scale, bounds[0]) if exact else None
            if tolerance is None:
                raise NotColumns
        return ticks[0], ticks[1], tolerance

    def _found(self, lefts: tuple[Positions, Ticks], rights: tuple[Positions, Ticks], tolerance: int | None) -> Positions:
        """The position of the right record of each left one, -1 for none. Right records are in order by key and time."""
        (group, at), (groups, others) = lefts, rights
        if not len(others):
            return np.full(len(at), -1)
        times = np.unique(others)
        there = groups * (2 * len(times) + 2) + 2 * np.searchsorted(times, others) + 1  # by key, then by time
        here = group * (2 * len(times) + 2) + np.searchsorted(times, at) + np.searchsorted(times, at, "right")  # a time between two is even
        before = np.searchsorted(there, here, "right" if self.rule.exact else "left") - 1
        first = np.searchsorted(there, here, "left" if self.rule.exact else "right")
        after = np.searchsorted(there, there[np.minimum(first, len(there) - 1)], "right") - 1  # the last one of that time
        ways = {"backward": before, "forward": after}
        misses = {"backward": before < 0, "forward": first == len(there)}

        def apart(way: str) -> Any:
            """How far the right record is that is found one way; ``_FAR`` for none."""
            found = ways[way]
            far = np.maximum(at, others[found]).view(np.uint64) - np.minimum(at, others[found]).view(np.uint64)
            near = (groups[found] == group) & ~misses[way]
            return np.where(near if tolerance is None else near & (far <= np.uint64(tolerance)), far, _FAR)

        if self.rule.direction != "nearest":
            return np.where(apart(self.rule.direction) < _FAR, ways[self.rule.direction], -1)
        back, on = apart("backward"), apart("forward")
        return np.where(np.minimum(back, on) == _FAR, -1, np.where(back <= on, before, after))


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
class Sessions(Grouped):
    """Each record of a key with the session that it is in. Records have event times.

    Args:
        field: with the event time.
    """

    windows: Session
    field: str

    def results(self, there: Records) -> Records:
        found = ticks_of(field_of(there.record, self.field), self.windows)
        grid = None if found is None else grid_of(self.windows, found[1])
        if found is None or grid is None or not have_windows(found[0], grid, found[1], self.windows):
            raise NotColumns
        at, bound = found
        order = np.lexsort((at, there.group))
        group, at = there.group[order], at[order]
        begins = np.append(True, (group[1:] != group[:-1]) | (at[1:] - at[:-1] > grid.size))
        session, first = np.cumsum(begins) - 1, np.flatnonzero(begins)
        last = np.append(first[1:], len(at)) - 1
        windows = windows_of(as_bounds(at[first][session], bound), as_bounds((at[last] + grid.size)[session], bound))
        record = rows_at(there.record, order)
        return Records(group, tuple_array([windows, record]), there.weights[order])


def by_window(batch: pa.RecordBatch) -> pa.RecordBatch | None:
    """What :class:`Sessions` gives, by key and window."""
    record = batch.column(RECORD)
    if not is_tuple(record.type) or not is_tuple(record.type.field(1).type):
        return None
    key, found = record.field(0), record.field(1)
    return keyed_changes(tuple_array([key, found.field(0)]), found.field(1), batch.column(DIFF))


__all__ = ["Assigned", "Largest", "Latest", "OnSide", "Sessions", "Timed", "Within", "by_window"]
