"""Event times and the lengths of windows, exactly (docs/decisions/026-windows-are-exact.md).

An event time is a number (int, float, Decimal, Fraction), a date, a datetime, or a timedelta. A length is a number or a timedelta. Lengths
are read exactly, a float as the shortest decimal that stands for it: 0.1 is one tenth. All lengths of some windows are whole numbers of
*ticks*: 1 / ``per_unit``, or a microsecond. So the bounds of windows are whole numbers of ticks, too, whatever the event times are, and
:meth:`Scale.bound` makes values of them: floats, rounded once, where a length is a float.

Rejected: arithmetic in floats, which puts 0.7999 into two windows and 0.3 into none; and reading event times as decimals as well, which
gives windows for whose shown bounds ``start <= time < end`` is false.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from typing import Any

import numpy as np

from rayad.progress import DataflowError, show

MICROSECOND = dt.timedelta(microseconds=1)
DAY_TICKS = 86_400_000_000
TICKS_MAX = 1 << 61
"""Event times in columns are nearer to 0 than this, so that sums and differences of a few do not overflow."""
EPOCH = dt.datetime(1970, 1, 1)
EPOCH_UTC = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
EPOCH_DATE = dt.date(1970, 1, 1)
EXACT_FLOATS_MAX = 1 << 53
"""Up to here floats hold every integer."""


class Lengths(Enum):
    """The kind of the lengths of some windows; the bounds of numeric windows are of this kind."""

    WHOLE = "int"
    FLOAT = "float"
    DECIMAL = "Decimal"
    FRACTION = "Fraction"
    SPAN = "timedelta"


_KINDS: dict[type, Lengths] = {
    int: Lengths.WHOLE,
    float: Lengths.FLOAT,
    Decimal: Lengths.DECIMAL,
    Fraction: Lengths.FRACTION,
    dt.timedelta: Lengths.SPAN,
}
_GOES_WITH: dict[Lengths, tuple[type, ...]] = {
    Lengths.WHOLE: (int, float, Decimal, Fraction),
    Lengths.FLOAT: (int, float),
    Lengths.DECIMAL: (int, Decimal),
    Lengths.FRACTION: (int, Fraction),
    Lengths.SPAN: (dt.datetime, dt.date, dt.timedelta),
}
_WANTED = {
    Lengths.WHOLE: "numbers",
    Lengths.FLOAT: "ints and floats; over Decimals or Fractions give lengths of their kind",
    Lengths.DECIMAL: "ints and Decimals; over floats give floats",
    Lengths.FRACTION: "ints and Fractions; over floats give floats",
    Lengths.SPAN: "dates, datetimes and timedeltas; over numbers give numbers",
}


# -- lengths ---------------------------------------------------------------------------------------


def plain_length(value: Any) -> Any | None:
    """A length as int, float, Decimal, Fraction or timedelta; None for anything else, also what is not finite or not whole microseconds.

    >>> plain_length(np.int64(10)), plain_length(np.timedelta64(2, "h")), plain_length(True), plain_length(float("nan"))
    (10, datetime.timedelta(seconds=7200), None, None)
    """
    if isinstance(value, np.timedelta64):
        whole = value.astype("timedelta64[us]")
        return whole.item() if whole == value else None  # NaT equals nothing
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, dt.timedelta):
        if getattr(value, "nanoseconds", 0) or value != value:  # of pandas
            return None
        return dt.timedelta(value.days, value.seconds, value.microseconds)
    if isinstance(value, bool) or not isinstance(value, (int, float, Decimal, Fraction)):
        return None
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, Decimal):
        return value if value.is_finite() else None
    return int(value) if isinstance(value, int) else value


def exact(number: Any) -> Fraction:
    """A finite number as a fraction, a float as the shortest decimal that stands for it.

    >>> exact(0.1)
    Fraction(1, 10)
    """
    return Fraction(repr(number)) if isinstance(number, float) else Fraction(number)


def kind_of_lengths(lengths: Iterable[Any]) -> Lengths:
    """The one kind of lengths that :func:`plain_length` gave. Raises DataflowError where there is none."""
    lengths = list(lengths)
    kinds = {_KINDS[type(length)] for length in lengths}
    if len(kinds) > 1:
        kinds.discard(Lengths.WHOLE)
    if len(kinds) > 1 or (Lengths.SPAN in kinds and any(type(length) is int for length in lengths)):
        raise DataflowError(
            f"the lengths {', '.join(map(repr, lengths))} of windows do not go together: give sizes, slides, offsets and max_delay as "
            "numbers of one kind (ints go with all), or all as timedeltas"
        )
    return kinds.pop()


def length_from_zero(value: Any, what: str) -> Any:
    """A length of at least 0, of the kinds of :func:`plain_length`; None stays None. Raises DataflowError for others."""
    length = plain_length(value)
    if value is not None and (length is None or length < (dt.timedelta(0) if isinstance(length, dt.timedelta) else 0)):
        raise DataflowError(f"{what} is {show(value, 60)}: it must be a number or timedelta of at least 0, in the unit of the event times")
    return length


def _as_decimal(value: Fraction) -> Decimal:
    """The value of a fraction whose denominator has no prime factors but 2 and 5; raises OverflowError for another."""
    digits = max(value.denominator.bit_length(), 1)  # enough: 2 ** -n has n digits
    scaled, rest = divmod(value.numerator * 10**digits, value.denominator)
    if rest:
        raise OverflowError(f"{value} is no decimal")
    while digits and scaled % 10 == 0:
        scaled, digits = scaled // 10, digits - 1
    return Decimal(f"{scaled}E-{digits}") if digits else Decimal(scaled)


def shifted(time: Any, length: Any, sign: int) -> Any:
    """An event time plus or minus a length, exactly; where the time is a float, and where an int meets a float, rounded once.

    >>> shifted(0.3, 0.1, -1), shifted(Decimal("1.5"), 1, 1), shifted(dt.date(2024, 1, 2), dt.timedelta(hours=1), -1)
    (0.2, Decimal('2.5'), datetime.date(2024, 1, 1))

    Raises OverflowError where there is no such moment, DataflowError where the two do not go together.
    """
    if isinstance(length, dt.timedelta) != isinstance(time, (dt.date, dt.timedelta)):
        raise _mismatch(time, length, Lengths.SPAN if isinstance(length, dt.timedelta) else Lengths.WHOLE)
    if isinstance(time, dt.date) and not isinstance(time, dt.datetime):
        days = (time - EPOCH_DATE) + sign * length
        return EPOCH_DATE + dt.timedelta(days // dt.timedelta(days=1))
    if isinstance(length, dt.timedelta):
        return time + sign * length
    if isinstance(time, int) and isinstance(length, int):
        return time + sign * length
    value = exact(time) + sign * exact(length)
    if isinstance(time, float):
        return float(value)
    if isinstance(time, Decimal) or (isinstance(time, int) and isinstance(length, Decimal)):
        return _as_decimal(value)
    if isinstance(time, Fraction) or isinstance(length, Fraction):
        return value
    if value.denominator == 1:
        return int(value)
    return float(value) if abs(value) < EXACT_FLOATS_MAX else math.floor(value)


def watermark_of(largest: Any, max_delay: Any) -> Any:
    """The largest event time less the allowed delay; None where that is before all moments."""
    if max_delay is None:
        return largest
    try:
        return shifted(largest, max_delay, -1)
    except (OverflowError, ValueError):
        if isinstance(largest, Decimal):
            raise _mismatch(largest, max_delay, Lengths.FRACTION) from None
        return None


def watermark_less(watermark: Any, lateness: Any) -> Any:
    """The watermark up to which windows are over when they are kept for ``lateness`` (None: not kept); None: none is.

    >>> watermark_less(10, 3), watermark_less(10, None), watermark_less(None, 3)
    (7, 10, None)
    """
    return None if watermark is None else watermark_of(watermark, lateness)


def _mismatch(time: Any, length: Any, kind: Lengths) -> DataflowError:
    return DataflowError(
        f"the event time {show(time, 60)} ({type(time).__name__}) does not go with a length of {show(length, 60)}: such lengths are for "
        f"event times that are {_WANTED[kind]}"
    )


# -- event times -----------------------------------------------------------------------------------


def event_time(time: Any, record: Any) -> Any:
    """A checked event time: scalars of numpy and pandas as Python's own, datetimes with a time zone in UTC, since windows are stretches
    of real time, also where clocks change. Nanoseconds stay, as the datetimes of pandas.

    Raises DataflowError for what is no moment: null, NaN, infinity, a text, a time of day.
    """
    if isinstance(time, np.generic):
        time = _of_numpy(time)
    try:
        missing = time is None or bool(time != time)
    except Exception:  # a signalling NaN; an array
        missing = False
    if missing:
        raise DataflowError(f"the event time of {show(record)} is {show(time)}: every record needs one; filter such records out first")
    if isinstance(time, dt.datetime):
        if time.tzinfo is None:
            return time
        try:
            return time.astimezone(dt.UTC)
        except (OverflowError, ValueError) as error:
            raise DataflowError(f"the event time of {show(record)} is {show(time)}, which has no moment in UTC: {error}") from error
    if isinstance(time, (int, dt.date, dt.timedelta, Fraction)) and not isinstance(time, bool):
        return time
    if isinstance(time, (float, Decimal)):
        if time.is_finite() if isinstance(time, Decimal) else math.isfinite(time):
            return time
        raise DataflowError(f"the event time of {show(record)} is {show(time)}: that is in no window; filter such records out first")
    why = "a time of day is no moment: put it together with its date" if isinstance(time, dt.time) else "convert it first"
    raise DataflowError(
        f"the event time of {show(record)} is {show(time, 60)} ({type(time).__name__}): it must be a number, a date, a datetime or a "
        f"timedelta; {why}"
    )


def _of_numpy(value: np.generic) -> Any:
    if not isinstance(value, (np.datetime64, np.timedelta64)):
        return value.item()
    unit = np.datetime_data(value.dtype)[0]
    if np.isnat(value):
        return None
    if unit in ("ns", "ps", "fs", "as", "generic"):
        import pandas as pd  # what Arrow makes of nanoseconds, too

        return pd.Timestamp(value) if isinstance(value, np.datetime64) else pd.Timedelta(value)
    if isinstance(value, np.datetime64) and unit in ("Y", "M", "W", "D"):
        return value.astype("datetime64[D]").item()
    return value.astype(f"{'datetime64' if isinstance(value, np.datetime64) else 'timedelta64'}[us]").item()


def later(left: Any, right: Any) -> Any:
    """The larger of two moments; None is before all. Raises DataflowError for two that do not compare."""
    if left is None or right is None:
        return right if left is None else left
    return max(compared(left, right))


def compared(*moments: Any) -> list[Any]:
    """These moments in order. Raises DataflowError where they do not compare."""
    try:
        return sorted(moments)
    except TypeError as error:
        raise DataflowError(
            f"the event times {', '.join(f'{show(m, 60)}' for m in moments)} do not compare: {error}; bring event times "
            "that meet to one kind"
        ) from error


# -- ticks -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Scale:
    """The ticks in which some windows are measured.

    Args:
        kind: of their lengths.
        per_unit: ticks in 1; of timedeltas in a microsecond: 1.
        whole_days: whether all lengths are days, as windows over dates need.
    """

    kind: Lengths
    per_unit: int = 1
    whole_days: bool = True

    @staticmethod
    def of(lengths: Iterable[Any]) -> Scale:
        """One in which all these lengths are whole numbers of ticks."""
        lengths = list(lengths)
        kind = kind_of_lengths(lengths)
        if kind is Lengths.SPAN:
            return Scale(kind, 1, not any(length % dt.timedelta(days=1) for length in lengths))
        per_unit = math.lcm(*(exact(length).denominator for length in lengths))
        if kind is Lengths.DECIMAL:  # a power of ten: each bound has as many digits as it needs
            digits = 0
            while 10**digits % per_unit:
                digits += 1
            per_unit = 10**digits
        return Scale(kind, per_unit)

    def ticks(self, length: Any) -> int:
        """A length in ticks."""
        return int(length // MICROSECOND if self.kind is Lengths.SPAN else exact(length) * self.per_unit)

    def admit(self, time: Any) -> None:
        """Raise DataflowError unless windows of this kind go with an event time."""
        if not isinstance(time, _GOES_WITH[self.kind]):
            raise DataflowError(
                f"the event time {show(time, 60)} ({type(time).__name__}) does not go with windows whose lengths are "
                f"{self.kind.value}s: such "
                f"windows are for event times that are {_WANTED[self.kind]}"
            )
        if not self.whole_days and isinstance(time, dt.date) and not isinstance(time, dt.datetime):
            raise DataflowError(
                f"the event time {show(time)} is a date, and the windows are not of whole days: give whole days, or make "
                "datetimes of the dates"
            )

    def reached(self, time: Any) -> int:
        """The last tick whose bound is at or before a moment: ``bound(n) <= time < bound(n + 1)``.

        >>> scale = Scale.of([0.1])
        >>> scale.reached(0.3), scale.reached(0.1 * 3), scale.reached(0.29999999999999993)
        (3, 3, 2)
        """
        if self.kind is Lengths.SPAN:
            return _microseconds(time)
        if self.per_unit == 1 and self.kind is Lengths.WHOLE:
            return math.floor(time)  # type: ignore[no-any-return]
        if self.kind is not Lengths.FLOAT:
            return math.floor(Fraction(time) * self.per_unit)
        if isinstance(time, int) and abs(time) > EXACT_FLOATS_MAX:
            raise DataflowError(
                f"the event time {show(time)} is beyond what floats tell apart, and lengths of its windows are floats: give "
                "ints or Decimals"
            )
        numerator, denominator = time.as_integer_ratio()
        tick = numerator * self.per_unit // denominator
        if (tick + 1) / self.per_unit <= time:  # rounds down to it
            half = (Fraction(time) + Fraction(math.nextafter(time, math.inf))) / 2
            tick = math.floor(half * self.per_unit)
            tick -= tick / self.per_unit > time
        return int(tick)

    def bound(self, tick: int, like: Any) -> Any:
        """The bound of a window at a tick; of timedeltas in the kind of the event time ``like``. Raises OverflowError where there is none.

        >>> Scale.of([0.1, 1]).bound(3, None), Scale.of([Decimal("0.25")]).bound(75, None)
        (0.3, Decimal('0.75'))
        """
        if self.kind is Lengths.WHOLE:
            return tick
        if self.kind is Lengths.FLOAT:
            return tick / self.per_unit  # of two ints: rounded once
        if self.kind is Lengths.DECIMAL:
            return _as_decimal(Fraction(tick, self.per_unit))
        if self.kind is Lengths.FRACTION:
            return Fraction(tick, self.per_unit)
        length = dt.timedelta(microseconds=tick)
        if isinstance(like, dt.datetime):
            return (EPOCH if like.tzinfo is None else EPOCH_UTC) + length
        return EPOCH_DATE + length if isinstance(like, dt.date) else length


def _microseconds(time: Any) -> int:
    """Since 1970-01-01, or of a timedelta; nanoseconds are rounded down."""
    if isinstance(time, dt.datetime):
        if hasattr(time, "nanosecond"):  # of pandas, whose own differences have a smaller range
            time = time.to_pydatetime(warn=False)  # type: ignore[attr-defined]
        return int((time - (EPOCH if time.tzinfo is None else EPOCH_UTC)) // MICROSECOND)
    if isinstance(time, dt.date):
        return (time - EPOCH_DATE).days * DAY_TICKS
    return int(time // MICROSECOND)


def nanoseconds(time: Any) -> int:
    """Since 1970-01-01, or of a timedelta, exactly."""
    if isinstance(time, dt.timedelta):
        return _microseconds(dt.timedelta(time.days, time.seconds, time.microseconds)) * 1_000 + int(getattr(time, "nanoseconds", 0))
    return _microseconds(time) * 1_000 + int(getattr(time, "nanosecond", 0))


def exact_moment(time: Any) -> int | Fraction:
    """An event time or a length as a number of which differences are exact: moments and timedeltas in nanoseconds, a float as the
    shortest decimal that stands for it.

    >>> exact_moment(0.3) - exact_moment(0.1) == exact_moment(0.2), exact_moment(dt.timedelta(microseconds=2))
    (True, 2000)
    """
    if isinstance(time, (dt.date, dt.timedelta)):
        return nanoseconds(time)
    return time if isinstance(time, int) else exact(time)


def offset_ticks(offset: Any, scale: Scale) -> int:
    """The distance from 0, or 1970-01-01, to the begin of some window."""
    if offset is None:
        return 0
    return _microseconds(offset) if isinstance(offset, dt.date) else scale.ticks(offset)
