"""Records of collections are values: they are compared, hashed, and not changed in place."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from rayad.dataflow.records.values import Row
from rayad.progress import DataflowError, Timestamp, show


def as_record(record: Any) -> Any:
    """A record as a value. Raises DataflowError where it has no hash, or NaN in it: no removal would find what was inserted.

    >>> as_record(("a", {"n": 1}))
    ('a', {'n': 1})
    """
    try:
        hash(record)
    except TypeError:
        record = _with_rows(record)
    if _has_nan(record):
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


__all__ = ["Row", "absent", "as_record", "negative"]
