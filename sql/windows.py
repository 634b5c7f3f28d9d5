"""Window functions: a column more for each row, of the rows of its partition in their order.

All rows of a partition that changes are looked at again. A frame by RANGE ends with the peers of the row, those that are equal in order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from rayad.dataflow.records.batches import rows_at
from rayad.incremental.columns.grouped import Records
from rayad.sql.frames import Distances, Frame, Unit, by_distance, by_groups, by_rows
from rayad.sql.of_groups import AGGREGATES, Wanted, column_of
from rayad.sql.ordering import OfRecords, Order, positions
from rayad.sql.steps import names_of


@dataclass(frozen=True, slots=True)
class Windowed:
    """One window function.

    Args:
        name: as DataFusion has it.
        arguments: the numbers of its columns.
        order: of the rows.
        frame: for aggregates and values of the frame.
        number: how far lag and lead look, or which one nth_value gives, or into how many ntile divides.
        default: the number of the column of what lag and lead give where there is none; None: null.
        kind: of the result.
    """

    name: str
    arguments: tuple[int, ...]
    order: Order
    frame: Frame
    number: int
    default: int | None
    kind: pa.DataType


@dataclass(slots=True)
class _Partition:
    """The rows of one partition, in order.

    Args:
        rows: their numbers.
        peers: for each the number of the group of those that are equal in order, from 0.
    """

    rows: list[int]
    peers: list[int]

    def peer_bounds(self) -> tuple[list[int], list[int]]:
        """Where the peers of each row begin and end."""
        starts = [at for at in range(len(self.rows)) if at == 0 or self.peers[at] != self.peers[at - 1]]
        ends = [*starts[1:], len(self.rows)]
        return [starts[peer] for peer in self.peers], [ends[peer] for peer in self.peers]

    def frames(self, frame: Frame, distances: Distances | None) -> list[tuple[int, int]]:
        """The rows that each row looks at, from and to."""
        if frame.unit is Unit.ROWS:
            return by_rows(frame, len(self.rows))
        starts, ends = self.peer_bounds()
        if distances is not None:
            return by_distance(frame, distances, self.rows, list(zip(starts, ends, strict=True)))
        return by_groups(frame, self.peers, sorted(set(starts)))


def _row_number(there: _Partition, window: Windowed) -> list[Any]:
    return list(range(1, len(there.rows) + 1))


def _rank(there: _Partition, window: Windowed) -> list[Any]:
    return [start + 1 for start in there.peer_bounds()[0]]


def _dense_rank(there: _Partition, window: Windowed) -> list[Any]:
    return [peer + 1 for peer in there.peers]


def _percent_rank(there: _Partition, window: Windowed) -> list[Any]:
    others = max(len(there.rows) - 1, 1)
    return [start / others for start in there.peer_bounds()[0]]


def _cume_dist(there: _Partition, window: Windowed) -> list[Any]:
    return [end / len(there.rows) for end in there.peer_bounds()[1]]


def _ntile(there: _Partition, window: Windowed) -> list[Any]:
    size, more = divmod(len(there.rows), window.number)
    out: list[Any] = []
    for bucket in range(window.number):
        out += [bucket + 1] * (size + (bucket < more))
    return out


NUMBERS: dict[str, Callable[[_Partition, Windowed], list[Any]]] = {
    "row_number": _row_number,
    "rank": _rank,
    "dense_rank": _dense_rank,
    "percent_rank": _percent_rank,
    "cume_dist": _cume_dist,
    "ntile": _ntile,
}
"""Functions of places alone."""
OF_ROWS = ("lag", "lead", "first_value", "last_value", "nth_value")


def is_known(name: str) -> bool:
    """Whether there is such a window function."""
    return name in NUMBERS or name in OF_ROWS or name in AGGREGATES


@dataclass(frozen=True)
class Windows(OfRecords):
    """The records of each partition with what window functions give, behind their columns.

    Args:
        width: how many of the columns come out again; those behind are what the functions look at.
        windows: which functions.
    """

    width: int
    windows: tuple[Windowed, ...]

    def results(self, there: Records) -> Records:
        """See there."""
        columns = self.columns(there.record)
        repeated = np.repeat(np.arange(len(there.group)), there.weights)  # a row that is there twice has two numbers
        group = there.group[repeated]
        spread = [rows_at(column, repeated) for column in columns]
        made = [self._made(window, group, spread) for window in self.windows]
        arrays = [*spread[: self.width], *made]
        record = pa.StructArray.from_arrays(arrays, names=list(names_of(len(arrays))))
        return Records(group, record, np.ones(len(group), np.int64))

    def _made(self, window: Windowed, group: Any, columns: list[pa.Array]) -> pa.Array:
        at = positions(group, columns, window.order, columns)
        values = [column.to_pylist() for column in columns]
        by = list(zip(*(values[number] for number in window.order.columns), strict=True)) if window.order.columns else [()] * len(at)
        out: list[Any] = [None] * len(at)
        distances = None
        if window.frame.is_by_distance:
            distances = Distances.of(window.frame, columns[window.order.columns[0]], descending=window.order.descending[0])
        starts = np.flatnonzero(np.append(True, group[at][1:] != group[at][:-1])).tolist()
        for start, end in zip(starts, [*starts[1:], len(at)], strict=True):
            rows = at[start:end].tolist()
            found = self._of_partition(window, _Partition(rows, _peers([by[row] for row in rows])), values, distances)
            for row, value in zip(rows, found, strict=True):
                out[row] = value
        return column_of(out, window.kind)

    def _of_partition(self, window: Windowed, there: _Partition, values: Sequence[Sequence[Any]], distances: Distances | None) -> list[Any]:
        if window.name in NUMBERS:
            return NUMBERS[window.name](there, window)
        if window.name in ("lag", "lead"):
            return _shifted(window, there, values)
        frames = there.frames(window.frame, distances)
        if window.name in OF_ROWS:
            return [_of_frame(window, there.rows[start:stop], values) for start, stop in frames]
        wanted = Wanted(window.name, window.arguments, None, False, Order(), window.kind)
        known: dict[tuple[int, int], Any] = {}
        ones = [1] * len(values[0]) if values else []
        for start, stop in frames:
            if (start, stop) not in known:
                known[start, stop] = wanted.of(values, ones, there.rows[start:stop])
        return [known[one] for one in frames]


def _peers(places: Sequence[Any]) -> list[int]:
    out, number = [], 0
    for at, place in enumerate(places):
        number += bool(at) and place != places[at - 1]
        out.append(number)
    return out


def _shifted(window: Windowed, there: _Partition, values: Sequence[Sequence[Any]]) -> list[Any]:
    by, count = (-window.number if window.name == "lag" else window.number), len(there.rows)
    (argument,) = window.arguments
    return [
        values[argument][there.rows[at + by]] if 0 <= at + by < count else (None if window.default is None else values[window.default][row])
        for at, row in enumerate(there.rows)
    ]


def _of_frame(window: Windowed, rows: Sequence[int], values: Sequence[Sequence[Any]]) -> Any:
    at = {"first_value": 0, "last_value": len(rows) - 1}.get(window.name, window.number - 1)
    return values[window.arguments[0]][rows[at]] if 0 <= at < len(rows) else None


__all__ = ["Windowed", "Windows", "is_known"]
