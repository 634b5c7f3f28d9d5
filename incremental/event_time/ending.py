"""Windows that end: what is kept of a window goes when event time has passed its end by the lateness.

Event time is the largest time of all records inserted by the end of an epoch, the same for all replicas. One replica finds it
(:class:`EventTime`) and tells each key-group, by a key of that group: so what a group knows of it moves with the group, as all state does.
What has been given of a window stays. A change that comes for it later is counted, and changes nothing.
"""

from __future__ import annotations

import datetime as dt
import heapq
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from decimal import Decimal
from itertools import count
from typing import TYPE_CHECKING, Any

from rayad.dataflow.operators.state.by_key import KeyedDict
from rayad.dataflow.records.event_times import shifted
from rayad.dataflow.records.key_hashing import key_group
from rayad.dataflow.streams.making import Make
from rayad.dataflow.vertex import Vertex
from rayad.incremental.moment_vertex import Arrived
from rayad.incremental.reducing import Function, Reduce
from rayad.incremental.sums import Vector
from rayad.progress import DataflowError, Timestamp, show

if TYPE_CHECKING:
    from rayad.dataflow.streams.loops import Loop
    from rayad.dataflow.streams.stream import Stream


@dataclass(frozen=True, slots=True)
class Ending:
    """When windows end: how long after their end, by which event times."""

    lateness: Any
    times: Stream


def ending_of(stream: Stream, loops: tuple[Loop, ...], lateness: Any, at: Callable[[Any], Any]) -> Ending:
    """When windows of keyed changes end, by the time of each record. Raises DataflowError in loops, and for what is no length of time."""
    told = f"window(lateness={show(lateness, 40)})"
    if loops:
        raise DataflowError(f"{told}: in a loop nothing is forgotten; make windows outside of it")
    least: Any = dt.timedelta(0) if isinstance(lateness, dt.timedelta) else 0
    if isinstance(lateness, bool) or not isinstance(lateness, (int, float, Decimal, dt.timedelta)) or not lateness >= least:
        raise DataflowError(f"{told}: give a number or timedelta of at least 0, or None")
    make = Make(EventTime)
    make.__name__ = "event-time"
    return Ending(lateness, stream.flat_map(TimeOf(at)).single().vertex(make, parallelism=1))


PRUNED, REFUSED = "windows pruned", "changes refused"
"""What :class:`EndingReduce` counts, by the names of its figures."""


@dataclass(frozen=True, slots=True)
class TimeOf:
    """The event time of a record that is inserted."""

    at: Callable[[Any], Any]

    def __call__(self, change: tuple[Any, Any, int]) -> Iterator[Any]:
        time = self.at(change[1]) if change[2] > 0 else None
        return iter(()) if time is None else iter((time,))


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
    """Gives ``(key, time, 1)`` for a key of each key-group whenever the largest event time has grown in an epoch. It has one replica."""

    sequential = True

    def __init__(self) -> None:
        self.largest: Any = None
        self.waiting: dict[Timestamp, Any] = {}

    def on_recv(self, edge: int, batch: Any, time: Timestamp) -> None:
        if time not in self.waiting:
            self.notify_at(time, time)
            self.waiting[time] = batch[0]
        self.waiting[time] = max(self.waiting[time], *batch)

    def on_notify(self, time: Timestamp) -> None:
        largest = self.waiting.pop(time)
        if self.largest is None or largest > self.largest:
            self.largest = largest
            self.send_by(0, [(key, largest, 1) for key in key_of_each_group(self.key_groups)], time)

    def checkpoint(self) -> Any:
        return self.largest, self.waiting

    def restore(self, state: Any) -> None:
        self.largest, self.waiting = state


