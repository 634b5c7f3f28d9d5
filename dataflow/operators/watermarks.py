"""The watermark of a replica, and what it was at the time before: replicas of a vertex do not fire at the same moment, and state moves
between them (docs/decisions/006-event-time.md).

The watermark after a time t is a function of the data, the same at every replica, and a replica is notified of t only when all replicas
have been notified of every earlier time. So replicas differ by one time at the most: when state moves, the old owner may have handled t
and the new one not yet, or the other way round. Two things then keep results as they would have been. What waits for t is judged late by
the watermark *before* t, also where a sibling's state has told already what it is after t. And windows fire from where they have
fired: every run of panes knows how far that is, and of windows and sessions one by one those that have fired are gone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rayad.progress import Timestamp


@dataclass(slots=True)
class MutableWatermark:
    """The largest event time less the allowed delay, over the times that are complete; None: nothing is late yet.

    Args:
        now: after the time ``since``.
        before: before it.
        uneven: state has come from a replica that had fired more or less than this one.

    >>> mark = MutableWatermark()
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

    def take(self, other: MutableWatermark) -> None:
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


def later(left: Any, right: Any) -> Any:
    """The larger of two moments; None is before all."""
    return right if left is None else left if right is None else max(left, right)
