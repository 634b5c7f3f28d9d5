"""What vertices are told of event time, and which changes come on time.

One replica finds the largest event time of each side (:class:`EventTime`) and tells each key-group, by a key of that group: so what a group
knows of it moves with the group, as all state does. Of several sides the least of their largest times counts, so that no side is late
because another one is ahead.
"""

from __future__ import annotations

import datetime as dt
import heapq
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from itertools import count
from typing import TYPE_CHECKING, Any

from rayad.dataflow.operators.state.by_key import KeyedDict
from rayad.dataflow.records.event_times import watermark_less
from rayad.dataflow.records.key_hashing import key_group
from rayad.dataflow.streams.making import Make
from rayad.dataflow.vertex import Vertex
from rayad.incremental.moment_vertex import Arrived, MomentVertex
from rayad.progress import DataflowError, Timestamp, show

if TYPE_CHECKING:
    from rayad.dataflow.streams.loops import Loop
    from rayad.dataflow.streams.stream import Stream

WINDOWS, RECORDS, REFUSED = "windows pruned", "records pruned", "changes refused"
"""What is counted, by the names of its figures."""


@dataclass(frozen=True, slots=True)
class TimeOf:
    """The event time of a record that is inserted."""

    at: Callable[[Any], Any]

    def __call__(self, change: tuple[Any, Any, int]) -> Iterator[Any]:
        time = self.at(change[1]) if change[2] > 0 else None
        return iter(()) if time is None else iter((time,))


def told_of(what: str, lateness: Any, loops: tuple[Loop, ...], sides: Iterable[tuple[Stream, Callable[[Any], Any]]]) -> Stream:
    """The stream of :class:`EventTime` of one or more sides, keyed changes with the event time of a record of each.

    Raises DataflowError in loops, and for a lateness that is no length of time.
    """
    told = f"{what}(lateness={show(lateness, 40)})"
    if loops:
        raise DataflowError(f"{told}: in a loop nothing is forgotten; call {what}() outside of it")
    least: Any = dt.timedelta(0) if isinstance(lateness, dt.timedelta) else 0
    if isinstance(lateness, bool) or not isinstance(lateness, (int, float, Decimal, dt.timedelta)) or not lateness >= least:
        raise DataflowError(f"{told}: give a number or timedelta of at least 0, or None")
    streams = [stream.flat_map(TimeOf(at)).single() for stream, at in sides]
    make = Make(EventTime, len(streams))
    make.__name__ = "event-time"
    return streams[0].flow.vertex(make, inputs=streams, parallelism=1)


def key_of_each_group(key_groups: int) -> list[int]:
    """For each key-group a key that is in it.

    >>> [key_group(key, 8) for key in key_of_each_group(8)]
    [0, 1, 2, 3, 4, 5, 6, 7]
    """
    found: dict[int, int] = {}
    for key in count():
        found.setdefault(key_group(key, key_groups), key)
        if len(found) == key_groups:
            return [found[group] for group in range(key_groups)]
    raise AssertionError


class EventTime(Vertex):
    """Gives ``(key, time, 1)`` for a key of each key-group whenever event time has grown in an epoch. It has one replica.

    Args:
        sides: how many inputs it has. Event time is the largest time of a side; of several the least of those.
    """

    sequential = True
    state_version = 2
    """1: of one side."""

    def __init__(self, sides: int = 1) -> None:
        self.largest: dict[int, Any] = {}
        """By side."""
        self.told: Any = None
        self.waiting: dict[Timestamp, dict[int, Any]] = {}
        self._sides = sides

    def on_recv(self, edge: int, batch: Any, time: Timestamp) -> None:
        if time not in self.waiting:
            self.notify_at(time, time)
            self.waiting[time] = {}
        _raise(self.waiting[time], edge, max(batch))

    def on_notify(self, time: Timestamp) -> None:
        for side, largest in self.waiting.pop(time).items():
            _raise(self.largest, side, largest)
        if len(self.largest) < self._sides:
            return
        least = min(self.largest.values())
        if self.told is None or least > self.told:
            self.told = least
            self.send_by(0, [(key, least, 1) for key in key_of_each_group(self.key_groups)], time)

    def checkpoint(self) -> Any:
        return self.largest, self.told, self.waiting

    def restore(self, state: Any) -> None:
        self.largest, self.told, self.waiting = state


def _raise(largest: dict[int, Any], side: int, time: Any) -> None:
    largest[side] = max(largest.get(side, time), time)


