"""``distinct``: each record of a key once, the first time that it comes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from rayad.dataflow.operators.state.contents import comparable, originals
from rayad.dataflow.operators.state.key_groups import Kept, MovingVertex
from rayad.dataflow.operators.state.touched_keys import Additions
from rayad.dataflow.records.batches import to_rows
from rayad.progress import DataflowError, Timestamp


class Distinct(MovingVertex):
    """Each distinct ``(key, value)`` once, at the first time (in lexicographic order) that holds it; see :class:`Contents` for values that
    Python cannot hash."""

    sequential = True
    waits_for_siblings = False

    def __init__(self) -> None:
        self.pending: dict[Timestamp, dict[Any, None]] = {}
        self.seen: set[Any] = set()
        self._added = Additions()

    def checkpoint(self) -> Any:
        return {"pending": self.pending, "seen": self.seen}

    def restore(self, state: Any) -> None:
        self.pending, self.seen = state["pending"], state["seen"]

    def take_changes(self) -> Callable[[], Any] | None:
        added = self._added.take()
        return None if added is None else lambda: {"pending": self.pending, "added": [pair for pairs in added for pair in pairs]}

    def restore_changes(self, changes: Any) -> None:
        self.pending = changes["pending"]
        self.seen.update(changes["added"])

    def kept_by_key(self) -> Iterable[Kept]:
        return [self.seen]

    def give(self, groups: frozenset[int]) -> Any:
        leaving = self.leaving()
        waiting = {}
        for time, fresh in list(self.pending.items()):
            pairs = list(fresh)
            waiting[time] = leaving.out_of_pairs(pairs, groups)
            self.pending[time] = dict.fromkeys(pairs)
        self.pending = {time: fresh for time, fresh in self.pending.items() if fresh}
        self._added.forget()
        return {"pending": {time: pairs for time, pairs in waiting.items() if pairs}, "seen": leaving.out_of_set(self.seen, groups)}

    def take(self, state: Any) -> None:
        for time, pairs in state["pending"].items():
            if time not in self.pending:
                self.pending[time] = {}
                self.notify_at(time)
            self.pending[time].update(dict.fromkeys(pairs))
        self.seen.update(state["seen"])
        if self._leaving is not None:
            self._leaving.added(self.seen, state["seen"])
        self._added.forget()

    def on_recv(self, edge: int, batch: Any, time: Timestamp) -> None:
        fresh = self.pending.get(time)
        if fresh is None:
            fresh = self.pending[time] = {}
            self.notify_at(time)
        try:
            fresh.update(dict.fromkeys(pair for pair in comparable(to_rows(batch)) if pair not in self.seen))
        except TypeError as error:
            raise DataflowError(f"distinct {self.name!r} needs hashable keys and values: {error}; map records to tuples first") from error

    def on_notify(self, time: Timestamp) -> None:
        waiting = self.pending.pop(time, None)
        if waiting is None:
            return  # all of it was given to another replica
        fresh = [pair for pair in waiting if pair not in self.seen]
        self.seen.update(fresh)
        if self._leaving is not None:
            self._leaving.added(self.seen, fresh)
        self._added.note(fresh, len(fresh), len(self.seen))
        self.send_by(0, originals(fresh), time)


__all__ = ["Distinct"]
