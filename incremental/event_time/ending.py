"""Vertices that forget: what no change can reach any more goes when event time has passed it by the lateness.

What has been given stays. Each looks at the end of an epoch at what has changed in it, and at what is due by what it was told
(:mod:`rayad.incremental.event_time.telling`), so what it keeps follows from what came and from event time alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import numpy as np
import pyarrow as pa

from rayad.dataflow.operators.state.runs.order import places_of_hashes
from rayad.dataflow.operators.state.runs.run import Run
from rayad.dataflow.records.batches import rows_at
from rayad.dataflow.records.key_hashing import hash_values
from rayad.incremental.columns.form import KEY, together
from rayad.incremental.columns.grouped import Grouped
from rayad.incremental.columns.kept import COUNT, ColumnForm, Out
from rayad.incremental.columns.linear import Linear
from rayad.incremental.event_time.due import ByEnd, places_of_keys, taking_away
from rayad.incremental.event_time.limits import Ends, Limits
from rayad.incremental.event_time.needing import Needing, NeedingColumns
from rayad.incremental.event_time.telling import RECORDS, REFUSED, WINDOWS, Told, ToldVertex, once, told_in
from rayad.incremental.joins.join import Join
from rayad.incremental.joins.kinds import How
from rayad.incremental.moment_vertex import Arrived
from rayad.incremental.moments import Counters
from rayad.incremental.reducing import Function, Reduce
from rayad.incremental.sums import Vector
from rayad.progress import Timestamp

if TYPE_CHECKING:
    from rayad.dataflow.streams.stream import Stream


@dataclass(frozen=True, slots=True)
class KeysEnd:
    """When keys are over.

    Args:
        lateness: how long after its end a key is kept, in the unit of event times.
        end: of a key, the end of its window, say.
        in_columns: the same of rows; None: keys are in rows.
        pruned: what keys are, by the name of a figure.
        at_end: whether a key is over when its end is reached, and not only when it is passed.
        refuses: whether changes may come for keys that are over: they are refused.
    """

    lateness: Any
    end: Callable[[Any], Any]
    in_columns: Ends | None = None
    pruned: str = WINDOWS
    at_end: bool = True
    refuses: bool = True

    def is_over(self, limit: Any, end: Any) -> bool:
        """Whether an end is, by event time less the lateness."""
        return bool(end <= limit if self.at_end else end < limit)


@dataclass(frozen=True, slots=True)
class Ending:
    """When keys are over, and the stream that tells of event time."""

    rule: KeysEnd
    times: Stream


def window_end(key: Any) -> Any:
    """The end of the window of ``(key, window)``."""
    return key[1].end


class Forgetting(ToldVertex):
    """What all of these have in common. Their last input is that of ``EventTime``."""

    why_unreadable = ToldVertex.why_unreadable
    groups: Told
    pruned: str = RECORDS
    """What it forgets, by the name of a figure."""

    def take_over(self, columns: ColumnForm, time: Timestamp, ends: Sequence[ByEnd], since: Limits, *, keys: bool) -> None:
        """What has become over since these limits goes, of each input in columns; ``keys``: keys are counted, and not records."""
        until, gone = self.groups.limits(self.key_groups), Counter[int]()
        for part, by_end in zip(columns.inputs.values(), ends, strict=True):
            away = taking_away(part, by_end.over(part, since, until))
            if away is not None:
                gone.update(self.groups.by_group(places_of_keys(part, away) if keys else away.place, self.key_groups))
                part.now.add([away])
                columns.time = time
        self.groups.forget(gone, lambda group, limit: gone[group])

    def figures(self) -> dict[str, int]:
        """See there."""
        found = super().figures()
        found.pop("keys of groups", None)
        pruned, refused = self.groups.counted()
        return found | {self.pruned: pruned, REFUSED: refused}


class EndingReduce(Forgetting, Reduce):
    """A :class:`Reduce` that forgets keys.

    Args:
        rule: when.
        function, vector: as there.
        columns: the same in columns, if the rule has them; None: it is in rows.
    """

    inputs = 2

    def __init__(
        self,
        rule: KeysEnd,
        function: Function,
        vector: Callable[[Any], Vector] | None = None,
        columns: Linear | Grouped | None = None,
    ) -> None:
        super().__init__(function, vector, None if rule.in_columns is None else columns)
        self.groups = Told(rule.lateness, self._entries)
        self.pruned = rule.pruned
        self._rule = rule
        self._refused: dict[int, int] = {}
        self._by_end = None if rule.in_columns is None else ByEnd(rule.in_columns, at_end=rule.at_end)

    def keeps(self) -> str:
        what = "windows" if self._rule.pruned == WINDOWS else "keys"
        return f"{super().keeps()}, of {what} until {self._rule.lateness} after their end"

    def read(self, columns: ColumnForm, port: int, batches: Sequence[pa.RecordBatch], moment: Counters) -> Run | None:
        """What is not refused. What is has to be counted by record, which sums do not know."""
        self._refused = {}
        some = [batch for batch in batches if batch.num_rows]
        if some and self._by_end is not None and self._rule.refuses:
            batch = together(some)
            places = places_of_hashes(hash_values(batch.column(KEY)), self.key_groups)
            late = self.groups.are_late(batch, places, self._by_end.ends, self.key_groups, at_end=self._rule.at_end)
            if late.any():
                some = [rows_at(batch, np.flatnonzero(~late))]
                gone = once(rows_at(batch, np.flatnonzero(late)), self.key_groups)
                self._refused = self.groups.by_group(gone.place, self.key_groups, np.abs(gone.beside[COUNT]))
        return columns.read(port, some, moment)

    def on_columns(
        self, columns: ColumnForm, time: Timestamp, runs: Sequence[Run | None], due: Sequence[pa.RecordBatch], others: Sequence[Any]
    ) -> tuple[Out, Out]:
        """See :meth:`on_moment`."""
        (run,), told = runs, told_in(others)
        assert self._by_end is not None
        since = self.groups.limits(self.key_groups)
        if run is not None and len(run):
            self.groups.require_moments(run.rows, self._by_end.ends, told)
        out = columns.on_moment(time, [run], due) if run is not None and len(run) else ([], [])
        self.groups.learn(told, self._refused)
        if told:
            self.take_over(columns, time, [self._by_end], since, keys=True)
        return out

    def on_moment(self, time: Timestamp, arrived: list[Arrived], scheduled: Collection[Any]) -> None:
        """Results of the keys that are not over; then those go that have ended by now."""
        refused: Counter[int] = Counter()
        changes: dict[tuple[Any, Any], int] = {}
        rule, looks = self._rule, self.groups.looks(self.key_groups)
        groups: dict[int, None] = {}
        for (key, value), weight in arrived[0].items():
            group = self.groups.group(key, self.key_groups)
            limit = self.groups.limit(group) if rule.refuses else None
            if limit is not None and rule.is_over(limit, rule.end(key)):
                refused[group] += abs(weight)
                continue
            changes[key, value] = weight
            groups[group] = None
            looks.add(group, rule.end(key), key)
        super().on_moment(time, [changes], scheduled)
        self.groups.learn(arrived[1], refused)
        self.groups.forget([*groups, *dict(arrived[1].keys())], self._forget)

    def _forget(self, group: int, limit: Any) -> int:
        """Forget the keys of a group that are over; how many had anything."""
        keys, had = self.groups.looks(self.key_groups).due(group, partial(self._rule.is_over, limit)), 0
        with self.input.before.changing(keys) as kept:
            for key in keys:
                had += bool(self.input.merge(kept.pop(key, None), self.input.now.kept.pop(key, {})))
        return had

    def _entries(self) -> Iterator[tuple[Any, Any, Any]]:
        for key in dict.fromkeys([*self.input.before.kept, *self.input.now.kept]):
            yield key, self._rule.end(key), key


class Needs(Protocol):
    """A :data:`Function` of values that have event times."""

    def __call__(self, key: Any, values: dict[Any, int]) -> Any:
        """See there."""

    def time_of(self, value: Any) -> Any:
        """The event time of a value."""

    def needed(self, values: dict[Any, int], limit: Any) -> tuple[Collection[Any], Any]:
        """Of the values of a key, those on which results may still depend, or that may go, where all changes are at ``limit`` or later;
        and when more of them may go (None: not before another change)."""


class NeedingReduce(Forgetting, Reduce):
    """A :class:`Reduce` that forgets values. What comes is on time (``OnTime``).

    Args:
        lateness: how far behind event time a change may be, in its unit.
        function: of the values of a key; it says which it needs.
        columns: the same in columns; None: it is in rows.
    """

    inputs = 2

    def __init__(self, lateness: Any, function: Needs, columns: Needing | None = None) -> None:
        super().__init__(function, None, None if columns is None else NeedingColumns(columns))
        self.groups = Told(lateness, self._entries)
        self._needs = function

    def keeps(self) -> str:
        return f"{super().keeps()} on which changes may bear that are {self.groups.lateness} late"

    def on_columns(
        self, columns: ColumnForm, time: Timestamp, runs: Sequence[Run | None], due: Sequence[pa.RecordBatch], others: Sequence[Any]
    ) -> tuple[Out, Out]:
        """See :meth:`on_moment`."""
        (run,), told, since = runs, told_in(others), self.groups.limits(self.key_groups)
        assert isinstance(columns, NeedingColumns)
        if run is not None and len(run):
            self.groups.require_moments(run.rows, columns.looks, told)
        out = columns.on_moment(time, runs, due)
        self.groups.learn(told, {})
        gone = columns.take_unneeded(time, run, since, self.groups.limits(self.key_groups), told=bool(told))
        pruned = self.groups.by_group(gone, self.key_groups)
        self.groups.forget(pruned, lambda group, limit: pruned[group])
        return out

    def on_moment(self, time: Timestamp, arrived: list[Arrived], scheduled: Collection[Any]) -> None:
        """Results; then what they do not need any more goes, of keys that have changed, and of those that are due."""
        looks = self.groups.looks(self.key_groups)
        changed: dict[int, dict[Any, None]] = {}
        for key, value in arrived[0]:
            group = self.groups.group(key, self.key_groups)
            changed.setdefault(group, {})[key] = None
            looks.add(group, self._needs.time_of(value), key)
        super().on_moment(time, arrived[:1], scheduled)
        self.groups.learn(arrived[1], {})

        def forget(group: int, limit: Any) -> int:
            keys = changed.get(group, {}) | dict.fromkeys(looks.due(group, lambda at: at < limit))
            return sum(self._forget(group, key, limit) for key in keys)

        self.groups.forget([*changed, *dict(arrived[1].keys())], forget)

    def _forget(self, group: int, key: Any, limit: Any) -> int:
        """Forget what a key does not need; how many values that are."""
        with self.input.before.changing([key]) as before:
            kept = self.input.merge(before.pop(key, None), self.input.now.kept.pop(key, {}))
            if not kept:
                return 0
            needed, then = self._needs.needed({value: sum(weights.values()) for value, weights in kept.items()}, limit)
            rest = {value: kept[value] for value in needed}
            if rest:
                before[key] = rest
        if then is not None:
            self.groups.looks(self.key_groups).add(group, then, key)
        return len(kept) - len(rest)

    def _entries(self) -> Iterator[tuple[Any, Any, Any]]:
        for kept in (self.input.before.kept, self.input.now.kept):
            for key, values in kept.items():
                yield key, min(map(self._needs.time_of, values)), key


class EndingJoin(Forgetting, Join):
    """A :class:`Join` that forgets records. What comes is on time (``OnTime``).

    Args:
        how: which kind.
        lateness: how far behind event time a change may be, in its unit.
        ends: of each input, the last event time of a change that a record, given by key and value, may meet, or that it is of.
        in_columns: the same of rows; None: it is in rows.
    """

    more_inputs: ClassVar[int] = 1

    def __init__(
        self, how: How, lateness: Any, ends: Sequence[Callable[[Any, Any], Any]], in_columns: Sequence[Ends] | None = None
    ) -> None:
        super().__init__(how, has_columns=in_columns is not None)
        self.groups = Told(lateness, self._entries)
        self._ends = ends
        self._by_end = list(map(ByEnd, in_columns or ()))

    def keeps(self) -> str:
        return f"{super().keeps()}, as long as changes meet them that are {self.groups.lateness} late"

    def on_columns(
        self, columns: ColumnForm, time: Timestamp, runs: Sequence[Run | None], due: Sequence[pa.RecordBatch], others: Sequence[Any]
    ) -> tuple[Out, Out]:
        """See :meth:`on_moment`."""
        told, since = told_in(others), self.groups.limits(self.key_groups)
        for run, by_end in zip(runs, self._by_end, strict=True):
            if run is not None and len(run):
                self.groups.require_moments(run.rows, by_end.ends, told)
        out = columns.on_moment(time, runs, due)
        self.groups.learn(told, {})
        if told:
            self.take_over(columns, time, self._by_end, since, keys=False)
        return out

    def on_moment(self, time: Timestamp, arrived: list[Arrived], scheduled: Collection[Any]) -> None:
        """Matches; then what nothing can meet any more goes."""
        *changes, told = arrived
        looks, groups = self.groups.looks(self.key_groups), dict[int, None]()
        for port, some in enumerate(changes):
            for key, value in some:
                group = self.groups.group(key, self.key_groups)
                groups[group] = None
                looks.add(group, self._ends[port](key, value), (port, key, value))
        super().on_moment(time, changes, scheduled)
        self.groups.learn(told, {})
        self.groups.forget([*groups, *dict(told.keys())], self._forget)

    def _forget(self, group: int, limit: Any) -> int:
        """Forget the records of a group that are over; how many."""
        gone = self.groups.looks(self.key_groups).due(group, lambda end: end < limit)
        had = 0
        for port, part in enumerate(self.parts):
            keys: dict[Any, list[Any]] = {}
            for at, key, value in gone:
                if at == port:
                    keys.setdefault(key, []).append(value)
            with part.before.changing(list(keys)) as before:
                for key, values in keys.items():
                    kept = part.merge(before.pop(key, None), part.now.kept.pop(key, {}))
                    had += sum(kept.pop(value, None) is not None for value in values)
                    if kept:
                        before[key] = kept
        return had

    def _entries(self) -> Iterator[tuple[Any, Any, Any]]:
        for port, part in enumerate(self.parts):
            for kept in (part.before.kept, part.now.kept):
                for key, values in kept.items():
                    for value in values:
                        yield key, self._ends[port](key, value), (port, key, value)


__all__ = ["Ending", "EndingJoin", "EndingReduce", "KeysEnd", "Needs", "NeedingReduce", "window_end"]
