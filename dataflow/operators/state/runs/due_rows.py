"""The rows of a run in the order of their moments, though they are sorted by key."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from rayad.dataflow.operators.state.runs.order import Positions, ticks
from rayad.dataflow.records.sorting import stable_order

BLOCK_ROWS = 1 << 14
"""So many rows are put in order at a time: all are looked at once for as many that come due, and the others take no memory."""


def has_order(kind: pa.DataType) -> bool:
    """Whether moments of this type can be put in order as numbers."""
    return bool(pa.types.is_integer(kind) or pa.types.is_temporal(kind) or pa.types.is_floating(kind) or pa.types.is_null(kind))


class DueRows:
    """Gives each row once.

    Args:
        moments: of all rows; null: never.

    >>> due = DueRows(pa.array([7, None, 3, 5]))
    >>> due.come(lambda moment: moment < 6, 9).tolist(), due.come(lambda moment: moment < 6, 9).tolist(), due.come(bool, 9).tolist()
    ([2, 3], [], [0])
    """

    def __init__(self, moments: pa.Array) -> None:
        self._moments = moments
        self._block: Positions = np.zeros(0, np.int64)
        self._last: Any = None  # the number of the last row that was ever in a block
        self._is_last = False

    def come(self, has_come: Callable[[Any], bool], most: int) -> Positions:
        """The positions of the rows for whose moments this holds, and that were not given before, the earliest first, and at most so many.
        It holds for all moments before one for which it does."""
        out = [np.zeros(0, np.int64)]
        while most:
            if not len(self._block):
                if self._is_last:
                    break
                self._block = self._next_block()
            block = self._block
            count = min(most, bisect_left(block, True, key=lambda row: not has_come(self._moments[int(row)].as_py())))
            out.append(block[:count])
            most -= count
            self._block = block[count:]
            if count < len(block):
                break
        return np.concatenate(out)

    def _next_block(self) -> Positions:
        """The rows that come after those of the last block; rows of one moment are in one block."""
        numbers = self._numbers()
        later = self._moments.is_valid().to_numpy(zero_copy_only=False)
        if self._last is not None:
            later = later & (numbers > self._last)
        rows = np.flatnonzero(later)
        numbers = numbers[rows]
        self._is_last = len(rows) <= BLOCK_ROWS
        if not self._is_last:
            some = numbers <= np.partition(numbers, BLOCK_ROWS - 1)[BLOCK_ROWS - 1]
            rows, numbers = rows[some], numbers[some]
        if len(numbers):
            self._last = numbers.max()
        ordered: Positions = rows[stable_order(numbers)]
        return ordered

    def _numbers(self) -> npt.NDArray[Any]:
        """Of each row; any where it has no moment."""
        moments = self._moments
        if pa.types.is_floating(moments.type):
            return moments.to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]
        if moments.null_count == len(moments):
            return np.zeros(len(moments), np.int64)
        return ticks(pc.fill_null(moments, moments.drop_null()[0]) if moments.null_count else moments)


__all__ = ["DueRows", "has_order"]
