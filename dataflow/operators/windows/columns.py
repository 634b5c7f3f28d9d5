"""The columnar half of the state of a window vertex: from partials to results, without an object for each row."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rayad.dataflow.operators.aggregates.aggregators import Aggregator, Several
from rayad.dataflow.operators.aggregates.held import as_totals
from rayad.dataflow.operators.aggregates.partial import Partials
from rayad.dataflow.operators.keys.keyed import distinct_names
from rayad.dataflow.operators.state.by_schema import PartsBySchema
from rayad.dataflow.operators.state.group_index import groups_of_columns
from rayad.dataflow.operators.state.reads.at_epochs import AtEpochs, Epochs
from rayad.dataflow.operators.state.reads.seen import HASHES
from rayad.dataflow.operators.windows.at_epochs import ColumnsAtEpochs
from rayad.dataflow.operators.windows.open_windows import OpenWindows
from rayad.dataflow.operators.windows.pane_ticks import Form, grid_of, in_each_window, moment_ticks, windows_between
from rayad.dataflow.operators.windows.panes import Panes
from rayad.dataflow.operators.windows.session_columns import Sessions
from rayad.dataflow.records.batches import keyed_columns, mark_keyed, no_rows, one_batch, take_rows
from rayad.dataflow.records.key_hashing import key_group
from rayad.dataflow.records.moments import keys_in
from rayad.dataflow.windows import Given, Session, Window

COMPACT_ROWS = 1 << 19
"""Partials of one time are merged when so many wait."""

Array = npt.NDArray[np.bool_]
Pairs = list[tuple[Any, tuple[Window, Any]]]


class WindowColumns(PartsBySchema[Panes | Sessions]):
    """Open windows in columns. All columnar batches have one schema as long as anything is kept."""

    def __init__(self, aggregator: Aggregator, windows: Any) -> None:
        super().__init__()
        self.aggregator = aggregator
        self.partials = Partials(aggregator.partials)
        self.windows = windows
        self.form: Form | None = None
        self.read: ColumnsAtEpochs | None = None
        """Told that something is about to be changed; None: nobody has read yet."""

    @property
    def state(self) -> Panes | Sessions | None:
        """What is kept; None: nothing has come."""
        return self.parts[0]

    # -- parts --------------------------------------------------------------------
    def made(self, at: int, schema: pa.Schema) -> Panes | Sessions:
        form = self.form = self._form_of(schema)
        if isinstance(self.windows, Given):
            return Panes(form, None)
        grid = grid_of(self.windows, form.bound)
        assert grid is not None  # senders make columns only where there is one
        return Sessions(form, grid.size) if isinstance(self.windows, Session) else Panes(form, grid)

    def learn(self, at: int, schema: pa.Schema) -> None:
        """As long as nothing is kept, what comes may look otherwise."""
        if not self.rows:
            self.parts[at] = None
            super().learn(at, schema)

    def goes_with(self, at: int, schema: pa.Schema) -> bool:
        self.gave()
        return not self.rows or super().goes_with(at, schema)

    # -- in ----------------------------------------------------------------------
    def put_by(self, waiting: list[pa.RecordBatch], batch: pa.RecordBatch) -> None:
        """Add a batch to those that wait for their time; merges them when there are many rows."""
        waiting.append(batch)
        if len(waiting) > 1 and sum(b.num_rows for b in waiting if b.num_rows < COMPACT_ROWS) >= COMPACT_ROWS:
            form = self._form_of(batch.schema)
            small = [b for b in waiting if b.num_rows < COMPACT_ROWS and b.schema.equals(form.schema)]
            merged = form.group(pa.Table.from_batches(small, schema=form.schema))
            if merged is not None:
                kept = [b for b in waiting if not any(b is other for other in small)]
                waiting[:] = [*kept, mark_keyed(merged, form.keys)]

    def _form_of(self, schema: pa.Schema) -> Form:
        return Form(schema.remove_metadata(), keyed_columns(schema) or 0, 2 if isinstance(self.windows, Given) else 1, self.partials)

    def takes(self, batches: list[pa.RecordBatch]) -> bool:
        """Whether these go together with each other and with what is kept."""
        schema = batches[0].schema
        if any(not batch.schema.equals(schema) for batch in batches):
            return False
        if self.form is not None and self.rows:
            return bool(self.form.schema.equals(schema))
        self.learn(0, schema)
        return True

    def accept(self, batches: list[pa.RecordBatch], watermark: Any) -> None:
        """Take partials in, but for those that are late.

        Raises OverflowError, before anything has changed, when a sum of sessions could leave 64 bits.
        """
        assert self.state is not None
        assert self.form is not None
        if self.read is not None:
            self.read.before_change()
        batches = [b.replace_schema_metadata(None) for b in batches]
        mark = None if watermark is None else self._mark(watermark)
        if isinstance(self.state, Sessions):
            self.state.accept(batches, mark)
        else:
            self.state.keep(self.state.run_of(batches), mark)

    def hold(self, batch: pa.RecordBatch) -> Array:
        """Whether the sessions that are open hold each of these partials."""
        assert isinstance(self.state, Sessions)
        return self.state.hold(batch)

    def _mark(self, watermark: Any) -> int:
        assert self.form is not None
        return moment_ticks(watermark, self.form.bound, self.windows)

    def schema_of(self, schema: pa.Schema) -> pa.Schema | None:
        """Of results, as long as partials like these come; to be asked before any."""
        nothing = no_rows(schema)
        if nothing is None or not self.takes([nothing]):
            return None
        assert self.state is not None
        assert self.form is not None
        if self.aggregator.has_type_of_values(self.form.schema.types[self.form.keys + self.form.places :]):
            return None
        out = self._results((pa.Table.from_batches([], schema=self.state.form.schema), True))
        return out.schema if isinstance(out, pa.RecordBatch) else None

    # -- out ---------------------------------------------------------------------
    def fired(self, watermark: Any) -> Iterator[pa.RecordBatch | list[Any] | None]:
        """Results of the windows that have not fired and end at or before the watermark (None: no bound), which are forgotten: a part after
        the other where much is on disk."""
        state, until = self.state, None if watermark is None else self._mark(watermark)
        assert state is not None
        if self.read is not None:
            self.read.before_change()
        yield from map(self._results, state.fired(until))

    def _results(self, found: tuple[pa.Table, bool] | None) -> pa.RecordBatch | list[Any] | None:
        """Merged and finished, with the column ``window``; rows where a sum leaves 64 bits."""
        if found is None:
            return None
        assert self.state is not None
        assert self.form is not None
        table, grouped = found
        form = self.state.form
        batch, grouped = (one_batch(table), True) if grouped else form.merged(table)
        if not grouped:
            return self._rows(batch)
        names = self.form.schema.names
        partials = batch.columns[form.keys + form.places :]
        totals = as_totals(self.partials.filled(partials), [column.type for column in partials])
        finished = self.aggregator.results(names[self.form.keys + self.form.places :], totals)
        windows = windows_between(batch.column(form.keys), self.state.ends_of(batch), self.windows)
        columns = [*batch.columns[: form.keys], windows]
        if isinstance(self.aggregator, Several):
            value = pa.StructArray.from_arrays([column for _, column in finished], names=[name for name, _ in finished])
            finished = [("value", value)]
        labels = distinct_names(names[: form.keys], ["window", *(name for name, _ in finished)])
        return mark_keyed(pa.RecordBatch.from_arrays([*columns, *(c for _, c in finished)], names=labels), form.keys)

    def _rows(self, batch: pa.RecordBatch) -> list[Any]:
        """Results through the row form."""
        merged: dict[Any, Any] = {}
        for key, (window, accumulator) in self._pairs(batch):
            at = (key, window)
            merged[at] = self.aggregator.merge(merged[at], accumulator) if at in merged else accumulator
        return [(key, window, self.aggregator.result(a)) for (key, window), a in merged.items()]

    # -- to others, while it runs --------------------------------------------------
    def at_epochs(self, epochs: Epochs) -> AtEpochs:
        return ColumnsAtEpochs(self, epochs)

    def frozen(self) -> WindowColumns:
        """What is here now, for as long as it is needed; rows are shared."""
        out = copy.copy(self)
        out.read = None
        out.parts = [None if part is None else part.frozen() for part in self.parts]
        return out

    def open_now(self, keys: Sequence[Any] | None) -> OpenWindows:
        """The open windows of these keys (None: of all) in rows; the columns stay as they are."""
        return self.frozen().taken(keys)

    def taken(self, keys: Sequence[Any] | None) -> OpenWindows:
        """The open windows of these keys (None: of all) in rows; nothing is kept of any."""
        rows = OpenWindows(self.aggregator, self.windows)
        found = None if self.state is None else self.state.due(None)
        if found is None or self.form is None:
            return rows
        wanted = None if keys is None else [key_group(key, HASHES) for key in keys]
        for batch in found[0].to_batches():
            if wanted is not None:
                hashes = groups_of_columns(batch.columns[: self.form.keys], HASHES)
                batch = take_rows(batch, pa.array(np.flatnonzero(np.isin(hashes, wanted))))
            for key, (window, accumulator) in self._pairs(batch):
                if keys is None or key in keys:
                    rows.keep(key, window, accumulator)
        return rows

    # -- to rows -----------------------------------------------------------------
    def _pairs(self, batch: pa.RecordBatch) -> Pairs:
        """What :meth:`_results` begins with as ``(key, (window, accumulator))``."""
        assert self.state is not None
        form = self.state.form
        first = form.keys + form.places
        windows = windows_between(batch.column(form.keys), self.state.ends_of(batch), self.windows).to_pylist()
        keys = keys_in(batch.columns[: form.keys])
        partials = (column.to_pylist() for column in batch.columns[first:])
        accumulators = map(self.aggregator.accumulator, zip(*partials, strict=True))
        return list(zip(keys, zip(windows, accumulators, strict=True), strict=True))

    def as_rows(self) -> Any:
        """As :meth:`OpenWindows.give`; nothing is kept."""
        return self.taken(None).checkpoint()

    def pairs_of(self, batches: list[pa.RecordBatch]) -> Pairs:
        """Partials that have just come as pairs, one for each window."""
        out: Pairs = []
        for batch in batches:
            form = self._form_of(batch.schema)
            keys = keys_in(batch.columns[: form.keys])
            columns = [column.to_pylist() for column in batch.columns[form.keys :]]
            places = columns[: form.places]
            accumulators = map(self.aggregator.accumulator, zip(*columns[form.places :], strict=True))
            for key, place, accumulator in zip(keys, zip(*places, strict=True), accumulators, strict=True):
                out.extend(in_each_window(key, place, self.windows, accumulator))
        return out
