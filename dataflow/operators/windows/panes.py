"""The state of a window vertex in columns: sorted runs of partials.

Runs are sorted by pane. What a watermark fires, and what it makes superfluous, is a range of each run: a binary search and a slice without
a copy, whatever else the run holds. Runs that are merged have one row for each key and pane. Where state may be on disk, much that is due
fires in parts: windows that end by one moment after another, and of one moment those of some keys after others.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from rayad.dataflow.operators.state.runs.order import Positions, Ticks, between, edges_of, position_of, ticks
from rayad.dataflow.operators.state.runs.run import Run
from rayad.dataflow.operators.state.runs.runs_by_time import RunsByTime
from rayad.dataflow.operators.windows.pane_ticks import Form, Grid, as_bounds
from rayad.dataflow.records.batches import one_batch, take_rows
from rayad.dataflow.records.event_times import later

_INT64 = np.iinfo(np.int64)
FIRED_ROWS = 1 << 17
"""Where state may be on disk about so many rows fire at once."""
STRETCHES_MAX = 64
"""In so many moments of a run the rows of some buckets are looked for as a range; in others row by row."""


class Part(NamedTuple):
    """Windows that fire together.

    Args:
        until: they end at or before this tick; None: no bound.
        low, high: of keys whose buckets are not below ``low``, and below ``high`` (None: no bound).
    """

    until: int | None
    low: int = 0
    high: int | None = None

    @property
    def is_last(self) -> bool:
        """Whether all windows that end until then have fired with these."""
        return self.high is None


class Panes(RunsByTime):
    """Partials of the windows that are open, sorted by pane, or by the end of a window that the record brought along.

    A run is ``consolidated`` where there is one row for each key and place. It has ``passed`` the watermark up to which its windows have
    fired: the same for all runs, but for those that came from another replica.

    Args:
        grid: of the windows; None when each row has its own window.
    """

    def __init__(self, form: Form, grid: Grid | None) -> None:
        super().__init__(form.keys, form.keys + form.places - 1)
        self.form = form
        self.grid = grid
        self._until: int | None = None

    def arranged(self, run: Run) -> list[Run]:
        rows, grouped = self.form.merged(pa.Table.from_batches([run.rows]))
        return super().arranged(replace(self.read(rows), passed=run.passed, consolidated=grouped))

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

    def windows(self, runs: Iterable[Run], part: Part) -> tuple[pa.Table, bool] | None:
        """Partials with the bounds of their windows, ``start`` in the place of the pane, of all windows of a part that have not fired; and
        whether there is one row for each key and window."""
        parts, grouped = [], True
        for run in runs:
            for rows, starts in self._ending(run, part):
                stays = self.stay(run, rows)
                if stays is not None:
                    rows, starts = np.arange(len(run))[rows][stays], starts[stays]
                columns = _at(run.rows, rows).columns
                columns[self.form.keys] = as_bounds(starts, self.form.bound)
                parts.append(pa.RecordBatch.from_arrays(columns, schema=self.form.schema))
                grouped = run.consolidated
        one_pane = self.grid is None or self.grid.pane == self.grid.size
        return (pa.Table.from_batches(parts), grouped and one_pane and len(parts) == 1) if parts else None

    def _ending(self, run: Run, part: Part) -> Iterator[tuple[slice | Positions, Ticks]]:
        """As :meth:`ending`, of the windows of a part that have not fired: some rows, and the beginnings of a window of theirs."""
        for low, high, starts in self.ending(run, run.passed, part.until):
            for rows in [slice(low, high)] if part == Part(part.until) else _within(run, low, high, part):
                yield rows, starts[slice(rows.start - low, rows.stop - low) if isinstance(rows, slice) else rows - low]

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

    def due(self, until: int | None) -> tuple[pa.Table, bool] | None:
        """As :meth:`windows`, of the state, all that end at or before ``until``; what only they hold is forgotten."""
        return self.fire(Part(until))

    def fired(self, until: int | None) -> Iterator[tuple[pa.Table, bool] | None]:
        """As :meth:`due`, a part after the other."""
        return map(self.fire, parts_until([self], until))

    def fire(self, part: Part) -> tuple[pa.Table, bool] | None:
        """The same of a part; after the last of a moment is forgotten what only windows until then hold."""
        out = self.windows(self.all(), part)
        if part.is_last:
            self._forget(part.until)
        return out

    def _forget(self, until: int | None) -> None:
        self._until = until
        if until is None:
            self.forget_changes()
        self.change(lambda run: None if until is None else replace(self.needed(run, until), passed=later(run.passed, until)))


def parts_until(sides: Sequence[Panes], until: int | None) -> Iterator[Part]:
    """The parts in which the windows of some sides, which have one unit of time, fire until a tick (None: no bound); after each it is to
    fire before the next one is asked for. All at once where there is no bound on memory."""
    runs = [(panes, run) for panes in sides for run in panes.all()]
    due = [(run.tick[: between(run.tick, None, until)[1]],) for _, run in runs]
    due = [order for order in due if len(order[0])]
    most = max((1 if panes.grid is None else panes.grid.windows_of_pane_max for panes in sides), default=1)
    rows = sum(len(at) for (at,) in due)
    if most * rows <= FIRED_ROWS or any(panes.memory is None for panes in sides):
        yield Part(until)
        return
    for (moment,) in edges_of(due, rows // FIRED_ROWS) if rows > FIRED_ROWS else []:
        yield from _parts_of(sides, moment)
    yield from _parts_of(sides, until)


def _parts_of(sides: Sequence[Panes], until: int | None) -> Iterator[Part]:
    """Parts by bucket."""
    runs = [(panes, run) for panes in sides for run in panes.all()]
    due = [(run.place[low:high],) for panes, run in runs for low, high, _ in panes.ending(run, run.passed, until)]
    pieces = sum(len(buckets) for (buckets,) in due) // FIRED_ROWS
    edges = [edge for (edge,) in edges_of(due, pieces)] if pieces > 1 else []
    for low, high in zip([0, *edges], [*edges, None], strict=True):
        yield Part(until, low, high)


def _within(run: Run, low: int, high: int, part: Part) -> Iterator[slice | Positions]:
    """The rows of a run from ``low`` to ``high`` that are of the buckets of a part."""
    for _ in range(STRETCHES_MAX):
        if low == high:
            return
        end = low + int(np.searchsorted(run.tick[low:high], run.tick[low], side="right"))
        buckets = (run.place[low:end],)
        begin, behind = position_of(buckets, (part.low,)), end - low if part.high is None else position_of(buckets, (part.high,))
        if begin < behind:
            yield slice(low + begin, low + behind)
        low = end
    is_in = run.place[low:high] >= part.low
    if part.high is not None:
        is_in &= run.place[low:high] < part.high
    if is_in.any():
        yield low + np.flatnonzero(is_in)


def _at(batch: pa.RecordBatch, rows: slice | Positions) -> pa.RecordBatch:
    return batch.slice(rows.start, rows.stop - rows.start) if isinstance(rows, slice) else take_rows(batch, pa.array(rows))


def _first(at: Ticks, tick: int) -> int:
    """Where sorted ticks are not below a tick, which may leave 64 bits."""
    return int(np.searchsorted(at, min(max(tick, _INT64.min), _INT64.max)))
