"""Several integer columns as one: a key and its pane, say. One number is grouped faster than two columns, and often it is small enough to
be a place in an array (see ``dense_groups``)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from rayad.dataflow.operators.keys.dense_groups import RANGE_MAX, ROWS_MIN, ROWS_PER_PLACE, dense_group
from rayad.dataflow.operators.keys.group_functions import GroupFunction

Ticks = np.ndarray[Any, np.dtype[np.int64]]
_PANES_MIN, _PANES_MAX = 8, 1 << 12
_KEY_MAX = 1 << 48
_SAMPLE = 64
"""So many numbers tell what step they may have in common; then all are looked at."""


@dataclass(frozen=True, slots=True)
class Packing:
    """``key * count + number of the pane``, panes counted from ``base``.

    Args:
        pane: length of a pane in ticks.
        key: type of the key column.
        bound: type of the pane column.
    """

    base: int
    pane: int
    count: int
    key: pa.DataType
    bound: pa.DataType

    @staticmethod
    def for_panes(panes: Ticks, pane: int, key: pa.DataType, bound: pa.DataType) -> Packing | None:
        """One that these panes and their neighbours fit in; None when there are too many."""
        low, high = int(panes.min()), int(panes.max())
        span = (high - low) // pane + 1
        if span > _PANES_MAX:
            return None
        count = max(_PANES_MIN, 1 << (2 * span - 1).bit_length())
        return Packing(low - (count - span) // 4 * pane, pane, count, key, bound)

    def packed(self, keys: Ticks, panes: Ticks) -> Ticks | None:
        """A number for each row; None when one does not fit."""
        numbers = (panes - self.base) // self.pane
        if not len(numbers) or numbers.min() < 0 or numbers.max() >= self.count or keys.max() > _KEY_MAX or keys.min() < -_KEY_MAX:
            return None
        return keys * self.count + numbers

    def opened(self, numbers: Ticks) -> tuple[pa.Array, pa.Array]:
        """Keys and panes."""
        places, keys = _split(numbers, self.count)
        return pa.array(keys).cast(self.key), pa.array(self.base + places * self.pane).cast(self.bound)


def can_be_packed(column: pa.Array | pa.ChunkedArray) -> bool:
    """Whether a column holds integers, or moments, and no nulls."""
    kind = column.type
    whole = (pa.types.is_integer(kind) and kind != pa.uint64()) or pa.types.is_timestamp(kind)
    return bool(whole) and column.null_count == 0


class _Scale(NamedTuple):
    """The numbers of a column as ``low + step * place``, with places below ``size``."""

    name: str
    places: Ticks
    low: int
    step: int
    size: int

    @staticmethod
    def of(name: str, numbers: Ticks, most: int) -> _Scale:
        """With a step of 1; where that needs more than ``most`` places, with the greatest that they have in common, as the starts of
        windows do."""
        low = int(numbers.min())
        above, size = numbers - low, int(numbers.max()) - low + 1
        if size > most:
            step = int(np.gcd.reduce(above[:: max(1, len(above) // _SAMPLE)]))
            if step > 1 and size <= most * step:
                places = above // step
                if np.array_equal(places * step, above):
                    return _Scale(name, places, low, step, (size - 1) // step + 1)
        return _Scale(name, above, low, 1, size)

    def opened(self, places: Ticks, kind: pa.DataType) -> pa.Array:
        """The numbers at these places."""
        return pa.array(places * self.step + self.low).cast(kind)


class _Rows(NamedTuple):
    """Places in two numbers as one: each row of the second has a range of its own for the first. A window's keys are mostly such a range
    (ids of what was there at that time), however far apart those of the first and the last window are.

    Args:
        shift: what is added to a place of the first number, by row.
        ends: of the rows, behind each other.
    """

    shift: Ticks
    ends: Ticks

    @staticmethod
    def of(inner: Ticks, row: Ticks, rows: int) -> _Rows:
        low = np.full(rows, np.iinfo(np.int64).max)
        high = np.full(rows, -1)
        np.minimum.at(low, row, inner)
        np.maximum.at(high, row, inner)
        ends = np.cumsum(np.where(high < 0, 0, high - low + 1))
        return _Rows(np.concatenate(([0], ends[:-1])) - low, ends)

    def opened(self, places: Ticks) -> tuple[Ticks, Ticks]:
        """Ascending places as first and second number."""
        row = np.repeat(np.arange(len(self.ends)), np.diff(np.searchsorted(places, self.ends), prepend=0))
        return places - self.shift[row], row


def packed_group(table: pa.Table, keys: list[str], aggregations: Sequence[tuple[str | None, GroupFunction]]) -> list[pa.Array] | None:
    """The distinct keys, a column for each of ``keys``, then a column for each aggregation, as :func:`dense_group`; None where the keys
    together are no small range of integers. In ascending order of the last key.

    >>> table = pa.table({"a": [1, 2] * 1000, "b": [5, 5] * 1000, "v": [1, 10] * 1000})
    >>> from rayad.dataflow.operators.keys.group_functions import SUM
    >>> [column.to_pylist() for column in packed_group(table, ["a", "b"], [("v", SUM)])]
    [[1, 2], [5, 5], [1000, 10000]]
    """
    if table.num_rows < ROWS_MIN or not all(can_be_packed(table.column(name)) for name in keys):
        return None
    most = min(RANGE_MAX, ROWS_PER_PLACE * table.num_rows)
    scales = [_Scale.of(name, table.column(name).cast(pa.int64()).to_numpy(), most) for name in keys]
    *inner, last = scales
    inner.sort(key=lambda scale: -scale.size)  # where the widest leads, a row's range is narrow
    width = prod(scale.size for scale in inner)
    rows: _Rows | None = None
    if width * last.size <= most:
        packed = last.places * width + _inner_places(inner)
    elif inner and last.size <= table.num_rows and width < _KEY_MAX:
        packed = _inner_places(inner)
        rows = _Rows.of(packed, last.places, last.size)
        if rows.ends[-1] > most:
            return None
        packed = packed + rows.shift[last.places]
    else:
        return None
    values = [name for name in table.schema.names if name not in keys]
    label = "packed" + "_" * max((len(name) for name in values), default=0)
    out = dense_group(pa.table([pa.array(packed), *(table.column(name) for name in values)], names=[label, *values]), label, aggregations)
    if out is None:
        return None
    found = out[0].to_numpy()
    rest, row = rows.opened(found) if rows is not None else _split(found, width)
    places = {last.name: row}
    for scale in reversed(inner):
        places[scale.name], rest = (rest, rest) if scale is inner[0] else _split(rest, scale.size)
    opened = {scale.name: scale.opened(places[scale.name], table.schema.field(scale.name).type) for scale in scales}
    return [*(opened[name] for name in keys), *out[1:]]


def _inner_places(scales: Sequence[_Scale]) -> Ticks:
    """Several numbers as one, the first leading."""
    packed = np.zeros(1, np.int64) if not scales else scales[0].places
    for scale in scales[1:]:
        packed = packed * scale.size + scale.places
    return packed


def _split(numbers: Ticks, size: int) -> tuple[Ticks, Ticks]:
    """What is left of numbers divided by ``size``, and how often it is in them; a third of the time of ``np.divmod``."""
    times = numbers // size
    return numbers - times * size, times


__all__ = ["Packing", "can_be_packed", "packed_group"]
