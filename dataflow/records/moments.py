"""Datetimes as the moments that they are, where they are compared: as keys, as places in an order, as values that differ or not.

Python compares two datetimes of one zone by what a clock on the wall shows (PEP 495): an hour that comes twice is one hour to ``==``, and a
dict has one key for both; ``<`` puts the second 2:30 before the first 2:45. Two of different zones are compared as moments, but in such an
hour, or one that the clock leaves out, ``==`` of them is always false. Columns know moments only. So what is compared goes through
:func:`moment` first. It changes nothing but datetimes in such an hour: these get a zone of the same name whose offset does not depend on
``fold``. Then Python's own ``==``, ``<`` and ``hash`` are those of moments, in any mixture of zones.

Rejected: UTC, or a fixed offset in place of the zone. A key would change its type of column for two hours in a year. Python's equality, in
columns too: two hours of sales would be one, in silence.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
from collections.abc import Sequence
from decimal import Decimal
from functools import cache
from itertools import chain
from operator import attrgetter, is_
from typing import Any, ClassVar
from zoneinfo import ZoneInfo

import pyarrow as pa

PLAIN = frozenset({int, float, str, bytes, bool, type(None), Decimal, dt.date, dt.time, dt.timedelta})
"""Classes of which every value is compared as what it is; there are others."""


class _OfOneFold(ZoneInfo):
    """A zone whose hours that come twice are all the first, or all the second."""

    fold: ClassVar[int]

    def utcoffset(self, when: dt.datetime | None) -> dt.timedelta | None:
        return super().utcoffset(None if when is None else when.replace(fold=self.fold))

    def dst(self, when: dt.datetime | None) -> dt.timedelta | None:
        return super().dst(None if when is None else when.replace(fold=self.fold))

    def tzname(self, when: dt.datetime | None) -> str | None:
        return super().tzname(None if when is None else when.replace(fold=self.fold))


class FirstHours(_OfOneFold):
    """A zone with the first of each two hours."""

    fold = 0


class SecondHours(_OfOneFold):
    """A zone with the second of each two hours."""

    fold = 1


@cache
def _zone(name: str, fold: int) -> ZoneInfo:
    return (SecondHours if fold else FirstHours)(name)


def moment(value: Any) -> Any:
    """A value in the form in which Python compares it as the moment that it is: a datetime in an hour that its zone has twice or leaves out
    with a zone of one of the two hours, also in tuples, frozensets and frozen dataclasses; all else as it is.

    >>> first = dt.datetime(2023, 10, 29, 2, 30, tzinfo=ZoneInfo("Europe/Berlin"))
    >>> second = first.replace(fold=1)
    >>> first == second, moment(first) == moment(second), moment(second) == dt.datetime(2023, 10, 29, 1, 30, tzinfo=dt.UTC)
    (True, False, True)
    """
    kind = value.__class__
    if kind in PLAIN:
        return value
    if isinstance(value, dt.datetime):
        return _moment_of(value)
    if isinstance(value, tuple):
        parts = [moment(part) for part in value]
        if all(map(is_, parts, value)):
            return value
        return kind(*parts) if hasattr(kind, "_fields") else kind(parts)  # of a named tuple its fields
    if isinstance(value, frozenset):
        members = [moment(part) for part in value]
        return value if all(map(is_, members, value)) else kind(members)
    if dataclasses.is_dataclass(value) and not isinstance(value, type) and kind.__dataclass_params__.frozen:
        fields = {field.name: getattr(value, field.name) for field in dataclasses.fields(value) if field.init}
        changed = {name: at for name, part in fields.items() if (at := moment(part)) is not part}
        return dataclasses.replace(value, **changed) if changed else value
    return value


def _moment_of(time: dt.datetime) -> dt.datetime:
    zone = time.tzinfo
    if zone is None or isinstance(zone, (dt.timezone, _OfOneFold)):
        return time
    name = getattr(zone, "key", None) or getattr(zone, "zone", None)  # of zoneinfo, of pytz
    offset = time.utcoffset()
    if hasattr(time, "tz_convert"):  # pandas compares moments itself, but hashes the second of two hours as the first
        return time.tz_convert(_zone(name, 1) if name else dt.timezone(offset)) if time.fold else time  # type: ignore[arg-type]
    if offset is None or time.replace(fold=1 - time.fold).utcoffset() == offset:
        return time
    return time.replace(tzinfo=_zone(name, time.fold)) if name else time.replace(tzinfo=dt.timezone(offset), fold=0)


def moments(values: list[Any]) -> list[Any]:
    """:func:`moment` of each; the list itself where none of its values can change, which takes a loop in C."""
    kinds = set(map(type, values))
    if kinds <= PLAIN or (kinds == {tuple} and PLAIN.issuperset(map(type, chain.from_iterable(values)))):
        return values
    if kinds == {dt.datetime} and all(zone is None or isinstance(zone, dt.timezone) for zone in set(map(attrgetter("tzinfo"), values))):
        return values
    return list(map(moment, values))


def moments_of(column: pa.Array) -> list[Any]:
    """The values of a column, as :func:`moment` has them.

    >>> moments_of(pa.array([1, None]))
    [1, None]
    """
    values: list[Any] = column.to_pylist()
    return moments(values) if _has_zone(column.type) else values


def keys_in(columns: Sequence[pa.Array]) -> list[Any]:
    """The key of each row: a value of one column, or a tuple of several columns' values.

    >>> keys_in([pa.array([1, 2]), pa.array(["a", "b"])])
    [(1, 'a'), (2, 'b')]
    """
    lists = [moments_of(column) for column in columns]
    return lists[0] if len(lists) == 1 else list(zip(*lists, strict=True))


def _has_zone(kind: pa.DataType) -> bool:
    if pa.types.is_timestamp(kind):
        return kind.tz is not None
    if pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind):
        return _has_zone(kind.value_type)
    return bool(pa.types.is_nested(kind))


__all__ = ["PLAIN", "FirstHours", "SecondHours", "keys_in", "moment", "moments", "moments_of"]
