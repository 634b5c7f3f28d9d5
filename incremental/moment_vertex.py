"""What all vertices of collections share: one moment after another, and nothing left when an epoch ends.

What arrives for a time is put aside and handled when nothing more can come for it. The vertices are ``sequential``: no moment of an epoch
is handled before the last one of the epoch before it, so what is kept is always that of whole epochs, and of the moments so far of one.
A moment comes again at which an operator has scheduled work: where changes of earlier moments accumulate together for the first time.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Mapping
from typing import Any

from rayad.dataflow.operators.state.keyed_state import KeyedState, KeyedVertex, WholeState
from rayad.dataflow.operators.state.waiting import Batches, PairsOnce, Waiting
from rayad.incremental.moments import END, Counters
from rayad.incremental.traces import Kept, ThisEpoch, add
from rayad.progress import InternalError, Timestamp

Arrived = Mapping[tuple[Any, Any], int]
"""The weight of each (key, value) that has come for a moment."""


class Epochs(WholeState):
    """Where a replica is; it stays with the replica when keys move."""

    def __init__(self) -> None:
        self.under_way: Timestamp | None = None
        """A time of the epoch of which moments have been handled, and which is not over; None outside of loops, and between epochs."""
        self.ended = -1
        """The last epoch that is over."""

    def is_over(self, epoch: int) -> bool:
        """Whether no moment of an epoch is left here."""
        return epoch <= self.ended

    def checkpoint(self) -> Any:
        return self.under_way, self.ended

    def restore(self, stored: Any) -> None:
        self.under_way, self.ended = stored

    def give(self, groups: frozenset[int], key_groups: int) -> None:
        return None

    def take(self, given: Any) -> None:
        """It is never given."""


class MomentVertex(KeyedVertex):
    """Collects changes by time and input, and handles all of a moment at once. Batches are lists of (key, value, weight)."""

    sequential = True
    inputs: int = 1

    def __init__(self) -> None:
        self.waiting = Waiting(self, *[Batches() for _ in range(self.inputs)], PairsOnce())
        self.epochs = Epochs()

    # -- what an operator does ---------------------------------------------------------------------------
    @abstractmethod
    def on_moment(self, time: Timestamp, arrived: list[Arrived], scheduled: Collection[Any]) -> None:
        """All of a moment is there: what has arrived, by input, and the keys to which something may happen though nothing arrived."""

    def kept(self) -> dict[str, Kept]:
        """What it keeps of its inputs, by name."""
        return {}

    def of_epoch(self) -> dict[str, ThisEpoch]:
        """What else it keeps for an epoch, by name."""
        return {}

    # -- moments -----------------------------------------------------------------------------------------
    def on_recv(self, edge: int, batch: Any, time: Timestamp) -> None:
        self.waiting[time][edge].append(batch)

    def schedule(self, time: Timestamp, moment: Counters, key: Any) -> None:
        """Look at a key again at a later moment of this epoch."""
        self.waiting[Timestamp.of(time.epoch, moment)][-1][key, None] = None

    def on_notify(self, time: Timestamp) -> None:
        if time.counters and time.counters[-1] == END:
            self._end(time.epoch)
            return
        if time not in self.waiting:
            return
        *batches, scheduled = self.waiting.pop(time)
        if not any(batches) and not scheduled:
            return  # what was awaited has moved to another replica
        arrived: list[dict[tuple[Any, Any], int]] = []
        for some in batches:
            sums: dict[tuple[Any, Any], int] = {}
            for batch in some:
                for key, value, weight in batch:
                    add(sums, (key, value), weight)
            arrived.append(sums)
        self._await_end(time)
        self.on_moment(time, list(arrived), [key for key, _ in scheduled])
        if not time.counters:
            self._end(time.epoch)

    def _await_end(self, time: Timestamp) -> None:
        under_way = self.epochs.under_way
        if under_way is not None and under_way.epoch != time.epoch:
            raise InternalError(f"{self.name}: a moment of epoch {time.epoch}, and epoch {under_way.epoch} is not over")
        if under_way is None and time.counters:
            self.epochs.under_way = time
            self.notify_at(Timestamp.of(time.epoch, (END,) * len(time.counters)), None)

    def _end(self, epoch: int) -> None:
        left = [time for time, some in self.waiting.items() if time.epoch <= epoch and any(some)]
        if left:
            raise InternalError(f"{self.name}: epoch {epoch} is over, and {left} have not been handled")
        self.epochs.under_way, self.epochs.ended = None, epoch
        for kept in self.kept().values():
            kept.end_epoch()
        for some in self.of_epoch().values():
            some.clear()

    def send_changes(self, time: Timestamp, changes: list[tuple[Any, int]]) -> None:
        """Records and their weights."""
        if changes:
            self.send_by(0, changes, time)

    # -- what is stored and moves ------------------------------------------------------------------------
    def states(self) -> dict[str, KeyedState]:
        found = super().states()
        for name, kept in self.kept().items():
            found |= kept.states(name)
        return found

    def take(self, state: Any) -> None:
        super().take(state)
        for kept in self.kept().values():
            kept.settle()
        for some in (*self.of_epoch().values(), *(kept.now for kept in self.kept().values())):
            some.late = []
            if some.time is not None:
                self._await_end(some.time)


__all__ = ["Arrived", "Epochs", "MomentVertex"]
