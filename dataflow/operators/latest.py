"""``latest``: the last record of each key, when the input has ended."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rayad.dataflow.operators.keys.in_order import in_order, values_by_key
from rayad.dataflow.operators.state.by_key.dicts import GrowingDict
from rayad.dataflow.operators.state.keyed_state import KeyedVertex
from rayad.dataflow.operators.state.waiting_forms import Batches
from rayad.dataflow.operators.state.waiting_in_pieces import Waiting
from rayad.dataflow.records.batches import to_rows
from rayad.dataflow.vertex import EndVertex
from rayad.progress import Timestamp

SENT_ROWS = 4096
"""The records of a batch that leaves, at most."""


class Latest(KeyedVertex, EndVertex):
    """``(key, record)``, once for each key, at the end: of the times in lexicographic order the last one, within it by ``by``."""

    gives_records = True
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
            of_key = values_by_key(map(to_rows, batches))
            with self.last.changing(of_key) as last:
                for key, values in of_key.items():
                    last[key] = in_order(values, self.by, "latest")[-1]

    def on_end(self, time: Timestamp) -> None:
        for rows in self.last.taken_out():
            for at in range(0, len(rows), SENT_ROWS):
                self.send_by(0, rows[at : at + SENT_ROWS], time)


__all__ = ["Latest"]
