"""Joins by event time, and windows of it: functions of the records of a key, and of a record."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from rayad.dataflow.records.event_times import shifted
from rayad.dataflow.windows import AsOf, Between, Session, Sliding, Tumbling, Window
from rayad.incremental.functions import Results, Weights
from rayad.incremental.ranking import in_contents


@dataclass(frozen=True, slots=True)
class Within:
    """Whether the event times of a joined pair are so far from each other."""

    within: Between
    at: Callable[[Any], Any]
    other_at: Callable[[Any], Any]

    def __call__(self, pair: tuple[Any, tuple[Any, Any]]) -> bool:
        left, right = self.at(pair[1][0]), self.other_at(pair[1][1])
        if left is None or right is None:
            return False
        return bool(shifted(left, self.within.lower, 1) <= right <= shifted(left, self.within.upper, 1))


@dataclass(frozen=True, slots=True)
class Latest:
    """Each left record with the right one that an as-of join picks. Values are (side, record).

    Of right records at equal times the one counts whose contents come last.
    """

    rule: AsOf
    at: Callable[[Any], Any]
    other_at: Callable[[Any], Any]
    inner: bool

    def __call__(self, key: Any, values: Weights) -> Results:
        timed = [(self.other_at(record), in_contents(record), record) for (side, record), weight in values.items() if side and weight > 0]
        rights = sorted((one for one in timed if one[0] is not None), key=lambda one: one[:2])
        times = [one[0] for one in rights]
        out = []
        for (side, left), weight in values.items():
            if side == 0:
                found = self._found(self.at(left), times)
                if found is not None or not self.inner:
                    out.append(((left, None if found is None else rights[found][2]), weight))
        return out

    def _found(self, at: Any, times: list[Any]) -> int | None:
        if at is None:
            return None
        rule = self.rule
        before = (bisect_right if rule.exact else bisect_left)(times, at) - 1
        first = (bisect_left if rule.exact else bisect_right)(times, at)
        after = -1
        if first < len(times):
            after = bisect_right(times, times[first]) - 1
        ways = {"backward": (before,), "forward": (after,), "nearest": (before, after)}[rule.direction]
        near = [one for one in ways if one >= 0 and self._is_near(at, times[one])]
        return min(near, key=lambda one: abs(times[one] - at), default=None)

    def _is_near(self, at: Any, other: Any) -> bool:
        tolerance = self.rule.tolerance
        return tolerance is None or bool(shifted(at, tolerance, -1) <= other <= shifted(at, tolerance, 1))


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
        timed = [(self.at(record), record, weight) for record, weight in values.items() if weight > 0]
        ordered = sorted((one for one in timed if one[0] is not None), key=lambda one: one[0])
        sessions: list[tuple[Any, Any, list[tuple[Any, int]]]] = []
        for at, record, weight in ordered:
            (window,) = self.windows.assign(at)
            if sessions and window.start <= sessions[-1][1]:
                start, _, some = sessions[-1]
                some.append((record, weight))
                sessions[-1] = start, window.end, some
            else:
                sessions.append((window.start, window.end, [(record, weight)]))
        return [((Window(start, end), record), weight) for start, end, some in sessions for record, weight in some]


def by_window(change: tuple[tuple[Any, tuple[Window, Any]], int]) -> tuple[Any, Any, int]:
    """What :class:`Sessions` gives, by key and window."""
    (key, (window, record)), weight = change
    return (key, window), record, weight


__all__ = ["Assigned", "Latest", "Sessions", "Within", "by_window"]
