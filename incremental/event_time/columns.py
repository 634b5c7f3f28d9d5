"""Windows and joins by event time in columns: the same as in rows (``functions.py``), where the event time is a field."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from rayad.dataflow.operators.windows.pane_ticks import as_bounds, grid_of, have_windows, length_ticks, ticks_of, windows_holding
from rayad.dataflow.records.batches import rows_at
from rayad.dataflow.records.event_times import Lengths
from rayad.dataflow.records.values import fields_of, is_tuple, tuple_array, windows_of
from rayad.dataflow.windows import Between, Session, Sliding, Tumbling
from rayad.incremental.columns.form import DIFF, KEY, RECORD, NotColumns, field_of, keyed_changes, valid_keys
from rayad.incremental.columns.grouped import Grouped, Records


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


__all__ = ["Assigned", "Sessions", "Timed", "Within", "by_window"]
