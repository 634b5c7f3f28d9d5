"""From node numbers to dense indexes, for whole columns at once: a table by number, or a hash table.

Numbers that lie close together, as when nodes are numbered from 0, are looked up in an array by number: one read each. Others, which
all nodes are that are no integers, go through an open-addressing hash table (linear probing, at most half full).
"""

from __future__ import annotations

import numpy as np

from rayad.dataflow.records.key_hashing import mix64_array
from rayad.graphs.numbers import Ints

_SLOT_BITS_MIN = 10
SPAN_PER_NODE_MAX = 16
"""A table by number may be so many times as long as there are nodes: 128 bytes a node at most, where a hash table takes up to 32."""
SPAN_MIN = 1 << 12


def is_close(low: int, high: int, count: int) -> bool:
    """Whether ``count`` numbers from ``low`` to ``high`` are close enough for a table by number."""
    return high - low < max(SPAN_MIN, SPAN_PER_NODE_MAX * count)


class DirectIndex:
    """Dense index by ``number - base``; -1 where there is none.

    >>> index = DirectIndex(10, 12)
    >>> index.insert(np.array([10, 12]), np.array([0, 1]))
    >>> index.find(np.array([12, 11, 9, 10])).tolist()
    [1, -1, -1, 0]
    """

    def __init__(self, low: int, high: int) -> None:
        self.base = low
        self._slots: Ints = np.full(high - low + 1, -1, np.int64)

    @property
    def bounds(self) -> tuple[int, int]:
        """The least and the greatest number that have a place."""
        return self.base, self.base + len(self._slots) - 1

    def reach(self, low: int, high: int) -> None:
        """Make places from ``low`` to ``high``; at the ends that move, some more, so that growing step by step stays linear."""
        old_low, old_high = self.bounds
        slack = len(self._slots) // 2
        new_low = old_low if low >= old_low else max(low - slack, min(low, 0))
        new_high = old_high if high <= old_high else high + slack
        slots = np.full(new_high - new_low + 1, -1, np.int64)
        slots[old_low - new_low : old_low - new_low + len(self._slots)] = self._slots
        self.base, self._slots = new_low, slots

    def find(self, numbers: Ints) -> Ints:
        """The dense index of each number, -1 where it is unknown."""
        if not len(numbers):
            return np.empty(0, np.int64)
        low, high = self.bounds
        if low <= int(numbers.min()) and int(numbers.max()) <= high:
            return self._slots.take(numbers - low if low else numbers, mode="clip")  # "clip": without a second check of bounds
        inside = (numbers >= low) & (numbers <= high)
        found = np.full(len(numbers), -1, np.int64)
        found[inside] = self._slots[numbers[inside] - low]
        return found

    def insert(self, numbers: Ints, dense: Ints) -> None:
        """Put in numbers that are not there and lie within ``bounds``."""
        self._slots[numbers - self.base] = dense


class HashIndex:
    """Dense index by hash. ``stored`` has the number of each dense index; it may be longer.

    >>> stored = np.array([30, 10])
    >>> index = HashIndex(stored, 2)
    >>> index.find(stored, np.array([10, 99])).tolist()
    [1, -1]
    """

    def __init__(self, stored: Ints, count: int) -> None:
        self._slot_bits = max(_SLOT_BITS_MIN, (2 * count).bit_length())
        self._slots: Ints = np.full(1 << self._slot_bits, -1, np.int64)
        self.insert(stored, np.arange(count))

    def has_room(self, count: int) -> bool:
        """Whether ``count`` nodes in all leave it at most half full."""
        return 2 * count <= len(self._slots)

    def find(self, stored: Ints, numbers: Ints) -> Ints:
        """The dense index of each number, -1 where it is unknown."""
        found = np.full(len(numbers), -1, np.int64)
        slots, last = self._slots, len(self._slots) - 1
        at = self._slot_of(numbers)
        dense = slots[at]
        hit = (dense >= 0) & (stored[dense] == numbers)
        found[hit] = dense[hit]
        left = np.flatnonzero(~hit & (dense >= 0))
        at = at[left]
        while len(left):
            at = (at + 1) & last
            dense = slots[at]
            hit = (dense >= 0) & (stored[dense] == numbers[left])
            found[left[hit]] = dense[hit]
            more = ~hit & (dense >= 0)
            left, at = left[more], at[more]
        return found

    def insert(self, stored: Ints, dense: Ints) -> None:
        """Put in dense indexes whose numbers are not there."""
        slots, last = self._slots, len(self._slots) - 1
        at = self._slot_of(stored[dense])
        while len(dense):
            free = slots[at] < 0
            slots[at[free]] = dense[free]  # of several for one slot the last one stays, the others go on
            left = slots[at] != dense
            dense, at = dense[left], (at[left] + 1) & last

    def _slot_of(self, numbers: Ints) -> Ints:
        # High bits: the low ones say the key-group, of which a replica has only some.
        return (mix64_array(numbers) >> np.uint64(64 - self._slot_bits)).astype(np.int64)
