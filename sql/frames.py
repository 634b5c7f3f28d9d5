"""The rows that a window function looks at: frames by ROWS, GROUPS and RANGE, with bounds that are a number of rows, of groups of rows that
are equal in order, or a distance in the values that rows are in order by."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from rayad.sql.values.moments import plus


class Unit(Enum):
    """What the bounds of a frame count."""

    ROWS = "ROWS"
    RANGE = "RANGE"
    GROUPS = "GROUPS"


@dataclass(frozen=True, slots=True)
class Length:
    """A length of time, by its parts.

    Args:
        months, days, nanoseconds: of it.
    """

    months: int
    days: int
    nanoseconds: int

    def __neg__(self) -> Length:
        return Length(-self.months, -self.days, -self.nanoseconds)


Offset = int | Decimal | Length


@dataclass(frozen=True, slots=True)
class Frame:
    """The rows that an aggregate looks at.

    Args:
        unit: of the bounds.
        start, stop: the first and the last one, counted from the row itself; None: there is no bound.
    """

    unit: Unit
    start: Offset | None
    stop: Offset | None

    @property
    def is_by_distance(self) -> bool:
        """Whether values of the order decide, and not places in it."""
        return self.unit is Unit.RANGE and any(bound is not None and bound != 0 for bound in (self.start, self.stop))


@dataclass(frozen=True, slots=True)
class Distances:
    """For frames by distance, of all rows.

    Args:
        places: what rows are in order by; None where that is null.
        starts, stops: the smallest and the largest place of the frame of each row, in its order; None where there is no such bound.
        descending: whether larger places come first.
    """

    places: list[Any]
    starts: list[Any] | None
    stops: list[Any] | None
    descending: bool

    @staticmethod
    def of(frame: Frame, column: pa.Array, *, descending: bool) -> Distances:
        """Of rows that have these values."""
        is_of_time = pa.types.is_temporal(column.type)
        if pa.types.is_date(column.type):
            column = pc.cast(column, pa.timestamp("us"))
        bounds = [
            None if offset is None or offset == 0 else _moved(column, -offset if descending else offset, is_of_time=is_of_time)
            for offset in (frame.start, frame.stop)
        ]
        places = (pc.cast(column, pa.int64()) if is_of_time else column).to_pylist()
        return Distances(places, bounds[0], bounds[1], descending)


def _moved(column: pa.Array, offset: Offset, *, is_of_time: bool) -> list[Any]:
    if isinstance(offset, Length):
        interval = pa.scalar(pa.MonthDayNano([offset.months, offset.days, offset.nanoseconds]))
        return list(pc.cast(plus(column, interval), pa.int64()).to_pylist())
    by: Any = float(offset) if pa.types.is_floating(column.type) else offset
    return [None if value is None else value + by for value in column.to_pylist()]


def by_rows(frame: Frame, count: int) -> list[tuple[int, int]]:
    """The rows of each row, from and to, where bounds count rows."""
    start, stop = frame.start, frame.stop
    assert isinstance(start, int | None)
    assert isinstance(stop, int | None)
    return [
        (0 if start is None else min(max(at + start, 0), count), count if stop is None else min(max(at + stop + 1, 0), count))
        for at in range(count)
    ]


def by_groups(frame: Frame, peers: Sequence[int], starts: Sequence[int]) -> list[tuple[int, int]]:
    """Where bounds count groups of peers. ``peers``: the group of each row; ``starts``: where each group begins."""
    first, last = frame.start, frame.stop
    assert isinstance(first, int | None)
    assert isinstance(last, int | None)
    edges, groups = [*starts, len(peers)], len(starts)
    return [
        (
            0 if first is None else edges[min(max(peer + first, 0), groups)],
            len(peers) if last is None else edges[min(max(peer + last + 1, 0), groups)],
        )
        for peer in peers
    ]


def by_distance(frame: Frame, distances: Distances, rows: Sequence[int], peers: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Where bounds are distances. ``rows``: in their order; ``peers``: where those of each begin and end."""
    known = [at for at, row in enumerate(rows) if distances.places[row] is not None]
    first, count = (known[0] if known else 0), len(known)
    places = [distances.places[rows[at]] for at in known]
    if distances.descending:
        places.reverse()

    def edge(bound: Any, *, is_start: bool) -> int:
        """Where in the order the first place begins that is not before a bound, or the last one ends that is not behind it."""
        if distances.descending:
            return first + count - (bisect_right if is_start else bisect_left)(places, bound)
        return first + (bisect_left if is_start else bisect_right)(places, bound)

    found = []
    for row, (start, stop) in zip(rows, peers, strict=True):
        is_known = distances.places[row] is not None
        if frame.start is None:
            start = 0
        elif distances.starts is not None and is_known:
            start = edge(distances.starts[row], is_start=True)
        if frame.stop is None:
            stop = len(rows)
        elif distances.stops is not None and is_known:
            stop = edge(distances.stops[row], is_start=False)
        found.append((start, stop))
    return found


__all__ = ["Distances", "Frame", "Length", "Offset", "Unit", "by_distance", "by_groups", "by_rows"]
