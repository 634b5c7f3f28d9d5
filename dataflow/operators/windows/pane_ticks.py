"""Event-time windows over columns: the arithmetic of panes, and how partials merge.

Event times are *ticks* here, in int64: integers as they are, timestamps and durations in microseconds (in nanoseconds where windows begin
at the records themselves), dates in days, and where lengths are floats the ticks of ``event_times.Scale``: columns give what rows give, bit
by bit. Windows of one size that begin every ``slide`` cut time into *panes* of ``gcd(size, slide)`` ticks. Senders aggregate per key
and pane, and a window is its panes put together when it fires, so a record is aggregated once however many windows hold it (Li et al.,
"No pane, no gain", SIGMOD Record 2005).
"""

from __future__ import annotations

import copy
import datetime as dt
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rayad.dataflow.operators.aggregates.partial import Partials
from rayad.dataflow.operators.keys.column_keys import plain
from rayad.dataflow.operators.results import window_array
from rayad.dataflow.operators.state.runs.order import Positions, Ticks
from rayad.dataflow.records.batches import one_batch
from rayad.dataflow.records.event_times import DAY_TICKS, EXACT_FLOATS_MAX, TICKS_MAX, Lengths, Scale, nanoseconds
from rayad.dataflow.records.selectors import require_columns
from rayad.dataflow.windows import AsOf, Between, Given, Session, Sliding, Tumbling, Window
from rayad.progress import DataflowError

