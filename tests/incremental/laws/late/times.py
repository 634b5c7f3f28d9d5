"""Event times of random programs: whole numbers, floats, or moments of the calendar. Programs and histories are drawn in whole ticks."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import pyarrow as pa

BEGIN = datetime(2013, 10, 27, 0, 59, 58)
TICK = timedelta(milliseconds=1500)
PART = 0.5
"""A tick, as a float: sums of it are exact."""


@dataclass(frozen=True)
class Times:
    """What event times are.

    Args:
        name: of the kind.
        kind: Arrow's type.
        moment: of a tick.
        span: so many ticks, which may be no whole number.
        tick: of a moment.
    """

    name: str
    kind: pa.DataType
    moment: Callable[[int], Any]
    span: Callable[[Any], Any]
    tick: Callable[[Any], int]

    def __repr__(self) -> str:
        return self.name


def _same(ticks: Any) -> Any:
    return ticks


def _float(ticks: Any) -> float:
    return float(ticks) * PART


def _tick_of_float(at: float) -> int:
    return int(at // PART)


def _date(tick: int) -> datetime:
    return BEGIN + tick * TICK


def _duration(ticks: Any) -> timedelta:
    return ticks * TICK  # type: ignore[no-any-return]


def _tick_of_date(at: datetime) -> int:
    return (at - BEGIN) // TICK


WHOLE = Times("whole numbers", pa.int64(), _same, _same, _same)
FLOATS = Times("floats", pa.float64(), _float, _float, _tick_of_float)
DATES = Times("dates", pa.timestamp("us"), _date, _duration, _tick_of_date)
KINDS = (WHOLE, WHOLE, FLOATS, DATES)


def times_of(seed: int) -> Times:
    """Those of the run of a seed."""
    return random.Random(f"times {seed}").choice(KINDS)


__all__ = ["DATES", "FLOATS", "WHOLE", "Times", "times_of"]
