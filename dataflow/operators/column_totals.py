"""Running totals of columnar partials: numpy arrays, and an index from key to slot.

Columns stay columns from the sender to the output. The index from key to slot is not made before a second time needs it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rayad.dataflow.operators.column_windows import one_batch
from rayad.dataflow.operators.key_index import MutableKeyIndex
from rayad.dataflow.operators.stored_columns import narrow, stored, taken_back


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
        self._changes: _Changes | None = None
        self.arrays = [np.zeros(0, dtype=schema.field(key_columns + i).type.to_pandas_dtype()) for i in range(len(merges))]

    def merge(self, partial: pa.RecordBatch) -> list[Any]:
        """Add one row per distinct key; gives the totals of those keys, as arrays in the same order.

        Raises OverflowError, before anything has changed, when a sum could leave 64 bits.
        """
        before = len(self)
        slots = self._slots_of(partial)
        needed = len(self)
        if self._changes is not None and not self._changes.note(partial.columns[: self.key_columns], slots, before, needed):
            self._changes = None
        columns = []
        grown = [self._grown(i, needed, how) for i, how in enumerate(self.merges)]
        for i, (how, array) in enumerate(zip(self.merges, grown, strict=True)):
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

    # -- snapshots -----------------------------------------------------------------
    def checkpoint(self) -> dict[str, Any]:
        """Keys by slot and their totals; the index is made anew by :meth:`restore`."""
        types = [self.schema.field(i).type for i in range(self.key_columns)]
        keys = self._index.key_columns(types) if self._index is not None else self._first_keys
        return {"schema": self.schema, "keys": _stored_keys(keys), "totals": [_narrowed(a[: len(self)]) for a in self.arrays]}

    @staticmethod
    def restore(state: dict[str, Any], merges: tuple[str, ...]) -> MutableColumnTotals:
        """What :meth:`checkpoint` gave."""
        columns = MutableColumnTotals(merges, state["schema"], len(state["schema"]) - len(merges))
        keys = state["keys"]
        if isinstance(keys, list):
            columns._made_index().restore(keys)
        elif keys is not None:
            columns._first_keys = _columns_of(keys)
        columns.arrays = [total.astype(own.dtype) for total, own in zip(state["totals"], columns.arrays, strict=True)]
        return columns

    def take_changes(self) -> Callable[[], dict[str, Any]] | None:
        """The keys that are new since the last call, and the totals that have changed, or all of them where these are more than half."""
        changes, self._changes = self._changes, _Changes(len(self))
        return None if changes is None else lambda: self._changed(changes)

    def _changed(self, changes: _Changes) -> dict[str, Any]:
        is_most = 2 * changes.count(len(self)) > len(self)
        old: Any = slice(0, changes.known) if is_most else changes.touched()
        new = slice(changes.known, len(self))
        return {
            "keys": _stored(changes.new_keys),
            "slots": None if is_most else narrow(old),
            "totals": [(_narrowed(array[old]), _narrowed(array[new])) for array in self.arrays],
        }

    def restore_changes(self, changes: dict[str, Any]) -> None:
        """Take back what the function of :meth:`take_changes` gave."""
        known = len(self)
        if changes["keys"] is not None:
            self._made_index().slots_of(taken_back(changes["keys"])[0].columns)
        for i, (how, (old, new)) in enumerate(zip(self.merges, changes["totals"], strict=True)):
            array = self._grown(i, len(self), how)
            array[slice(0, known) if changes["slots"] is None else changes["slots"]] = old
            array[known : len(self)] = new


def _stored_keys(keys: list[Any] | None) -> Any:
    """Key columns as bytes; keys that Arrow does not have as they are."""
    if keys is None or not all(isinstance(column, pa.Array) for column in keys):
        return keys
    wide = [column.type == pa.int64() and not column.null_count for column in keys]
    return _stored([[pa.array(narrow(column.to_numpy())) if is_wide else column for column, is_wide in zip(keys, wide, strict=True)]]), wide


def _narrowed(array: Any) -> Any:
    """Integers in as few bytes as hold them, others as they are; a copy in either case, so that it stays as it was."""
    small = narrow(array) if array.dtype == np.int64 else array
    return small.copy() if small is array else small


def _stored(keys: list[list[pa.Array]]) -> Any:
    batches = [pa.RecordBatch.from_arrays(columns, names=[f"k{i}" for i in range(len(columns))]) for columns in keys]
    return tuple(stored([one_batch(pa.Table.from_batches(batches))])) if batches else None


def _columns_of(keys: Any) -> list[pa.Array]:
    parts, wide = keys
    columns: list[pa.Array] = taken_back(parts)[0].columns
    return [column.cast(pa.int64()) if is_wide else column for column, is_wide in zip(columns, wide, strict=True)]


class _Changes:
    """Which of ``known`` slots have been touched, and the keys of later ones."""

    def __init__(self, known: int) -> None:
        self.known = known
        self._dirty: npt.NDArray[np.bool_] = np.zeros(known, np.bool_)
        self.new_keys: list[list[pa.Array]] = []

    def note(self, keys: list[pa.Array], slots: Any, before: int, now: int) -> bool:
        """Rows with these keys, each a different one, had these slots, those from ``before`` on for the first time. False, and no longer
        right, when most slots of now are new."""
        if 2 * self.known < now:
            return False
        if now == before == self.known:
            self._dirty[slots] = True
            return True
        self._dirty[slots[slots < self.known]] = True
        if now > before:
            fresh = pa.array(np.flatnonzero(slots >= before))
            self.new_keys.append([column.take(fresh) for column in keys])
        return True

    def count(self, now: int) -> int:
        """How many slots of ``now`` were touched."""
        return int(np.count_nonzero(self._dirty)) + now - self.known

    def touched(self) -> npt.NDArray[np.int64]:
        """The known ones of them."""
        return np.flatnonzero(self._dirty)


def _leaves(left: Any, right: Any) -> bool:
    """Whether some sum of two elements could leave the integer type; decided by the extremes alone."""
    if not len(left):
        return False
    info = np.iinfo(left.dtype)
    return bool(int(left.max()) + int(right.max()) > info.max or int(left.min()) + int(right.min()) < info.min)
