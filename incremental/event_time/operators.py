"""Joins by event time, and windows of it, as vertices and steps; with a lateness they forget what no change can reach.

With a lateness each side has a vertex that lets only changes by that are on time (:class:`OnTime`), and what is behind it forgets by the
same event time. So what comes out is what would come out of the changes on time if nothing were forgotten.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rayad.dataflow.records.event_times import shifted
from rayad.dataflow.streams.making import Make
from rayad.dataflow.windows import AsOf, Between, Session, Sliding, Tumbling
from rayad.incremental import functions, steps
from rayad.incremental.columns import steps as columns_steps
from rayad.incremental.columns.linear import AnyOfKey
from rayad.incremental.columns.steps import InColumns, filtered, flat_mapped, in_rows, mapped
from rayad.incremental.event_time import columns
from rayad.incremental.event_time import limits as ends_of
from rayad.incremental.event_time.ending import Ending, EndingJoin, KeysEnd, NeedingReduce, window_end
from rayad.incremental.event_time.functions import Assigned, Latest, OnSide, Placed, Sessions, Timed, Within, by_window
from rayad.incremental.event_time.limits import Ends, TimeOf, window_ends
from rayad.incremental.event_time.needing import Needing
from rayad.incremental.event_time.telling import RECORDS, OnTime, Side, told_of
from rayad.incremental.fixed_points import together
from rayad.incremental.joins.kinds import KINDS, How
from rayad.incremental.rounds import inserts_what_was_never_there

if TYPE_CHECKING:
    from rayad.dataflow.streams.stream import Stream
    from rayad.incremental.collection import Collection, KeyedCollection

At = Callable[[Any], Any]
"""Gives the event time of a record."""
Step = tuple[Callable[[Any], Any], InColumns]
"""A function of a record, and the same of changes in columns."""
LEFT_OF: Step = (steps.left_of, columns_steps.left_of)
SWAPPED: Step = (steps.swapped, columns_steps.swapped)
ALONE: Step = (steps.alone, columns_steps.alone)
ALONE_RIGHT: Step = (steps.alone_right, columns_steps.alone_right)
IN_TUPLE: Step = (steps.alone_in_tuple, columns_steps.alone_in_tuple)
CONTENT: Step = (steps.content_of, columns_steps.content_of)


def joined_asof(
    left: KeyedCollection, right: KeyedCollection, rule: AsOf, at: tuple[At, At], how: str, lateness: Any, name: str | None
) -> Collection:
    """See ``KeyedCollection.join_asof``."""
    made = type(left)
    if lateness is not None:
        left, right = _adding_up(left), _adding_up(right)
    (mine, theirs), loops = together(left, right)
    sides = [made(_placed(one, time), loops) for one, time in zip((mine, theirs), at, strict=True)]
    function = Latest(rule, *at, how == "inner")
    times = None if lateness is None else told_of("join_asof", lateness, loops, [_side(*side) for side in zip(sides, at, strict=True)])
    if times is not None:
        sides = [_on_time(one, time, lateness, times) for one, time in zip(sides, at, strict=True)]
    lefts, rights = (mapped(one.stream, OnSide(side), columns.OnSide(side)) for side, one in enumerate(sides))
    both = made(lefts.union(rights), loops)
    fields = _field(at[0]), _field(at[1])
    grouped = None if fields[0] is None or fields[1] is None else columns.Latest(rule, (fields[0], fields[1]), how == "inner")
    found = _needing(both, function, lateness, times, "asof-join", name, grouped)
    if how == "inner":
        return found
    return found.concat(_mapped(made(_placed(mine, at[0], turned=True), loops).plain(), ALONE))


def joined_in_interval(
    left: KeyedCollection, right: KeyedCollection, within: Between, at: tuple[At, At], how: How, lateness: Any, name: str | None
) -> Collection:
    """See ``KeyedCollection.join_interval``."""
    made = type(left)
    if lateness is not None:
        left, right = _adding_up(left), _adding_up(right)
    (mine, theirs), loops = together(left, right)
    left, right = (made(_placed(one, time), loops) for one, time in zip((mine, theirs), at, strict=True))
    mine_at, theirs_at = map(_field, at)
    ends = LastMeeting(at[0], within.upper, 1), LastMeeting(at[1], within.lower, -1)
    of_columns = None
    if mine_at is not None and theirs_at is not None:
        of_columns = ends_of.LastMeeting(mine_at, within, True), ends_of.LastMeeting(theirs_at, within, False)
    times = None if lateness is None else told_of("join_interval", lateness, loops, [_side(left, at[0]), _side(right, at[1])])
    if times is None:
        met = left.joined(right, "inner", name)
    else:
        left, right = (_on_time(one, time, lateness, times) for one, time in zip((left, right), at, strict=True))
        make = Make(EndingJoin, "inner", lateness, ends, of_columns)
        met = type(left.plain())(left.vertex(make, "inner-join", name, right, made(times, ())), ())
    in_columns = in_rows if mine_at is None or theirs_at is None else columns.Within(within, (mine_at, theirs_at))
    met = type(met)(filtered(met.stream, steps.Kept(Within(within, *at)), in_columns), met.loops)
    if how == "inner":
        return met

    def among(records: Collection, those: Collection, kind: How, side: int) -> Collection:
        if times is None:
            return _among(records, those, kind)
        end = EndOfKey(ends[side]), None if of_columns is None else ends_of.EndOfKey(of_columns[side])
        return _ending_among(records, those, kind, end, lateness, times)

    if how == "semi":
        return among(left.plain(), _mapped(met, LEFT_OF), "semi", 0)
    alone = among(left.plain(), _mapped(met, LEFT_OF), "anti", 0).concat(made(_placed(mine, at[0], turned=True), loops).plain())
    if how == "anti":
        return alone
    if how == "left":
        return met.concat(_mapped(alone, ALONE))
    others = among(right.plain(), _mapped(met, SWAPPED, LEFT_OF), "anti", 1)
    others = _mapped(others.concat(made(_placed(theirs, at[1], turned=True), loops).plain()), ALONE_RIGHT)
    return met.concat(others) if how == "right" else met.concat(_mapped(alone, ALONE), others)


def windowed(keyed: KeyedCollection, windows: Tumbling | Sliding | Session, at: At, lateness: Any, name: str | None) -> KeyedCollection:
    """See ``KeyedCollection.window``."""
    made = type(keyed)
    field = _field(at)
    if lateness is not None:
        keyed = _adding_up(keyed)
    if isinstance(windows, (Tumbling, Sliding)):
        ending = None
        if lateness is not None:
            ending = Ending(KeysEnd(lateness, window_end, window_ends), told_of("window", lateness, keyed.loops, [_side(keyed, at)]))
        in_columns = in_rows if field is None else columns.Assigned(windows, field)
        return made(flat_mapped(keyed.stream, Assigned(windows, at), in_columns), keyed.loops, ending=ending)
    timed = made(filtered(keyed.stream, Timed(at), in_rows if field is None else columns.Timed(field)), keyed.loops)
    function, grouped = Sessions(windows, at), None if field is None else columns.Sessions(windows, field)
    if lateness is None:
        found = timed.reduce_weights(function, "sessions", name=name, in_columns=grouped)
        return made(mapped(found.stream, by_window, columns.by_window), keyed.loops)
    times = told_of("window", lateness, keyed.loops, [_side(timed, at)])
    found = _needing(_on_time(timed, at, lateness, times), function, lateness, times, "sessions", name, grouped)
    ending = Ending(KeysEnd(lateness, window_end, window_ends, at_end=False, refuses=False), times)
    return made(mapped(found.stream, by_window, columns.by_window), keyed.loops, ending=ending)


@dataclass(frozen=True, slots=True)
class LastMeeting:
    """The last event time of a change that has to do with a record: of itself, or of what it may meet on the other side.

    Args:
        at: its event time.
        bound: how far beyond it the other one's may be, in the direction of ``sign``.
    """

    at: At
    bound: Any
    sign: int

    def __call__(self, key: Any, value: Any) -> Any:
        time = self.at(value)
        return max(time, shifted(time, self.bound, self.sign))


@dataclass(frozen=True, slots=True)
class EndOfKey:
    """The same where the key is ``((key, record),)``."""

    end: LastMeeting

    def __call__(self, key: Any, value: Any = None) -> Any:
        return self.end(*key[0])


def _field(at: At) -> str | None:
    """The field that event times are, if they are one."""
    return at.name if isinstance(at, steps.Field) else None


def _placed(stream: Stream, at: At, *, turned: bool = False) -> Stream:
    """The changes whose key and event time are not null, or the others."""
    field = _field(at)
    in_columns = in_rows if field is None else columns.Timed(field, keyed=True, turned=turned)
    return filtered(stream, Placed(at, turned=turned), in_columns)


def _mapped(collection: Collection, *some: Step) -> Collection:
    stream = collection.stream
    for function, in_columns in some:
        stream = mapped(stream, steps.Mapped(function), in_columns)
    return type(collection)(stream, collection.loops)


def _adding_up(keyed: KeyedCollection) -> KeyedCollection:
    """The same collection, where what comes and goes within one epoch does not come: its event time would count."""
    is_net = keyed.loops or not inserts_what_was_never_there(keyed.stream.flow.graph, keyed.stream.node)
    return keyed if is_net else keyed.plain().consolidate().keyed()


def _side(keyed: KeyedCollection, at: At) -> Side:
    """What :func:`told_of` is given."""
    field = _field(at)
    return keyed.stream, at, in_rows if field is None else columns.Largest(field)


def _on_time(keyed: KeyedCollection, at: At, lateness: Any, times: Stream) -> KeyedCollection:
    made, field = type(keyed), _field(at)
    make = Make(OnTime, lateness, at, None if field is None else TimeOf(field))
    return made(keyed.vertex(make, "on-time", None, made(times, ())), ())


def _needing(
    keyed: KeyedCollection,
    function: Latest | Sessions,
    lateness: Any,
    times: Stream | None,
    base: str,
    name: str | None,
    in_columns: Needing | None,
) -> Collection:
    if times is None:
        return keyed.reduce_weights(function, base, name=name, in_columns=in_columns)
    made = type(keyed.plain())
    return made(keyed.vertex(Make(NeedingReduce, lateness, function, in_columns), base, name, type(keyed)(times, ())), ())


def _among(records: Collection, those: Collection, how: How) -> Collection:
    """The records that are among those, or are not, each as often as it is there."""
    one, other = (_mapped(of, IN_TUPLE).by_record() for of in (records, those))
    return _mapped(one.join(other, how), CONTENT)


def _ending_among(
    records: Collection, those: Collection, how: How, end: tuple[EndOfKey, Ends | None], lateness: Any, times: Stream
) -> Collection:
    """As :func:`_among`; what is over goes: ``end`` is that of a key, and the same in columns."""
    one, other = (_mapped(of, IN_TUPLE).by_record() for of in (records, those))
    keyed, base, sides = type(one), f"{how}-join", len(KINDS[how].inputs)
    ending = Ending(KeysEnd(lateness, *end, RECORDS, at_end=False, refuses=False), times)
    there = keyed(other.stream, (), ending=ending).summed(functions.Once(None), functions.one, f"{base}.keys", None, AnyOfKey())
    make = Make(EndingJoin, how, lateness, end[:1] * sides, None if end[1] is None else end[1:] * sides)
    return _mapped(type(records)(one.vertex(make, base, None, there.keyed(), keyed(times, ())), ()), CONTENT)


__all__ = ["joined_asof", "joined_in_interval", "windowed"]
