"""Rules by which collections could forget, each of which is wrong; tests show that they are found."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any
from unittest.mock import patch

from rayad.dataflow.records.event_times import shifted
from rayad.incremental.event_time import functions, limits, needing, operators, telling
from rayad.incremental.event_time.telling import EventTime, OnTime, Told
from rayad.progress import Timestamp
from tests.incremental.wrong_rules import Plant


# -- event time ------------------------------------------------------------------------------------------------------------
def the_side_ahead_counts(stack: ExitStack) -> None:
    """Of two sides the larger one of their largest times counts."""
    stack.enter_context(patch.object(telling, "min", max, create=True))


def the_epoch_itself_counts(stack: ExitStack) -> None:
    """A change is late by the largest time of the epoch that it is in."""
    rows, in_columns = OnTime.on_moment, OnTime.on_columns

    def on_moment(self: Any, time: Timestamp, arrived: Any, scheduled: Any) -> None:
        self.told.learn(arrived[1], {})
        rows(self, time, arrived, scheduled)

    def on_columns(self: Any, columns: Any, time: Timestamp, runs: Any, due: Any, others: Any) -> Any:
        self.told.learn(telling.told_in(others), {})
        return in_columns(self, columns, time, runs, due, others)

    stack.enter_context(patch.object(OnTime, "on_moment", on_moment))
    stack.enter_context(patch.object(OnTime, "on_columns", on_columns))


def what_was_never_there_counts(stack: ExitStack) -> None:
    """The event time of a record counts that comes and goes within one epoch."""
    stack.enter_context(patch.object(operators, "inserts_what_was_never_there", lambda graph, start: False))


def event_time_falls(stack: ExitStack) -> None:
    """Event time is the largest one of the last epoch."""
    real = EventTime.on_notify

    def on_notify(self: Any, time: Timestamp) -> None:
        self.largest, self.told = {side: at for side, at in self.largest.items() if side not in self.waiting[time]}, None
        real(self, time)

    stack.enter_context(patch.object(EventTime, "on_notify", on_notify))


# -- what is late ----------------------------------------------------------------------------------------------------------
def removals_are_never_late(stack: ExitStack) -> None:
    """A removal is taken however late it is: what it takes away may be forgotten. In rows."""
    real = OnTime.on_moment

    def on_moment(self: Any, time: Timestamp, arrived: Any, scheduled: Any) -> None:
        gone = {change: weight for change, weight in arrived[0].items() if weight < 0}
        if gone:
            self.send_by(0, [(*change, weight) for change, weight in gone.items()], time)
        real(self, time, [{change: weight for change, weight in arrived[0].items() if weight > 0}, *arrived[1:]], scheduled)

    stack.enter_context(patch.object(OnTime, "on_moment", on_moment))


def the_limit_is_late(stack: ExitStack) -> None:
    """What is at the limit is late, in columns; so it is forgotten, too."""
    real = limits.first_not_over
    for module in (limits, telling):
        stack.enter_context(patch.object(module, "first_not_over", lambda limit, kind, *, at_end: real(limit, kind, at_end=True)))


# -- what is forgotten -----------------------------------------------------------------------------------------------------
def sessions_go_at_the_limit(stack: ExitStack) -> None:
    """A session goes whose end is the limit, which a record at the limit still touches."""

    def needed(self: Any, values: Any, limit: Any) -> Any:
        left = [(end, some) for _, end, some in self._sessions(values) if end > limit]
        return [record for _, some in left for record, _ in some], min((end for end, _ in left), default=None)

    stack.enter_context(patch.object(functions.Sessions, "needed", needed))


def records_go_by_their_own_time(stack: ExitStack) -> None:
    """A record of an interval join goes when it is late itself, whatever it may meet."""
    stack.enter_context(patch.object(operators.LastMeeting, "__call__", lambda self, key, value: self.at(value)))
    stack.enter_context(patch.object(limits.LastMeeting, "of", lambda self, record: limits.numbers_of(limits.field_of(record, self.field))))


def intervals_are_turned(stack: ExitStack) -> None:
    """The bound of the other side is added with the wrong sign."""

    def end(self: Any, key: Any, value: Any) -> Any:
        time = self.at(value)
        return max(time, shifted(time, self.bound, -self.sign))

    stack.enter_context(patch.object(operators.LastMeeting, "__call__", end))


def the_last_right_record_goes(stack: ExitStack) -> None:
    """Of right records before the limit an as-of join keeps none for left ones that come."""
    real = functions.Latest.needed

    def needed(self: Any, values: Any, limit: Any) -> Any:
        kept, then = real(self, values, limit)
        return [value for value in kept if value[0] is not None or self.time_of(value) >= limit], then

    stack.enter_context(patch.object(functions.Latest, "needed", needed))


def a_match_is_final_at_once(stack: ExitStack) -> None:
    """A left record before the limit never gets another match."""
    stack.enter_context(patch.object(functions.Latest, "_is_final", lambda self, at, times, limit: True))


def what_waits_is_not_looked_at(stack: ExitStack) -> None:
    """In columns a key is looked at only when it changes or is due: as much as in rows is not forgotten."""
    real = needing.NeedingColumns.take_unneeded

    def take_unneeded(self: Any, *arguments: Any, **named: Any) -> Any:
        self._waiting = []
        return real(self, *arguments, **named)

    stack.enter_context(patch.object(needing.NeedingColumns, "take_unneeded", take_unneeded))


# -- what happens to a job -------------------------------------------------------------------------------------------------
def limits_are_not_restored(stack: ExitStack) -> None:
    """After a failure nothing is late until event time grows."""
    real = Told.restore

    def restore(self: Any, stored: Any) -> None:
        real(self, stored)
        self.kept.clear()

    stack.enter_context(patch.object(Told, "restore", restore))


WRONG_LATENESS: dict[str, Plant] = {
    "the side that is ahead counts": the_side_ahead_counts,
    "the epoch itself counts": the_epoch_itself_counts,
    "what was never there counts": what_was_never_there_counts,
    "event time falls": event_time_falls,
    "removals are never late": removals_are_never_late,
    "what is at the limit is late": the_limit_is_late,
    "sessions go at the limit": sessions_go_at_the_limit,
    "records go by their own time": records_go_by_their_own_time,
    "intervals are turned": intervals_are_turned,
    "the last right record goes": the_last_right_record_goes,
    "a match is final at once": a_match_is_final_at_once,
    "what waits is not looked at": what_waits_is_not_looked_at,
}
"""Found without anything that happens to a job."""
WRONG_LATE_MOVES: dict[str, Plant] = {
    "limits are not restored": limits_are_not_restored,
}
"""Found where it is disturbed."""

__all__ = ["WRONG_LATENESS", "WRONG_LATE_MOVES"]
