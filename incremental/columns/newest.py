"""The newest record of each key, in columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rayad.dataflow.operators.state.runs.order import Positions
from rayad.dataflow.operators.state.runs.run import Run
from rayad.dataflow.records.batches import rows_at
from rayad.incremental.columns.form import KEY, RECORD, NotColumns, changes, field_of, unlike
from rayad.incremental.columns.kept import COUNT, ColumnForm, Out, Part
from rayad.incremental.columns.ordered import first_rows, in_order
from rayad.incremental.columns.reducing import Gathered, changed, keys_of
from rayad.progress import Timestamp


class NewestColumns(ColumnForm):
    """The newest record of each key, once; also of one that is gone where a later record may be older.

    Args:
        order: the field that is compared, or the number of a part of tuples; None: there may be one record of a key in an epoch.
        deleted: the field, or part, that says whether a key is gone; None: none is.
    """

    def __init__(self, order: str | int | None, deleted: str | int | None) -> None:
        super().__init__({"newest": Part()})
        self._order = order
        self._deleted = deleted
        self.changed: Run | None = None
        """What the last moment has changed of what is kept."""

    def on_moment(self, time: Timestamp, runs: Sequence[Run | None], due: Sequence[pa.RecordBatch]) -> tuple[Out, Out]:
        """Raises NotColumns also where a key has several records and there is no order: rows name them."""
        (come,), part = runs, self.inputs["newest"]
        self.changed = None
        if come is None or not len(come):
            return [], []
        gathered = keys_of(part.now, come, due, time.counters)
        new = self._newest_of(gathered, come)
        had, old = self._there(gathered)
        stays = np.zeros(len(new), np.bool_)
        stays[had] = self._is_older(rows_at(new, had), old)
        is_other = np.zeros(len(had), np.bool_)
        is_other[unlike(rows_at(new, had), old)] = True
        stays[had] |= ~is_other
        goes, comes = np.flatnonzero(~stays[had]), np.flatnonzero(~stays)
        old, new = rows_at(old, goes), rows_at(new, comes)
        was_there, is_there = ~self.are_gone(old), ~self.are_gone(new)
        told = [_part(np.flatnonzero(was_there), old, -1), _part(np.flatnonzero(is_there), new, 1)]
        kept = np.flatnonzero(is_there) if self._order is None else np.arange(len(new))
        which, records, weights = changed([_part(np.arange(len(old)), old, -1, had[goes]), _part(kept, new, 1, comes[kept])])
        if len(which):
            rows = pa.RecordBatch.from_arrays([rows_at(gathered.keys.column(0), which), records], names=[KEY, RECORD])
            self.changed = part.now.at_moment(rows, time.counters, gathered.places[which], **{COUNT: weights})
            part.now.add([self.changed])
            self.time = time
        _, records, weights = changed(told)
        return [(time, changes(records, weights))] if len(weights) else [], []

    def _newest_of(self, gathered: Gathered, come: Run) -> pa.Array:
        """Of each key the newest record that has come; of those that are equal in order the last one by contents."""
        if self._order is None and len(gathered.places) < len(come):
            raise NotColumns
        rows, which = gathered.found(self.inputs["newest"].now, come)
        records = rows_at(come.rows.column(1), rows)
        order = in_order(which, records, [] if self._order is None else [self._compared(records)])
        last = np.append(first_rows(which[order])[1:], True)
        return rows_at(records, order[last])

    def _compared(self, records: pa.Array) -> pa.Array:
        """What records are compared by. Raises NotColumns where it is null for any, or cannot be compared."""
        assert self._order is not None
        by = field_of(records, self._order)
        if by.null_count or pa.types.is_nested(by.type):
            raise NotColumns
        return by.cast(pa.int8()) if pa.types.is_boolean(by.type) else by

    def _there(self, gathered: Gathered) -> tuple[Positions, pa.Array]:
        """Of which keys a record is kept, shape (kept,), and these."""
        part = self.inputs["newest"]
        found: list[tuple[Positions, pa.Array, Positions, Any]] = []
        for runs in part.there():
            for run in runs.near(gathered.places):
                rows, which = gathered.found(runs, run)
                if len(rows):
                    found.append((which, run.rows.column(1), rows, run.beside[COUNT][rows]))
        if found:
            which, records, weights = changed(found)
            rows = pa.RecordBatch.from_arrays([rows_at(gathered.keys.column(0), which), records], names=[KEY, RECORD])
            once = part.now.at_moment(rows, (), gathered.places[which], **{COUNT: weights})
            if len(once):  # what goes may be in another run than what came
                at, which = gathered.found(part.now, once)
                return which, rows_at(once.rows.column(1), at)
        return np.zeros(0, np.int64), pa.nulls(0, part.now.schema.field(1).type)

    def _is_older(self, new: pa.Array, old: pa.Array) -> Any:
        """Where what has come is older than what is there, shape (rows,)."""
        if self._order is None or not len(old):
            return np.zeros(len(old), np.bool_)
        try:
            return pc.less(self._compared(new), self._compared(old)).to_numpy(zero_copy_only=False)
        except (pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
            raise NotColumns from error

    def are_gone(self, records: pa.Array) -> Any:
        """Which records say that their key is gone, shape (rows,)."""
        if self._deleted is None or not len(records):
            return np.zeros(len(records), np.bool_)
        said = field_of(records, self._deleted)
        if pa.types.is_null(said.type):
            return np.zeros(len(said), np.bool_)
        if not pa.types.is_boolean(said.type) and not pa.types.is_integer(said.type):
            raise NotColumns
        return pc.fill_null(said.cast(pa.bool_()), False).to_numpy(zero_copy_only=False)


def _part(rows: Positions, of: pa.Array, weight: int, which: Positions | None = None) -> tuple[Positions, pa.Array, Positions, Any]:
    """Some rows of records, each as often."""
    return rows if which is None else which, of, rows, np.full(len(rows), weight)


__all__ = ["NewestColumns"]
