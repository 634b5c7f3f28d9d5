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

from rayad.dataflow.operators.state.keyed_state import Everywhere
from rayad.dataflow.operators.state.waiting_in_pieces import Waiting
from rayad.dataflow.operators.windows.watermark_rules import WHOLE, Mark, WatermarkRule, last_of
from rayad.dataflow.records.event_times import compared, later
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


class Marks(Everywhere):
    """The watermark of a vertex, and what has come of it for times that are not complete: what each input tells of its event times. It
    goes along with whatever moves.

    It is the least of those of the inputs and their parts, as in Flink: an input that has brought nothing yet holds it back, unless its
    rule says for how long. A part holds it back from its first record on. All of this follows from data and epochs, too.

    Args:
        delays: what each input's :class:`WatermarkRule` tells.
        pending: what waits at the same vertex.
    """

    is_in_flight = True

    def __init__(self, delays: tuple[Any, ...], pending: Waiting) -> None:
        self.rules = tuple(map(WatermarkRule.of, delays))
        self._pending = pending
        self.seen: list[dict[Timestamp, dict[Any, Any]]] = [{} for _ in delays]
        self.marks: list[dict[Any, Mark]] = [{} for _ in delays]
        self.watermark = Watermark()

    # -- snapshots -----------------------------------------------------------------
    def checkpoint(self) -> Any:
        """The watermark, and what all times that wait have brought."""
        seen = [{time: dict(of_time) for time, of_time in side.items()} for side in self.seen]
        return seen, [dict(marks) for marks in self.marks], replace(self.watermark)

    def restore(self, state: Any) -> None:
        """Take back what :meth:`checkpoint` gave; also in earlier versions, which knew no parts."""
        seen, marks, self.watermark, *_ = state  # of an earlier version with one thing more
        self.seen = [{time: one if isinstance(one, dict) else {WHOLE: one} for time, one in side.items()} for side in seen]
        parts = [mark if isinstance(mark, dict) else {} if mark is None else {WHOLE: (mark, 0)} for mark in marks]
        self.marks = [{part: Mark(*mark) for part, mark in side.items()} for side in parts]

    def take_changes(self) -> Callable[[], Any] | None:
        """What is known; None where the next snapshot is to be whole, since windows have fired unevenly."""
        return None if self.watermark.uneven else self.checkpoint

    # -- to other replicas -----------------------------------------------------------
    def take(self, state: Any) -> None:
        """Know what :meth:`give` gave as well; each of the times waits here, too. The marks are those of the replica that has handled one
        time more, as a whole: parts that one of them has dropped as idle do not come back. A new replica has handled none."""
        for side, waiting in enumerate(state[0]):
            for time, of_time in waiting.items():
                for part, told in of_time.items():
                    self._put(side, time, part, told)
                self._pending[time]
        if _last_epoch(self.marks) < _last_epoch(state[1]):
            self.marks = [dict(marks) for marks in state[1]]
        self.watermark.take(state[2])

    # -- times -----------------------------------------------------------------------
    def see(self, side: int, told: Iterable[Any], time: Timestamp) -> None:
        """What batches of an input tell of their event times has come; of one in parts, ``(part, that)``."""
        in_parts = self.rules[side].per_part
        for one in told:
            part, of_part = ((one[0],), one[1]) if in_parts else (WHOLE, one)
            self._put(side, time, part, of_part)

    def _put(self, side: int, time: Timestamp, part: Any, told: Any) -> None:
        of_time = self.seen[side].setdefault(time, {})
        of_time[part] = self.rules[side].seen(of_time.get(part), told)

    def ahead_of(self, time: Timestamp) -> Any:
        """The watermark by which what waits for ``time`` is late or not; None: nothing is.

        Raises DataflowError where it does not compare with the event times that wait.
        """
        mark = self.watermark.ahead_of(time)
        for side in self.seen:
            for told in side.get(time, {}).values():
                later(mark, last_of(told))
        return mark

    def advance(self, time: Timestamp) -> bool:
        """A time is complete. Gives whether windows are to fire."""
        found = []
        for side, rule in enumerate(self.rules):
            marks = self.marks[side] = rule.after(self.marks[side], self.seen[side].pop(time, {}), time.epoch)
            found.append(rule.watermark(marks, time.epoch))
        known = [mark for counts, mark in found if counts]
        return self.watermark.advance(time, None if not known or None in known else compared(*known)[0])


def _last_epoch(sides: list[dict[Any, Mark]]) -> int:
    """The last epoch that has made marks; -1: none has."""
    return max((mark.epoch for side in sides for mark in side.values()), default=-1)
