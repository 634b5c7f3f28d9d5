"""The nodes that one replica knows: its own, and those of other replicas that its edges and labels speak of.

Each gets a dense index in order of arrival, which never changes, so that all other state is arrays by dense index.
Nodes of one call are added in order of their numbers: the dense indexes, and with them the order of floating-point
sums, do not depend on the order in which batches arrived. The lookup is an open-addressing hash table in numpy (linear
probing, at most half full), for whole columns at once.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from rayad.dataflow import DataflowError
from rayad.dataflow.hashing import mix64_array
from rayad.graphs.numbers import Ints, Mask, decode_names, distinct, order_key, owners

_SLOT_BITS_MIN = 10


class MutableNodes:
    """Numbers, names and owners of nodes by dense index.

    >>> nodes = MutableNodes(replica=0, parallelism=1, key_groups=256)
    >>> nodes.add(np.array([30, 10, 30])).tolist(), nodes.find(np.array([10, 99])).tolist(), len(nodes)
    ([1, 0, 1], [0, -1], 2)
    """

    def __init__(self, replica: int, parallelism: int, key_groups: int) -> None:
        self.replica = replica
        self.parallelism = parallelism
        self.key_groups = key_groups
        self.count = 0
        self.names: dict[int, Any] = {}
        self._numbers: Ints = np.empty(1 << (_SLOT_BITS_MIN - 1), np.int64)
        self._mine: Mask = np.empty(len(self._numbers), np.bool_)
        self._slot_bits = _SLOT_BITS_MIN
        self._slots: Ints = np.full(1 << _SLOT_BITS_MIN, -1, np.int64)

    def __len__(self) -> int:
        return self.count

    @property
    def numbers(self) -> Ints:
        """The node number of each dense index."""
        return self._numbers[: self.count]

    @property
    def mine(self) -> Mask:
        """Which dense indexes are nodes of this replica."""
        return self._mine[: self.count]

    # -- looking up ----------------------------------------------------------------
    def find(self, numbers: Ints) -> Ints:
        """The dense index of each number, -1 where it is unknown."""
        found = np.full(len(numbers), -1, np.int64)
        slots, stored, last = self._slots, self._numbers, len(self._slots) - 1
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

    def add(self, numbers: Ints, names: pa.Array | None = None) -> Ints:
        """The dense index of each number; unknown ones are taken in, with their names if a column of them is given."""
        found = self.find(numbers)
        missing = found < 0
        if missing.any():
            self._take_in(distinct(numbers[missing]))
            found[missing] = self.find(numbers[missing])
        if names is not None:
            self.learn(found, names)
        return found

    def add_new(self, *columns: Ints) -> None:
        """Take in what is unknown in any of several columns, in one order whatever their order."""
        self._take_in(distinct(np.concatenate([column[self.find(column) < 0] for column in columns])))

    def _take_in(self, fresh: Ints) -> None:
        self._reserve(self.count + len(fresh))
        dense = np.arange(self.count, self.count + len(fresh))
        self._numbers[dense] = fresh
        self._mine[dense] = owners(fresh, self.parallelism, self.key_groups) == self.replica
        self.count += len(fresh)
        self._insert(dense)

    def _slot_of(self, numbers: Ints) -> Ints:
        # High bits: the low ones say the key-group, of which this replica has only some.
        return (mix64_array(numbers) >> np.uint64(64 - self._slot_bits)).astype(np.int64)

    def _insert(self, dense: Ints) -> None:
        slots, last = self._slots, len(self._slots) - 1
        at = self._slot_of(self._numbers[dense])
        while len(dense):
            free = slots[at] < 0
            slots[at[free]] = dense[free]  # of several for one slot the last one stays, the others go on
            left = slots[at] != dense
            dense, at = dense[left], (at[left] + 1) & last

    def _reserve(self, count: int) -> None:
        if count > len(self._numbers):
            size = max(count, 2 * len(self._numbers))
            self._numbers = np.resize(self._numbers, size)
            self._mine = np.resize(self._mine, size)
        if 2 * count > len(self._slots):
            while 2 * count > 1 << self._slot_bits:
                self._slot_bits += 1
            self._slots = np.full(1 << self._slot_bits, -1, np.int64)
            self._insert(np.arange(self.count))

    # -- names ----------------------------------------------------------------------
    def learn(self, dense: Ints, column: pa.Array) -> None:
        """Keep the names of nodes; nulls are nodes that are their own numbers."""
        firsts = np.unique(dense, return_index=True)[1]
        for index, name in zip(dense[firsts].tolist(), decode_names(column.take(pa.array(firsts))), strict=True):
            known = self.names.setdefault(index, name) if name is not None else self.names.get(index)
            if known != name:
                raise DataflowError(f"the nodes {known!r} and {name!r} have the same 64-bit hash: rename one of them")

    def name(self, dense: int) -> Any:
        """The node at a dense index as a Python object."""
        name = self.names.get(dense)
        return int(self._numbers[dense]) if name is None else name

    def names_of(self, dense: Ints) -> list[Any]:
        """The nodes at dense indexes as Python objects."""
        if not self.names:
            listed: list[Any] = self._numbers[dense].tolist()
            return listed
        return [self.name(index) for index in dense.tolist()]

    def in_order(self, dense: Ints) -> Ints:
        """Dense indexes sorted by their nodes: see :func:`rayad.graphs.numbers.order_key`."""
        if not self.names:
            return dense[np.argsort(self._numbers[dense])]
        return np.array(sorted(dense.tolist(), key=lambda index: order_key(self.name(index))), np.int64)


def grown(array: Any, count: int, fill: Any) -> Any:
    """``array`` with room for at least ``count`` elements, new ones holding ``fill``; doubles, so that growing step by
    step stays linear."""
    if count <= len(array):
        return array
    larger = np.full(max(count, 2 * len(array), 64), fill, array.dtype)
    larger[: len(array)] = array
    return larger