_TICKS_PER = {"s": 1_000_000, "ms": 1_000, "us": 1}
_FLOAT_TICKS_MAX = 1 << 51
"""Up to here ``tick / per_unit`` is exact but for its one rounding, and a floor in floats is at most one tick off."""
_INT64 = np.iinfo(np.int64)
_DATETIMES = Scale(Lengths.SPAN).reached(dt.datetime.min), Scale(Lengths.SPAN).reached(dt.datetime.max)
_DATES = _DATETIMES[0] // DAY_TICKS, _DATETIMES[1] // DAY_TICKS


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

    def first_ending_beyond(self, end: int, back: int) -> int:
        """The first pane whose window of :meth:`starts` ends beyond this.

        >>> Grid(10, 4).first_ending_beyond(10, 0), Grid(10, 4).first_ending_beyond(10, 1)
        (4, 8)
        """
        behind = end - self.size + back * self.slide - self.offset
        return self.offset + (behind // self.slide + 1) * self.slide


def ticks_of(times: pa.Array, windows: Any) -> tuple[Ticks, pa.DataType] | None:
    """Event times in ticks and the Arrow type of what :func:`as_bounds` makes of ticks; None for types and values that rows must handle.

    Raises DataflowError when one is null, NaN or infinite, or a moment that Python's own do not reach.
    """
    if times.null_count:
        raise DataflowError(f"{times.null_count} event times are null: every record needs one; filter such records out first")
    kind = times.type
    if pa.types.is_timestamp(kind) or pa.types.is_duration(kind):
        return _ticks_of_moments(times, exactly=isinstance(windows, (Session, Given, Between, AsOf)))
    if pa.types.is_date(kind):
        days = times.cast(pa.date32()).cast(pa.int32()).to_numpy().astype(np.int64)
        return (days, pa.date32()) if _are_within(days, *_DATES) else _beyond(times)
    float_ticks = isinstance(windows, (Tumbling, Sliding)) and windows.ticks.scale.kind is Lengths.FLOAT
    if pa.types.is_integer(kind):
        units = times.to_numpy()
        if not _are_within(units, -TICKS_MAX, TICKS_MAX):
            return None
        units = units.astype(np.int64, copy=False)
        if not float_ticks:
            return units, pa.int64()
        return _float_ticks(units.astype(np.float64), windows) if _are_within(units, -EXACT_FLOATS_MAX, EXACT_FLOATS_MAX) else None
    if pa.types.is_floating(kind):
        if isinstance(windows, (Session, Given, Between, AsOf)):
            return None
        numbers = times.to_numpy(zero_copy_only=False).astype(np.float64, copy=False)
        odd = len(numbers) - int(np.count_nonzero(np.isfinite(numbers)))
        if odd:
            raise DataflowError(f"{odd} event times are NaN or infinite: they are in no window; filter such records out first")
        if float_ticks:
            return _float_ticks(numbers, windows)
        if not _are_within(numbers, -TICKS_MAX, TICKS_MAX):
            return None
        return np.floor(numbers).astype(np.int64), pa.int64()
    return None


def _are_within(values: Any, low: int, high: int) -> bool:
    return not len(values) or bool(values.min() >= low and values.max() <= high)


def _beyond(times: pa.Array) -> Any:
    raise DataflowError(f"event times of type {times.type} are beyond the years 1 to 9999 of Python's own moments; filter such records out")


def _ticks_of_moments(times: pa.Array, *, exactly: bool) -> tuple[Ticks, pa.DataType] | None:
    """Timestamps and durations in microseconds; nanoseconds in themselves where windows are not of whole microseconds."""
    kind, units = times.type, times.cast(pa.int64()).to_numpy()
    unit = "ns" if kind.unit == "ns" and exactly else "us"
    moments = pa.types.is_timestamp(kind)
    if kind.unit != "ns":
        per = _TICKS_PER[kind.unit]
        low, high = _DATETIMES if moments else (-TICKS_MAX, TICKS_MAX)
        if not _are_within(units, -(-low // per), high // per):
            return _beyond(times) if moments else None
        units = units * per
    elif unit == "us":
        units = units // 1_000
    return units, (pa.timestamp(unit, tz="UTC" if kind.tz else None) if moments else pa.duration(unit))


def _float_ticks(times: Any, windows: Tumbling | Sliding) -> tuple[Ticks, pa.DataType] | None:
    """The last tick of each time whose bound, a float, is at or before it: :meth:`Scale.reached`."""
    lattice = windows.ticks
    per_unit = lattice.scale.per_unit
    largest = max(abs(float(times.max())), abs(float(times.min()))) if len(times) else 0.0
    lengths = lattice.size + lattice.slide + abs(lattice.offset)
    if per_unit > _FLOAT_TICKS_MAX or lengths > _FLOAT_TICKS_MAX or largest * per_unit + lengths > _FLOAT_TICKS_MAX:
        return None
    found = np.floor(times * per_unit)
    found -= found / per_unit > times
    found += (found + 1) / per_unit <= times
    return found.astype(np.int64), pa.int64()


def length_ticks(length: int, scale: Scale, bound: pa.DataType) -> int | None:
    """A size, slide, gap or offset, in ticks of its scale, in ticks of windows with such bounds; None where the two do not go together."""
    if scale.kind is Lengths.SPAN:
        if pa.types.is_date(bound):
            length, rest = divmod(length, DAY_TICKS)
            return None if rest else length
        if not (pa.types.is_timestamp(bound) or pa.types.is_duration(bound)):
            return None
        length *= 1_000 if bound.unit == "ns" else 1
    elif scale.kind not in (Lengths.WHOLE, Lengths.FLOAT) or bound != pa.int64():
        return None
    return length if abs(length) < TICKS_MAX else None


def moment_ticks(moment: Any, bound: pa.DataType, windows: Any) -> int:
    """A watermark as the last tick that it reaches: a window that ends at or before it has ended."""
    if pa.types.is_timestamp(bound) or pa.types.is_duration(bound):
        found = nanoseconds(moment) // (1 if bound.unit == "ns" else 1_000)
    elif pa.types.is_date(bound):
        found = nanoseconds(moment) // (1_000 * DAY_TICKS)
    elif isinstance(windows, (Tumbling, Sliding)) and abs(moment) < EXACT_FLOATS_MAX:
        found = windows.ticks.scale.reached(moment)
    else:
        found = math.floor(moment * (windows.ticks.scale.per_unit if isinstance(windows, (Tumbling, Sliding)) else 1))
    return min(max(found, int(_INT64.min)), int(_INT64.max))


def grid_of(windows: Any, bound: pa.DataType) -> Grid | None:
    """The grid of tumbling or sliding windows; of session windows one whose panes are single ticks. None where columns do not do."""
    if isinstance(windows, Session):
        if windows.scale.kind is Lengths.FLOAT:
            return None
        gap = length_ticks(windows.scale.ticks(windows.gap), windows.scale, bound)
        return None if gap is None else Grid(gap, 1)
    assert isinstance(windows, (Tumbling, Sliding))
    lattice = windows.ticks
    size, slide, offset = (length_ticks(each, lattice.scale, bound) for each in (lattice.size, lattice.slide, lattice.offset))
    return None if size is None or slide is None or offset is None else Grid(size, slide, offset)


def as_bounds(ticks: Ticks, bound: pa.DataType) -> pa.Array:
    """Ticks as Arrow values."""
    array = pa.array(ticks, pa.int64())
    if pa.types.is_date32(bound):
        return array.cast(pa.int32()).view(bound)
    return array if bound == pa.int64() else array.view(bound)


def windows_between(starts: pa.Array, ends: pa.Array, windows: Any) -> pa.ExtensionArray:
    """Windows from the bounds that :func:`as_bounds` gave, as results show them: floats where lengths are floats."""
    return window_array(shown(starts, windows), shown(ends, windows))


def shown(bounds: pa.Array, windows: Any) -> pa.Array:
    """Bounds that :func:`as_bounds` gave, as results show them: floats where lengths are floats."""
    if isinstance(windows, (Tumbling, Sliding)) and windows.ticks.scale.kind is Lengths.FLOAT:
        return pa.array(bounds.to_numpy(zero_copy_only=False) / windows.ticks.scale.per_unit)
    return bounds


def windows_holding(times: pa.Array, windows: Tumbling | Sliding) -> tuple[Positions, pa.Array, pa.Array] | None:
    """The windows that hold event times, none of which is null: the position of the time of each, and its bounds as results show them. None
    for types and values that rows must handle.

    >>> [part.tolist() for part in windows_holding(pa.array([7, 12]), Sliding(10, 5))]
    [[0, 1, 0, 1], [5, 10, 0, 5], [15, 20, 10, 15]]
    """
    found = ticks_of(times, windows)
    grid = None if found is None else grid_of(windows, found[1])
    if found is None or grid is None or not have_windows(found[0], grid, found[1], windows):
        return None
    at, bound = found
    starts, where = [], []
    for back in range(grid.windows_of_pane_max):
        start = grid.starts(at, back)
        holds = np.flatnonzero(start + grid.size > at)
        starts.append(start[holds])
        where.append(holds)
    first = np.concatenate(starts)
    return np.concatenate(where), *(shown(as_bounds(bounds, bound), windows) for bounds in (first, first + grid.size))


def windows_of_place(place: tuple[Any, ...], windows: Any) -> list[Window]:
    """The windows that hold a pane, as Python values."""
    if len(place) == 2:
        return [Window(*place)]
    if isinstance(place[0], int) and isinstance(windows, (Tumbling, Sliding)):
        return windows.ticks.holding(place[0], place[0])
    return list(windows.assign(place[0]))


def in_each_window(key: Any, place: tuple[Any, ...], windows: Any, accumulator: Any) -> list[tuple[Any, tuple[Window, Any]]]:
    """``(key, (window, accumulator))`` for each window that holds a pane; each has an accumulator of its own, since merging may change
    it."""
    found = windows_of_place(place, windows)
    own = [accumulator, *(copy.deepcopy(accumulator) for _ in found[1:])]
    return [(key, pair) for pair in zip(found, own, strict=False)]


def panes_of(batch: pa.RecordBatch, keys: tuple[str, ...], times: str | None, windows: Any) -> tuple[pa.RecordBatch, list[pa.Array]] | None:
    """The rows that are in a window, in types that can be grouped by these keys, and columns with their panes; None where rows must do
    it."""
    given = isinstance(windows, Given)
    bounds = (windows.start.column, windows.end.column) if given else ()
    if times is None or None in bounds:
        return None
    require_columns(batch, (*keys, times, *bounds))
    usable = plain(batch, keys)
    if given and usable is not None:
        usable = within(usable, times, *bounds)
    panes = None if usable is None else pane_columns(usable, times, windows)
    return None if usable is None or panes is None else (usable, panes)


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


def pane_columns(batch: pa.RecordBatch, name: str, windows: Any) -> list[pa.Array] | None:
    """One column with each row's pane (without windows: event time), or, for windows that records bring along, two with the bounds; None
    where columns do not do."""
    times = batch.column(name)
    found = ticks_of(times, windows)
    if found is None:
        return None
    at, bound = found
    if isinstance(windows, Given):
        bounds = [ticks_of(batch.column(selector.column), windows) for selector in (windows.start, windows.end)]
        if any(each is None or each[1] != bound for each in bounds):
            return None
        return [as_bounds(each[0], bound) for each in bounds if each is not None]
    if isinstance(windows, (Between, AsOf)):
        if len(times) and windows.scale is not None:
            windows.scale.admit(times[0].as_py())
        return [as_bounds(at, bound)] if _are_within(at, -TICKS_MAX, TICKS_MAX) else None
    grid = grid_of(windows, bound)
    if grid is None:
        return None
    panes = grid.panes(at) if grid.pane > 1 else at
    return [as_bounds(panes, bound)] if have_windows(panes, grid, bound, windows) else None


def have_windows(panes: Ticks, grid: Grid, bound: pa.DataType, windows: Any) -> bool:
    """Whether all windows of these panes have bounds, and bounds of their own; where not, rows say so."""
    if not len(panes):
        return True
    low, high = int(panes.min()) - grid.size, int(panes.max()) + grid.size
    if bound == pa.int64():
        if isinstance(windows, Sliding) and windows.ticks.scale.kind is Lengths.FLOAT:
            per_unit = windows.ticks.scale.per_unit
            return grid.slide / per_unit > 2 * math.ulp(max(abs(low), abs(high)) / per_unit)
        return True
    if bound.id == pa.timestamp("us").id and bound.unit == "us":
        return _DATETIMES[0] <= low and high <= _DATETIMES[1]
    if pa.types.is_date(bound):
        return _DATES[0] <= low and high <= _DATES[1]
    return bool(_INT64.min < low and high < _INT64.max)


# -- partials --------------------------------------------------------------------------------------


@dataclass(slots=True)
class Form:
    """What the columns of partials are: ``keys`` key columns, ``places`` columns of window bounds, then the partials."""

    schema: pa.Schema
    keys: int
    places: int
    partials: Partials

    @property
    def bound(self) -> pa.DataType:
        """The type of window bounds."""
        return self.schema.field(self.keys).type

    def group(self, table: pa.Table) -> pa.RecordBatch | None:
        """One row for each key and place; None when a sum could leave 64 bits."""
        return self.partials.group(table, self.keys + self.places, self.schema, pack=True)

    def merged(self, table: pa.Table) -> tuple[pa.RecordBatch, bool]:
        """:meth:`group` and True, or where that cannot be the same rows as one batch and False."""
        out = self.group(table)
        return (one_batch(table), False) if out is None else (out, True)
