"""Running totals of columnar partials: numpy arrays, and an index from key to slot.

Columns stay columns from the sender to the output. The index from key to slot is not made before a second time needs it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from rayad.dataflow.operators.key_index import MutableKeyIndex


class MutableColumnTotals:
    """Totals per key in numpy arrays; keys keep their slot for ever.

    Args:
        merges: how each partial column merges: "sum", "min" or "max".
        schema: of the partials: ``key_columns`` keys, then one column for each of ``merges``.
    """

    def __init__(self, merges: tuple[str, ...], schema: pa.Schema, key_columns: int) -> None:
        self.schema = schema
        self.key_columns = key_columns
        self.merges = merges
        self._index: MutableKeyIndex | None = None
        self._first_keys: list[pa.Array] | None = None  # of the first time: their slots are their positions
        self.arrays = [np.zeros(0, dtype=schema.field(key_columns + i).type.to_pandas_dtype()) for i in range(len(merges))]

    def merge(self, partial: pa.RecordBatch) -> list[Any]:
        """Add one row per distinct key; gives the totals of those keys, as arrays in the same order.

        Raises OverflowError, before anything has changed, when a sum could leave 64 bits.
        """
        slots = self._slots_of(partial)
        needed = len(self)
        columns = []
        for i, how in enumerate(self.merges):
            array = self._grown(i, needed, how)
            column = partial.column(self.key_columns + i)
            neutral = self._neutral(array.dtype, how)
            values = (column.fill_null(neutral) if column.null_count else column).to_numpy(zero_copy_only=False)
            if how == "sum" and array.dtype.kind != "f" and _leaves(array[slots], values):
                raise OverflowError(f"{self.schema.names[self.key_columns + i]} leaves 64 bits")
            columns.append((how, array, values))
        out = []
        for how, array, values in columns:
            if how == "sum":
                array[slots] += values
            elif how == "min":
                array[slots] = np.fmin(array[slots], values)
            else:
                array[slots] = np.fmax(array[slots], values)
            out.append(array[slots].copy() if isinstance(slots, slice) else array[slots])
        return out

    def __len__(self) -> int:
        return len(self._index) if self._index is not None else len(self._first_keys[0]) if self._first_keys is not None else 0

    def _slots_of(self, partial: pa.RecordBatch) -> Any:
        columns = partial.columns[: self.key_columns]
        if self._index is None and self._first_keys is None:
            self._first_keys = columns
            return slice(0, partial.num_rows)
        return self._made_index().slots_of(columns)

    def _made_index(self) -> MutableKeyIndex:
        if self._index is None:
            self._index = MutableKeyIndex(self.key_columns)
            if self._first_keys is not None:
                self._index.slots_of(self._first_keys)
                self._first_keys = None
        return self._index

    def _grown(self, i: int, needed: int, how: str) -> Any:
        array = self.arrays[i]
        if needed > len(array):
            size = max(needed, 2 * len(array), 1024)
            grown = np.full(size, self._neutral(array.dtype, how), dtype=array.dtype)
            grown[: len(array)] = array
            self.arrays[i] = array = grown
        return array

    @staticmethod
    def _neutral(dtype: Any, how: str) -> Any:
        if how == "sum":
            return dtype.type(0).item()
        if dtype.kind == "f":
            return float("nan")  # fmin and fmax pass NaN over
        info = np.iinfo(dtype)
        return int(info.max if how == "min" else info.min)

    def rows(self) -> list[tuple[Any, tuple[Any, ...]]]:
        """``(key, partials)`` of every key."""
        columns = [array.tolist() for array in self.arrays]
        return [(key, tuple(column[slot] for column in columns)) for slot, key in enumerate(self._made_index().keys())]


def _leaves(left: Any, right: Any) -> bool:
    """Whether some sum of two elements could leave the integer type; decided by the extremes alone."""
    if not len(left):
        return False
    info = np.iinfo(left.dtype)
    return bool(int(left.max()) + int(right.max()) > info.max or int(left.min()) + int(right.min()) < info.min)
