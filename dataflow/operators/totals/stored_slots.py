"""What a snapshot has of totals by slot: keys and arrays in as few bytes as hold them, and which slots have changed."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rayad.dataflow.operators.aggregates.lists import Lists
from rayad.dataflow.operators.state.stored_columns import narrow, stored, taken_back
from rayad.dataflow.records.batches import one_batch


def stored_keys(keys: list[Any] | None) -> Any:
    """Key columns as bytes; keys that Arrow does not have as they are."""
    if keys is None or not all(isinstance(column, pa.Array) for column in keys):
        return keys
    wide = [column.type == pa.int64() and not column.null_count for column in keys]
    columns = [pa.array(narrow(column.to_numpy())) if is_wide else column for column, is_wide in zip(keys, wide, strict=True)]
    return stored_columns([columns]), wide


def narrowed(array: Any, kind: pa.DataType) -> Any:
    """Integers in as few bytes as hold them, lists as columns, others as they are; a copy in any case, so that it stays as it
    was."""
    if isinstance(array, Lists):
        return tuple(stored([pa.RecordBatch.from_arrays([array.as_column(kind)], names=["lists"])]))
    small = narrow(array) if array.dtype == np.int64 else array
    own = small.copy() if small is array else small
    own.flags.writeable = False  # the writer needs no copy of its own
    return own


def widened(stored: Any, own: Any) -> Any:
    """The inverse of :func:`narrowed`, for the place of ``own``."""
    return Lists.of(taken_back(stored)[0].column(0)) if isinstance(own, Lists) else stored.astype(own.dtype)


def stored_columns(keys: list[list[pa.Array]]) -> Any:
    """Key columns, some at a time, as one batch in bytes; None: there are none."""
    batches = [pa.RecordBatch.from_arrays(columns, names=[f"k{i}" for i in range(len(columns))]) for columns in keys]
    return tuple(stored([one_batch(pa.Table.from_batches(batches))])) if batches else None


def columns_of(keys: Any) -> list[pa.Array]:
    """The inverse of :func:`stored_keys` of columns."""
    parts, wide = keys
    columns: list[pa.Array] = taken_back(parts)[0].columns
    return [column.cast(pa.int64()) if is_wide else column for column, is_wide in zip(columns, wide, strict=True)]


class ChangedSlots:
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


__all__ = ["ChangedSlots", "columns_of", "narrowed", "stored_columns", "stored_keys", "widened"]
