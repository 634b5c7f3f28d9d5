"""Dates, timestamps and intervals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rayad.progress import DataflowError

Value = Any
"""An array or a scalar."""
_NANOS_OF_DAY = 86_400_000_000_000
_PER_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}


def plus(one: Value, other: Value) -> Value:
    """A moment and an interval or a duration, in any order; or two of those."""
    if pa.types.is_interval(other.type):
        return _moved(one, other, 1)
    if pa.types.is_interval(one.type):
        return _moved(other, one, 1)
    if pa.types.is_date(one.type) and pa.types.is_integer(other.type):
        return _days(one, other, 1)
    return pc.add_checked(one, other)


def minus(one: Value, other: Value) -> Value:
    """A moment without an interval or a duration; or what is between two moments."""
    if pa.types.is_interval(other.type):
        return _moved(one, other, -1)
    if pa.types.is_date32(one.type) and pa.types.is_date32(other.type):
        return pc.subtract(pc.cast(pc.cast(one, pa.int32()), pa.int64()), pc.cast(pc.cast(other, pa.int32()), pa.int64()))
    if pa.types.is_date(one.type) and pa.types.is_integer(other.type):
        return _days(one, other, -1)
    return pc.subtract_checked(one, other)


def _days(date: Value, days: Value, sign: int) -> Value:
    moved = (pc.add_checked if sign > 0 else pc.subtract_checked)(pc.cast(date, pa.int32()), pc.cast(days, pa.int32()))
    return pc.cast(moved, pa.date32())


def _moved(moment: Value, interval: Value, sign: int) -> Value:
    if not isinstance(interval, pa.Scalar):
        raise DataflowError("SQL: an interval that differs from row to row is not supported: give a constant, such as INTERVAL '1 day'")
    given = interval.as_py()
    if given is None:
        return pa.scalar(None, moment.type) if isinstance(moment, pa.Scalar) else pa.nulls(len(moment), moment.type)
    months, days, nanos = (sign * part for part in given)
    kind = moment.type
    if pa.types.is_interval(kind):
        return pa.scalar(pa.MonthDayNano([a + b for a, b in zip(moment.as_py(), (months, days, nanos), strict=True)]), kind)
    if isinstance(moment, pa.Scalar):
        return _moved(pa.array([moment.as_py()], kind), interval, sign)[0]
    if months:
        moment = _months(moment, months)
    if pa.types.is_date32(kind):
        return pc.cast(pc.add(pc.cast(moment, pa.int32()), pa.scalar(days + int(nanos / _NANOS_OF_DAY), pa.int32())), kind)
    ticks = _PER_SECOND[kind.unit]
    step = days * 86_400 * ticks + nanos * ticks // 1_000_000_000
    return pc.cast(pc.add_checked(pc.cast(moment, pa.int64()), pa.scalar(step, pa.int64())), kind)


def _months(moment: pa.Array, months: int) -> pa.Array:
    """So many months later, on the same day of the month or its last one."""
    kind = moment.type
    filled = pc.fill_null(pc.cast(moment, pa.timestamp("us")) if pa.types.is_date(kind) else moment, 0)
    unit = "us" if pa.types.is_date(kind) else kind.unit
    ticks = filled.cast(pa.int64()).to_numpy(zero_copy_only=False).astype(f"datetime64[{unit}]")
    days = ticks.astype("datetime64[D]")
    month = days.astype("datetime64[M]")
    in_month, in_day = days - month, ticks - days
    target = month + months
    last = (target + 1).astype("datetime64[D]") - target.astype("datetime64[D]") - np.timedelta64(1, "D")
    made = target.astype("datetime64[D]") + np.minimum(in_month, last) + in_day
    moved = pa.array(made.astype(np.int64), mask=moment.is_null().to_numpy(zero_copy_only=False))
    if pa.types.is_date(kind):
        return pc.cast(pc.cast(moved, pa.timestamp("us")), kind)
    return pc.cast(moved, kind)


_UNITS = {name: name for name in ("year", "quarter", "month", "week", "day", "hour", "minute", "second", "millisecond", "microsecond")}


def truncated(unit: Value, moment: Value) -> Value:
    """``date_trunc``: where the hour, day, ... of a moment begins. A week begins on Monday."""
    name = str(unit.as_py()).lower()
    if name not in _UNITS:
        raise DataflowError(f"SQL: date_trunc has no unit {name!r}: use one of {', '.join(_UNITS)}")
    if pa.types.is_date(moment.type):
        moment = pc.cast(moment, pa.timestamp("ns"))
    return pc.cast(pc.floor_temporal(moment, unit=name, week_starts_monday=True), moment.type)


def binned(stride: Value, moment: Value, origin: Value | None = None) -> Value:
    """``date_bin``: where the stretch of so long that holds a moment begins, counted from ``origin`` or the start of 1970."""
    if not isinstance(stride, pa.Scalar) or (origin is not None and not isinstance(origin, pa.Scalar)):
        raise DataflowError("SQL: date_bin takes a constant width and origin")
    if pa.types.is_date(moment.type):
        moment = pc.cast(moment, pa.timestamp("ns"))
    if isinstance(moment, pa.Scalar):
        return binned(stride, pa.array([moment.as_py()], moment.type), origin)[0]
    kind = moment.type
    ticks = _PER_SECOND[kind.unit]
    if pa.types.is_duration(stride.type):
        width = pc.cast(stride, pa.duration("ns")).cast(pa.int64()).as_py() * ticks // 1_000_000_000
    else:
        months, days, nanos = stride.as_py()
        if months:
            raise DataflowError("SQL: date_bin by months is not supported: use date_trunc('month', ...)")
        width = (days * _NANOS_OF_DAY + nanos) * ticks // 1_000_000_000
    if width <= 0:
        raise DataflowError("SQL: the width of date_bin must be at least one tick of the column, and more than 0")
    start = 0 if origin is None else pc.cast(pc.cast(origin, kind, safe=False), pa.int64()).as_py()
    at = pc.fill_null(pc.cast(moment, pa.int64()), 0).to_numpy(zero_copy_only=False)
    found = (at - start) // width * width + start
    return pc.cast(pa.array(found, mask=moment.is_null().to_numpy(zero_copy_only=False)), kind)


def _epoch(moment: Value) -> Value:
    if pa.types.is_date(moment.type):
        moment = pc.cast(moment, pa.timestamp("us"))
    if pa.types.is_duration(moment.type) or pa.types.is_timestamp(moment.type):
        return pc.divide(pc.cast(pc.cast(moment, pa.int64()), pa.float64()), float(_PER_SECOND[moment.type.unit]))
    raise DataflowError(f"SQL: there is no epoch of {moment.type}")


def _thousands(moment: Value, factor: int, *parts: Any) -> Value:
    total = pc.multiply(pc.second(moment), factor)
    for part, each in parts:
        total = pc.add(total, pc.multiply(part(moment), each))
    return total


PARTS: dict[str, Any] = {
    "year": pc.year,
    "isoyear": pc.iso_year,
    "quarter": pc.quarter,
    "month": pc.month,
    "week": pc.iso_week,
    "day": pc.day,
    "doy": pc.day_of_year,
    "dow": lambda moment: pc.day_of_week(moment, count_from_zero=True, week_start=7),
    "isodow": lambda moment: pc.day_of_week(moment, count_from_zero=False, week_start=1),
    "hour": pc.hour,
    "minute": pc.minute,
    "second": pc.second,
    "millisecond": lambda moment: _thousands(moment, 1_000, (pc.millisecond, 1)),
    "microsecond": lambda moment: _thousands(moment, 1_000_000, (pc.millisecond, 1_000), (pc.microsecond, 1)),
    "epoch": _epoch,
}


def part_of(part: Value, moment: Value) -> Value:
    """``date_part``, and EXTRACT."""
    name = str(part.as_py()).lower()
    name = {"milliseconds": "millisecond", "microseconds": "microsecond", "years": "year", "days": "day", "seconds": "second"}.get(
        name, name
    )
    if name not in PARTS:
        raise DataflowError(f"SQL: date_part has no part {name!r}: use one of {', '.join(PARTS)}")
    if pa.types.is_date(moment.type) and name in ("hour", "minute", "second", "millisecond", "microsecond"):
        moment = pc.cast(moment, pa.timestamp("us"))
    return PARTS[name](moment)


__all__ = ["binned", "minus", "part_of", "plus", "truncated"]
