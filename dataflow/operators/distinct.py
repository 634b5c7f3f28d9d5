"""``distinct``: each record of a key once, the first time that it comes."""

from __future__ import annotations

from typing import Any

from rayad.dataflow.operators.state.by_key import GrowingSet
from rayad.dataflow.operators.state.contents import comparable, originals
from rayad.dataflow.operators.state.keyed_state import KeyedVertex
from rayad.dataflow.operators.state.waiting import PairsOnce, Waiting
from rayad.dataflow.records.batches import to_rows
from rayad.progress import DataflowError, Timestamp


class Distinct(KeyedVertex):
    """Each distinct ``(key, value)`` once, at the first time (in lexicographic order) that holds it; see :class:`Contents` for values that
    Python cannot hash."""

    sequential = True
    waits_for_siblings = False

    def __init__(self) -> None:
        self.pending = Waiting(self, PairsOnce())
        self.seen = GrowingSet()

    def on_recv(self, edge: int, batch: Any, time: Timestamp) -> None:
        fresh = self.pending[time]
        try:
            fresh.update(dict.fromkeys(self.seen.new(comparable(to_rows(batch)))))
        except TypeError as error:
            raise DataflowError(f"distinct {self.name!r} needs hashable keys and values: {error}; map records to tuples first") from error

    def on_notify(self, time: Timestamp) -> None:
        fresh = self.seen.new(self.pending.pop(time, ()))
        if fresh:
            self.seen.add(fresh)
            self.send_by(0, originals(fresh), time)


__all__ = ["Distinct"]
