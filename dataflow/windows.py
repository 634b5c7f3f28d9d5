"""Windows: over epochs, and over event time.

``per_epoch()`` takes each logical time alone. Event-time windows close by a watermark: when an epoch is complete, the watermark is the
largest event time seen in it or before, over all replicas, less the stream's ``max_delay``. That is a function of the data and the epochs
alone, so results do not depend on timing. Event times and sizes are numbers (seconds, say), or dates, datetimes and durations with
timedelta sizes; datetimes with a time zone are brought to UTC, and windows begin at multiples of their size since 1970-01-01 (UTC) unless
an offset says otherwise. Every event time is in exactly the windows whose ``start <= time < end`` holds (``event_times``).
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from rayad.dataflow.records.event_times import Lengths, Scale, offset_ticks, plain_length, shifted
from rayad.dataflow.records.selectors import ValueSelector
from rayad.dataflow.records.users_line import users_line
from rayad.dataflow.records.values import Window
from rayad.dataflow.records.wrong_calls import explained
from rayad.dataflow.records.wrong_names import by_instead, no_such_name_in
from rayad.progress import DataflowError, arguments, show


@dataclass(frozen=True, slots=True)
class PerEpoch:
    """A window for each logical time (inside a loop: for each round of each epoch)."""


@dataclass(frozen=True, slots=True)
class Counted:
    """Windows of a number of records of a key."""

    size: int


@dataclass(frozen=True, slots=True)
class WindowTicks:
    """Windows ``[offset + k*slide, offset + k*slide + size)`` in ticks of a scale."""

    scale: Scale
    size: int
    slide: int
    offset: int

    @staticmethod
    def of(size: Any, slide: Any, offset: Any) -> WindowTicks:
        """From lengths as users give them."""
        moment = isinstance(offset, dt.date)  # it says where a window begins
        scale = Scale.of([size, slide, *([] if offset is None or moment else [offset])])
        return WindowTicks(scale, scale.ticks(size), scale.ticks(slide), offset_ticks(offset, scale))

    def holding(self, tick: int, like: Any) -> list[Window]:
        """The windows that hold a tick, earliest first; with bounds for the event time ``like``.

        Raises DataflowError where a bound is no moment, or floats are too far apart to tell two windows.
        """
        start = tick - (tick - self.offset) % self.slide
        starts = range(start, tick - self.size, -self.slide)
        bound = self.scale.bound
        try:
            out = [Window(bound(at, like), bound(at + self.size, like)) for at in reversed(starts)]
        except OverflowError as error:
            raise DataflowError(
                f"a window of the event time {show(like, 60)} begins or ends beyond the moments that there are: {error}; "
                "filter such times out"
            ) from error
        if self.scale.kind is Lengths.FLOAT and len(out) > len(set(out)):
            raise DataflowError(
                f"the windows of the event time {like!r} are too close for floats: give times and sizes as ints or Decimals"
            )
        return out


@dataclass(frozen=True, slots=True)
class Tumbling:
    """Windows of ``size`` side by side, aligned to ``offset``."""

    size: Any
    offset: Any = None
    ticks: WindowTicks = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "ticks", WindowTicks.of(self.size, self.size, self.offset))

    def assign(self, time: Any) -> list[Window]:
        """The one window that holds ``time``.

        >>> Tumbling(0.1).assign(0.3)
        [Window(start=0.3, end=0.4)]
        """
        return _assigned(self.ticks, time)


@dataclass(frozen=True, slots=True)
class Sliding:
    """Windows of ``size``, one starting every ``slide``. If the size is below the slide, times between the windows are in none."""

    size: Any
    slide: Any
    offset: Any = None
    ticks: WindowTicks = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "ticks", WindowTicks.of(self.size, self.slide, self.offset))

    def assign(self, time: Any) -> list[Window]:
        """The windows that hold ``time``, earliest first.

        >>> Sliding(10, 5).assign(12)
        [Window(start=5, end=15), Window(start=10, end=20)]
        """
        return _assigned(self.ticks, time)


def _assigned(ticks: WindowTicks, time: Any) -> list[Window]:
    ticks.scale.admit(time)
    return ticks.holding(ticks.scale.reached(time), time)


@dataclass(frozen=True, slots=True)
class Session:
    """Windows of events that are at most ``gap`` apart: ``[first, last + gap)``."""

    gap: Any
    scale: Scale = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "scale", Scale.of([self.gap]))

    def assign(self, time: Any) -> list[Window]:
        """The window of a single event.

        >>> Session(0.1).assign(0.7)
        [Window(start=0.7, end=0.8)]
        """
        self.scale.admit(time)
        try:
            end = shifted(time, self.gap, 1)
        except (OverflowError, ValueError) as error:
            raise DataflowError(
                f"the session of the event time {show(time, 60)} ends beyond the moments that there are: {error}; filter such times out"
            ) from error
        if not end > time:
            raise DataflowError(f"{self.gap!r} behind the event time {show(time)} is no later in floats: give both as ints or Decimals")
        return [Window(time, end)]


@dataclass(frozen=True, slots=True)
class Given:
    """Windows that the records carry: where a record has the start and end of its window."""

    start: Any
    end: Any


@dataclass(frozen=True, slots=True)
class Between:
    """Bounds of a join in time: ``lower <= right - left <= upper``, of the event times of a right and a left record."""

    lower: Any
    upper: Any
    scale: Scale = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "scale", Scale.of([self.lower, self.upper]))


Direction = Literal["backward", "forward", "nearest"]
"""Where an as-of join looks, as in pandas."""


@dataclass(frozen=True, slots=True)
class AsOf:
    """How an as-of join picks the right record of a left one.

    "backward": the last one that is not later; "forward": the first one that is not earlier; "nearest": the nearer of the two, the earlier
    one on a tie. ``exact=False`` excludes equal times; ``tolerance`` is the largest distance (None: any).
    """

    tolerance: Any
    exact: bool
    direction: Direction = "backward"
    scale: Scale | None = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "scale", None if self.tolerance is None else Scale.of([self.tolerance]))


Windows = PerEpoch | Tumbling | Sliding | Session | Given | Counted
"""What ``window`` takes."""


def _positive(value: Any, what: str) -> Any:
    length = plain_length(value)
    if length is None or not length > (dt.timedelta(0) if isinstance(length, dt.timedelta) else 0):
        raise DataflowError(f"{what} is {show(value)}: it must be a positive number or timedelta")
    return length


def _offset(value: Any, size: Any) -> Any:
    """An offset counts from 0, or from 1970-01-01; a datetime says where some window begins."""
    if value is None:
        return None
    moment = isinstance(value, dt.date) and value == value
    length = value if moment else plain_length(value)
    if length is None or (moment or isinstance(length, dt.timedelta)) != isinstance(size, dt.timedelta):
        raise DataflowError(
            f"window offset is {show(value)} for windows of {size!r}: it must be of the same kind, or a datetime for timedeltas"
        )
    return length


@explained
def per_epoch() -> PerEpoch:
    """A window for each epoch (inside a loop: for each round of each epoch)."""
    return PerEpoch()


@explained
def tumbling(size: Any, offset: Any = None) -> Tumbling:
    """Event-time windows of equal ``size``, side by side: ``[offset + k*size, offset + (k+1)*size)``.

    ``size`` and ``offset`` are numbers in the unit of the event times, or timedeltas.
    """
    size = _positive(size, "window size")
    return Tumbling(size, _offset(offset, size))


@explained
def sliding(size: Any, slide: Any, offset: Any = None) -> Sliding:
    """Event-time windows of ``size``, one starting every ``slide``. If the size is below the slide, times between two windows are in
    none."""
    size, slide = _positive(size, "window size"), _positive(slide, "window slide")
    if isinstance(size, dt.timedelta) != isinstance(slide, dt.timedelta):
        raise DataflowError(f"window size is {size!r} and slide {slide!r}: both must be numbers, or both timedeltas")
    return Sliding(size, slide, _offset(offset, size))


@explained
def count(size: int) -> Counted:
    """Windows of ``size`` records of a key: ``[0, size)``, ``[size, 2 * size)`` of their numbers.

    Records are numbered by epoch, within an epoch by event time. Records that are left when the input ends form a smaller last window.
    """
    return Counted(arguments.whole(size, f"windows.count at {users_line()}: size", least=1))


@explained
def session(gap: Any) -> Session:
    """Event-time windows of activity: a window closes after a pause of ``gap``."""
    return Session(_positive(gap, "session gap"))


@explained
def given(start: Any, end: Any) -> Given:
    """Event-time windows that the records carry: an auction that is open from ... to ..., a trip, a campaign.

    ``start`` and ``end`` are columns or functions of the record. A record whose event time is not in ``start <= t < end`` is in no window
    and is dropped. Windows of different keys, and of the same key, may overlap.
    """
    for value, what in ((start, "start"), (end, "end")):
        if value is None:
            raise DataflowError(f"given: {what} is None: give a function of the record or a column name")
    return Given(ValueSelector.of(start, "given (start)"), ValueSelector.of(end, "given (end)"))


@explained
def between(lower: Any, upper: Any) -> Between:
    """Bounds for ``join(within=...)``: the right record's event time minus the left one's is at least ``lower`` and at most ``upper``.

    Both are numbers in the unit of the event times, or both timedeltas; they may be negative, and equal. A float counts as the decimal that
    was written.
    """
    low, high = plain_length(lower), plain_length(upper)
    if low is None or high is None:
        raise DataflowError(
            f"between at {users_line()} was given {show(lower, 60)} and {show(upper, 60)}: both must be numbers, or both timedeltas"
        )
    try:
        found = Between(low, high)
    except DataflowError as error:
        raise DataflowError(f"between at {users_line()}: {error}") from error
    if low > high:
        raise DataflowError(f"between at {users_line()}: the lower bound {lower!r} is above the upper bound {upper!r}; give them in order")
    return found


__all__ = ["Window", "between", "count", "given", "per_epoch", "session", "sliding", "tumbling"]


def __dir__() -> list[str]:
    return __all__


_NOT_HERE = by_instead(
    {
        "tumbling(size)": ("tumble", "Tumble", "fixed", "FixedWindows", "TumblingWindow", "TumblingWindower", "TumblingEventTimeWindows"),
        "sliding(size, slide)": ("slide", "hop", "hopping", "Slide", "SlidingWindow", "SlidingWindower", "SlidingEventTimeWindows"),
        "session(gap)": ("sessions", "session_window", "SessionWindow", "SessionWindower", "EventTimeSessionWindows"),
        "count(size)": ("count_window", "countWindow", "counting", "rows"),
        "per_epoch()": ("epoch", "epochs", "each_epoch", "batch", "micro_batch"),
        "no window: key_by(...).count() and so on are totals over all records": ("global_window", "GlobalWindows", "all", "unbounded"),
        "between(lower, upper)": ("interval", "range_between"),
    }
)
if not TYPE_CHECKING:  # a type checker should go on knowing which names there are

    def __getattr__(name: str) -> Any:
        raise no_such_name_in("rayad.windows", name, __all__, _NOT_HERE)
