"""Open windows, in columns or in rows, and what a complete time brings to them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any

import pyarrow as pa

from rayad.dataflow.operators.aggregates.aggregators import Aggregator
from rayad.dataflow.operators.state.two_forms import TwoForms
from rayad.dataflow.operators.windows.best import BestColumns, BestRecords
from rayad.dataflow.operators.windows.columns import WindowColumns
from rayad.dataflow.operators.windows.open_windows import OpenWindows


class KeptWindows(TwoForms[OpenWindows, WindowColumns]):
    """Windows that have not fired. They are columns while all partials are; the first rows, and a session whose sum leaves 64 bits, turn
    them into rows."""

    def __init__(self, aggregator: Aggregator, windows: Any) -> None:
        def make_columns() -> WindowColumns:
            if isinstance(aggregator, BestRecords):
                return BestColumns(aggregator, windows)
            return WindowColumns(aggregator, windows)

        super().__init__(OpenWindows(aggregator, windows), make_columns)

    def accept(self, parts: Iterable[list[Any]], batches: list[pa.RecordBatch], mark: Any) -> None:
        """Take in what has come at one time, but for what is late at ``mark``, the watermark before it: ``(key, (window, accumulator))``
        pairs, and columns."""
        pairs = list(chain.from_iterable(parts))
        if batches and not pairs and not self.rows.is_used and self.columns.takes(batches):
            try:
                self.columns.accept(batches, mark)
            except OverflowError:
                pairs = self._pairs_of(batches)
        elif batches or pairs:
            pairs += self._pairs_of(batches)
        if pairs:
            self.rows.put(pairs, mark)

    def fired(self, mark: Any) -> Iterator[pa.RecordBatch | list[Any] | None]:
        """Results of the windows that end at or before ``mark`` (None: all), which are forgotten, a part after the other."""
        if self.columns.is_used:
            yield from self.columns.fired(mark)
        yield from self.rows.due(mark)

    def _pairs_of(self, batches: list[pa.RecordBatch]) -> list[Any]:
        """The state becomes rows; gives these batches as pairs."""
        self.to_rows()
        return self.columns.pairs_of(batches)
