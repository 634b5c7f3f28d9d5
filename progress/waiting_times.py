"""Times that wait for a frontier to pass: of notifications, of batches that are held back.

They lie by epoch, and in each epoch by counters, with an index over the least counters of each: what a frontier lets through is found
without looking at what it does not, however many times wait.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from heapq import heappop, heappush

from rayad.progress.errors import InternalError
from rayad.progress.least_index import MutableLeastIndex
from rayad.progress.timestamp import Timestamp


class MutableWaitingTimes:
    """A set of times of one scope.

    >>> waiting = MutableWaitingTimes()
    >>> for time in (Timestamp(0, (5,)), Timestamp(1, (2,)), Timestamp(3, (0,))):
    ...     waiting.add(time)
    >>> waiting.first(), waiting.take_below([Timestamp(0, (6,)), Timestamp(2, (1,))])
    (Timestamp(0, (5,)), [Timestamp(0, (5,)), Timestamp(1, (2,)), Timestamp(3, (0,))])
    """

    __slots__ = ("_by_epoch", "_index", "_times")

    def __init__(self, times: Iterable[Timestamp] = ()) -> None:
        self._times: set[Timestamp] = set()
        self._by_epoch: dict[int, list[tuple[tuple[int, ...], Timestamp]]] = {}  # heaps
        self._index: MutableLeastIndex[tuple[int, ...]] = MutableLeastIndex()
        for time in times:
            self.add(time)

    def add(self, time: Timestamp) -> None:
        """Let `time` wait; nothing changes if it does."""
        if time in self._times:
            return
        self._times.add(time)
        epoch, counters = time
        heap = self._by_epoch.setdefault(epoch, [])
        heappush(heap, (counters, time))
        if heap[0][1] == time:
            self._index.put(epoch, counters)

    def discard(self, time: Timestamp) -> None:
        """Let `time` wait no longer, if it does. What lies behind the least of its epoch is dropped when it comes to the front."""
        if time in self._times:
            self._times.discard(time)
            epoch = time[0]
            heap = self._by_epoch[epoch]
            if heap[0][1] == time:
                self._reindex(epoch, heap)

    def __len__(self) -> int:
        return len(self._times)

    def __contains__(self, time: object) -> bool:
        return time in self._times

    def __iter__(self) -> Iterator[Timestamp]:
        """In sort key order."""
        return iter(sorted(self._times, key=Timestamp.sort_key))

    def first(self) -> Timestamp | None:
        """The time of the smallest sort key."""
        epoch = self._index.first_below(0)
        return None if epoch is None else self._by_epoch[epoch][0][1]

    def take_first(self) -> Timestamp:
        """Take out the time of the smallest sort key; there must be one."""
        time = self.first()
        assert time is not None, "take_first of nothing"
        self._take_least(time[0])
        return time

    def take_below(self, frontier: Iterable[Timestamp], ties: Iterable[Timestamp] = ()) -> list[Timestamp]:
        """Take out, in sort key order, the times t with no f of `frontier` <= t and no e of `ties` < t.

        Both are antichains. A tie itself is below neither, so it is looked for by name.
        """
        frontier, ties = tuple(frontier), tuple(ties)
        taken: list[Timestamp] = []
        bound: tuple[int, ...] | None = None
        start = 0
        for stop, counters in _staircase((*frontier, *ties)):
            self._take_between(start, stop, bound, taken)
            start, bound = stop, counters
        self._take_between(start, None, bound, taken)
        for tie in ties:
            if tie in self._times and not any(front <= tie for front in frontier):
                self._take_least(tie[0])  # all that was less at this epoch has been taken
                taken.append(tie)
        taken.sort(key=Timestamp.sort_key)
        return taken

    def _take_between(self, start: int, stop: int | None, bound: tuple[int, ...] | None, taken: list[Timestamp]) -> None:
        """Take the times of the epochs from `start` to before `stop` whose counters are below `bound`."""
        while (epoch := self._index.first_below(start, bound)) is not None and (stop is None or epoch < stop):
            heap = self._by_epoch[epoch]
            while heap and (bound is None or heap[0][0] < bound):
                time = heappop(heap)[1]
                if time in self._times:
                    self._times.discard(time)
                    taken.append(time)
            self._reindex(epoch, heap)
            start = epoch + 1

    def _take_least(self, epoch: int) -> None:
        heap = self._by_epoch[epoch]
        self._times.discard(heappop(heap)[1])
        self._reindex(epoch, heap)

    def _reindex(self, epoch: int, heap: list[tuple[tuple[int, ...], Timestamp]]) -> None:
        while heap and heap[0][1] not in self._times:
            heappop(heap)
        if heap:
            self._index.put(epoch, heap[0][0])
        else:
            del self._by_epoch[epoch]
            self._index.remove(epoch)

    def check_invariants(self) -> None:
        """Raise InternalError unless heaps and index agree with the times."""
        listed = {time for heap in self._by_epoch.values() for _, time in heap}
        firsts = {heap[0][1] for heap in self._by_epoch.values()}
        if not firsts <= self._times <= listed:
            raise InternalError(f"the epochs {self._by_epoch} do not list the waiting times {self._times}, or begin with others")
        self._index.check_invariants()


def _staircase(times: tuple[Timestamp, ...]) -> list[tuple[int, tuple[int, ...]]]:
    """The minimal ones, by growing epoch, so by falling counters."""
    steps: list[tuple[int, tuple[int, ...]]] = []
    for epoch, counters in sorted(times, key=Timestamp.sort_key):
        if not steps or counters < steps[-1][1]:
            steps.append((epoch, counters))
    return steps
