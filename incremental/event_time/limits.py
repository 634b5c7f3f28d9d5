"""What is over by event time, in columns: ends of rows, and limits, as numbers that are compared at once.

Numbers are ticks (``pane_ticks``) where they are whole, as they are for moments, dates and integers, else floats. A limit becomes the
first number that is not over, so that a comparison with it says what rows say, whatever the limit is between two ticks.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa

from rayad.dataflow.operators.state.runs.order import Places, groups_of_places
from rayad.dataflow.operators.windows.pane_ticks import length_ticks, ticks_of
from rayad.dataflow.records.event_times import DAY_TICKS, Lengths, nanoseconds
from rayad.dataflow.records.values import is_tuple, is_window
from rayad.dataflow.windows import AsOf, Between
from rayad.incremental.columns.form import KEY, NotColumns, field_of

_EXACTLY = AsOf(None, True)
"""Ticks of moments are not rounded for it."""
_INT64 = np.iinfo(np.int64)


class Numbers(NamedTuple):
    """Moments as numbers.

    Args:
        at: shape (rows,), int64 or float64.
        kind: which: of ticks the type of their moments, else float64.
    """

    at: Any
    kind: pa.DataType


Ends: TypeAlias = Callable[[pa.RecordBatch], Numbers]
"""When rows of a key, or of a key and a record, are over. Raises NotColumns where rows must say."""


def numbers_of(times: pa.Array) -> Numbers:
    """Moments of which none is null. Raises NotColumns for types that columns do not compare."""
    if pa.types.is_floating(times.type) and not times.null_count:
        return Numbers(times.to_numpy(zero_copy_only=False).astype(np.float64, copy=False), pa.float64())
    found = ticks_of(times, _EXACTLY)
    if found is None:
        raise NotColumns
    return Numbers(*found)


def in_order_of(at: Any, kind: pa.DataType) -> Any:
    """Moments as integers that have their order. :func:`floats_of` gives floats again.

    >>> in_order_of(np.array([-1.5, -0.5, 0.0, 2.5]), pa.float64()).argsort().tolist()
    [0, 1, 2, 3]
    """
    return _turned(at.view(np.int64)) if kind == pa.float64() else at


def floats_of(at: Any) -> Any:
    """See :func:`in_order_of`."""
    return _turned(at).view(np.float64)


def _turned(bits: Any) -> Any:
    """What is below nothing the other way round, but for its sign."""
    return bits ^ ((bits >> 63) & np.int64(_INT64.max))


def first_not_over(limit: Any, kind: pa.DataType, *, at_end: bool) -> int | float:
    """The first number at which something is not over; ``at_end``: what ends at the limit is. Raises NotColumns where the limit is no
    moment of that kind.

    >>> [first_not_over(limit, pa.int64(), at_end=at_end) for limit in (3, 3.5) for at_end in (False, True)]
    [3, 4, 4, 4]
    """
    if limit is None:
        return -math.inf if kind == pa.float64() else int(_INT64.min)
    if not isinstance(limit, _moments_of(kind)) or (pa.types.is_date(kind) and isinstance(limit, dt.datetime)):
        raise NotColumns
    exact: Any = limit
    if kind == pa.float64():
        number = float(exact)
        return math.nextafter(number, math.inf) if (number <= exact if at_end else number < exact) else number
    if pa.types.is_timestamp(kind) or pa.types.is_duration(kind):
        exact = Fraction(nanoseconds(limit), 1 if kind.unit == "ns" else 1_000)
    elif pa.types.is_date(kind):
        exact = Fraction(nanoseconds(limit), 1_000 * DAY_TICKS)
    first: int = math.floor(exact) + 1 if at_end else math.ceil(exact)
    return min(max(first, int(_INT64.min)), int(_INT64.max))


def _moments_of(kind: pa.DataType) -> tuple[type, ...]:
    """Of what type a limit of these moments is."""
    if pa.types.is_timestamp(kind):
        return (dt.datetime,)
    if pa.types.is_date(kind):
        return (dt.date,)
    return (dt.timedelta,) if pa.types.is_duration(kind) else (int, float, Decimal, Fraction)


class Limits:
    """Event time less the lateness, as key-groups were told it.

    Args:
        told: by the key that stands for a group; None: nothing is late.
        keys: those, of all groups.
    """

    def __init__(self, told: Mapping[int, Any], keys: Sequence[int]) -> None:
        self._told = told
        self._keys = keys

    @property
    def is_any(self) -> bool:
        """Whether anything can be late."""
        return bool(self._told)

    def first_not_over(self, kind: pa.DataType, *, at_end: bool = False) -> Any:
        """See above: one number where all groups have the same, shape (), else that of each, shape (key_groups,). Of a group that has not
        been told nothing is over, also where all others have the same limit: some may have come from a replica that was told before."""
        found = {limit: first_not_over(limit, kind, at_end=at_end) for limit in set(self._told.values())}
        nothing = first_not_over(None, kind, at_end=at_end)
        if not found or (len(found) == 1 and len(self._told) == len(self._keys)):
            return np.array(next(iter(found.values()), nothing))
        return np.array([found[self._told[key]] if key in self._told else nothing for key in self._keys])


def of_places(by_group: Any, places: Places, key_groups: int) -> Any:
    """What :meth:`Limits.first_not_over` gave, for keys at these places."""
    return by_group[groups_of_places(places, key_groups)] if by_group.ndim else by_group


# -- ends --------------------------------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class TimeOf:
    """The event time itself, a field of records."""

    field: str

    def __call__(self, rows: pa.RecordBatch) -> Numbers:
        return numbers_of(field_of(rows.column(1), self.field))


def window_ends(rows: pa.RecordBatch) -> Numbers:
    """The end of the window of ``(key, window)``."""
    key = rows.column(KEY)
    if not is_tuple(key.type) or key.type.num_fields != 2 or not is_window(key.type.field(1).type):
        raise NotColumns
    return numbers_of(key.field(1).field(1))


@dataclass(frozen=True, slots=True)
class LastMeeting:
    """The last event time of what a record may meet, or its own.

    Args:
        field: with its own.
        within: how far from it the other one's may be.
        is_left: whether it is of the left side.
    """

    field: str
    within: Between
    is_left: bool

    def __call__(self, rows: pa.RecordBatch) -> Numbers:
        return self.of(rows.column(1))

    def of(self, record: pa.Array) -> Numbers:
        """See above."""
        at, kind = numbers_of(field_of(record, self.field))
        scale = self.within.scale
        exact = scale.kind in (Lengths.WHOLE, Lengths.SPAN) and kind != pa.float64()
        beyond = length_ticks(scale.ticks(self.within.upper if self.is_left else self.within.lower), scale, kind) if exact else None
        if beyond is None:
            raise NotColumns
        return Numbers(at + max(0, beyond if self.is_left else -beyond), kind)


@dataclass(frozen=True, slots=True)
class EndOfKey:
    """The same where the key is ``((key, record),)``."""

    end: LastMeeting

    def __call__(self, rows: pa.RecordBatch) -> Numbers:
        return self.end.of(rows.column(KEY).field(0).field(1))


__all__ = [
    "EndOfKey", "Ends", "LastMeeting", "Limits", "Numbers", "TimeOf", "first_not_over", "floats_of", "in_order_of", "numbers_of",
    "of_places", "window_ends",
]  # fmt: skip
