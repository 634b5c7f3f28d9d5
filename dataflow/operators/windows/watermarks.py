"""The watermark of a replica, and what it was at the time before: replicas of a vertex do not fire at the same moment, and state moves
between them (docs/decisions/006-event-time.md).

The watermark after a time t is a function of the data, the same at every replica, and a replica is notified of t only when all replicas
have been notified of every earlier time. So replicas differ by one time at the most: when state moves, the old owner may have handled t
and the new one not yet, or the other way round. Two things then keep results as they would have been. What waits for t is judged late by
the watermark *before* t, also where a sibling's state has told already what it is after t. And windows fire from where they have
fired: every run of panes knows how far that is, and of windows and sessions one by one those that have fired are gone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
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


Mark = tuple[Any, int]
"""The watermark of a part, and the last epoch in which it brought something."""
WHOLE = ()
"""The part of a stream without parts, and of one that has brought nothing yet. Others are ``(part,)``."""


@dataclass(frozen=True, slots=True)
class WatermarkRule:
    """How the watermark of one stream follows from its event times.

    Args:
        max_delay: how late its records may come; None: not at all.
        per_part: whether each part has a watermark of its own, of which the least counts; event times then come with their part.
        idle_epochs: a part, or the stream, that has brought nothing in the last so many epochs does not count; None: all do, for ever.

    >>> rule = WatermarkRule(2, per_part=True, idle_epochs=3)
    >>> marks = rule.after({}, {("a",): 10, ("b",): 7}, epoch=1)
    >>> rule.watermark(marks, 1)
    (True, 5)
    >>> marks = rule.after(marks, {("a",): 20}, epoch=5)
    >>> rule.watermark(marks, 5)
    (True, 18)
    """

    max_delay: Any
    per_part: bool = False
    idle_epochs: int | None = None

    def after(self, marks: Mapping[Any, Mark], seen: Mapping[Any, Any], epoch: int) -> dict[Any, Mark]:
        """The marks of the parts when ``epoch`` has brought these largest event times, by part."""
        found = dict(marks)
        for part, moment in seen.items():
            before, _ = found.get(part, (None, epoch))
            found[part] = later(before, watermark_of(moment, self.max_delay)), epoch
        if not found and self.idle_epochs is not None:
            found[WHOLE] = None, epoch  # it has brought nothing from now on
        found = {part: mark for part, mark in found.items() if (part != WHOLE) is self.per_part} or found
        return self._awake(found, epoch) or found  # a part that was idle begins anew

    def watermark(self, marks: Mapping[Any, Mark], epoch: int) -> tuple[bool, Any]:
        """Whether the stream counts after ``epoch``, and its watermark; None: it has none yet, and holds back all others."""
        awake = self._awake(marks, epoch)
        known = [mark for mark, _ in awake.values()]
        return bool(awake or not marks), None if not known or None in known else compared(*known)[0]

    def _awake(self, marks: Mapping[Any, Mark], epoch: int) -> dict[Any, Mark]:
        most = self.idle_epochs
        return {part: mark for part, mark in marks.items() if most is None or epoch - mark[1] <= most}


class Marks(KeyedState):
    """The watermark of a vertex, and what has come of it for times that are not complete: the largest event times of each input. It goes
    along with whatever moves.

    It is the least of those of the inputs and their parts, as in Flink: an input that has brought nothing yet holds it back, unless its
    rule says for how long. A part holds it back from its first record on. All of this follows from data and epochs, too.

    Args:
        delays: how late records of each input may come, or its :class:`WatermarkRule`.
        pending: what waits at the same vertex.
    """

    always_whole = True
    is_in_flight = True

    def __init__(self, delays: tuple[Any, ...], pending: Waiting) -> None:
        self.rules = tuple(rule if isinstance(rule, WatermarkRule) else WatermarkRule(rule) for rule in delays)
        self._pending = pending
        self.largest: list[dict[Timestamp, dict[Any, Any]]] = [{} for _ in delays]
        self.marks: list[dict[Any, Mark]] = [{} for _ in delays]
        self.watermark = Watermark()

    # -- snapshots -----------------------------------------------------------------
    def checkpoint(self) -> Any:
        """What is known."""
        return self.largest, self.marks, self.watermark

    def restore(self, state: Any) -> None:
        """Take back what :meth:`checkpoint` gave; also in earlier versions, which knew no parts."""
        largest, marks, self.watermark = state
        self.largest = [{time: seen if isinstance(seen, dict) else {WHOLE: seen} for time, seen in side.items()} for side in largest]
        self.marks = [mark if isinstance(mark, dict) else {} if mark is None else {WHOLE: (mark, 0)} for mark in marks]

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
        largest = [{time: dict(seen) for time, seen in side.items()} for side in self.largest]
        return largest, [dict(marks) for marks in self.marks], replace(self.watermark)

    def take(self, state: Any) -> None:
        """Know what :meth:`give` gave as well; each of the times waits here, too."""
        for mine, theirs in zip(self.largest, state[0], strict=True):
            for time, seen in theirs.items():
                for part, moment in seen.items():
                    _put(mine, time, part, moment)
                self._pending[time]
        for known, others in zip(self.marks, state[1], strict=True):
            for part, (mark, epoch) in others.items():
                before, since = known.get(part, (None, epoch))
                known[part] = later(before, mark), max(since, epoch)
        self.watermark.take(state[2])

    # -- as a table ------------------------------------------------------------------
    def entries(self) -> dict[str, Entries]:
        """None: it is of no key."""
        return {}

    # -- times -----------------------------------------------------------------------
    def see(self, side: int, times: Iterable[Any], time: Timestamp) -> None:
        """Event times of an input have come; of one in parts, ``(part, time)``."""
        largest, in_parts = self.largest[side], self.rules[side].per_part
        for one in times:
            part, moment = ((one[0],), one[1]) if in_parts else (WHOLE, one)
            _put(largest, time, part, moment)

    def ahead_of(self, time: Timestamp) -> Any:
        """The watermark by which what waits for ``time`` is late or not; None: nothing is.

        Raises DataflowError where it does not compare with the event times that wait.
        """
        mark = self.watermark.ahead_of(time)
        for largest in self.largest:
            for moment in largest.get(time, {}).values():
                later(mark, moment)
        return mark

    def advance(self, time: Timestamp) -> bool:
        """A time is complete. Gives whether windows are to fire."""
        found = []
        for side, rule in enumerate(self.rules):
            marks = self.marks[side] = rule.after(self.marks[side], self.largest[side].pop(time, {}), time.epoch)
            found.append(rule.watermark(marks, time.epoch))
        known = [mark for counts, mark in found if counts]
        return self.watermark.advance(time, None if not known or None in known else compared(*known)[0])


def _put(largest: dict[Timestamp, dict[Any, Any]], time: Timestamp, part: Any, moment: Any) -> None:
    of_time = largest.setdefault(time, {})
    of_time[part] = later(of_time.get(part), moment)
