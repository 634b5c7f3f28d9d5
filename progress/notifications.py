"""Pending notifications of one replica of one vertex (Naiad, sections 2.2 and 2.3).

A notification waits for its *guarantee* time: `on_notify(guarantee)` may run when, in one view, no f of the input frontier is <=
guarantee and no p of the notify frontier is < guarantee. Its *capability* is the time at which the callback may still send; None means
that it may not send. An old view is safe: what can still appear is bounded below by it.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import NamedTuple

from rayad.progress.errors import InternalError
from rayad.progress.job_tracker import View
from rayad.progress.least_index import MutableLeastIndex
from rayad.progress.timestamp import Timestamp


class Notification(NamedTuple):
    """A callback that is due: what it waited for, and the time at which it may send (None: it may not)."""

    guarantee: Timestamp
    capability: Timestamp | None


class MutableNotificator:
    """The requests of one replica that have not been delivered.

    They lie by epoch, and in each epoch by counters, with an index over the least counters: a view finds what it lets through without
    looking at what it does not.

    >>> pending = MutableNotificator()
    >>> pending.request(Timestamp(3), Timestamp(3)), pending.request(Timestamp(3), Timestamp(3))
    (True, False)
    >>> pending.deliverable(View((Timestamp(3),), (Timestamp(3),)))
    []
    >>> pending.deliverable(View((Timestamp(4),), (Timestamp(3),)))
    [Notification(guarantee=Timestamp(3), capability=Timestamp(3))]
    """

    __slots__ = ("_by_epoch", "_by_guarantee", "_count", "_index")

    def __init__(self) -> None:
        self._count = 0
        self._by_guarantee: dict[Timestamp, list[Timestamp | None]] = {}
        self._by_epoch: dict[int, list[tuple[tuple[int, ...], Timestamp]]] = {}  # heaps: counters and guarantee
        self._index: MutableLeastIndex[tuple[int, ...]] = MutableLeastIndex()  # the least counters of each epoch

    def request(self, guarantee: Timestamp, capability: Timestamp | None) -> bool:
        """Ask for a notification. False if the same pair is pending already: it will be delivered once."""
        capabilities = self._by_guarantee.get(guarantee)
        if capabilities is None:
            self._by_guarantee[guarantee] = [capability]
            self._count += 1
            epoch, counters = guarantee
            heap = self._by_epoch.setdefault(epoch, [])
            heappush(heap, (counters, guarantee))
            if heap[0][1] is guarantee:
                self._index.put(epoch, counters)
            return True
        if capability in capabilities:
            return False
        capabilities.append(capability)
        self._count += 1
        return True

    @property
    def pending_count(self) -> int:
        """How many notifications are pending."""
        return self._count

    def __len__(self) -> int:
        return self._count

    def pending(self) -> tuple[Notification, ...]:
        """All pending notifications, in sort key order; what a snapshot keeps."""
        times = sorted(self._by_guarantee, key=Timestamp.sort_key)
        return tuple(Notification(time, capability) for time in times for capability in self._by_guarantee[time])

    def deliverable(self, view: View, sequential: bool = False) -> list[Notification]:
        """Take out the notifications that may run under `view`, in sort key order.

        With `sequential=True` a time must also have no lexicographically smaller one ahead of it: no element of the input frontier, and
        no other element of the notify frontier, may have a smaller sort key.
        """
        if not self._by_guarantee:
            return []
        return self._next_in_order(view) if sequential else self._below(view)

    def _next_in_order(self, view: View) -> list[Notification]:
        """What holds one back holds back everything with a larger sort key."""
        inputs, pending = view
        due: list[Notification] = []
        while (time := self._first()) is not None:
            if any(front <= time for front in inputs) or any(front <= time and front != time for front in pending):
                break
            if _has_smaller(inputs, pending, time.sort_key()):
                break
            due += self._take(time)
        return due

    def _below(self, view: View) -> list[Notification]:
        """All below the frontiers. A minimal pending time itself is below none of them, but waits for no other: it may go, too."""
        inputs, pending = view
        taken: list[Timestamp] = []
        bound: tuple[int, ...] | None = None
        start = 0
        for stop, counters in _staircase(inputs, pending):
            self._take_below(start, stop, bound, taken)
            start, bound = stop, counters
        self._take_below(start, None, bound, taken)
        for time in pending:
            if time in self._by_guarantee and not any(front <= time for front in inputs):
                self._pop(time[0])
                taken.append(time)
        taken.sort(key=Timestamp.sort_key)
        return [notification for time in taken for notification in self._delivered(time)]

    def _take_below(self, start: int, stop: int | None, bound: tuple[int, ...] | None, taken: list[Timestamp]) -> None:
        """Take the times of the epochs from `start` to before `stop` whose counters are below `bound`."""
        while (epoch := self._index.first_below(start, bound)) is not None and (stop is None or epoch < stop):
            heap = self._by_epoch[epoch]
            while heap and (bound is None or heap[0][0] < bound):
                taken.append(heappop(heap)[1])
            self._reindex(epoch, heap)
            start = epoch + 1

    def next_by_input(self, view: View) -> list[Notification]:
        """Take out the notifications of the smallest pending time, if no input can bring that time any more; else none.

        For a vertex outside loops whose replicas have nothing to do with each other: there no output comes back as input, so that what
        other replicas still have to notify cannot reach this one. One time at a call: running it may ask for another one before the next.
        """
        time = self._first()
        if time is None or any(front <= time for front in view.input_frontier):
            return []
        return self._take(time)

    def _first(self) -> Timestamp | None:
        """The pending time of the smallest sort key."""
        epoch = self._index.first_below(0)
        return None if epoch is None else self._by_epoch[epoch][0][1]

    def _take(self, time: Timestamp) -> list[Notification]:
        """Take out the least time of an epoch."""
        self._pop(time[0])
        return self._delivered(time)

    def _pop(self, epoch: int) -> None:
        heap = self._by_epoch[epoch]
        heappop(heap)
        self._reindex(epoch, heap)

    def _reindex(self, epoch: int, heap: list[tuple[tuple[int, ...], Timestamp]]) -> None:
        if heap:
            self._index.put(epoch, heap[0][0])
        else:
            del self._by_epoch[epoch]
            self._index.remove(epoch)

    def _delivered(self, time: Timestamp) -> list[Notification]:
        capabilities = self._by_guarantee.pop(time)
        self._count -= len(capabilities)
        return [Notification(time, capability) for capability in capabilities]

    def check_invariants(self) -> None:
        """Raise InternalError unless the indexes agree."""
        listed = sorted((time for heap in self._by_epoch.values() for _, time in heap), key=Timestamp.sort_key)
        if listed != sorted(self._by_guarantee, key=Timestamp.sort_key):
            raise InternalError(f"the epochs {self._by_epoch} do not list exactly the pending times {list(self._by_guarantee)}")
        self._index.check_invariants()
        if self._count != sum(map(len, self._by_guarantee.values())):
            raise InternalError(f"{self._count} notifications are counted, there are {self._by_guarantee}")


def _staircase(inputs: tuple[Timestamp, ...], pending: tuple[Timestamp, ...]) -> list[tuple[int, tuple[int, ...]]]:
    """The minimal times of both, by growing epoch, so by falling counters."""
    steps: list[tuple[int, tuple[int, ...]]] = []
    for epoch, counters in sorted({*map(tuple, inputs), *map(tuple, pending)}):
        if not steps or counters < steps[-1][1]:
            steps.append((epoch, counters))
    return steps


def _has_smaller(inputs: tuple[Timestamp, ...], pending: tuple[Timestamp, ...], key: tuple[int, ...]) -> bool:
    """Is some frontier element lexicographically smaller than `key`?"""
    return any(front.sort_key() < key for front in inputs) or any(front.sort_key() < key for front in pending)
