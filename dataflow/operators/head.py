"""``head``: the first records of each key."""

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


class Head(KeyedVertex):
    """``(key, record)`` for the first ``n`` records of each key, when their time is complete: times in lexicographic order, within a time
    by ``by``. What is kept is how many a key has had."""

    gives_records = True
    sequential = True
    waits_for_siblings = False
    may_change = frozenset({"by"})

    def __init__(self, n: int, by: Callable[[Any], Any]) -> None:
        self.n = n
        self.by = by
        self.pending = Waiting(self, Batches())
        self.given = GrowingDict(beside=self.pending.rows)

    def on_recv(self, edge: int, batch: Any, time: Timestamp) -> None:
        rows, n = to_rows(batch), self.n
        given = self.given.kept_of([key for key, _ in rows])
        self.pending[time].append([(key, value) for key, value in rows if given.get(key, 0) < n])

    def on_notify(self, time: Timestamp) -> None:
        for batches in self.pending.pieces(time):
            self._complete(time, values_by_key(batches))

    def _complete(self, time: Timestamp, of_key: dict[Any, list[Any]]) -> None:
        out: list[Any] = []
        with self.given.changing(of_key) as given:
            for key, values in of_key.items():
                left = self.n - given.get(key, 0)
                if left > 0:
                    first = in_order(values, self.by, "head")[:left]
                    out += [(key, value) for value in first]
                    given[key] = given.get(key, 0) + len(first)
        if out:
            self.send_by(0, out, time)


__all__ = ["Head"]
