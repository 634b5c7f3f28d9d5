"""Windows: over epochs, and over event time.

``per_epoch()`` takes each logical time alone. Event-time windows close by a watermark: when an epoch is complete, the watermark is the
largest event time seen in it or before, over all replicas, less the stream's ``max_delay``. That is a function of the data and the epochs
alone, so results do not depend on timing. Event times and sizes are numbers (seconds, say), or datetimes with timedelta sizes; datetimes
with a time zone are brought to UTC, and windows begin at multiples of their size since 1970-01-01 (UTC) unless an offset says otherwise.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import Any, NamedTuple

from rayad.progress import DataflowError


class Window(NamedTuple):
    """Event times ``start <= t < end``."""

    start: Any
    end: Any


@dataclass(frozen=True, slots=True)
class PerEpoch:
    """Each logical time on its own (inside a loop: each round of each epoch)."""


@dataclass(frozen=True, slots=True)
class Tumbling:
    """Windows of ``size`` side by side, aligned to ``offset``."""

    size: Any
    offset: Any = None

    def assign(self, time: Any) -> list[Window]:
        """The one window that holds ``time``."""
        return Sliding(self.size, self.size, self.offset).assign(time)


@dataclass(frozen=True, slots=True)
class Sliding:
    """Windows of ``size``, one beginning every ``slide``."""

    size: Any
    slide: Any
    offset: Any = None

    def assign(self, time: Any) -> list[Window]:
        """The windows that hold ``time``, earliest first.

        >>> Sliding(10, 5).assign(12)
        [Window(start=5, end=15), Window(start=10, end=20)]
        """
        origin = self.offset
        if origin is None:
            origin = dt.datetime(1970, 1, 1, tzinfo=time.tzinfo) if isinstance(time, dt.datetime) else 0
        elif isinstance(time, dt.datetime) and isinstance(origin, dt.timedelta):
            origin = dt.datetime(1970, 1, 1, tzinfo=time.tzinfo) + origin
        steps = (time - origin) // self.slide
        out: list[Window] = []
        while (start := origin + steps * self.slide) + self.size > time:
            out.append(Window(start, start + self.size))
            steps -= 1
        out.reverse()
        return out


@dataclass(frozen=True, slots=True)
class Session:
    """Runs of events no more than ``gap`` apart: the window is ``[first, last + gap)``."""

    gap: Any


@dataclass(frozen=True, slots=True)
class Given:
    """Each record brings its window along: where its start and its end are."""

    start: Any
    end: Any


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _positive(value: Any, what: str) -> Any:
    positive = value > dt.timedelta(0) if isinstance(value, dt.timedelta) else _is_number(value) and value > 0
    if not positive:
        raise DataflowError(f"{what} is {value!r}: it must be a positive number or timedelta")
    return value


def _offset(value: Any, size: Any) -> Any:
    """An offset counts from 0, or from 1970-01-01; a datetime says where some window begins."""
    fits = isinstance(value, (dt.timedelta, dt.datetime)) if isinstance(size, dt.timedelta) else _is_number(value)
    if value is not None and not fits:
        raise DataflowError(
            f"window offset is {value!r} for windows of {size!r}: it must be of the same kind, or a datetime for timedeltas"
        )
    return value


def per_epoch() -> PerEpoch:
    """Each epoch (each logical time) alone."""
    return PerEpoch()


def tumbling(size: Any, offset: Any = None) -> Tumbling:
    """Event-time windows ``[offset + k*size, offset + (k+1)*size)``; ``size`` in the unit of the event times, or a timedelta."""
    return Tumbling(_positive(size, "window size"), _offset(offset, size))


def sliding(size: Any, slide: Any, offset: Any = None) -> Sliding:
    """Event-time windows of ``size``, one every ``slide``."""
    if isinstance(_positive(size, "window size"), dt.timedelta) != isinstance(_positive(slide, "window slide"), dt.timedelta):
        raise DataflowError(f"window size is {size!r} and slide {slide!r}: both must be numbers, or both timedeltas")
    return Sliding(size, slide, _offset(offset, size))


def session(gap: Any) -> Session:
    """Event-time windows of activity, closed by a pause of ``gap``."""
    return Session(_positive(gap, "session gap"))


def given(start: Any, end: Any) -> Given:
    """Event-time windows that records bring along: an auction that is open from ... until ..., a trip, a campaign.

    ``start`` and ``end`` are columns or functions of the record. A record whose event time is not within ``start <= t < end`` belongs to no
    window and is left out. Windows of different keys, and of one key, may overlap.
    """
    from rayad.dataflow.operators.keyed import ValueSelector

    return Given(ValueSelector.of(start), ValueSelector.of(end))
