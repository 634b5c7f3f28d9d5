"""A callback that is told what has changed in each epoch. Source: Naiad's ``Subscribe`` (SOSP 2013, 4.1)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rayad.dataflow.records.batches import to_rows
from rayad.dataflow.vertex import Vertex
from rayad.progress import Timestamp


class Subscriber(Vertex):
    """Calls ``callback(epoch, changes)`` once for each epoch that has changes, one epoch after another. It has one replica."""

    sequential = True
    is_seen = True
    """It is there for its effects."""

    def __init__(self, callback: Callable[[int, list[tuple[Any, int]]], Any]) -> None:
        self.waiting: dict[Timestamp, list[tuple[Any, int]]] = {}
        self._callback = callback

    def on_recv(self, edge: int, batch: Any, time: Timestamp) -> None:
        if time not in self.waiting:
            self.waiting[time] = []
            self.notify_at(time, None)
        self.waiting[time] += to_rows(batch)

    def on_notify(self, time: Timestamp) -> None:
        self._callback(time.epoch, self.waiting.pop(time))

    def checkpoint(self) -> Any:
        return self.waiting

    def restore(self, state: Any) -> None:
        self.waiting = state


__all__ = ["Subscriber"]
