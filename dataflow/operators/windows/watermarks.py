"""The watermark of a replica, and what it was at the time before: replicas of a vertex do not fire at the same moment, and state moves
between them (docs/decisions/006-event-time.md).

The watermark after a time t is a function of the data, the same at every replica, and a replica is notified of t only when all replicas
have been notified of every earlier time. So replicas differ by one time at the most: when state moves, the old owner may have handled t
and the new one not yet, or the other way round. Two things then keep results as they would have been. What waits for t is judged late by
the watermark *before* t, also where a sibling's state has told already what it is after t. And windows fire from where they have
fired: every run of panes knows how far that is, and of windows and sessions one by one those that have fired are gone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

from rayad.dataflow.operators.state.keyed_state import KeyedState
from rayad.dataflow.operators.state.tables import Entries
from rayad.dataflow.operators.state.waiting import Waiting
from rayad.dataflow.records.event_times import compared, later, watermark_of
from rayad.progress import Timestamp


@dataclass(slots=True)
class Watermark:
    """The largest event time less the allowed delay, over the times that are complete; None: nothing is late yet.

    Args:
        now: after the time ``since``.
        before: before it.
        uneven: state has come from a replica that had fired more or less than this one.

    >>> mark = Watermark()
    >>> mark.advance(Timestamp(1), 10), mark.advance(Timestamp(2), 20), mark.advance(Timestamp(3), 15)
    (True, True, False)
    >>> mark.ahead_of(Timestamp(2)), mark.ahead_of(Timestamp(3))
    (10, 20)
    """

    now: Any = None
    before: Any = None
    since: Timestamp | None = None
    uneven: bool = False

    def ahead_of(self, time: Timestamp) -> Any:
        """The watermark by which what waits for ``time`` is late or not."""
        return self.now if self.since is None or time.sort_key() > self.since.sort_key() else self.before

    def advance(self, time: Timestamp, mark: Any) -> bool:
        """What ``time`` has brought (None: nothing). Gives whether windows are to fire."""
        fires = self.uneven and (self.since is None or time.sort_key() >= self.since.sort_key())
        if mark is not None and (self.now is None or mark > self.now):
            if time != self.since:
                self.before, self.since = self.now, time
            self.now = mark
            fires = True
        if fires:
            self.uneven = False
        return fires

    def take(self, other: Watermark) -> None:
        """State comes that had this one."""
        self.uneven = self.uneven or other.uneven or self.now != other.now
        mine, theirs = (mark.since.sort_key() if mark.since is not None else () for mark in (self, other))
        if mine == theirs:
            self.before = later(self.before, other.before)
        elif mine < theirs:
            self.before, self.since = later(self.now, other.before), other.since
        else:
            self.before = later(self.before, other.now)
        self.now = later(self.now, other.now)


class Marks(KeyedState):
    """The watermark of a vertex, and what has come of it for times that are not complete: the largest event times of each input. It goes
    along with whatever moves.

    It is the least of those of the inputs, as in Flink: an input that has brought nothing yet holds it back.

    Args:
        delays: how late records of each input may come.
        pending: what waits at the same vertex.
    """

    always_whole = True
    is_in_flight = True

    def __init__(self, delays: tuple[Any, ...], pending: Waiting) -> None:
        self.delays = delays
        self._pending = pending
        self.largest: list[dict[Timestamp, Any]] = [{} for _ in delays]
        self.marks: list[Any] = [None] * len(delays)
        self.watermark = Watermark()

    # -- snapshots -----------------------------------------------------------------
    def checkpoint(self) -> Any:
        """What is known."""
        return self.largest, self.marks, self.watermark

    def restore(self, state: Any) -> None:
        """Take back what :meth:`checkpoint` gave."""
        self.largest, self.marks, self.watermark = state

    @property
    def inline(self) -> None:
        return None

    def take_changes(self) -> Callable[[], Any] | None:
        """What is known; None where the next snapshot is to be whole, since windows have fired unevenly."""
        return None if self.watermark.uneven else self.checkpoint

    def restore_changes(self, changes: Any) -> None:
        self.restore(changes)

    def forget_changes(self) -> None:
        """All of it is stored each time."""

    # -- to other replicas -----------------------------------------------------------
    def give(self, groups: frozenset[int], key_groups: int) -> Any:
        """The watermark, and the largest event times of all times that wait: a new replica has not seen what was broadcast before."""
        return [dict(largest) for largest in self.largest], list(self.marks), replace(self.watermark)

    def take(self, state: Any) -> None:
        """Know what :meth:`give` gave as well; each of the times waits here, too."""
        for mine, theirs in zip(self.largest, state[0], strict=True):
            for time, seen in theirs.items():
                mine[time] = later(mine.get(time), seen)
                self._pending[time]
        self.marks = list(map(later, self.marks, state[1]))
        self.watermark.take(state[2])

    # -- as a table ------------------------------------------------------------------
    def entries(self) -> dict[str, Entries]:
        """None: it is of no key."""
        return {}

    # -- times -----------------------------------------------------------------------
    def see(self, side: int, times: Iterable[Any], time: Timestamp) -> None:
        """Event times of an input have come."""
        largest = self.largest[side]
        for moment in times:
            largest[time] = later(largest.get(time), moment)

    def ahead_of(self, time: Timestamp) -> Any:
        """The watermark by which what waits for ``time`` is late or not; None: nothing is.

        Raises DataflowError where it does not compare with the event times that wait.
        """
        mark = self.watermark.ahead_of(time)
        for largest in self.largest:
            later(mark, largest.get(time))
        return mark

    def advance(self, time: Timestamp) -> bool:
        """A time is complete. Gives whether windows are to fire."""
        for side, largest in enumerate(self.largest):
            seen = largest.pop(time, None)
            if seen is not None:
                self.marks[side] = later(self.marks[side], watermark_of(seen, self.delays[side]))
        return self.watermark.advance(time, None if None in self.marks else compared(*self.marks)[0])
