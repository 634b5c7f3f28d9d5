"""Times that wait for a frontier to pass: of notifications, of batches that wait for their turn.

A few are compared one by one. Many are sorted by epoch, and in each epoch by counters, with an index over the least counters of each
epoch: the times that a frontier lets through are found without comparing the others, however many wait.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from heapq import heappop, heappush

from rayad.progress.counted.least_index import LeastIndex
from rayad.progress.errors import InternalError
from rayad.progress.timestamp import Timestamp

FEW = 8
"""So many times are compared in less time than the index takes to be kept: most vertices never wait for more."""


class WaitingTimes:
    """A set of times of one scope.

    >>> waiting = WaitingTimes()
    >>> for time in (Timestamp(0, (5,)), Timestamp(1, (2,)), Timestamp(3, (0,))):
    ...     waiting.add(time)
    >>> waiting.first(), waiting.take_below([Timestamp(0, (6,)), Timestamp(2, (1,))])
    (Timestamp(0, (5,)), [Timestamp(0, (5,)), Timestamp(1, (2,)), Timestamp(3, (0,))])
    """

    __slots__ = ("_by_epoch", "_index", "_times")

    def __init__(self, times: Iterable[Timestamp] = ()) -> None:
        self._times: set[Timestamp] = set()
        self._by_epoch: dict[int, list[tuple[tuple[int, ...], Timestamp]]] = {}  # heaps
        self._index: LeastIndex[tuple[int, ...]] | None = None  # with the heaps: from the first time that is one too many for FEW
        for time in times:
            self.add(time)

    def add(self, time: Timestamp) -> None:
        """Let `time` wait; nothing changes if it does."""
        if time in self._times:
            return
        self._times.add(time)
        if self._index is not None:
            self._enter(self._index, time)
        elif len(self._times) > FEW:
            self._index = LeastIndex()
            for one in self._times:
                self._enter(self._index, one)

    def _enter(self, index: LeastIndex[tuple[int, ...]], time: Timestamp) -> None:
        epoch, counters = time
        heap = self._by_epoch.setdefault(epoch, [])
        heappush(heap, (counters, time))
        if heap[0][1] == time:
            index.put(epoch, counters)

    def discard(self, time: Timestamp) -> None:
        """Let `time` wait no longer, if it does. What lies behind the least of its epoch is dropped when it comes to the front."""
        if time not in self._times:
            return
        self._times.discard(time)
        if self._index is not None:
            epoch = time[0]
            heap = self._by_epoch[epoch]
            if heap[0][1] == time:
                self._reindex(self._index, epoch, heap)
            self._forget_index_of_none()

    def _forget_index_of_none(self) -> None:
        """Nothing waits: the next few are looked at one by one again."""
        if not self._times:
            self._index = None
            self._by_epoch.clear()

    def __len__(self) -> int:
        return len(self._times)

    def __contains__(self, time: object) -> bool:
        return time in self._times

    def __iter__(self) -> Iterator[Timestamp]:
        """In sort key order."""
        return iter(sorted(self._times, key=Timestamp.sort_key))

    def first(self) -> Timestamp | None:
        """The time of the smallest sort key."""
        if self._index is None:
            return min(self._times, key=Timestamp.sort_key, default=None)
        epoch = self._index.first_below(0)
        return None if epoch is None else self._by_epoch[epoch][0][1]

    def take_first(self) -> Timestamp:
        """Take out the time of the smallest sort key; there must be one."""
        time = self.first()
        assert time is not None, "take_first of nothing"
        self.discard(time)
        return time

    def take_below(self, frontier: Collection[Timestamp], ties: Collection[Timestamp] = ()) -> list[Timestamp]:
        """Take out, in sort key order, the times t with no f of `frontier` <= t and no e of `ties` < t.

        Both are antichains. A tie itself is below neither, so it is looked for by name.
        """
        index = self._index
        if index is None:
            taken = [time for time in self._times if _is_below(time, frontier, ties)]
            if not taken:
                return taken
            self._times.difference_update(taken)
        else:
            taken = []
            bound: tuple[int, ...] | None = None
            start = 0
            for stop, counters in _staircase((*frontier, *ties)):
                self._take_between(index, start, stop, bound, taken)
                start, bound = stop, counters
            self._take_between(index, start, None, bound, taken)
            for tie in ties:
                if tie in self._times and not any(front <= tie for front in frontier):
                    self.discard(tie)
                    taken.append(tie)
            self._forget_index_of_none()
        if len(taken) > 1:
            taken.sort(key=Timestamp.sort_key)
        return taken

    def _take_between(
        self,
        index: LeastIndex[tuple[int, ...]],
        start: int,
        stop: int | None,
        bound: tuple[int, ...] | None,
        taken: list[Timestamp],
    ) -> None:
        """Take the times of the epochs from `start` to before `stop` whose counters are below `bound`."""
        while (epoch := index.first_below(start, bound)) is not None and (stop is None or epoch < stop):
            heap = self._by_epoch[epoch]
            while heap and (bound is None or heap[0][0] < bound):
                time = heappop(heap)[1]
                if time in self._times:
                    self._times.discard(time)
                    taken.append(time)
            self._reindex(index, epoch, heap)
            start = epoch + 1

    def _reindex(self, index: LeastIndex[tuple[int, ...]], epoch: int, heap: list[tuple[tuple[int, ...], Timestamp]]) -> None:
        while heap and heap[0][1] not in self._times:
            heappop(heap)
        if heap:
            index.put(epoch, heap[0][0])
        else:
            del self._by_epoch[epoch]
            index.remove(epoch)

    def check_invariants(self) -> None:
        """Raise InternalError unless heaps and index agree with the times, or there are neither and few times."""
        if self._index is None:
            if len(self._times) > FEW or self._by_epoch:
                raise InternalError(f"{len(self._times)} times wait without an index; heaps: {self._by_epoch}")
            return
        listed = {time for heap in self._by_epoch.values() for _, time in heap}
        firsts = {heap[0][1] for heap in self._by_epoch.values()}
        if not firsts <= self._times <= listed:
            raise InternalError(f"the epochs {self._by_epoch} do not list the waiting times {self._times}, or begin with others")
        self._index.check_invariants()


def _is_below(time: Timestamp, frontier: Collection[Timestamp], ties: Collection[Timestamp]) -> bool:
    """See :meth:`WaitingTimes.take_below`. Loops over the parts of times, which all have one depth, since this is in every barrier."""
    epoch, counters = time
    for front in frontier:
        if front[0] <= epoch and front[1] <= counters:
            return False
    for tie in ties:  # noqa: SIM110
        if tie[0] <= epoch and tie[1] <= counters and tie != time:
            return False
    return True


def _staircase(times: tuple[Timestamp, ...]) -> list[tuple[int, tuple[int, ...]]]:
    """The minimal ones, by growing epoch, so by falling counters."""
    steps: list[tuple[int, tuple[int, ...]]] = []
    for epoch, counters in sorted(times, key=Timestamp.sort_key):
        if not steps or counters < steps[-1][1]:
            steps.append((epoch, counters))
    return steps
