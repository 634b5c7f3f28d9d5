"""What vertices are told of event time, and which changes come on time.

One replica finds the largest event time of each side (:class:`EventTime`) and tells each key-group, by a key of that group: so what a group
knows of it moves with the group, as all state does. Of several sides the least of their largest times counts, so that no side is late
because another one is ahead.
"""

from __future__ import annotations

import datetime as dt
import heapq
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cache
from itertools import count
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from rayad.dataflow.operators.state.by_key.dicts import KeyedDict
from rayad.dataflow.operators.state.runs.order import Places, groups_of_places
from rayad.dataflow.operators.state.runs.run import Run
from rayad.dataflow.records.event_times import watermark_less
from rayad.dataflow.records.key_hashing import key_group
from rayad.dataflow.streams.making import Make
from rayad.dataflow.vertex import Vertex
from rayad.incremental.columns.form import KEY, RECORD, keyed_changes, weights_of
from rayad.incremental.columns.kept import COUNT, ColumnForm, Out, Part
from rayad.incremental.columns.steps import InColumns, flat_mapped
from rayad.incremental.columns.weighted_runs import WeightedRuns
from rayad.incremental.event_time.limits import Ends, Limits, first_not_over, of_places
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


Side = tuple["Stream", Callable[[Any], Any], InColumns]
"""Keyed changes, the event time of a record, and in columns the largest one that is inserted."""


def told_of(what: str, lateness: Any, loops: tuple[Loop, ...], sides: Iterable[Side]) -> Stream:
    """The stream of :class:`EventTime` of one or more sides.

    Raises DataflowError in loops, and for a lateness that is no length of time.
    """
    told = f"{what}(lateness={show(lateness, 40)})"
    if loops:
        raise DataflowError(f"{told}: in a loop nothing is forgotten; call {what}() outside of it")
    least: Any = dt.timedelta(0) if isinstance(lateness, dt.timedelta) else 0
    if isinstance(lateness, bool) or not isinstance(lateness, (int, float, Decimal, dt.timedelta)) or not lateness >= least:
        raise DataflowError(f"{told}: give a number or timedelta of at least 0, or None")
    streams = [flat_mapped(stream, TimeOf(at), in_columns).single() for stream, at, in_columns in sides]
    make = Make(EventTime, len(streams))
    make.__name__ = "event-time"
    return streams[0].flow.vertex(make, inputs=streams, parallelism=1)


@cache
def key_of_each_group(key_groups: int) -> tuple[int, ...]:
    """For each key-group a key that is in it. Found once: each epoch asks for them.

    >>> [key_group(key, 8) for key in key_of_each_group(8)]
    [0, 1, 2, 3, 4, 5, 6, 7]
    """
    found: dict[int, int] = {}
    for key in count():
        found.setdefault(key_group(key, key_groups), key)
        if len(found) == key_groups:
            return tuple(found[group] for group in range(key_groups))
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
        self._entries = entries
        self._looks: Looks | None = None

    def group(self, key: Any, key_groups: int) -> int:
        """The key that stands for the key-group of a key."""
        return key_of_each_group(key_groups)[key_group(key, key_groups)]

    def limits(self, key_groups: int) -> Limits:
        """The limits of all groups as they are now."""
        told = {group: one[0] for group, one in self.kept.items()}
        limits = {at: watermark_less(at, self.lateness) for at in set(told.values())}
        return Limits({group: limits[at] for group, at in told.items()}, key_of_each_group(key_groups))

    def by_group(self, places: Places, key_groups: int, amounts: Any = None) -> dict[int, int]:
        """By the key that stands for a group, how many of these places it has, or the sum of these amounts."""
        keys, found = key_of_each_group(key_groups), np.bincount(groups_of_places(places, key_groups), amounts)
        return {keys[group]: int(found[group]) for group in np.flatnonzero(found).tolist()}

    def are_late(self, rows: pa.RecordBatch, places: Places, ends: Ends, key_groups: int, *, at_end: bool = False) -> Any:
        """Whether rows are over, as a mask. Raises NotColumns."""
        at, kind = ends(rows)
        return at < of_places(self.limits(key_groups).first_not_over(kind, at_end=at_end), places, key_groups)

    def require_moments(self, rows: pa.RecordBatch, ends: Ends, told: Arrived) -> None:
        """Raises NotColumns where columns do not compare ends of these rows with what is told now."""
        _, kind = ends(rows)
        for largest in {largest for _, largest in told}:
            first_not_over(watermark_less(largest, self.lateness), kind, at_end=False)

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


