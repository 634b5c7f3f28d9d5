"""Event-time windows over columns: the arithmetic of panes, and how partials merge.

Event times are *ticks* here: integers as they are, timestamps in microseconds. Windows of one size that begin every ``slide`` cut time into
*panes* of ``gcd(size, slide)`` ticks. Senders aggregate per key and pane, and a window is its panes put together when it fires, so a record
is aggregated once however many windows hold it (Li et al., "No pane, no gain", SIGMOD Record 2005).
"""

from __future__ import annotations

import datetime as dt
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rayad.dataflow.operators.column_packing import packed_group
from rayad.dataflow.operators.keyed import group, may_overflow
from rayad.dataflow.windows import Given, Session, Sliding, Tumbling
from rayad.progress import DataflowError

_MICROSECOND = dt.timedelta(microseconds=1)
_PER_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
_TICKS_MAX = 1 << 61

Ticks = np.ndarray[Any, np.dtype[np.int64]]


@dataclass(frozen=True, slots=True)
class Grid:
    """Windows ``[offset + k*slide, offset + k*slide + size)`` in ticks."""

    size: int
    slide: int
    offset: int = 0

    @property
    def pane(self) -> int:
        """The longest stretch that every window holds wholly or not at all.

        >>> Grid(10, 4).pane
        2
        """
        return math.gcd(self.size, self.slide)

    @property
    def windows_of_pane_max(self) -> int:
        """How many windows a pane can be in."""
        return -(-self.size // self.slide)

    def panes(self, times: Ticks) -> Ticks:
        """The beginning of the pane of each time."""
        pane, offset = self.pane, self.offset % self.pane
        return (times - offset) // pane * pane + offset

    def starts(self, panes: Ticks, back: int) -> Ticks:
        """The beginning of the latest window that may hold each pane, less ``back`` windows."""
        return (panes - self.offset) // self.slide * self.slide + (self.offset - back * self.slide)


def ticks_of(times: pa.Array | pa.ChunkedArray) -> tuple[Ticks, pa.DataType] | None:
    """Event times in ticks and the Arrow type of window bounds for them; None for types that rows must handle.

    Raises DataflowError when one is null.
    """
    if times.null_count:
        raise DataflowError(f"{times.null_count} event times are null: every record needs one; filter such records out first")
    kind = times.type
    if pa.types.is_timestamp(kind):
        units = times.cast(pa.int64()).to_numpy()
        if kind.unit == "ns":
            units = units // 1_000
        elif kind.unit != "us":
            units = units * (1_000_000 // _PER_SECOND[kind.unit])
        return units, pa.timestamp("us", tz="UTC" if kind.tz else None)
    if pa.types.is_integer(kind) and kind != pa.uint64():
        units = times.to_numpy().astype(np.int64, copy=False)
        if len(units) and (units.max() > _TICKS_MAX or units.min() < -_TICKS_MAX):
            return None
        return units, pa.int64()
    return None


def length_ticks(length: Any, bound: pa.DataType) -> int | None:
    """A size, slide, gap or offset in the ticks of windows with such bounds; None where the two do not go together."""
    if pa.types.is_timestamp(bound):
        return int(length // _MICROSECOND) if isinstance(length, dt.timedelta) else None
    return length if isinstance(length, int) and abs(length) < _TICKS_MAX else None


def moment_ticks(moment: Any, bound: pa.DataType) -> int:
    """A watermark as the last tick that it reaches: a window that ends at or before it has ended."""
    if pa.types.is_timestamp(bound):
        return int((moment - dt.datetime(1970, 1, 1, tzinfo=moment.tzinfo)) // _MICROSECOND)
    return math.floor(moment)  # type: ignore[no-any-return]


def grid_of(windows: Any, bound: pa.DataType) -> Grid | None:
    """The grid of tumbling or sliding windows; of session windows one whose panes are single ticks. None where columns do not do."""
    if isinstance(windows, Session):
        gap = length_ticks(windows.gap, bound)
        return None if gap is None else Grid(gap, 1)
    assert isinstance(windows, (Tumbling, Sliding))
    size, offset = length_ticks(windows.size, bound), 0 if windows.offset is None else length_ticks(windows.offset, bound)
    slide = length_ticks(windows.slide, bound) if isinstance(windows, Sliding) else size
    return None if size is None or slide is None or offset is None else Grid(size, slide, offset)


def as_bounds(ticks: Ticks, bound: pa.DataType) -> pa.Array:
    """Ticks as Arrow values."""
    array = pa.array(ticks, pa.int64())
    return array if bound == pa.int64() else array.view(bound)


def ticks(column: pa.Array) -> Ticks:
    """What :func:`as_bounds` gave, as ticks."""
    return column.cast(pa.int64()).to_numpy()  # type: ignore[no-any-return]


def within(batch: pa.RecordBatch, times: str, start: str, end: str) -> pa.RecordBatch | None:
    """The rows whose event time lies in the window that they bring along; None where rows must do it.

    Raises DataflowError when an event time is null.
    """
    at = batch.column(times)
    if at.null_count:
        raise DataflowError(f"{at.null_count} event times are null: every record needs one; filter such records out first")
    try:
        inside = pc.and_(pc.less_equal(batch.column(start), at), pc.less(at, batch.column(end)))
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid):  # types that Arrow does not compare, or not all their values
        return None
    inside = pc.fill_null(inside, False)
    return batch if pc.all(inside).as_py() else batch.filter(inside)


def pane_columns(batch: pa.RecordBatch, times: str, windows: Any) -> list[pa.Array] | None:
    """One column with each row's pane, or, for windows that records bring along, two with the bounds; None where columns do not do."""
    found = ticks_of(batch.column(times))
    if found is None:
        return None
    at, bound = found
    if isinstance(windows, Given):
        bounds = [ticks_of(batch.column(selector.column)) for selector in (windows.start, windows.end)]
        if any(each is None or each[1] != bound for each in bounds):
            return None
        return [as_bounds(each[0], bound) for each in bounds if each is not None]
    grid = grid_of(windows, bound)
    return None if grid is None else [as_bounds(grid.panes(at) if grid.pane > 1 else at, bound)]


# -- partials --------------------------------------------------------------------------------------


@dataclass(slots=True)
class Form:
    """What the columns of partials are: ``keys`` key columns, ``places`` columns of window bounds, then the partials.

    Args:
        merges: how each partial merges: "sum", "min" or "max".
    """

    schema: pa.Schema
    keys: int
    places: int
    merges: tuple[str, ...]

    @property
    def bound(self) -> pa.DataType:
        """The type of window bounds."""
        return self.schema.field(self.keys).type

    def group(self, table: pa.Table) -> pa.RecordBatch | None:
        """One row for each key and place; None when a sum could leave 64 bits."""
        names = self.schema.names
        first = self.keys + self.places
        values = names[first:]
        if any(how == "sum" and may_overflow(table.column(first + i)) for i, how in enumerate(self.merges)):
            return None
        wanted = list(zip(values, self.merges, strict=True))
        packed = packed_group(table, names[:first], wanted)
        if packed is not None:
            made = zip(packed, self.schema, strict=True)
            return pa.RecordBatch.from_arrays([column.cast(field.type) for column, field in made], schema=self.schema)
        return group(table, names[:first], wanted, values).cast(self.schema)

    def merged(self, table: pa.Table) -> tuple[pa.RecordBatch, bool]:
        """:meth:`group` and True, or where that cannot be the same rows as one batch and False."""
        out = self.group(table)
        return (one_batch(table), False) if out is None else (out, True)


def one_batch(table: pa.Table) -> pa.RecordBatch:
    """A table as one batch."""
    parts = table.unify_dictionaries().combine_chunks().to_batches()
    return parts[0] if parts else pa.RecordBatch.from_pylist([], schema=table.schema)


def filled(column: pa.Array, how: str) -> Any:
    """Merged partials as numpy values, with something neutral where there was no value."""
    if column.null_count:
        kind = column.type
        neutral: Any = 0
        if how != "sum":
            floating = pa.types.is_floating(kind)
            info = None if floating else np.iinfo(kind.to_pandas_dtype())
            neutral = float("nan") if info is None else int(info.max if how == "min" else info.min)
        column = pc.fill_null(column, pa.scalar(neutral, kind))
    return column.to_numpy(zero_copy_only=False)
