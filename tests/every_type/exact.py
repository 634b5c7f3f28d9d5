"""Whether two values are the same: not only equal, but of one kind, to the last digit and nanosecond."""

from __future__ import annotations

import datetime as dt
import decimal
import fractions
from collections import Counter
from collections.abc import Iterable
from typing import Any

import numpy as np
import pyarrow as pa

from rayad.dataflow.windows import Window
from tests.every_type.operators import Instant, instant


def form(value: Any, *, near: bool = False) -> Any:
    """A hashable form that is equal only for the same values. All whole numbers are one kind, whatever their width; so are all moments."""
    if value is None or isinstance(value, (bool, str, bytes)):
        return type(value).__name__, value
    if isinstance(value, np.generic):
        return form(value.item(), near=near)
    if isinstance(value, Instant):
        return "instant", value.at
    if isinstance(value, Window):
        return form((_bound(value.start), _bound(value.end)))
    if near and isinstance(value, (int, float, decimal.Decimal, fractions.Fraction)):
        return "number", f"{float(value):.12g}"
    if isinstance(value, float):
        return "float", "nan" if value != value else (value + 0.0).hex()
    if isinstance(value, dt.datetime):
        return "moment", value.tzinfo is not None, instant(value)
    if isinstance(value, dt.timedelta):
        return "length", (value // dt.timedelta(microseconds=1)) * 1000 + getattr(value, "nanoseconds", 0)
    if isinstance(value, (int, decimal.Decimal, dt.date, dt.time)):
        kind = next(kind for kind in (int, decimal.Decimal, dt.date, dt.time) if isinstance(value, kind))
        return kind.__name__, value
    if isinstance(value, pa.MonthDayNano):
        return "interval", tuple(value)
    if isinstance(value, dict):
        return "dict", tuple(sorted((name, form(part, near=near)) for name, part in value.items()))
    if isinstance(value, (list, tuple, np.ndarray)):
        return "sequence", tuple(form(part, near=near) for part in value)
    return type(value).__name__, value


def _bound(value: Any) -> Instant:
    return Instant(instant(value))


def counted(records: Iterable[Any], *, near: bool = False) -> Counter[Any]:
    """Records in any order."""
    return Counter(form(record, near=near) for record in records)
