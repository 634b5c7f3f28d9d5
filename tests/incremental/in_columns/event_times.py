"""Event times of all types, and changes of records that have them."""

from __future__ import annotations

import datetime as dt
import random
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa

import rayad as rd

START = dt.datetime(1969, 12, 31, 23, 50)
MINUTE = dt.timedelta(minutes=1)
NEW_YORK = ZoneInfo("America/New_York")
TIMES: dict[str, tuple[pa.DataType, Any, Any]] = {
    "int": (pa.int64(), lambda n: n - 10, 1),
    "small int": (pa.int16(), lambda n: n - 10, 1),
    "float": (pa.float64(), lambda n: (n - 10) * 0.7, 1),
    "tenths": (pa.float64(), lambda n: n / 10, 0.1),
    "ints in tenths": (pa.int32(), lambda n: n, 0.5),
    "datetime": (pa.timestamp("us"), lambda n: START + n * MINUTE, MINUTE),
    "milliseconds": (pa.timestamp("ms"), lambda n: START + n * MINUTE, MINUTE),
    "datetime with a time zone": (
        pa.timestamp("us", "America/New_York"), lambda n: START.replace(tzinfo=NEW_YORK) + n * MINUTE, MINUTE,
    ),
    "date": (pa.date32(), lambda n: dt.date(1969, 12, 25) + n * dt.timedelta(1), dt.timedelta(1)),
    "duration": (pa.duration("us"), lambda n: n * MINUTE, MINUTE),
}  # fmt: skip
EPOCHS = 6


def changes_of(chance: random.Random, time_of: Any) -> list[dict[str, Any]]:
    there: list[dict[str, Any]] = []
    out = []
    for epoch in range(EPOCHS):
        for _ in range(5):
            at = None if chance.random() < 0.1 else time_of(chance.randrange(20))
            there.append({"k": chance.choice([0, 1, None]), "at": at, "v": chance.randrange(4)})
            out.append({"epoch": epoch, **there[-1], "n": 1})
        out += [{"epoch": epoch, **there.pop(chance.randrange(len(there))), "n": -1} for _ in range(chance.randrange(5))]
    return out


def stream_of(
    flow: rd.Dataflow, changes: list[dict[str, Any]], type_of: pa.DataType, *, in_columns: bool, name: str = "records"
) -> rd.Stream:
    """The changes as a stream of records whose field ``n`` is their weight."""
    fields = ("k", "at", "v", "n")
    if in_columns:
        schema = {"epoch": pa.int64(), "k": pa.int64(), "at": type_of, "v": pa.int64(), "n": pa.int64()}
        return flow.from_arrow(pa.Table.from_pylist(changes, pa.schema(schema)), epoch="epoch", name=name).select(*fields)
    rows = [[row for row in changes if row["epoch"] == epoch] for epoch in range(EPOCHS)]
    return flow.from_epochs([[{field: row[field] for field in fields} for row in some] for some in rows], name=name)


__all__ = ["EPOCHS", "MINUTE", "TIMES", "changes_of", "stream_of"]