class Looks:
    """When what is kept is to be looked at, by group: the earliest moment of each entry. No state: it follows from what is kept."""

    _MORE = 1000

    def __init__(self, entries: Iterable[tuple[int, Any, Any]]) -> None:
        self._heaps: dict[int, list[tuple[Any, int, Any]]] = {}
        self._when: dict[Any, Any] = {}
        self._pushed = self._most = 0
        for group, at, entry in entries:
            self.add(group, at, entry)
        self._most = 2 * self._pushed + self._MORE

    @property
    def is_worn(self) -> bool:
        """Whether most entries may have gone: then it is made again of what is kept."""
        return self._pushed > self._most

    def add(self, group: int, at: Any, entry: Any) -> None:
        """Look at an entry at this moment of event time."""
        if entry not in self._when or at < self._when[entry]:
            self._when[entry] = at
            self._pushed += 1
            heapq.heappush(self._heaps.setdefault(group, []), (at, self._pushed, entry))

    def due(self, group: int, is_over: Callable[[Any], bool]) -> list[Any]:
        """The entries of a group whose moment is over; they are not looked at again."""
        heap, out = self._heaps.get(group, []), []
        while heap and is_over(heap[0][0]):
            at, _, entry = heapq.heappop(heap)
            if entry in self._when and self._when[entry] == at:
                del self._when[entry]
                out.append(entry)
        return out


class Told(KeyedDict):
    """By a key of each key-group: the event time it was told, how much it has forgotten, how many changes it has refused.

    Args:
        lateness: how far behind event time a change may be, in its unit.
        entries: of all that the vertex keeps the key, when it is to be looked at, and what it is.
    """

    def __init__(self, lateness: Any, entries: Callable[[], Iterable[tuple[Any, Any, Any]]] = tuple) -> None:
        super().__init__()
        self.lateness = lateness
        self._keys: list[int] = []
        self._entries = entries
        self._looks: Looks | None = None

    def group(self, key: Any, key_groups: int) -> int:
        """The key that stands for the key-group of a key."""
        if not self._keys:
            self._keys = key_of_each_group(key_groups)
        return self._keys[key_group(key, key_groups)]

    def limit(self, group: int) -> Any:
        """Event time less the lateness, as a group was told it; None: nothing is late."""
        return watermark_less(self.kept[group][0], self.lateness) if group in self.kept else None

    def looks(self, key_groups: int) -> Looks:
        """When what is kept is to be looked at."""
        if self._looks is None or self._looks.is_worn:
            self._looks = Looks((self.group(key, key_groups), at, entry) for key, at, entry in self._entries())
        return self._looks

    def learn(self, arrived: Arrived, refused: Mapping[int, int]) -> None:
        """What :class:`EventTime` has given at the end of an epoch, and how many changes of it were not applied, by group."""
        told = dict(arrived.keys())
        with self.changing([*refused, *told]) as kept:
            for group, changes in refused.items():
                largest, pruned, before = kept[group]
                kept[group] = largest, pruned, before + changes
            for group, largest in told.items():
                _, pruned, before = kept.get(group, (None, 0, 0))
                kept[group] = largest, pruned, before

    def forget(self, groups: Iterable[int], forget: Callable[[int, Any], int]) -> None:
        """Of each of these groups that has a limit ``forget(group, limit)``, which gives how much that was."""
        pruned: dict[int, int] = {}
        for group in dict.fromkeys(groups):
            limit = self.limit(group)
            some = 0 if limit is None else forget(group, limit)
            if some:
                pruned[group] = some
        with self.changing(list(pruned)) as kept:
            for group, some in pruned.items():
                largest, before, refused = kept[group]
                kept[group] = largest, before + some, refused

    def counted(self) -> tuple[int, int]:
        """How much was forgotten, and refused."""
        some = list(self.kept.values())
        return sum(one[1] for one in some), sum(one[2] for one in some)

    # -- what is kept changes otherwise, here and in the vertex around it ----------------------------------
    def restore(self, stored: Any) -> None:
        super().restore(stored)
        self._looks = None

    def restore_changes(self, changes: Any) -> None:
        super().restore_changes(changes)
        self._looks = None

    def forget_changes(self) -> None:
        """Also when key-groups leave or come."""
        super().forget_changes()
        self._looks = None


class OnTime(MomentVertex):
    """The changes whose event time is not further behind than the lateness when the epoch before ended; the others are counted. Its second
    input is that of :class:`EventTime`.

    Args:
        lateness: in the unit of event times.
        at: the event time of a record, which has one.
    """

    inputs = 2

    def __init__(self, lateness: Any, at: Callable[[Any], Any]) -> None:
        super().__init__()
        self.told = Told(lateness)
        self._at = at

    def keeps(self) -> str:
        """See there."""
        return "what it was told of event time"

    def figures(self) -> dict[str, int]:
        """See there."""
        return {REFUSED: self.told.counted()[1]}

    def on_moment(self, time: Timestamp, arrived: list[Arrived], scheduled: Collection[Any]) -> None:
        """See there."""
        refused: Counter[int] = Counter()
        limits: dict[int, Any] = {}
        out = []
        for (key, record), weight in arrived[0].items():
            group = self.told.group(key, self.key_groups)
            if group not in limits:
                limits[group] = self.told.limit(group)
            if limits[group] is not None and self._at(record) < limits[group]:
                refused[group] += abs(weight)
            else:
                out.append((key, record, weight))
        if out:
            self.send_by(0, out, time)
        self.told.learn(arrived[1], refused)


__all__ = ["RECORDS", "REFUSED", "WINDOWS", "EventTime", "Looks", "OnTime", "TimeOf", "Told", "key_of_each_group", "told_of"]
