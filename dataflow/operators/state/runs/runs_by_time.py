"""Runs whose rows are sorted by moment: what comes due is a slice of a run, and a key-group is not.

Beyond memory rows of one moment are sorted by bucket, so that of one moment with very many rows some can be merged, or come due, and then
others.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from rayad.dataflow.operators.state.group_index import SLICE_ROWS, chosen
from rayad.dataflow.operators.state.runs.disk import MemoryBound
from rayad.dataflow.operators.state.runs.files import Content
from rayad.dataflow.operators.state.runs.merging import InOrder
from rayad.dataflow.operators.state.runs.order import Order, Positions, buckets_of, groups_of_buckets, is_in_order, order_of, ticks
from rayad.dataflow.operators.state.runs.run import Run
from rayad.dataflow.operators.state.runs.runs import Runs, StoredRun


class RunsByTime(Runs):
    """Rows in sorted runs, by moment. What is beside them as ``place`` is their bucket: where there is no bound on memory it is only found
    out for a change of layout.

    Args:
        keys, moment: as of :class:`Runs`.
    """

    _memory: MemoryBound | None = None

    def __init__(self, keys: int, moment: int) -> None:
        super().__init__(keys, moment)
        self._gone: list[int] = []
        """Groups that left, whose rows are still in the runs that have buckets."""

    # -- order -------------------------------------------------------------------------
    @property
    def memory(self) -> MemoryBound | None:
        """Where runs go that do not fit in memory; None: all stay there."""
        return self._memory

    @memory.setter
    def memory(self, memory: MemoryBound | None) -> None:
        before, self._memory = self._memory, memory
        if before is None and memory is not None:
            for_each = [[sequence.done, *([run] for run in sequence.rest)] for sequence in self._sequences]
            self._sequences = [InOrder(list(map(self._with_buckets, runs))) for each in for_each for runs in each if runs]
            self._fresh = list(map(self._with_buckets, self._fresh))

    def read(self, rows: pa.RecordBatch, **beside: Any) -> Run:
        place = None if self._memory is None else self.places(rows)
        return Run(rows, place, ticks(rows.column(self.moment)), beside)

    def places(self, rows: pa.RecordBatch) -> Any:
        return buckets_of(rows.columns[: self.keys], self.key_groups)

    def in_order(self, run: Run) -> Run:
        order = order_of(run.tick) if run.place is None else order_of(run.tick, run.place)
        return run if order is None else run.at(order)

    def leading(self, run: Run) -> Order:
        return (run.tick,) if self._memory is None else (run.tick, run.place)

    def goes_on(self, before: Run, run: Run) -> bool:
        if before.place is None or run.place is None:
            return bool(before.tick[-1] < run.tick[0])
        return bool((before.tick[-1], before.place[-1]) < (run.tick[0], run.place[0]))

    def _with_buckets(self, run: Run) -> Run:
        """A run in whose order buckets are, too."""
        if run.place is not None and is_in_order((run.tick, run.place)):
            return run
        return self.in_order(replace(run.without_file(), place=self.places(run.rows), is_mapped=False, index=None))

    # -- groups that left --------------------------------------------------------------
    def stay(self, run: Run, rows: slice | Positions = slice(None)) -> Any | None:
        if not self._gone or run.place is None:  # it has come since they left
            return None
        return ~np.isin(groups_of_buckets(run.place[rows]), self._gone)

    def _drop_gone(self) -> None:
        if self._gone:
            self.change(self.live)
            self._gone = []

    # -- snapshots ---------------------------------------------------------------------
    def content(self, run: Run, beside: dict[str, Any]) -> Content:
        return super().content(run if self._memory is not None else replace(run, place=None), beside)

    def checkpoint(self) -> list[StoredRun]:
        self._drop_gone()
        return super().checkpoint()

    def again(self, parts: Any) -> list[Run]:
        return [run if self._memory is None or run.place is not None else self._with_buckets(run) for run in super().again(parts)]

    # -- to other replicas -------------------------------------------------------------
    def place_by(self, key_groups: int) -> None:
        if self._memory is not None:
            super().place_by(key_groups)
        self.key_groups = key_groups

    def index(self, key_groups: int) -> Iterator[None]:
        yield from super().index(key_groups)
        for run in self.all() if self._memory is None else ():
            parts = []
            for at in range(0, len(run), SLICE_ROWS):
                parts.append(self.places(run.rows.slice(at, SLICE_ROWS)))
                yield
            run.place = np.concatenate(parts)

    def give(self, groups: frozenset[int], key_groups: int) -> list[StoredRun]:
        """What these groups have: rows here and there in each run, which stay where they are and are passed over until the change of layout
        ends."""
        given = super().give(groups, key_groups)
        self._gone = [*self._gone, *groups]
        return given

    def parted(self, run: Run, groups: frozenset[int]) -> tuple[list[Run], list[Run]]:
        if run.place is None:
            run.place = self.places(run.rows)
        some = chosen(groups, self.key_groups)[groups_of_buckets(run.place)]
        return [self.live(run.at(np.flatnonzero(some)))], [] if some.all() else [run]

    def take(self, given: list[StoredRun]) -> None:
        self._drop_gone()
        super().take(given)

    def gave(self) -> None:
        self._drop_gone()
        for run in self.all() if self._memory is None else ():
            run.place = None


__all__ = ["RunsByTime"]