class EndingReduce(Reduce):
    """A :class:`Reduce` by ``(key, window)`` that forgets windows; its second input is that of :class:`EventTime`.

    Args:
        lateness: how long after its end a window is kept, in the unit of event times.
        function, vector: as there.
    """

    inputs = 2

    def __init__(self, lateness: Any, function: Function, vector: Callable[[Any], Vector] | None = None) -> None:
        super().__init__(function, vector)
        self.groups = KeyedDict()
        """By a key of each key-group: the event time it was told, how many windows it has forgotten, how many changes it has refused."""
        self._lateness = lateness
        self._keys: list[int] = []
        self._ends: dict[int, list[tuple[Any, int, Any]]] | None = None
        """By a key of each key-group: the ends of what is kept, as a heap, each with its key. None: not known."""
        self._number = count()

    def keeps(self) -> str:
        return f"{super().keeps()}, of windows until {self._lateness} after their end"

    def figures(self) -> dict[str, int]:
        found = super().figures()
        found.pop("keys of groups", None)
        told = list(self.groups.kept.values())
        return found | {PRUNED: sum(one[1] for one in told), REFUSED: sum(one[2] for one in told)}

    def on_moment(self, time: Timestamp, arrived: list[Arrived], scheduled: Collection[Any]) -> None:
        """Results of the windows that are not over; then those go that have ended by now."""
        refused: Counter[int] = Counter()
        changes: dict[tuple[Any, Any], int] = {}
        ends = self._known_ends()
        for (key, value), weight in arrived[0].items():
            group = self._group(key)
            if group in self.groups.kept and self._is_over(key, self.groups.kept[group][0]):
                refused[group] += abs(weight)
                continue
            changes[key, value] = weight
            if key not in self.input.before.kept and key not in self.input.now.kept:
                heapq.heappush(ends.setdefault(group, []), (key[1].end, next(self._number), key))
        super().on_moment(time, [changes], scheduled)
        told = dict(arrived[1].keys())
        with self.groups.changing([*refused, *told]) as groups:
            for group, changed in refused.items():
                largest, pruned, before = groups[group]
                groups[group] = largest, pruned, before + changed
            for group, largest in told.items():
                _, pruned, before = groups.get(group, (None, 0, 0))
                groups[group] = largest, pruned + self._prune(ends.get(group, []), largest), before

    def _prune(self, ends: list[tuple[Any, int, Any]], largest: Any) -> int:
        """Forget the windows that are over; how many these are."""
        gone: dict[Any, None] = {}
        while ends and self._is_over(ends[0][2], largest):
            gone[heapq.heappop(ends)[2]] = None
        keys, had = list(gone), 0
        with self.input.before.changing(keys) as kept:
            for key in keys:
                old, now = kept.pop(key, None), self.input.now.kept.pop(key, {})
                had += bool(self.input.merge(old, now))
        return had

    def _is_over(self, key: Any, largest: Any) -> bool:
        return bool(key[1].end <= shifted(largest, self._lateness, -1))

    def _group(self, key: Any) -> int:
        if not self._keys:
            self._keys = key_of_each_group(self.key_groups)
        return self._keys[key_group(key, self.key_groups)]

    def _known_ends(self) -> dict[int, list[tuple[Any, int, Any]]]:
        if self._ends is None:
            self._ends = {}
            for key in dict.fromkeys([*self.input.before.kept, *self.input.now.kept]):
                heapq.heappush(self._ends.setdefault(self._group(key), []), (key[1].end, next(self._number), key))
        return self._ends

    # -- what is kept changes otherwise ------------------------------------------------------------------
    def restore(self, state: Any) -> None:
        super().restore(state)
        self._ends = None

    def restore_changes(self, changes: Any) -> None:
        super().restore_changes(changes)
        self._ends = None

    def give(self, groups: frozenset[int]) -> Any:
        self._ends = None
        return super().give(groups)

    def take(self, state: Any) -> None:
        super().take(state)
        self._ends = None


__all__ = ["PRUNED", "REFUSED", "Ending", "EndingReduce", "EventTime", "TimeOf", "ending_of", "key_of_each_group"]
