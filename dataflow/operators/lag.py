"""``lag``: each record of a key with the one before it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rayad.dataflow.operators.keys.in_order import in_order, values_by_key
from rayad.dataflow.operators.state.by_key.dicts import GrowingDict
from rayad.dataflow.operators.state.keyed_state import KeyedVertex
from rayad.dataflow.operators.state.waiting_forms import Batches
from rayad.dataflow.operators.state.waiting_in_pieces import Waiting
from rayad.dataflow.records.batches import to_rows
from rayad.progress import Timestamp


class Lag(KeyedVertex):
    """``(key, (previous, record))`` for each record, when its time is complete: times in lexicographic order, within a time by ``by``."""

    sequential = True
    waits_for_siblings = False
    may_change = frozenset({"by"})

    def __init__(self, by: Callable[[Any], Any]) -> None:
        self.by = by
        self.pending = Waiting(self, Batches())
        self.last = GrowingDict(beside=self.pending.rows)

    def on_recv(self, edge: int, batch: Any, time: Timestamp) -> None:
        self.pending[time].append(batch)

    def on_notify(self, time: Timestamp) -> None:
        for batches in self.pending.pieces(time):
            self._complete(time, values_by_key(map(to_rows, batches)))

    def _complete(self, time: Timestamp, of_key: dict[Any, list[Any]]) -> None:
        if not of_key:
            return  # all of it was given to another replica
        out = []
        with self.last.changing(of_key) as last:
            for key, values in of_key.items():
                before = last.get(key)
                for value in in_order(values, self.by, "lag"):
                    out.append((key, (before, value)))
                    before = value
                last[key] = before
        self.send_by(0, out, time)


__all__ = ["Lag"]