class OnTimeColumns(ColumnForm):
    """Changes as they came, equal ones as one; nothing is kept."""

    def __init__(self) -> None:
        super().__init__({"input": Part()})

    def on_moment(self, time: Timestamp, runs: Sequence[Run | None], due: Sequence[pa.RecordBatch]) -> tuple[Out, Out]:
        """See there."""
        (run,) = runs
        if run is None or not len(run):
            return [], []
        key, record = run.rows.columns
        return [(time, keyed_changes(key, record, run.beside[COUNT]))], []


class ToldVertex(MomentVertex):
    """A vertex whose last input is that of :class:`EventTime`: few rows, also where the others are columns.

    Snapshots of before it had columns have none.
    """

    def pieces(self, time: Timestamp) -> Iterator[Any]:
        """Of several pieces what it is told of event time comes behind all others: it is of key-groups, of which these have some keys."""
        is_last, told = not self.waiting.is_in_pieces(time), list[Any]()
        for *batches, of_groups, due, scheduled in self.waiting.pieces(time):
            if is_last:
                yield *batches, of_groups, due, scheduled
            else:
                told += of_groups
                yield *batches, [], due, scheduled
        if told:
            yield *([] for _ in range(self.inputs - 1)), told, [], {}

    def restore(self, state: Any) -> None:
        super().restore({"columns": _NOTHING, **state})

    def restore_changes(self, changes: Any) -> None:
        super().restore_changes({"columns": _NOTHING, **changes})


_NOTHING = (None, dict[str, Any]())


class OnTime(ToldVertex):
    """The changes whose event time is not further behind than the lateness when the epoch before ended; the others are counted. Its second
    input is that of :class:`EventTime`.

    Args:
        lateness: in the unit of event times.
        at: the event time of a record, which has one.
        in_columns: the same of rows; None: it is in rows.
    """

    inputs = 2

    def __init__(self, lateness: Any, at: Callable[[Any], Any], in_columns: Ends | None = None) -> None:
        super().__init__(None if in_columns is None else OnTimeColumns())
        self.told = Told(lateness)
        self._at = at
        self._at_of = in_columns

    def keeps(self) -> str:
        """See there."""
        return "what it was told of event time"

    def beyond_memory(self) -> str:
        """See there."""
        return "in rows, which stay in memory: one for each key-group"

    def figures(self) -> dict[str, int]:
        """See there."""
        return {REFUSED: self.told.counted()[1]}

    def on_columns(
        self, columns: ColumnForm, time: Timestamp, runs: Sequence[Run | None], due: Sequence[pa.RecordBatch], others: Sequence[Any]
    ) -> tuple[Out, Out]:
        """See there."""
        (run,), refused, told = runs, dict[int, int](), told_in(others)
        if run is not None and len(run) and self._at_of is not None:
            self.told.require_moments(run.rows, self._at_of, told)
            late = self.told.are_late(run.rows, run.place, self._at_of, self.key_groups)
            refused = self.told.by_group(run.place[late], self.key_groups, np.abs(run.beside[COUNT][late]))
            run = run.some(~late)
        out = columns.on_moment(time, [run], due)
        self.told.learn(told, refused)
        return out

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


def once(batch: pa.RecordBatch, key_groups: int) -> Run:
    """Keyed changes, equal ones as one."""
    rows = batch.select([KEY, RECORD]).replace_schema_metadata(None)
    return WeightedRuns(rows.schema, 0, (COUNT,), key_groups).at_moment(rows, (), **{COUNT: weights_of(batch)})


def told_in(rows: Iterable[tuple[Any, Any, int]]) -> Arrived:
    """What :class:`EventTime` has given, as rows have it."""
    return {(group, at): weight for group, at, weight in rows}


__all__ = [
    "RECORDS", "REFUSED", "WINDOWS", "EventTime", "Looks", "OnTime", "TimeOf", "Told", "ToldVertex", "key_of_each_group", "once", "told_in",
    "told_of",
]  # fmt: skip
