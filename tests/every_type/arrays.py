"""A column of every Arrow type: a dozen values with duplicates, a null, and the ends of what the type can hold."""

from __future__ import annotations

import datetime as dt
import decimal
import uuid
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

ROWS = 12
DAY = dt.date(2024, 2, 28)
MOMENT = dt.datetime(2024, 2, 28, 23, 59, 58)


CHANGING = "timestamp[us, Europe/Berlin] where clocks change"
AROUND_CHANGES = [dt.datetime(2023, month, day, hour, 30, tzinfo=dt.UTC) for month, day in ((10, 29), (3, 26)) for hour in (0, 1)]
"""Both half past two of an autumn night, and the moments before and after the hour that a spring night leaves out."""


def as_told(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Records with the same moments, told by an hour that the clock leaves out where that can be."""
    return [{name: _as_told(value) for name, value in record.items()} for record in records]


def _as_told(value: Any) -> Any:
    if not isinstance(value, dt.datetime) or value.tzinfo is None or hasattr(value, "nanosecond"):
        return value
    earlier = value.replace(fold=0) - dt.timedelta(hours=1)
    return earlier if earlier.astimezone(dt.UTC) == value.astimezone(dt.UTC) else value


def spread(values: Sequence[Any]) -> list[Any]:
    """A dozen values made of a few, each at least twice; the fourth is null."""
    out = [values[i % len(values)] for i in range(ROWS)]
    return [*out[:3], None, *out[4:]]


def column(kind: pa.DataType, values: Sequence[Any]) -> pa.Array:
    """``values``, spread, as a column of that type."""
    return pa.array(spread(values), kind)


def cast(kind: pa.DataType, values: Sequence[Any]) -> pa.Array:
    """The same for types that cannot be made from Python values."""
    return pa.array(spread(values)).cast(kind)


def integers(kind: pa.DataType, bits: int, *, signed: bool) -> pa.Array:
    """The smallest and the largest value of the type, and a few between."""
    low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1)
    return column(kind, [low, high, 0, 1, high - 1])


def extension(kind: pa.DataType, storage: Sequence[Any]) -> pa.Array:
    """An extension type over its storage."""
    return pa.ExtensionArray.from_storage(kind, pa.array(spread(storage), kind.storage_type))


def _decimals(digits: int, scale: int) -> list[decimal.Decimal]:
    whole = decimal.Context(prec=80).create_decimal("9" * digits).scaleb(-scale, decimal.Context(prec=80))
    return [whole, whole.copy_negate(), decimal.Decimal(0), decimal.Decimal(1).scaleb(-scale), decimal.Decimal("-0.5")]


def _moments(unit: str) -> list[Any]:
    parts = {"s": 0, "ms": 123_000, "us": 123_456, "ns": 123_456}[unit]
    return [
        MOMENT.replace(microsecond=parts),
        dt.datetime(1969, 12, 31, 23, 59, 59),
        dt.datetime(1970, 1, 1),
        MOMENT + dt.timedelta(hours=1),
    ]


def _nanoseconds(kind: pa.DataType) -> pa.Array:
    return pa.array(spread([1_709_164_798_123_456_789, -1, 0, 1]), pa.int64()).cast(kind)


def _union(mode: str) -> pa.Array:
    types = pa.array([i % 2 for i in range(ROWS)], pa.int8())
    if mode == "sparse":
        return pa.UnionArray.from_sparse(types, [pa.array(range(ROWS)), pa.array([str(i) for i in range(ROWS)])], ["i", "s"])
    offsets = pa.array([i // 2 for i in range(ROWS)], pa.int32())
    return pa.UnionArray.from_dense(types, offsets, [pa.array(range(6)), pa.array(list("abcdef"))], ["i", "s"])


def _columns() -> dict[str, pa.Array]:
    out: dict[str, pa.Array] = {"null": pa.nulls(ROWS), "bool": column(pa.bool_(), [True, False])}
    for bits in (8, 16, 32, 64):
        out[f"int{bits}"] = integers(getattr(pa, f"int{bits}")(), bits, signed=True)
        out[f"uint{bits}"] = integers(getattr(pa, f"uint{bits}")(), bits, signed=False)
    out["float16"] = pa.array([None if v is None else np.float16(v) for v in spread([0.5, -2.25, 0.0, 1000.0])], pa.float16())
    out["float32"] = column(pa.float32(), [0.5, -2.25, 0.0, 2.0**20])
    out["float64"] = column(pa.float64(), [0.5, -2.25, 0.0, 2.0**40])
    texts, raw = ["", "a", "é", "zoë\n,\"'"], [b"", b"a", b"\xff\x00", b"zo"]
    out |= {str(kind()): column(kind(), texts) for kind in (pa.string, pa.large_string)}
    out |= {str(kind()): column(kind(), raw) for kind in (pa.binary, pa.large_binary)}
    out["string_view"], out["binary_view"] = cast(pa.string_view(), texts), cast(pa.binary_view(), raw)
    out["fixed_size_binary[2]"] = column(pa.binary(2), [b"ab", b"\xff\x00", b"zz"])
    out["date32"], out["date64"] = (
        column(kind, [DAY, dt.date(1969, 12, 31), DAY + dt.timedelta(2)]) for kind in (pa.date32(), pa.date64())
    )
    out["time32[s]"] = column(pa.time32("s"), [dt.time(1, 2, 3), dt.time(0), dt.time(23, 59, 59)])
    out["time32[ms]"] = column(pa.time32("ms"), [dt.time(1, 2, 3, 4_000), dt.time(0), dt.time(23, 59, 59)])
    out["time64[us]"] = column(pa.time64("us"), [dt.time(1, 2, 3, 4_005), dt.time(0), dt.time(23, 59, 59)])
    out["time64[ns]"] = pa.array(spread([3_723_000_004_005, 0, 86_399_000_000_000]), pa.int64()).cast(pa.time64("ns"))
    for unit in ("s", "ms", "us"):
        out[f"timestamp[{unit}]"] = column(pa.timestamp(unit), _moments(unit))
    out["timestamp[ns]"] = _nanoseconds(pa.timestamp("ns"))
    for zone in ("UTC", "Europe/Berlin"):
        out[f"timestamp[us, {zone}]"] = column(pa.timestamp("us"), _moments("us")).cast(pa.timestamp("us", zone))
    out[CHANGING] = column(pa.timestamp("us", "UTC"), AROUND_CHANGES).cast(pa.timestamp("us", "Europe/Berlin"))
    out["timestamp[ns, UTC]"] = _nanoseconds(pa.timestamp("ns", "UTC"))
    lengths = [dt.timedelta(days=2), dt.timedelta(seconds=-1), dt.timedelta(0)]
    out |= {f"duration[{unit}]": column(pa.duration(unit), lengths) for unit in ("s", "ms", "us")}
    out["duration[ns]"] = _nanoseconds(pa.duration("ns"))
    out["month_day_nano_interval"] = column(pa.month_day_nano_interval(), [pa.MonthDayNano([1, 2, 3]), pa.MonthDayNano([0, -1, 5])])
    out["decimal32(9, 2)"] = column(pa.decimal32(9, 2), _decimals(9, 2))
    out["decimal64(18, 2)"] = column(pa.decimal64(18, 2), _decimals(18, 2))
    out["decimal128(38, 9)"] = column(pa.decimal128(38, 9), _decimals(38, 9))
    out["decimal256(76, 20)"] = column(pa.decimal256(76, 20), _decimals(76, 20))
    out["dictionary of strings"] = cast(pa.string(), texts).dictionary_encode()
    out["dictionary of integers"] = pa.array(spread([7, -1, 2**62])).dictionary_encode()
    out["dictionary with an unused NaN"] = pa.DictionaryArray.from_arrays(
        pa.array([None if i == 3 else i % 2 for i in range(ROWS)], pa.int32()), pa.array([0.5, -2.25, float("nan")])
    )
    out["run_end_encoded"] = pa.RunEndEncodedArray.from_arrays(pa.array([2, 3, 4, 9, 12], pa.int32()), pa.array(["a", "b", None, "a", "c"]))
    lists: list[Any] = [[1, 2], [], [None, 3]]
    out["list"], out["large_list"] = column(pa.list_(pa.int64()), lists), column(pa.large_list(pa.int64()), lists)
    out["list_view"], out["large_list_view"] = column(pa.list_view(pa.int64()), lists), column(pa.large_list_view(pa.int64()), lists)
    out["fixed_size_list"] = column(pa.list_(pa.int64(), 2), [[1, 2], [3, None]])
    out["struct"] = column(pa.struct([("a", pa.int64()), ("b", pa.string())]), [{"a": 1, "b": "x"}, {"a": None, "b": ""}])
    out["map"] = column(pa.map_(pa.string(), pa.int64()), [[("a", 1)], [], [("b", None)]])
    out["sparse_union"], out["dense_union"] = _union("sparse"), _union("dense")
    out["uuid"] = extension(pa.uuid(), [uuid.UUID(int=i).bytes for i in (1, 2**100)])
    out["bool8"] = extension(pa.bool8(), [0, 1])
    out["json"] = extension(pa.json_(), ["{}", '{"a": [1, 2.5]}'])
    return out


COLUMNS = _columns()
