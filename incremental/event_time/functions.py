"""Joins by event time, and windows of it: functions of the records of a key, and of a record."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from rayad.dataflow.records.event_times import shifted
from rayad.dataflow.records.values import Window
from rayad.dataflow.windows import AsOf, Between, Session, Sliding, Tumbling
from rayad.incremental.functions import Results, Weights
from rayad.incremental.records import in_contents
from rayad.incremental.steps import has_key
from rayad.progress import DataflowError, show


@dataclass(frozen=True, slots=True)
class Placed:
    """Whether a keyed record can meet others: neither its key nor its event time is null.

    Args:
        at: the event time of a record.
        turned: tell those that cannot.
    """

    at: Callable[[Any], Any]
    turned: bool = False

    def __call__(self, change: tuple[Any, Any, int]) -> bool:
        return (has_key(change) and self.at(change[1]) is not None) is not self.turned


@dataclass(frozen=True, slots=True)
class Timed:
    """Whether a keyed record has an event time."""

    at: Callable[[Any], Any]

    def __call__(self, change: tuple[Any, Any, int]) -> bool:
        return self.at(change[1]) is not None


@dataclass(frozen=True, slots=True)
class Within:
    """Whether the event times of a joined pair are so far from each other."""

    within: Between
    at: Callable[[Any], Any]
    other_at: Callable[[Any], Any]

    def __call__(self, pair: tuple[Any, tuple[Any, Any]]) -> bool:
        left, right = self.at(pair[1][0]), self.other_at(pair[1][1])
        return bool(shifted(left, self.within.lower, 1) <= right <= shifted(left, self.within.upper, 1))


@dataclass(frozen=True, slots=True)
class OnSide:
    """The record of a keyed change as the left or the right one of a pair of which the other one is None. Raises DataflowError where the
    record is None."""

    side: int

    def __call__(self, change: tuple[Any, Any, int]) -> tuple[Any, Any, int]:
        key, record, weight = change
        if record is None:
            raise DataflowError(f"join_asof() was given the record None of key {show(key, 80)}, with an event time: filter it out first")
        return key, (None, record) if self.side else (record, None), weight


@dataclass(frozen=True, slots=True)
class Latest:
    """Each left record with the right one that an as-of join picks. Values are pairs as of :class:`OnSide`.

    Of right records at equal times the one counts whose contents come last.
    """

    rule: AsOf
    at: Callable[[Any], Any]
    other_at: Callable[[Any], Any]
    inner: bool

    def __call__(self, key: Any, values: Weights) -> Results:
        rights = self._rights(values)
        times = [one[0] for one in rights]
        out = []
        for (left, _), weight in values.items():
            if left is not None:
                found = self._found(self.at(left), times)
                if found is not None or not self.inner:
                    out.append(((left, None if found is None else rights[found][2]), weight))
        return out

    def _rights(self, values: Weights) -> list[tuple[Any, Any, Any]]:
        """Right records with their times, in order."""
        rights = [right for (left, right), weight in values.items() if left is None and weight > 0]
        timed = [(self.other_at(right), in_contents(right), right) for right in rights]
        return sorted(timed, key=lambda one: one[:2])

    def _found(self, at: Any, times: list[Any]) -> int | None:
        return min(self._candidates(at, times), key=lambda one: abs(times[one] - at), default=None)

    def _candidates(self, at: Any, times: list[Any]) -> list[int]:
        """The one before, the one after, or both, as far as they are near."""
        rule = self.rule
        before = (bisect_right if rule.exact else bisect_left)(times, at) - 1
        first = (bisect_left if rule.exact else bisect_right)(times, at)
        after = -1
        if first < len(times):
            after = bisect_right(times, times[first]) - 1
        ways = {"backward": (before,), "forward": (after,), "nearest": (before, after)}[rule.direction]
        return [one for one in ways if one >= 0 and self._is_near(at, times[one])]

    def _is_near(self, at: Any, other: Any) -> bool:
        tolerance = self.rule.tolerance
        return tolerance is None or bool(shifted(at, tolerance, -1) <= other <= shifted(at, tolerance, 1))

    # -- what it needs where no change comes that is before a moment ------------------------------------------
    def time_of(self, value: tuple[Any, Any]) -> Any:
        """The event time of the record of a side."""
        left, right = value
        return self.other_at(right) if left is None else self.at(left)

    def needed(self, values: Weights, limit: Any) -> tuple[list[Any], Any]:
        """Left records whose match may change, or that may go; right ones that may go, or that one of those, or a later one, may get.
        And when to look again: at the first time of those."""
        rights = self._rights(values)
        times = [one[0] for one in rights]
        old = bisect_left(times, limit)
        kept = [value for value in values if self.time_of(value) >= limit]
        looks = list(map(self.time_of, kept))
        wanted: set[int] = set()
        for value in values:
            at = self.time_of(value)
            if value[0] is not None and at < limit and not self._is_final(at, times, limit):
                kept.append(value)
                looks.append(limit)
                wanted.update(self._candidates(at, times[:old]))
        if old and self.rule.direction != "forward" and self._is_near(limit, times[old - 1]):
            wanted.add(old - 1)
            if self.rule.tolerance is not None:
                looks.append(shifted(times[old - 1], self.rule.tolerance, 1))
        return [*kept, *((None, rights[one][2]) for one in wanted)], min(looks, default=None)

    def _is_final(self, at: Any, times: list[Any], limit: Any) -> bool:
        """Whether no change at a moment, or later, changes what a left record before it has."""
        if self.rule.direction == "backward" or not self._is_near(at, limit):
            return True
        found = self._found(at, times)
        return found is not None and times[found] < limit and (self.rule.direction == "forward" or abs(times[found] - at) < limit - at)


@dataclass(frozen=True, slots=True)
class Assigned:
    """A record by its key and each of its windows; one without an event time is in none."""

    windows: Tumbling | Sliding
    at: Callable[[Any], Any]

    def __call__(self, change: tuple[Any, Any, int]) -> Iterator[tuple[Any, Any, int]]:
        key, record, weight = change
        at = self.at(record)
        return iter(()) if at is None else (((key, window), record, weight) for window in self.windows.assign(at))


@dataclass(frozen=True, slots=True)
class Sessions:
    """Each record of a key with the session that it is in: records whose windows overlap, or touch, are in one."""

    windows: Session
    at: Callable[[Any], Any]

    def __call__(self, key: Any, values: Weights) -> Results:
        found = self._sessions(values)
        return [((Window(start, end), record), weight) for start, end, some in found for record, weight in some]

    def _sessions(self, values: Weights) -> list[tuple[Any, Any, list[tuple[Any, int]]]]:
        """Begin, end, records and their weights of each, in order."""
        timed = [(self.at(record), record, weight) for record, weight in values.items() if weight > 0]
        sessions: list[tuple[Any, Any, list[tuple[Any, int]]]] = []
        for at, record, weight in sorted(timed, key=lambda one: one[0]):
            (window,) = self.windows.assign(at)
            if sessions and window.start <= sessions[-1][1]:
                start, _, some = sessions[-1]
                some.append((record, weight))
                sessions[-1] = start, window.end, some
            else:
                sessions.append((window.start, window.end, [(record, weight)]))
        return sessions

    # -- what it needs where no change comes that is before a moment ------------------------------------------
    def time_of(self, record: Any) -> Any:
        """The event time of a record."""
        return self.at(record)

    def needed(self, values: Weights, limit: Any) -> tuple[list[Any], Any]:
        """The records of sessions that a record at that moment may still touch, and the first end of those."""
        left = [(end, some) for _, end, some in self._sessions(values) if not end < limit]
        return [record for _, some in left for record, _ in some], min((end for end, _ in left), default=None)


def by_window(change: tuple[tuple[Any, tuple[Window, Any]], int]) -> tuple[Any, Any, int]:
    """What :class:`Sessions` gives, by key and window."""
    (key, (window, record)), weight = change
    return (key, window), record, weight


__all__ = ["Assigned", "Latest", "OnSide", "Placed", "Sessions", "Timed", "Within", "by_window"]
