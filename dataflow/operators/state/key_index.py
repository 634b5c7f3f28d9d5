"""From key to slot: where the totals of a key stand in numpy arrays.

One column of 64-bit integers goes through pandas' hash table of integers, which takes whole columns and makes no object for a key.
Every other key goes through a dict. See docs/decisions/014-vectorised-operators.md.
"""

from __future__ import annotations

from collections.abc import Callable
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
        self._integers: IntegerTable | None = None
        self._slots: dict[Any, int] = {}

    def __len__(self) -> int:
        return len(self._slots if self._integers is None else self._integers)

    def slots_of(self, columns: list[pa.Array]) -> Any:
        """The slot of each row, int64 of shape (rows,); new keys get the next ones."""
        column = columns[0]
        if self._key_columns == 1 and column.type == pa.int64() and not column.null_count:
            if self._integers is None and not self._slots:
                self._integers = integer_table(max(FIRST_SLOTS, len(column)))
            if self._integers is not None:
                return self._integers.numbers_of(np.ascontiguousarray(column.to_numpy()))
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
            out[[at for at, _ in whole]] = self._integers.found(np.array([number for _, number in whole], dtype=np.int64))
        return out

    def slot_keys(self) -> tuple[pa.Array, ...] | list[Any]:
        """The keys by slot as they are kept: integers as a column that stays as it is, others as Python objects."""
        return (pa.array(self._integers.values),) if self._integers is not None else list(self._slots)

    def key_columns(self, types: list[pa.DataType]) -> list[pa.Array] | list[Any]:
        """All keys by slot, for :meth:`restore`: as Arrow columns of these types where Arrow has them, else as :meth:`keys`."""
        if self._integers is not None:
            return [pa.array(self._integers.values)]
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
        return self._integers.values.tolist() if self._integers is not None else list(self._slots)

    def _to_dict(self) -> None:
        if self._integers is not None:
            self._slots = {key: slot for slot, key in enumerate(self.keys())}
            self._integers = None


def integer_table(size: int) -> IntegerTable | None:
    """A table with room for so many integers; None with a pandas that has none."""
    try:
        from pandas._libs.hashtable import Int64HashTable, Int64Vector
    except ImportError:  # another pandas: then a dict does it
        return None
    return IntegerTable(Int64HashTable(size), Int64Vector, size)


class IntegerTable:
    """64-bit integers and the numbers 0, 1, 2, ... in the order in which they are first seen.

    What a call takes depends on what it is given, not on what is here. pandas' ``Int64Factorizer`` around the same hash table copies all
    integers at each call: 50 ms for ten of them where there are 3 million.

    Args:
        table: pandas' hash table, empty.
        vector: makes an empty vector, to which the table appends integers that are new.
        size: room for so many integers at first.
    """

    def __init__(self, table: Any, vector: Callable[[], Any], size: int) -> None:
        self._table = table
        self._vector = vector
        self._values = np.empty(size, np.int64)
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def numbers_of(self, values: Any) -> Any:
        """The number of each of these, int64 of shape (values,); new ones get the next ones."""
        fresh = self._vector()
        numbers = self._table.get_labels(values, fresh, self._count, -1)
        new = fresh.to_array()
        count = self._count + len(new)
        if count > len(self._values):
            room = np.empty(max(count, 2 * len(self._values)), np.int64)
            room[: self._count] = self.values
            self._values = room
        self._values[self._count : count] = new
        self._count = count
        return numbers.astype(np.int64, copy=False)

    def found(self, values: Any) -> Any:
        """The number of each of these, int64 of shape (values,); -1 of one that is not here."""
        return self._table.lookup(values)

    @property
    def values(self) -> Any:
        """The integers by number; what was given once stays as it is."""
        return self._values[: self._count]


__all__ = ["FIRST_SLOTS", "IntegerTable", "KeyIndex", "integer_table"]
