"""Rows that have no slot (``slots.py``), in sorted runs: each is the only one of its like, in one run."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rayad.dataflow.operators.state.runs.order import Positions, found_in, order_of, ranges
from rayad.dataflow.operators.state.runs.run import Run
from rayad.dataflow.operators.state.runs.runs import Runs
from rayad.dataflow.records.batches import take_rows


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

    def put(self, rows: pa.RecordBatch) -> None:
        """Keep rows whose like is not here."""
        self.add(self.arranged(self.read(rows)))

    @property
    def is_empty(self) -> bool:
        """Whether nothing was ever put here, or nothing is left."""
        return not self.count

    def met(self, asked: pa.RecordBatch) -> Iterator[tuple[Run, Positions, Positions, pa.RecordBatch]]:
        """Of rows that differ: in each run that has some of them their positions, where their like is in the run, and those rows."""
        places = self.places(asked)
        order = order_of(places)
        if order is not None:
            places = places[order]
        for run in list(self.all()):
            mine, low, high = found_in(run.place, places)
            theirs, mine = ranges(low, high - low), np.repeat(mine, high - low)
            here = self.left_of(run, theirs)
            if here is not None:
                mine, theirs = mine[here], theirs[here]
            if not len(mine):
                continue
            mine = mine if order is None else order[mine]
            rows = take_rows(run.rows, pa.array(theirs))
            same = self.are_alike(asked.take(pa.array(mine)), rows)
            if not same.all():
                mine, theirs, rows = mine[same], theirs[same], rows.filter(pa.array(same))
            if len(mine):
                yield run, mine, theirs, rows


__all__ = ["RowsBelow"]
