"""The state of a window vertex in columns: sorted runs of partials.

Runs are sorted by pane. What a watermark fires, and what it makes superfluous, is a range of each run: a binary search and a slice without
a copy, whatever else the run holds. Runs that are merged have one row for each key and pane.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from rayad.dataflow.operators.state.runs.order import Ticks, between, edges_of, ticks
from rayad.dataflow.operators.state.runs.run import Run
from rayad.dataflow.operators.state.runs.runs import Runs
from rayad.dataflow.operators.windows.pane_ticks import Form, Grid, as_bounds
from rayad.dataflow.records.batches import one_batch, take_rows
from rayad.dataflow.records.event_times import later

_INT64 = np.iinfo(np.int64)
FIRED_ROWS = 1 << 17
"""Where state may be on disk about so many rows fire at once; of one moment all do."""


class Panes(Runs):
    """Partials of the windows that are open, sorted by pane, or by the end of a window that the record brought along.

    A run is ``consolidated`` where there is one row for each key and place. It has ``passed`` the watermark up to which its windows have
    fired: the same for all runs, but for those that came from another replica.

    Args:
        grid: of the windows; None when each row has its own window.
    """

    def __init__(self, form: Form, grid: Grid | None) -> None:
        super().__init__(form.keys, form.keys + form.places - 1, by_time=True)
        self.form = form
        self.grid = grid
        self._until: int | None = None

    def arranged(self, run: Run) -> list[Run]:
        rows, grouped = self.form.merged(pa.Table.from_batches([run.rows]))
        assert self.moment is not None
        return super().arranged(Run(rows, tick=ticks(rows.column(self.moment)), passed=run.passed, consolidated=grouped))

    # -- snapshots -----------------------------------------------------------------
    def marks(self, run: Run) -> Any:
        return run.consolidated

    def marked(self, run: Run, marks: Any) -> None:
        run.consolidated = marks

    def changed(self, noted: list[Run]) -> Any:
        """The partials that have come, and how far windows have been forgotten."""
        return [self.stored(run) for run in map(self._left, noted) if len(run)], self._until

    def restore_changes(self, changes: Any) -> None:
        added, self._until = changes
        self.change(self._left)
        self.add(map(self._left, self.again(added)))

    def _left(self, run: Run) -> Run:
        return run if self._until is None else replace(self.needed(run, self._until), passed=later(run.passed, self._until))

    # -- partials --------------------------------------------------------------------
    def run_of(self, batches: list[pa.RecordBatch]) -> Run:
        """Partials in any order as a run."""
        (run,) = self.arranged(self.read(one_batch(pa.Table.from_batches(batches))))
        return run

    def ending(self, run: Run, after: int | None, until: int | None) -> list[tuple[int, int, Ticks]]:
        """Where the windows that end beyond ``after`` and at or before ``until`` (None: no bound) have rows in a run.

        Each entry is a range of rows and the beginnings of a window of theirs, shape (rows,).
        """
        if self.grid is None:
            low, high = between(run.tick, after, until)
            return [(low, high, ticks(run.rows.column(self.form.keys).slice(low, high - low)))] if high > low else []
        out: list[tuple[int, int, Ticks]] = []
        grid, there = self.grid, between(run.tick, None, until)[1]
        for back in range(grid.windows_of_pane_max):
            low = 0 if after is None else _first(run.tick, grid.first_ending_beyond(after, back))
            high = there if until is None else min(there, _first(run.tick, grid.first_ending_beyond(until, back)))
            if low >= high:
                continue
            at = run.tick[low:high]
            starts = grid.starts(at, back)
            holds = starts + grid.size > at
            if holds.all():
                edges = np.array([[0, high - low]])
            else:  # gaps between windows, or a size that is no multiple of the slide: some panes are not in this one
                edges = np.flatnonzero(np.diff(holds, prepend=False, append=False)).reshape(-1, 2)
            out.extend((low + a, low + b, starts[a:b]) for a, b in edges.tolist() if b > a)
        return out

    def windows(self, runs: Iterable[Run], until: int | None) -> tuple[pa.Table, bool] | None:
        """Partials with the bounds of their windows, ``start`` in the place of the pane, of all windows that have not fired and end at or
        before ``until`` (None: no bound); and whether there is one row for each key and window."""
        parts, grouped = [], True
        for run in runs:
            for low, high, starts in self.ending(run, run.passed, until):
                rows = run.rows.slice(low, high - low)
                stays = self.stay(run, slice(low, high))
                if stays is not None:
                    rows, starts = take_rows(rows, pa.array(np.flatnonzero(stays))), starts[stays]
                columns = rows.columns
                columns[self.form.keys] = as_bounds(starts, self.form.bound)
                parts.append(pa.RecordBatch.from_arrays(columns, schema=self.form.schema))
                grouped = run.consolidated
        one_pane = self.grid is None or self.grid.pane == self.grid.size
        return (pa.Table.from_batches(parts), grouped and one_pane and len(parts) == 1) if parts else None

    def ends_of(self, batch: pa.RecordBatch) -> pa.Array:
        """The ends of the windows of what :meth:`windows` gave."""
        if self.grid is None:
            return batch.column(self.form.keys + 1)
        return as_bounds(ticks(batch.column(self.form.keys)) + self.grid.size, self.form.bound)

    def needed(self, run: Run, after: int) -> Run:
        """The rows that windows ending beyond ``after`` still hold."""
        low = between(run.tick, None, after)[1]
        if self.grid is not None:
            low = min(low, _first(run.tick, self.grid.first_ending_beyond(after, 0)))
        return run.cut(low, len(run))

    def keep(self, run: Run, mark: int | None) -> None:
        """Take partials in, but for those of windows that have ended at ``mark``."""
        self.add([replace(run if mark is None else self.needed(run, mark), passed=mark)])

    def steps(self, until: int | None) -> list[int | None]:
        """Up to where windows are to fire, one step after the other, so that not too many rows do at once; the last step is ``until``."""
        there = [run.tick[: between(run.tick, None, until)[1]] for run in self.all()] if self.memory is not None else []
        there = [ticks_due for ticks_due in there if len(ticks_due)]
        pieces = sum(map(len, there)) // FIRED_ROWS
        return [*edges_of(there, pieces).tolist(), until] if pieces > 1 else [until]

    def due(self, until: int | None) -> tuple[pa.Table, bool] | None:
        """As :meth:`windows`, of the state; what only they hold is forgotten."""
        out = self.windows(self.all(), until)
        self._until = until
        if until is None:
            self.forget_changes()
        self.change(lambda run: None if until is None else replace(self.needed(run, until), passed=later(run.passed, until)))
        return out


def _first(at: Ticks, tick: int) -> int:
    """Where sorted ticks are not below a tick, which may leave 64 bits."""
    return int(np.searchsorted(at, min(max(tick, _INT64.min), _INT64.max)))
