"""What ``Stream.ordered`` puts into the graph: numbers on batches, steps that keep them, and their order again (docs/design/ordering.md).

Between :class:`NumberRecords` and :class:`RestoreOrder` a record of the stream is a :class:`Numbered`: what became of a run of input
records. An interval rather than a single number, so that it can be split on its way.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from rayad.dataflow.logical_graph import Node
from rayad.dataflow.operators.bad_records import Outcome, good_of
from rayad.dataflow.operators.order.reorder_store import Numbered, ReorderStore
from rayad.dataflow.operators.stateless import Element
from rayad.dataflow.records.batches import batch_rows, one_or_more, to_rows
from rayad.dataflow.vertex import Vertex
from rayad.progress import InternalError, Timestamp

NUMBERS = "numbers"
"""The option of a node that says what it has to do with numbers."""


def carries_numbers(node: Node) -> bool:
    """Whether what a node gives are numbered batches."""
    return node.options.get(NUMBERS) in ("numbering", "kept")


def takes_numbers(node: Node) -> bool:
    """Whether a node's input are numbered batches."""
    return node.options.get(NUMBERS) in ("kept", "restoring")


class NumberRecords(Vertex):
    """Numbers the records of each time from 0, in the order in which they arrive. One replica."""

    waits_for_siblings = False

    def __init__(self) -> None:
        self.following: dict[Timestamp, int] = {}

    def checkpoint(self) -> Any:
        return dict(self.following)

    def restore(self, state: Any) -> None:
        self.following = dict(state)

    def on_recv(self, edge: int, batch: Any, time: Timestamp) -> None:
        start = self.following.get(time)
        if start is None:
            start = 0
            self.notify_at(time, capability=None)
        count = batch_rows(batch)
        self.following[time] = start + count
        self.send_by(0, [Numbered(start, count, batch)], time)

    def on_notify(self, time: Timestamp) -> None:
        self.following.pop(time, None)


class WithNumbers(Element):
    """A stateless step, applied to the records inside; what becomes empty keeps its place."""

    def __init__(self, element: Element) -> None:
        self.element = element

    def apply(self, batch: Any) -> Any:
        return [item.replaced(self._inside(item.batch)) for item in batch]

    def _inside(self, batch: Any) -> Any:
        out = self.element.apply(batch) if batch_rows(batch) else batch
        return out if batch_rows(out) else []

    def for_replica(self) -> Element:
        return WithNumbers(self.element.for_replica())

    def warm_up(self) -> None:
        self.element.warm_up()

    def close(self) -> None:
        self.element.close()

    def culprit(self, batch: Any) -> Any:
        for item in batch:
            try:
                self._inside(item.batch)
            except Exception:
                return self.element.culprit(item.batch)
        return None


class WithoutNumbers(Element):
    """The records alone, for those who do not ask for their order."""

    def apply(self, batch: Any) -> Any:
        return joined([item.batch for item in batch if batch_rows(item.batch)])


def joined(batches: list[Any]) -> Any:
    """Batches as one: rows where any of them are rows, or schemas differ."""
    if len(batches) == 1:
        return batches[0]
    if any(type(batch) is Outcome for batch in batches):
        good = joined([batch for batch in map(good_of, batches) if batch_rows(batch)])
        return Outcome(good, [bad for batch in batches if type(batch) is Outcome for bad in batch])
    if batches and all(isinstance(batch, pa.RecordBatch) and batch.schema == batches[0].schema for batch in batches):
        parts = one_or_more(pa.Table.from_batches(batches))
        if len(parts) == 1:
            return parts[0]
    return [row for batch in batches for row in to_rows(batch)]


class RestoreOrder(Vertex):
    """Sends on what was numbered in the order of the numbers, one time after the other. One replica.

    Sending needs no notification: as long as something is missing before what waits, that is counted on its way at the same time, and
    its arrival is what sends on all that follows it.
    """

    in_order = True
    waits_for_siblings = False
    may_change = frozenset({"memory_bytes", "directory"})

    def __init__(self, memory_bytes: int, directory: str | None) -> None:
        self.following: dict[Timestamp, int] = {}
        self.waiting: dict[Timestamp, dict[int, Numbered]] = {}
        self.store = ReorderStore(memory_bytes, directory)

    def checkpoint(self) -> Any:
        return {"following": dict(self.following), "waiting": {time: list(items.values()) for time, items in self.waiting.items()}}

    def restore(self, state: Any) -> None:
        self.following = dict(state["following"])
        self.waiting = {time: {item.start: self.store.keep(item) for item in items} for time, items in state["waiting"].items()}

    def on_park(self, batch: Any) -> Any:
        return [self.store.keep(item) for item in batch]

    def on_recv(self, edge: int, batch: Any, time: Timestamp) -> None:
        following = self.following.get(time)
        if following is None:
            following = 0
            self.notify_at(time, capability=None)
        waiting = self.waiting.setdefault(time, {})
        for item in batch:
            if item.start != following:
                waiting[item.start] = self.store.keep(item)
                continue
            ready: Numbered | None = item
            while ready is not None:
                self.store.let_go(ready)
                self.send_by(0, ready.batch, time)
                following += ready.count
                ready = waiting.pop(following, None)
        self.following[time] = following
        if not waiting:
            del self.waiting[time]

    def on_notify(self, time: Timestamp) -> None:
        if time in self.waiting:
            raise InternalError(
                f"{self.name!r}: {time} is complete, but record {self.following[time]} of it has not come; those from "
                f"{sorted(self.waiting[time])[:5]} on wait for it"
            )
        self.following.pop(time, None)
