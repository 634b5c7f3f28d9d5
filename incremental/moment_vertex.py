"""What all vertices of collections share: one moment after another, and nothing left when an epoch ends.

What arrives for a time is put aside and handled when nothing more can come for it. The vertices are ``sequential``: no moment of an epoch
is handled before the last one of the epoch before it, so what is kept is always that of whole epochs, and of the moments so far of one.
A moment comes again at which an operator has scheduled work: where changes of earlier moments accumulate together for the first time.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any

from rayad.dataflow.records.key_hashing import key_group
from rayad.dataflow.vertex import Vertex
from rayad.incremental.moments import END, Counters
from rayad.incremental.traces import add
from rayad.progress import InternalError, Timestamp

Change = tuple[Any, Any, int]
"""Key, value, weight."""


class MomentVertex(Vertex):
    """Collects changes by time and input, and handles all of a moment at once. Batches are lists of (key, value, weight)."""

    sequential = True

    def __init__(self) -> None:
        self.waiting: dict[Timestamp, list[tuple[int, list[Change]]]] = {}
        self.scheduled: dict[Timestamp, set[Any]] = {}
        """Keys to which something may happen then, though nothing arrives for them."""
        self.under_way: Timestamp | None = None
        """A time of the epoch of which moments have been handled, and which is not over; None outside of loops, and between epochs."""
        self.ended = -1
        """The last epoch that is over."""

    # -- what an operator does ---------------------------------------------------------------------------
    @abstractmethod
    def on_moment(self, time: Timestamp, arrived: list[dict[tuple[Any, Any], int]], scheduled: set[Any]) -> None:
        """All of a moment is there: by input, the weight of each (key, value)."""

    def on_epoch_over(self) -> None:
        """No moment of the epoch is left."""

    def give_keys(self, leaves: Callable[[Any], bool]) -> Any:
        """Remove what is kept of keys, and give it; None where that is nothing."""
        return None

    def take_keys(self, given: Any, *, is_over: bool) -> None:
        """Take over what another replica gave; ``is_over``: the epoch that was under way there is over here."""

    inputs: int = 1

    # -- moments -----------------------------------------------------------------------------------------
    def on_recv(self, edge: int, batch: Any, time: Timestamp) -> None:
        self._await(time)
        self.waiting.setdefault(time, []).append((edge, batch))

    def schedule(self, time: Timestamp, moment: Counters, key: Any) -> None:
        """Look at a key again at a later moment of this epoch."""
        at = Timestamp.of(time.epoch, moment)
        self._await(at)
        self.scheduled.setdefault(at, set()).add(key)

    def _await(self, time: Timestamp) -> None:
        if time not in self.waiting and time not in self.scheduled:
            self.notify_at(time)

    def on_notify(self, time: Timestamp) -> None:
        if time.counters and time.counters[-1] == END:
            self._end(time.epoch)
            return
        waiting, scheduled = self.waiting.pop(time, []), self.scheduled.pop(time, set())
        if not waiting and not scheduled:
            return  # what was awaited has moved to another replica
        arrived: list[dict[tuple[Any, Any], int]] = [{} for _ in range(self.inputs)]
        for edge, batch in waiting:
            sums = arrived[edge]
            for key, value, weight in batch:
                add(sums, (key, value), weight)
        self._await_end(time)
        self.on_moment(time, arrived, scheduled)
        if not time.counters:
            self._end(time.epoch)

    def _await_end(self, time: Timestamp) -> None:
        if self.under_way is not None and self.under_way.epoch != time.epoch:
            raise InternalError(f"{self.name}: a moment of epoch {time.epoch}, and epoch {self.under_way.epoch} is not over")
        if self.under_way is None and time.counters:
            self.under_way = time
            self.notify_at(Timestamp.of(time.epoch, (END,) * len(time.counters)), None)

    def _end(self, epoch: int) -> None:
        left = [time for time in (*self.waiting, *self.scheduled) if time.epoch <= epoch]
        if left:
            raise InternalError(f"{self.name}: epoch {epoch} is over, and {left} have not been handled")
        self.under_way, self.ended = None, epoch
        self.on_epoch_over()

    def send_changes(self, time: Timestamp, changes: list[tuple[Any, int]]) -> None:
        """Records and their weights."""
        if changes:
            self.send_by(0, changes, time)

    # -- rescaling ---------------------------------------------------------------------------------------
    def give(self, groups: frozenset[int]) -> Any:
        count = self.key_groups

        def leaves(key: Any) -> bool:
            return key_group(key, count) in groups

        waiting: dict[Timestamp, list[tuple[int, list[Change]]]] = {}
        for time, some in self.waiting.items():
            going = [(edge, [change for change in batch if leaves(change[0])]) for edge, batch in some]
            waiting[time] = [(edge, batch) for edge, batch in going if batch]
            self.waiting[time] = [(edge, [change for change in batch if not leaves(change[0])]) for edge, batch in some]
        scheduled = {time: {key for key in keys if leaves(key)} for time, keys in self.scheduled.items()}
        for time, keys in scheduled.items():
            self.scheduled[time] -= keys
        given = self.give_keys(leaves)
        waiting = {time: some for time, some in waiting.items() if some}
        scheduled = {time: keys for time, keys in scheduled.items() if keys}
        return (waiting, scheduled, given, self.under_way) if waiting or scheduled or given is not None else None

    def take(self, state: Any) -> None:
        waiting, scheduled, given, under_way = state
        for time, some in waiting.items():
            self._await(time)
            self.waiting.setdefault(time, []).extend(some)
        for time, keys in scheduled.items():
            self._await(time)
            self.scheduled.setdefault(time, set()).update(keys)
        is_over = under_way is None or under_way.epoch <= self.ended
        if given is not None:
            self.take_keys(given, is_over=is_over)
        if under_way is not None and not is_over:
            self._await_end(under_way)


__all__ = ["Change", "MomentVertex"]
