"""64-bit integers and the numbers 0, 1, 2, ... in the order in which they are first seen, without an object for any."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

FIRST_SLOTS = 1024
NUMBER_BYTES = 48
"""Of each: the table keeps it twice, and is at most a third full."""


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


__all__ = ["FIRST_SLOTS", "NUMBER_BYTES", "IntegerTable", "integer_table"]
