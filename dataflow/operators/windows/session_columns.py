"""Session windows over columns: runs of events of one key no more than a gap apart, merged in bulk.

Partials come one for each key and event time. A session ``[start, end)`` and a record ``[time, time + gap)`` belong together when they
touch; records that come to an end behind the watermark are late, unless others of their time, or a session that is open, go on with
them. All open sessions and new records are sorted by key and start; a new session begins where a start lies beyond the largest end before
it. That is some passes over the open sessions for each time with data.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from rayad.dataflow.operators.keys.column_keys import key_numbers
from rayad.dataflow.operators.state.group_index import SLICE_ROWS, Groups, chosen, compacted, groups_of_columns
from rayad.dataflow.operators.state.runs.order import ticks
from rayad.dataflow.operators.state.stored_columns import Stored, stored, taken_back
from rayad.dataflow.operators.state.touched_keys import Additions
from rayad.dataflow.operators.windows.pane_ticks import Form, as_bounds
from rayad.dataflow.records.batches import one_batch

Array = npt.NDArray[Any]


class Sessions:
    """Open sessions: key columns, start, end, partials.

    Args:
        form: of the partials that arrive, with one place: the event time.
        gap: in ticks.
    """

    def __init__(self, form: Form, gap: int) -> None:
        self.arriving = form
        self.gap = gap
        fields, at = list(form.schema), form.keys
        fields[at : at + 1] = [pa.field("start", form.bound), pa.field("end", form.bound)]
        schema = pa.schema([field.with_name(f"c{i}") for i, field in enumerate(fields)])
        self.form = Form(schema, form.keys, 2, form.partials)
        self.open: pa.RecordBatch | None = None
        self._added = Additions()
        self._until: int | None = None
        self._groups: tuple[pa.RecordBatch, Groups] | None = None  # of the rows of a batch that was open

    # -- snapshots -----------------------------------------------------------------
    def checkpoint(self) -> Stored | None:
        """The open sessions."""
        return None if self.open is None else stored([self.open])

    def restore(self, sessions: Stored | None) -> None:
        """Take back what :meth:`checkpoint` gave."""
        self.open = None if sessions is None else taken_back(sessions)[0]

    def take_changes(self) -> Callable[[], Any] | None:
        """What was taken in since the last call, and how far sessions were forgotten before each; None where this is most of them."""
        added, until = self._added.take(), self._until
        return None if added is None else lambda: ([(before, stored([batch]), mark) for before, batch, mark in added], until)

    def restore_changes(self, changes: Any) -> None:
        """Take back what the function of :meth:`take_changes` gave: it is taken in again."""
        added, until = changes
        for before, batch, *mark in added:  # no mark: of a version that stored no late ones
            if before is not None:
                self.due(before)
            self._take(taken_back(batch)[0], mark[0] if mark else None)
        if until is not None:
            self.due(until)

    def forget_changes(self) -> None:
        """The next of :meth:`take_changes` gives None."""
        self._added.forget()

    # -- to other replicas -----------------------------------------------------------
    def index(self, key_groups: int) -> Iterator[None]:
        """Find out the key-group of each session, some at a time; of use until new ones come."""
        if self.open is not None:
            batch, parts = self.open, [np.zeros(0, np.uint16)]
            for at in range(0, batch.num_rows, SLICE_ROWS):
                parts.append(self._groups_of(batch.slice(at, SLICE_ROWS), key_groups))
                yield
            self._groups = batch, np.concatenate(parts)

    def _groups_of(self, batch: pa.RecordBatch, key_groups: int) -> Groups:
        return groups_of_columns(batch.columns[: self.form.keys], key_groups)

    def give(self, groups: frozenset[int], key_groups: int) -> Stored | None:
        """Take the sessions of these groups out."""
        batch = self.open
        if batch is None:
            return None
        known = self._groups is not None and self._groups[0] is batch
        numbers = self._groups[1] if self._groups is not None and known else self._groups_of(batch, key_groups)
        leaves = chosen(groups, key_groups)[numbers]
        out = batch.filter(pa.array(leaves))
        if out.num_rows:
            batch, numbers = batch.filter(pa.array(~leaves)), numbers[~leaves]
        self.open, self._groups = batch, (batch, numbers)
        return stored([compacted(out)]) if out.num_rows else None

    def take(self, sessions: Stored | None) -> None:
        """Keep what :meth:`give` gave: sessions of keys that are not here, so none of them go together."""
        if sessions is not None:
            parts = taken_back(sessions) if self.open is None else [self.open, *taken_back(sessions)]
            self.open = one_batch(pa.Table.from_batches(parts))

    def gave(self) -> None:
        """The change of layout is over."""
        self._groups = None

    # -- partials --------------------------------------------------------------------
    @property
    def count(self) -> int:
        """Sessions kept."""
        return 0 if self.open is None else int(self.open.num_rows)

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
        if self.open is None or not self.open.num_rows:
            return out
        at, kept = self.form.keys, self.open.num_rows
        schema = pa.schema([field.with_name(f"c{i}") for i, field in enumerate(list(self.form.schema)[: at + 1])])
        parts = [self.open.columns[: at + 1], batch.columns[: at + 1]]
        both = one_batch(pa.Table.from_batches([pa.RecordBatch.from_arrays(columns, schema=schema) for columns in parts]))
        keys, starts = key_numbers(both.columns[:at]), ticks(both.column(at))
        order = np.lexsort((np.arange(len(starts)) >= kept, starts, keys))
        # Sessions of a key are apart, so the last one that begins no later is the only one that may hold it.
        before = np.maximum.accumulate(np.where(order < kept, np.arange(len(order)), -1))
        asked = np.flatnonzero((order >= kept) & (before >= 0))
        session, partial = order[before[asked]], order[asked]
        ends = ticks(self.ends_of(self.open))
        out[partial - kept] = (keys[session] == keys[partial]) & (ends[session] >= starts[partial] + self.gap)
        return out

    def due(self, until: int | None) -> tuple[pa.Table, bool] | None:
        """The sessions that end at or before ``until`` (None: all); they are forgotten."""
        self._until = until
        if until is None:
            self._added.forget()
        if self.open is None or not self.open.num_rows:
            return None
        if until is None:
            out, self.open = self.open, None
        else:
            ended = pa.array(ticks(self.ends_of(self.open)) <= until)
            out, self.open = self.open.filter(ended), self.open.filter(pc.invert(ended))
        return (pa.Table.from_batches([out]), True) if out.num_rows else None

    def _take(self, batch: pa.RecordBatch, mark: int | None) -> None:
        """Merge it in, and forget what has ended at ``mark`` then."""
        self._merge(batch)
        if mark is not None:
            assert self.open is not None
            self.open = self.open.filter(pa.array(ticks(self.ends_of(self.open)) > mark))
        self._added.note((self._until, batch, mark), batch.num_rows, self.count)

    def _merge(self, batch: pa.RecordBatch) -> None:
        parts = [batch] if self.open is None else [self.open, batch]
        table = pa.Table.from_batches(parts)
        at = self.form.keys
        first = at + 2
        together = one_batch(table)
        if not together.num_rows:
            return
        starts, ends = ticks(together.column(at)), ticks(together.column(at + 1))
        keys = key_numbers(together.columns[:at])
        order = np.lexsort((starts, keys))
        keys, starts, ends = keys[order], starts[order], ends[order]
        # The largest end so far within the key, as a running maximum of ranks that grow from key to key.
        by_end = np.argsort(ends, kind="stable")
        ranks = np.empty(len(ends), np.int64)
        ranks[by_end] = np.arange(len(ends))
        new_key = np.concatenate(([True], keys[1:] != keys[:-1]))
        base = np.cumsum(new_key) * len(ends)
        reach = ends[by_end][np.maximum.accumulate(base + ranks) - base]
        begins = new_key.copy()
        begins[1:] |= starts[1:] > reach[:-1]
        heads = np.flatnonzero(begins)
        tails = np.append(heads[1:], len(starts)) - 1
        values = together.take(pa.array(order)) if len(heads) < len(starts) else None
        if values is None:
            self.open = together
            return
        schema = pa.schema([("segment", pa.int64()), *list(self.form.schema)[first:]])
        segments = pa.table([pa.array(np.cumsum(begins)), *values.columns[first:]], schema=schema)
        merged = self.form.partials.group(segments, 1, schema)
        if merged is None:
            raise OverflowError("a partial could leave 64 bits")
        leading = [values.column(i).take(pa.array(heads)) for i in range(at)]
        bounds = [as_bounds(starts[heads], self.form.bound), as_bounds(reach[tails], self.form.bound)]
        self.open = pa.RecordBatch.from_arrays([*leading, *bounds, *merged.columns[1:]], schema=self.form.schema)
