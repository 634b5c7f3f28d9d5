"""Consolidation and the look whether what is removed was there, in columns."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from rayad.dataflow.operators.state.runs.run import Run
from rayad.dataflow.records.values import values_of
from rayad.incremental.columns.form import KEY, changes
from rayad.incremental.columns.kept import COUNT, ColumnForm, Out, Part
from rayad.incremental.columns.reducing import keys_of, sums_of
from rayad.incremental.records import absent
from rayad.progress import Timestamp


class ConsolidatedColumns(ColumnForm):
    """Each record once in a moment. Records come as keys; nothing is kept."""

    def __init__(self) -> None:
        super().__init__({"input": Part((KEY,))})

    def on_moment(self, time: Timestamp, runs: Sequence[Run | None], due: Sequence[pa.RecordBatch]) -> tuple[Out, Out]:
        """See there."""
        return _once(time, runs[0]), []


class PresentColumns(ColumnForm):
    """How often each record is there. Records come as keys."""

    def __init__(self) -> None:
        super().__init__({"there": Part((KEY,))})

    def on_moment(self, time: Timestamp, runs: Sequence[Run | None], due: Sequence[pa.RecordBatch]) -> tuple[Out, Out]:
        """Raises DataflowError for a record that is removed and is not there."""
        (run,), part = runs, self.inputs["there"]
        if run is None or not len(run):
            return [], []
        gathered = keys_of(part.now, run, due, time.counters)
        sums = sums_of(gathered, part.numbers)
        gathered.add(sums, part.before)
        wrong = np.flatnonzero(sums[COUNT] + run.beside[COUNT] < 0)
        if len(wrong):
            first = int(wrong[0])
            (record,) = values_of(run.rows.column(0).slice(first, 1))
            raise absent(record, int(run.beside[COUNT][first]), int(sums[COUNT][first]), time.epoch)
        part.now.add([run])
        self.time = time
        return _once(time, run), []


def _once(time: Timestamp, run: Run | None) -> Out:
    return [] if run is None or not len(run) else [(time, changes(run.rows.column(0), run.beside[COUNT]))]


__all__ = ["ConsolidatedColumns", "PresentColumns"]
