"""Windows over epochs in columns: totals of each time with the column ``window``."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from rayad.dataflow.operators.aggregates.aggregators import Several
from rayad.dataflow.operators.keys.keyed import distinct_names
from rayad.dataflow.operators.results import window_array
from rayad.dataflow.operators.totals.totals import EpochTotals
from rayad.dataflow.records.batches import keyed_columns, mark_keyed
from rayad.progress import Timestamp


class EpochWindows(EpochTotals):
    """Totals of each time alone that leave as columns: the key columns, ``window``, and the value (several of them as a struct)."""

    def given(self, out: Any, time: Timestamp) -> Any:
        if not isinstance(out, pa.RecordBatch):
            return super().given(out, time)
        start = time.counters[-1] if time.counters else time.epoch
        windows = window_array(*(pa.array(np.full(out.num_rows, at, np.int64)) for at in (start, start + 1)))
        keys = keyed_columns(out.schema) or 0
        leading, values, names = out.columns[:keys], out.columns[keys:], out.schema.names
        if isinstance(self.aggregator, Several):
            values, names = [pa.StructArray.from_arrays(values, names=names[keys:])], [*names[:keys], "value"]
        labels = distinct_names(names[:keys], ["window", *names[keys:]])
        return mark_keyed(pa.RecordBatch.from_arrays([*leading, windows, *values], names=labels), keys)
