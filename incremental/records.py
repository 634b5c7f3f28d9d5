"""Records of collections are values: they are compared, hashed, and not changed in place."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from fractions import Fraction
from typing import Any

from rayad.dataflow.records.values import Row
from rayad.progress import DataflowError, Timestamp, show


def as_record(record: Any) -> Any:
    """A record as a value. Raises DataflowError where it has no hash, or NaN in it: no removal would find what was inserted.

    >>> as_record(("a", {"n": 1}))
    ('a', {'n': 1})
    """
    return record if _is_value(record) else _made_value(record)


_PLAIN = frozenset({int, str, bool, bytes, type(None), dt.date, dt.datetime, dt.time, dt.timedelta})


def _is_value(record: Any) -> bool:
    """Whether it can be seen at once that it is one."""
    kind = type(record)
    if kind is tuple:
        return all(map(_is_value, [part for part in record if type(part) not in _PLAIN]))
    if kind is Row:
        try:
            return bool(record.is_value)
        except AttributeError:
            record.is_value = all(map(_is_value, [part for part in record.values() if type(part) not in _PLAIN]))
            return bool(record.is_value)
    return kind in _PLAIN or (kind is float and record == record)


def _made_value(record: Any) -> Any:
    if type(record) is dict:
        record = _with_rows(record)
    else:
        try:
            hash(record)
        except TypeError:
            record = _with_rows(record)
    if not _is_value(record) and _has_nan(record):
        raise DataflowError(
            f"{show(record, 80)} cannot be a record of a collection: NaN equals nothing, so that its removal would not find it; give None "
            "instead"
        )
    return record


def absent(record: Any, weight: int, there: int, epoch: int) -> DataflowError:
    """The error for a record that is removed more often than it is there."""
    return DataflowError(
        f"{show(record, 80)} was removed {-weight} times in epoch {epoch}, and was there {there} times: what is removed must have been "
        "inserted before, or in the same epoch"
    )


def negative(what: str, count: int, time: Timestamp) -> DataflowError:
    """The error for a result of what is there less often than never, where a removal was not checked."""
    when = f"epoch {time.epoch}" + (f", round {time.counters}" if time.counters else "")
    return DataflowError(
        f"{what} is there {count} times in {when}: more of it was removed than inserted, and what follows would be wrong. What is removed "
        "must have been inserted: a collection of changes that is made without checked=False names the removal. Of a.concat(b.negate()) "
        "threshold() takes counts below 0"
    )


def _has_nan(value: Any) -> bool:
    kind = type(value)
    if kind is tuple:
        return any(map(_has_nan, value))
    if kind is Row:
        return any(map(_has_nan, value.values()))
    return isinstance(value, (float, Decimal)) and value != value


def _with_rows(record: Any) -> Any:
    made: Any = record
    if type(record) is dict:
        made = Row({name: as_record(value) for name, value in record.items()})
    elif type(record) is tuple:
        made = tuple(map(as_record, record))
    try:
        hash(made)
    except TypeError:
        raise DataflowError(
            f"{show(record, 80)} cannot be a record of a collection, nor a part of one: it is not hashable; give strings, numbers, tuples, "
            "and dicts of these, not lists or sets"
        ) from None
    return made


def in_contents(record: Any) -> tuple[Any, ...]:
    """What puts records in order where nothing else does: their values, fields by name, numbers before texts, and None last.

    >>> in_contents((1, Row(b=2, a=None))) < in_contents((1, Row(b=2, a=None, c=1))) < in_contents(("a", None)) < in_contents(None)
    True
    """
    if record is None:
        return (9,)
    if isinstance(record, (int, float, Decimal, Fraction)):
        return 0, record
    if isinstance(record, (str, bytes)):
        return (1 if isinstance(record, str) else 2), record
    if isinstance(record, tuple):
        return 3, tuple(map(in_contents, record))
    if type(record) is Row:
        names = sorted(record)
        return 4, tuple(in_contents(record[name]) for name in names), tuple(names)
    if isinstance(record, (dt.datetime, dt.date, dt.time, dt.timedelta)):
        return 5, type(record).__qualname__, getattr(record, "tzinfo", None) is not None, record
    return 6, type(record).__qualname__, repr(record)


def as_fields(value: Any) -> Any:
    """A value as expressions see it: tuples as dicts, to any depth."""
    if isinstance(value, tuple):
        return {str(i): as_fields(part) for i, part in enumerate(value)}
    return {name: as_fields(part) for name, part in value.items()} if isinstance(value, dict) else value


__all__ = ["Row", "absent", "as_fields", "as_record", "in_contents", "negative"]
