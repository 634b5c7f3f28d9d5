"""Windows of so many records of a key, in rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rayad.dataflow.operators.aggregates.aggregators import Aggregator
from rayad.dataflow.operators.keys.in_order import values_by_key
from rayad.dataflow.operators.state.by_key.dicts import KeyedDict
from rayad.dataflow.operators.state.keyed_state import KeyedVertex
from rayad.dataflow.operators.state.tables import Entries
from rayad.dataflow.operators.state.waiting_forms import Batches
from rayad.dataflow.operators.state.waiting_in_pieces import Waiting
from rayad.dataflow.operators.windows.late_records import in_order_of_time
from rayad.dataflow.records.selectors import ValueSelector
from rayad.dataflow.vertex import EndVertex
from rayad.dataflow.windows import Counted, Window
from rayad.progress import Timestamp


class OpenCounts(KeyedDict):
    """How many records a key has had, and the accumulator of those that no full window has; None of none."""

    def __init__(self, aggregator: Aggregator) -> None:
        super().__init__()
        self._aggregator = aggregator

    def entries_of(self, kept: Mapping[Any, Any]) -> dict[str, Entries]:
        counts, open_ones = [count for count, _ in kept.values()], [each for _, each in kept.values()]
        return {"": Entries(list(kept), {"seen": counts, "value": open_ones})}

    def put_entries(self, name: str, entries: Entries) -> None:
        held = zip(entries.columns["seen"], entries.columns["value"], strict=True)
        with self.changing(entries.keys) as kept:
            kept.update(zip(entries.keys, held, strict=True))


class CountedWindows(KeyedVertex, EndVertex):
    """``(key, window, value)`` when a window of a key is full, and of what is left when the input ends. The window is ``[n, n + size)``, in
    the numbers of the key's records, epoch after epoch, within one by event time and then by representation.

    Its input is what ``late_records.PlaceRows`` makes.

    Args:
        value: of a record; ``others``: columns that are none.
    """

    sequential = True
    waits_for_siblings = False

    def __init__(self, aggregator: Aggregator, windows: Counted, value: ValueSelector, others: tuple[str, ...]) -> None:
        self.aggregator = aggregator
        self.windows = windows
        self.pending = Waiting(self, Batches())
        self.open = OpenCounts(aggregator)
        self._value = value.row_value(others) if aggregator.takes_value else _none

    def on_recv(self, edge: int, batch: Any, time: Timestamp) -> None:
        self.pending[time].append(batch)

    def on_notify(self, time: Timestamp) -> None:
        for batches in self.pending.pieces(time):
            self._complete(time, values_by_key(batches))

    def _complete(self, time: Timestamp, of_key: dict[Any, list[Any]]) -> None:
        out: list[Any] = []
        size, create, add = self.windows.size, self.aggregator.create, self.aggregator.add
        with self.open.changing(of_key) as kept:
            for key, placed in of_key.items():
                count, accumulator = kept.get(key, (0, None))
                for _, record in in_order_of_time(placed):
                    value = self._value(record)
                    accumulator = create(value) if count % size == 0 else add(accumulator, value)
                    count += 1
                    if count % size == 0:
                        out.append((key, Window(count - size, count), self.aggregator.result(accumulator)))
                        accumulator = None
                kept[key] = (count, accumulator)
        if out:
            self.send_by(0, out, time)

    def on_end(self, time: Timestamp) -> None:
        size, result = self.windows.size, self.aggregator.result
        for some in self.open.taken_out():
            left = [(key, count, accumulator) for key, (count, accumulator) in some if count % size]
            if left:
                self.send_by(0, [(key, Window(count - count % size, count), result(accumulator)) for key, count, accumulator in left], time)


def _none(record: Any) -> None:
    return None


__all__ = ["CountedWindows"]
