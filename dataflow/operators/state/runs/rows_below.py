"""Rows that have no slot (``slots/slots.py``), in sorted runs: each is the only one of its like, in one run."""

from __future__ import annotations

from abc import abstractmethod
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rayad.dataflow.operators.state.runs.order import Positions, found_in, order_of, ranges
from rayad.dataflow.operators.state.runs.run import Run
from rayad.dataflow.operators.state.runs.runs import Runs, StoredRun, key_groups_in
from rayad.dataflow.records.batches import one_batch, take_rows


class RowsBelow(Runs):
    """Rows of which no two are alike."""

    def __init__(self, keys: int) -> None:
        super().__init__(keys, among=lambda: 0)

    @abstractmethod
    def are_alike(self, asked: pa.RecordBatch, rows: pa.RecordBatch) -> npt.NDArray[np.bool_]:
        """Whether rows of what is asked for and rows that are here, which have one place, are alike, shape (rows,)."""

    def left_of(self, run: Run, rows: Positions) -> npt.NDArray[np.bool_] | None:
        """Which of these rows of a run are still here; None: all."""
        return None

    def take(self, given: list[StoredRun]) -> None:
        if self.is_empty:
            self.key_groups = key_groups_in(given) or self.key_groups
        super().take(given)

    def put(self, rows: pa.RecordBatch) -> None:
        """Keep rows whose like is not here."""
        self.add(self.arranged(self.read(rows)))

    @property
    def is_empty(self) -> bool:
        """Whether nothing was ever put here, or nothing is left."""
        return not self.count

    def met(self, asked: pa.RecordBatch) -> Met:
        """Find rows that differ. Runs on disk are many, and each has few of them: what is done for each run is looking for places, and
        copying the rows that have them; all else is done once."""
        places = self.places(asked)
        order = order_of(places)
        if order is not None:
            places = places[order]
        found, parts = [], []
        for run in self.near(places):
            mine, low, high = found_in(run.place, places)
            if not len(mine):
                continue
            theirs, mine = ranges(low, high - low), np.repeat(mine, high - low)
            here = self.left_of(run, theirs)
            if here is not None and not here.all():
                mine, theirs = mine[here], theirs[here]
            if len(mine):
                found.append((run, mine, theirs))
                parts.append(take_rows(run.rows, pa.array(theirs)))
        if not found:
            return Met(np.zeros(0, np.int64), None, [])
        all_mine = np.concatenate([mine for _, mine, _ in found])
        all_mine = all_mine if order is None else order[all_mine]
        rows = parts[0] if len(parts) == 1 else one_batch(pa.Table.from_batches(parts))
        same = self.are_alike(asked.take(pa.array(all_mine)), rows)
        of_runs = [(run, theirs) for run, _, theirs in found]
        if not same.all():
            all_mine, rows = all_mine[same], rows.filter(pa.array(same))
            ends = np.cumsum([len(theirs) for _, theirs in of_runs])
            masks = np.split(same, ends[:-1])
            of_runs = [(run, theirs[mask]) for (run, theirs), mask in zip(of_runs, masks, strict=True)]
        return Met(all_mine, rows, of_runs)


class Met(NamedTuple):
    """What :meth:`RowsBelow.met` found.

    Args:
        mine: positions among what was asked for.
        rows: their like; None: nothing was found.
        of_runs: where these are, by run, in the same order.
    """

    mine: Positions
    rows: pa.RecordBatch | None
    of_runs: list[tuple[Run, Positions]]


__all__ = ["Met", "RowsBelow"]
