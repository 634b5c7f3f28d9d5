"""Totals beyond memory: those of keys that have no slot, in sorted runs.

A key is at one place: it has a slot, or it is one row of one run. Slots are where totals change. When they take too much memory all of
them become a run; a key that comes again goes back to a slot with what it had (docs/design/state.md, 6).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rayad.dataflow.operators.keys.column_keys import equal_keys
from rayad.dataflow.operators.state.runs.order import Positions
from rayad.dataflow.operators.state.runs.rows_that_leave import RowsThatLeave


class TotalsBelow(RowsThatLeave):
    """Rows of totals, each the only one of its key."""

    def are_alike(self, asked: pa.RecordBatch, rows: pa.RecordBatch) -> npt.NDArray[np.bool_]:
        return np.logical_and.reduce([equal_keys(asked.column(i), rows.column(i)) for i in range(self.keys)])  # type: ignore[no-any-return]

    def taken_out(self, keys: list[pa.Array]) -> tuple[Positions, pa.RecordBatch | None]:
        """Take out the totals of these keys, which differ: positions among the keys, and the rows of their totals; None: of none."""
        return self.rows_out(pa.RecordBatch.from_arrays(keys, names=[f"k{i}" for i in range(len(keys))]))


__all__ = ["TotalsBelow"]
