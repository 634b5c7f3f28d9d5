"""The state of a window vertex in columns: sorted runs of partials.

State is a few *runs*, tables of partials sorted by pane. What a watermark fires, and what it makes superfluous, is a range of each run: a
binary search and a slice without a copy, whatever else the run holds. Runs of like size are merged, so there are few, and a row is copied
a logarithmic number of times.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from rayad.dataflow.operators.state.group_index import SLICE_ROWS, Groups, chosen, compacted, groups_of_columns
from rayad.dataflow.operators.state.stored_columns import Stored, stored, taken_back
from rayad.dataflow.operators.state.touched_keys import Additions
from rayad.dataflow.operators.windows.pane_ticks import Form, Grid, Ticks, as_bounds, ticks
from rayad.dataflow.records.batches import take_rows
from rayad.dataflow.records.event_times import later

_RUNS_MAX = 6
_SMALL_RUN = 1 << 16
"""Runs of fewer rows are merged at once when they are of like size."""


@dataclass(slots=True)
class PaneRun:
    """Partials sorted by ``at``: the pane, or the end of a window that the record brought along."""

    at: Ticks
    batch: pa.RecordBatch
    grouped: bool
    """Whether there is one row for each key and place."""
    fired: int | None = None
    """The watermark up to which its windows have fired: the same for all runs, but for those that came from another replica."""
    groups: Groups | None = None
    """The key-group of each row, while a change of layout needs it."""

    def cut(self, low: int, high: int) -> PaneRun:
        """The rows ``low`` to ``high``; copied when they are a small part of what would be kept alive."""
        batch, at = self.batch.slice(low, high - low), self.at[low:high]
        if (high - low) * 4 < len(self.at):
            batch = pa.RecordBatch.from_arrays([pa.concat_arrays([c]) for c in batch.columns], schema=batch.schema)
            at = at.copy()
        return PaneRun(at, batch, self.grouped, self.fired, None if self.groups is None else self.groups[low:high])

    def where(self, some: Any) -> PaneRun:
        """The rows of a mask."""
        groups = None if self.groups is None else self.groups[some]
        return PaneRun(self.at[some], take_rows(self.batch, pa.array(np.flatnonzero(some))), self.grouped, self.fired, groups)


Kept: TypeAlias = tuple[Stored, bool, int | None]
"""A run in a snapshot or on its way: the partials, ``grouped`` and ``fired``."""


class Panes:
    """Partials of the windows that are open.

    Args:
        grid: of the windows; None when each row has its own window.
    """

    def __init__(self, form: Form, grid: Grid | None) -> None:
        self.form = form
        self.grid = grid
        self.runs: list[PaneRun] = []
        self._added = Additions()
        self._until: int | None = None
        self._given: list[int] = []
        """Groups that were given to another replica; their rows are still in the runs that know their groups."""

    # -- snapshots -----------------------------------------------------------------
    def checkpoint(self) -> list[Kept]:
        """The partials of each run."""
        return [_kept(run) for run in map(self._without_given, self.runs)]

    def restore(self, runs: list[Kept]) -> None:
        """Take back what :meth:`checkpoint` gave."""
        self.runs = [self._again(run) for run in runs]

    def take_changes(self) -> Callable[[], Any] | None:
        """The partials that were added since the last call, and how far windows have been forgotten; None where these are most of them."""
        added = self._added.take()
        return None if added is None else lambda: self._changed(added)

    def _changed(self, added: list[PaneRun]) -> Any:
        return [_kept(run) for run in map(self._left, added) if len(run.at)], self._until

    def restore_changes(self, changes: Any) -> None:
        """Take back what the function of :meth:`take_changes` gave."""
        added, self._until = changes
        self.runs = [run for run in map(self._left, self.runs) if len(run.at)]
        for run in added:
            self.add(self._left(self._again(run)))

    def forget_changes(self) -> None:
        """The next of :meth:`take_changes` gives None."""
        self._added.forget()

    def _left(self, run: PaneRun) -> PaneRun:
        return run if self._until is None else replace(self.needed(run, self._until), fired=later(run.fired, self._until))

    def _again(self, run: Kept) -> PaneRun:
        part, grouped, fired = run
        batch = taken_back(part)[0]
        return PaneRun(ticks(batch.column(self.form.keys + self.form.places - 1)), batch, grouped, fired)

    # -- to other replicas -----------------------------------------------------------
    def index_groups(self, key_groups: int) -> Iterator[None]:
        """Find out the key-group of each row, some at a time."""
        for run in list(self.runs):
            parts = []
            for at in range(0, len(run.at), SLICE_ROWS):
                parts.append(self._groups_of(run.batch.slice(at, SLICE_ROWS), key_groups))
                yield
            run.groups = np.concatenate(parts)

    def _groups_of(self, batch: pa.RecordBatch, key_groups: int) -> Groups:
        return groups_of_columns(batch.columns[: self.form.keys], key_groups)

    def give(self, groups: frozenset[int], key_groups: int) -> list[Kept]:
        """The partials of these groups. They are not taken out before :meth:`forget_groups`, but passed over from now on."""
        leaves = chosen(groups, key_groups)
        out, kept = [], []
        for run in self.runs:
            if run.groups is None:
                run.groups = self._groups_of(run.batch, key_groups)
            some = leaves[run.groups]
            if some.any():
                given = run.where(some)
                out.append(_kept(replace(given, batch=compacted(given.batch))))
            if not some.all():
                kept.append(run)
        self.runs = kept
        self._given += groups
        return out

    def take(self, runs: list[Kept]) -> None:
        """Keep what :meth:`give` gave."""
        self._drop_given()
        for run in runs:
            self.add(self._again(run))

    def forget_groups(self) -> None:
        """The change of layout is over: what was given goes."""
        self._drop_given()
        for run in self.runs:
            run.groups = None

    def _drop_given(self) -> None:
        self.runs = [run for run in map(self._without_given, self.runs) if len(run.at)]
        self._given = []

    def _without_given(self, run: PaneRun) -> PaneRun:
        if not self._given or run.groups is None:  # it has come since
            return run
        given = np.isin(run.groups, self._given)
        return run.where(~given) if given.any() else run

    # -- partials --------------------------------------------------------------------
    @property
    def rows(self) -> int:
        """Partials kept."""
        return sum(len(run.at) for run in self.runs)

    def run_of(self, table: pa.Table) -> PaneRun:
        """Partials in any order as a sorted run."""
        batch, grouped = self.form.merged(table)
        at = ticks(batch.column(self.form.keys + self.form.places - 1))
        if len(at) > 1 and not (at[1:] >= at[:-1]).all():
            order = np.argsort(at, kind="stable")
            return PaneRun(at[order], batch.take(pa.array(order)), grouped)
        return PaneRun(at, batch, grouped)

    def add(self, run: PaneRun) -> None:
        """Keep more partials."""
        runs = self.runs
        if len(run.at):
            runs.append(run)
            self._added.note(run, len(run.at), self.rows)
        while len(runs) > _RUNS_MAX or (len(runs) > 1 and len(runs[-1].at) < _SMALL_RUN and 2 * len(runs[-1].at) > len(runs[-2].at)):
            if runs[-1].fired != runs[-2].fired:
                break
            second, first = self._without_given(runs.pop()), self._without_given(runs.pop())
            runs.append(replace(self.run_of(pa.Table.from_batches([first.batch, second.batch])), fired=first.fired))

    def ending(self, run: PaneRun, after: int | None, until: int | None) -> list[tuple[int, int, Ticks]]:
        """Where the windows that end beyond ``after`` and at or before ``until`` (None: no bound) have rows in a run.

        Each entry is a range of rows and the beginnings of a window of theirs, shape (rows,).
        """
        if self.grid is None:
            low, high = _between(run.at, after, until)
            return [(low, high, ticks(run.batch.column(self.form.keys).slice(low, high - low)))] if high > low else []
        out: list[tuple[int, int, Ticks]] = []
        grid, at = self.grid, run.at[: _between(run.at, None, until)[1]]
        for back in range(grid.windows_of_pane_max):
            starts = grid.starts(at, back)
            ends = starts + grid.size
            low, high = _between(ends, after, until)
            holds = ends[low:high] > at[low:high]
            if holds.all():
                edges = np.array([[0, high - low]])
            else:  # gaps between windows, or a size that is no multiple of the slide: some panes are not in this one
                edges = np.flatnonzero(np.diff(holds, prepend=False, append=False)).reshape(-1, 2)
            out.extend((low + a, low + b, starts[low + a : low + b]) for a, b in edges.tolist() if b > a)
        return out

    def windows(self, runs: list[PaneRun], until: int | None) -> tuple[pa.Table, bool] | None:
        """Partials with the bounds of their windows, ``start`` in the place of the pane, of all windows that have not fired and end at or
        before ``until`` (None: no bound); and whether there is one row for each key and window."""
        parts, grouped = [], True
        for run in runs:
            for low, high, starts in self.ending(run, run.fired, until):
                batch = run.batch.slice(low, high - low)
                if self._given and run.groups is not None:
                    stays = ~np.isin(run.groups[low:high], self._given)
                    batch, starts = take_rows(batch, pa.array(np.flatnonzero(stays))), starts[stays]
                columns = batch.columns
                columns[self.form.keys] = as_bounds(starts, self.form.bound)
                parts.append(pa.RecordBatch.from_arrays(columns, schema=self.form.schema))
                grouped = run.grouped
        one_pane = self.grid is None or self.grid.pane == self.grid.size
        return (pa.Table.from_batches(parts), grouped and one_pane and len(parts) == 1) if parts else None

    def ends_of(self, batch: pa.RecordBatch) -> pa.Array:
        """The ends of the windows of what :meth:`windows` gave."""
        if self.grid is None:
            return batch.column(self.form.keys + 1)
        return as_bounds(ticks(batch.column(self.form.keys)) + self.grid.size, self.form.bound)

    def needed(self, run: PaneRun, after: int) -> PaneRun:
        """The rows that windows ending beyond ``after`` still hold."""
        at = run.at[: _between(run.at, None, after)[1]]
        ends = at if self.grid is None else self.grid.starts(at, 0) + self.grid.size
        low = _between(ends, after, None)[0]
        return run if low == 0 else run.cut(low, len(run.at))

    def keep(self, run: PaneRun, mark: int | None) -> None:
        """Take partials in, but for those of windows that have ended at ``mark``."""
        if mark is not None:
            run = self.needed(run, mark)
        self.add(replace(run, fired=mark))

    def due(self, until: int | None) -> tuple[pa.Table, bool] | None:
        """As :meth:`windows`, of the state; what only they hold is forgotten."""
        out = self.windows(self.runs, until)
        kept = [] if until is None else [self.needed(run, until) for run in self.runs]
        for run in kept:
            run.fired = until
        self._until = until
        if until is None:
            self._added.forget()
        self.runs = [run for run in kept if len(run.at)]
        return out


def _kept(run: PaneRun) -> Kept:
    return stored([run.batch]), run.grouped, run.fired


def _between(values: Ticks, after: int | None, until: int | None) -> tuple[int, int]:
    low = 0 if after is None else int(np.searchsorted(values, after, side="right"))
    high = len(values) if until is None else int(np.searchsorted(values, until, side="right"))
    return low, high
