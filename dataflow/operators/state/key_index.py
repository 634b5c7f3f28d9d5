"""From key to slot: where the totals of a key stand in numpy arrays.

One column of 64-bit integers goes through pandas' incremental integer hash table, which takes whole columns and makes no object for a key.
Every other key goes through a dict. See docs/decisions/014-vectorised-operators.md.
"""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa

from rayad.dataflow.records.moments import keys_in

FIRST_SLOTS = 1024


class KeyIndex:
    """Slots 0, 1, 2, ... for the keys of ``key_columns`` Arrow columns, in the order in which keys are first seen; kept for ever.

    >>> index = KeyIndex(1)
    >>> index.slots_of([pa.array([7, 5, 7])]).tolist(), index.slots_of([pa.array([5, 9])]).tolist(), len(index)
    ([0, 1, 0], [1, 2], 3)
    >>> index.keys()
    [7, 5, 9]
    """

    def __init__(self, key_columns: int) -> None:
        self._key_columns = key_columns
        self._integers: Any = None
        self._slots: dict[Any, int] = {}

    def __len__(self) -> int:
        return int(self._integers.count) if self._integers is not None else len(self._slots)

    def slots_of(self, columns: list[pa.Array]) -> Any:
        """The slot of each row, int64 of shape (rows,); new keys get the next ones."""
        column = columns[0]
        if self._key_columns == 1 and column.type == pa.int64() and not column.null_count:
            if self._integers is None and not self._slots:
                self._integers = integer_table(max(FIRST_SLOTS, len(column)))
            if self._integers is not None:
                return self._integers.factorize(np.ascontiguousarray(column.to_numpy())).astype(np.int64, copy=False)
        self._to_dict()
        keys = keys_in(columns)
        slots = self._slots
        found = list(map(slots.get, keys))
        if None in found:
            found = [slots.setdefault(key, len(slots)) if slot is None else slot for key, slot in zip(keys, found, strict=True)]
        return np.array(found, dtype=np.int64)

    def known(self, keys: list[Any]) -> Any:
        """The slots of those of these keys that are here, int64."""
        slots = self.found(keys)
        return slots[slots >= 0]

    def found(self, keys: list[Any]) -> Any:
        """The slot of each of these keys, int64 of shape (keys,); -1 of one that is not here.

        >>> index = KeyIndex(1)
        >>> index.slots_of([pa.array([7, 5])]).tolist(), index.found([5.0, "x", 8, 7]).tolist()
        ([0, 1], [1, -1, -1, 0])
        """
        if self._integers is None:
            return np.array([self._slots.get(key, -1) for key in keys], dtype=np.int64)
        out = np.full(len(keys), -1, np.int64)
        numbers = [(at, key) for at, key in enumerate(keys) if isinstance(key, (int, float, Decimal, Fraction))]
        whole = [(at, int(key)) for at, key in numbers if -(1 << 63) <= key < 1 << 63 and int(key) == key]
        if whole:
            out[[at for at, _ in whole]] = self._integers.table.lookup(np.array([number for _, number in whole], dtype=np.int64))
        return out

    def slot_keys(self) -> tuple[pa.Array, ...] | list[Any]:
        """The keys by slot as they are kept: integers as a column that stays as it is, others as Python objects."""
        return (pa.array(self._integers.uniques.to_array()),) if self._integers is not None else list(self._slots)

    def key_columns(self, types: list[pa.DataType]) -> list[pa.Array] | list[Any]:
        """All keys by slot, for :meth:`restore`: as Arrow columns of these types where Arrow has them, else as :meth:`keys`."""
        if self._integers is not None:
            return [pa.array(self._integers.uniques.to_array())]
        keys = self.keys()
        columns = zip(*keys, strict=True) if self._key_columns > 1 and keys else [keys]
        try:
            return [pa.array(list(column), kind) for column, kind in zip(columns, types, strict=True)]
        except (pa.ArrowException, TypeError, ValueError, OverflowError):
            return keys

    def restore(self, keys: list[Any]) -> None:
        """Take back what :meth:`key_columns` gave, into an empty index."""
        if keys and all(isinstance(column, pa.Array) for column in keys):
            self.slots_of(keys)
        else:
            self._slots = {key: slot for slot, key in enumerate(keys)}

    def keys(self) -> list[Any]:
        """All keys as Python objects, by slot."""
        return self._integers.uniques.to_array().tolist() if self._integers is not None else list(self._slots)

    def _to_dict(self) -> None:
        if self._integers is not None:
            self._slots = {key: slot for slot, key in enumerate(self.keys())}
            self._integers = None


def integer_table(size: int) -> Any:
    """pandas' table from integers to the numbers 0, 1, 2, ... in the order in which they are first seen; None with a pandas without it."""
    try:
        from pandas._libs.hashtable import Int64Factorizer
    except ImportError:  # another pandas: then a dict does it
        return None
    return Int64Factorizer(size)
