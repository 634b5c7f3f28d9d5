"""Session windows over columns: runs of events of one key no more than a gap apart, merged in bulk.

Partials come one for each key and event time. A session ``[start, end)`` and a record ``[time, time + gap)`` belong together when they
touch; records that come to an end behind the watermark are late, unless others of their time, or a session that is open, go on with
them. The open sessions of the keys that have come, and the new records, are sorted by key and start; a new session begins where a start
lies beyond the largest end before it. Sessions that went into others are marked, and go when runs are merged.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rayad.dataflow.operators.keys.column_keys import key_numbers
from rayad.dataflow.operators.state.runs.order import order_of, places_of, ticks
from rayad.dataflow.operators.state.runs.run import Run
from rayad.dataflow.operators.state.runs.runs import Runs
from rayad.dataflow.operators.state.stored_columns import Unchanging, stored, taken_back
from rayad.dataflow.operators.windows.pane_ticks import Form, as_bounds
from rayad.dataflow.operators.windows.panes import FIRED_ROWS
from rayad.dataflow.records.batches import one_batch, take_rows

Array = npt.NDArray[Any]


class Sessions(Runs):
    """Open sessions: key columns, start, end, partials; sorted by key and start. Beside each is whether it is still there.

    Args:
        form: of the partials that arrive, with one place: the event time.
        gap: in ticks.
    """

    derived: ClassVar[frozenset[str]] = frozenset({"open"})

    def __init__(self, form: Form, gap: int) -> None:
        super().__init__(form.keys, moment=form.keys)
        self.arriving = form
        self.gap = gap
        fields, at = list(form.schema), form.keys
        fields[at : at + 1] = [pa.field("start", form.bound), pa.field("end", form.bound)]
        schema = pa.schema([field.with_name(f"c{i}") for i, field in enumerate(fields)])
        self.form = Form(schema, form.keys, 2, form.partials)
        self._until: int | None = None

    @property
    def count(self) -> int:
        return sum(int(np.count_nonzero(run.beside["open"])) for run in self.all())

    def read(self, rows: pa.RecordBatch, **beside: Any) -> Run:
        return super().read(rows, open=np.ones(rows.num_rows, np.bool_))

    def live(self, run: Run) -> Run:
        return run.some(run.beside["open"])

    # -- snapshots -----------------------------------------------------------------
    def marks(self, run: Run) -> Any:
        """A bit for each session: whether it is still there."""
        return np.packbits(run.beside["open"])

    def marked(self, run: Run, marks: Any) -> None:
        run.beside["open"] = np.unpackbits(marks, count=len(run)).astype(np.bool_)

    def again(self, parts: Iterable[Any]) -> list[Run]:
        parts = list(parts or ())
        if any(isinstance(part, Unchanging) for part in parts):  # of a version that had one table
            parts = [(parts, {}, None)]
        return super().again(parts)

    def note(self, run: Run) -> None:
        """An increment has what was taken in, and how far sessions were forgotten before each: the sessions follow from it."""

    def changed(self, added: list[Any]) -> Any:
        return [(before, stored([batch]), mark) for before, batch, mark in added], self._until

    def restore_changes(self, changes: Any) -> None:
        added, until = changes
        for before, batch, *mark in added:  # no mark: of a version that stored no late ones
            if before is not None:
                self.due(before)
            self._take(taken_back(batch)[0], mark[0] if mark else None)
        if until is not None:
            self.due(until)

    # -- partials --------------------------------------------------------------------
    def ends_of(self, batch: pa.RecordBatch) -> pa.Array:
        """The ends of sessions."""
        return batch.column(self.form.keys + 1)

    def accept(self, batches: list[pa.RecordBatch], mark: int | None) -> None:
        """Take the partials of one time in, but for what has ended at ``mark`` when all of it is in.

        Raises OverflowError, before anything has changed, when a sum could leave 64 bits.
        """
        batch, _ = self.arriving.merged(pa.Table.from_batches(batches))
        at = self.form.keys
        columns = batch.columns
        starts = ticks(columns[at])
        columns[at : at + 1] = [as_bounds(starts, self.form.bound), as_bounds(starts + self.gap, self.form.bound)]
        batch = pa.RecordBatch.from_arrays(columns, schema=self.form.schema)
        if batch.num_rows:
            self._take(batch, mark if mark is not None and (starts + self.gap <= mark).any() else None)

    def hold(self, batch: pa.RecordBatch) -> Array:
        """Whether the ``[start, start + gap)`` of each partial is inside a session that is open; these have the keys and the start."""
        out = np.zeros(batch.num_rows, bool)
        at = self.form.keys
        found = [run.rows.take(pa.array(rows)) for run, rows in self._open_of(np.unique(places_of(batch.columns[:at], self.key_groups)))]
        if not found:
            return out
        opened = one_batch(pa.Table.from_batches(found))
        kept = opened.num_rows
        schema = pa.schema([field.with_name(f"c{i}") for i, field in enumerate(list(self.form.schema)[: at + 1])])
        parts = [opened.columns[: at + 1], batch.columns[: at + 1]]
        both = one_batch(pa.Table.from_batches([pa.RecordBatch.from_arrays(columns, schema=schema) for columns in parts]))
        keys, starts = key_numbers(both.columns[:at]), ticks(both.column(at))
        order = np.lexsort((np.arange(len(starts)) >= kept, starts, keys))
        # Sessions of a key are apart, so the last one that begins no later is the only one that may hold it.
        before = np.maximum.accumulate(np.where(order < kept, np.arange(len(order)), -1))
        asked = np.flatnonzero((order >= kept) & (before >= 0))
        session, partial = order[before[asked]], order[asked]
        ends = ticks(self.ends_of(opened))
        out[partial - kept] = (keys[session] == keys[partial]) & (ends[session] >= starts[partial] + self.gap)
        return out

    def _open_of(self, places: Any) -> Iterable[tuple[Run, Array]]:
        """The positions of the open sessions of some places, which ascend, in each run."""
        for run, rows in self.having(places):
            rows = rows[run.beside["open"][rows]]
            if len(rows):
                yield run, rows

    def due(self, until: int | None) -> tuple[pa.Table, bool] | None:
        """The sessions that end at or before ``until`` (None: all); they are forgotten."""
        parts = [table for table, _ in self.fired(until)]
        return (pa.concat_tables(parts), True) if parts else None

    def fired(self, until: int | None) -> Iterator[tuple[pa.Table, bool]]:
        """The same, a part after the other: of each run the rows that ended, not too many at a time."""
        self._until = until
        if until is None:
            self.forget_changes()
        for run in self.all():
            is_open = run.beside["open"]
            ended = np.flatnonzero(is_open if until is None else is_open & (ticks(self.ends_of(run.rows)) <= until))
            for at in range(0, len(ended), FIRED_ROWS):
                yield pa.Table.from_batches([take_rows(run.rows, pa.array(ended[at : at + FIRED_ROWS]))]), True
            if len(ended):
                is_open[ended] = False
        self.change(lambda run: run if 2 * np.count_nonzero(run.beside["open"]) > len(run) else self.live(run))

    def _take(self, batch: pa.RecordBatch, mark: int | None) -> None:
        """Merge it in, and forget what has ended at ``mark`` then."""
        touched = list(self._open_of(np.unique(places_of(batch.columns[: self.keys], self.key_groups))))
        merged = self._merged_with([batch, *(take_rows(run.rows, pa.array(rows)) for run, rows in touched)])
        for run, rows in touched:
            run.beside["open"][rows] = False
        if mark is not None:
            merged = merged.filter(pa.array(ticks(self.ends_of(merged)) > mark))
        self.add(self.arranged(self.read(merged)))
        self._noted.note((self._until, batch, mark), batch.num_rows, self.count, batch.nbytes)

    def _merged_with(self, parts: list[pa.RecordBatch]) -> pa.RecordBatch:
        """Sessions and records as sessions."""
        at = self.form.keys
        first = at + 2
        together = one_batch(pa.Table.from_batches(parts))
        starts, ends = ticks(together.column(at)), ticks(together.column(at + 1))
        keys = key_numbers(together.columns[:at])
        order = order_of(keys, starts)
        if order is not None:
            keys, starts, ends = keys[order], starts[order], ends[order]
        # The largest end so far within the key, as a running maximum of ranks that grow from key to key.
        by_end = np.argsort(ends)
        ranks = np.empty(len(ends), np.int64)
        ranks[by_end] = np.arange(len(ends))
        new_key = np.concatenate(([True], keys[1:] != keys[:-1]))
        base = np.cumsum(new_key) * len(ends)
        reach = ends[by_end][np.maximum.accumulate(base + ranks) - base]
        begins = new_key.copy()
        begins[1:] |= starts[1:] > reach[:-1]
        heads = np.flatnonzero(begins)
        tails = np.append(heads[1:], len(starts)) - 1
        if len(heads) == len(starts):
            return together
        values = together if order is None else together.take(pa.array(order))
        schema = pa.schema([("segment", pa.int64()), *list(self.form.schema)[first:]])
        segments = pa.table([pa.array(np.cumsum(begins)), *values.columns[first:]], schema=schema)
        merged = self.form.partials.group(segments, 1, schema)
        if merged is None:
            raise OverflowError("a partial could leave 64 bits")
        leading = [values.column(i).take(pa.array(heads)) for i in range(at)]
        bounds = [as_bounds(starts[heads], self.form.bound), as_bounds(reach[tails], self.form.bound)]
        return pa.RecordBatch.from_arrays([*leading, *bounds, *merged.columns[1:]], schema=self.form.schema)
