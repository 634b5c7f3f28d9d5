"""The nodes that one replica knows: its own, and those of other replicas that its edges and labels refer to.

Each gets a dense index in order of arrival, which never changes, so that all other state is arrays by dense index.
Nodes of one call are added in order of their numbers: the dense indexes, and with them the order of floating-point
sums, do not depend on the order in which batches arrived. The lookup is for whole columns at once (``node_index.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import islice
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rayad.dataflow import DataflowError, show
from rayad.dataflow.operators.state.stored_columns import narrow
from rayad.graphs.node_index import SPAN_MIN, DirectIndex, HashIndex, is_close
from rayad.graphs.numbers import Ints, Mask, decode_names, distinct, order_key, owners, to_column

_NODES_MIN = 64


class Nodes:
    """Numbers, names and owners of nodes by dense index.

    >>> nodes = Nodes(replica=0, parallelism=1, key_groups=256)
    >>> nodes.add(np.array([30, 10, 30])).tolist(), nodes.find(np.array([10, 99])).tolist(), len(nodes)
    ([1, 0, 1], [0, -1], 2)
    """

    def __init__(self, replica: int, parallelism: int, key_groups: int) -> None:
        self.replica = replica
        self.parallelism = parallelism
        self.key_groups = key_groups
        self.count = 0
        self.names: dict[int, Any] = {}
        self._numbers: Ints = np.empty(_NODES_MIN, np.int64)
        self._mine: Mask = np.empty(_NODES_MIN, np.bool_)
        self._index: DirectIndex | HashIndex | None = None
        self._written: tuple[int, int] | None = None

    # -- snapshots -----------------------------------------------------------------
    def checkpoint(self) -> Any:
        """Numbers and names by dense index; owners and the index follow from them."""
        return narrow(self.numbers), self.names

    def restore(self, state: Any) -> None:
        """Take back what :meth:`checkpoint` gave."""
        numbers, self.names = state
        self._append(numbers.astype(np.int64))

    def take_changes(self) -> Callable[[], Any] | None:
        """The nodes and names taken in since the last call; None where they are most of them."""
        written, self._written = self._written, (self.count, len(self.names))
        if written is None or 2 * written[0] < self.count:
            return None
        return lambda: (narrow(self.numbers[written[0] :]), dict(islice(self.names.items(), written[1], None)))

    def restore_changes(self, changes: Any) -> None:
        """Take back what the function of :meth:`take_changes` gave."""
        numbers, names = changes
        self._append(numbers.astype(np.int64))
        self.names.update(names)

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
        if isinstance(self._index, DirectIndex):
            return self._index.find(numbers)
        if self._index is None:
            return np.full(len(numbers), -1, np.int64)
        return self._index.find(self._numbers, numbers)

    def add(self, numbers: Ints, names: pa.Array | None = None) -> Ints:
        """The dense index of each number; unknown ones are taken in, with their names. Without names they are their own numbers."""
        known = self.count
        found = self.add_unnamed(numbers)
        self.learn([(found, names)], known)
        return found

    def add_unnamed(self, numbers: Ints) -> Ints:
        """As :meth:`add` for nodes whose names are learned after this."""
        found = self.find(numbers)
        missing = np.flatnonzero(found < 0)
        if len(missing):
            unknown = numbers[missing]
            self.add_new(unknown)
            found[missing] = self.find(unknown)
        return found

    def add_new(self, *columns: Any) -> None:
        """Take in what is unknown in any of several columns (int64 or int32), in one order whatever their order."""
        columns = tuple(column for column in columns if len(column))
        if not columns:
            return
        low, high = min(int(column.min()) for column in columns), max(int(column.max()) for column in columns)
        if high - low < max(SPAN_MIN, sum(map(len, columns))):
            seen = np.zeros(high - low + 1, np.bool_)
            for column in columns:
                numbers = column.astype(np.int64, copy=False)
                seen[numbers - low if low else numbers] = True
            fresh = np.flatnonzero(seen) + low
            fresh = fresh[self.find(fresh) < 0]
        else:
            wide = (column.astype(np.int64, copy=False) for column in columns)
            fresh = distinct(np.concatenate([distinct(numbers[self.find(numbers) < 0]) for numbers in wide]))
        if len(fresh):
            self._take_in(fresh)

    def _take_in(self, fresh: Ints) -> None:
        """Give dense indexes to numbers that have none, sorted and once each."""
        self._append(fresh)

    def _append(self, fresh: Ints) -> None:
        """Give dense indexes to numbers that have none, in their order."""
        if not len(fresh):
            return
        count = self.count + len(fresh)
        if count > len(self._numbers):
            size = max(count, 2 * len(self._numbers))
            self._numbers = np.resize(self._numbers, size)
            self._mine = np.resize(self._mine, size)
        dense = np.arange(self.count, count)
        self._numbers[dense] = fresh
        self._mine[dense] = owners(fresh, self.parallelism, self.key_groups) == self.replica
        self.count = count
        self._insert(fresh, dense)

    def _insert(self, fresh: Ints, dense: Ints) -> None:
        low, high = int(fresh.min()), int(fresh.max())
        index = self._index
        if isinstance(index, DirectIndex):
            first, last = index.bounds
            if low >= first and high <= last:
                index.insert(fresh, dense)
            elif is_close(min(low, first), max(high, last), self.count):
                index.reach(low, high)
                index.insert(fresh, dense)
            else:
                self._index = HashIndex(self._numbers, self.count)
        elif index is not None and index.has_room(self.count):
            index.insert(self._numbers, dense)
        else:  # it is made anew: as more nodes come, numbers that seemed far apart may turn out to be close
            numbers = self.numbers
            low, high = int(numbers.min()), int(numbers.max())
            if is_close(low, high, self.count):
                direct = self._index = DirectIndex(low, high)
                direct.insert(numbers, np.arange(self.count))
            else:
                self._index = HashIndex(self._numbers, self.count)

    # -- names ----------------------------------------------------------------------
    def learn(self, given: Iterable[tuple[Ints, pa.Array | None]], known: int) -> None:
        """Keep the names of nodes: of dense indexes, a column; where it or its value is null, nodes are their own numbers.

        ``known``: how many nodes there were before these were taken in; those of them that have no name are their own numbers. Raises
        DataflowError where two nodes have one number, among these or with what was learned before.
        """
        sides = list(given)
        for dense, column in sides:
            if column is not None:
                self._learn_column(dense, column, known)
        for dense, column in sides if self.names else ():
            self._require_unnamed(dense if column is None else dense[column.is_null().to_numpy(zero_copy_only=False)])

    def _learn_column(self, dense: Ints, column: pa.Array, known: int) -> None:
        firsts, places = np.unique(dense, return_index=True, return_inverse=True)[1:]
        self._refuse_others(column, column.take(to_column(firsts[places])))
        for index, name in zip(dense[firsts].tolist(), decode_names(column.take(to_column(firsts))), strict=True):
            if name is None:
                continue
            if index < known and index not in self.names:
                raise _one_number(int(self._numbers[index]), name)
            before = self.names.setdefault(index, name)
            if before != name:
                raise _one_number(before, name)

    @staticmethod
    def _refuse_others(column: pa.Array, first: pa.Array) -> None:
        """Every row's name must be the one that its number came with first; only where bytes differ are objects compared."""
        same = pc.or_(pc.fill_null(pc.equal(column, first), False), pc.and_(pc.is_null(column), pc.is_null(first)))
        if pc.all(same).as_py() in (True, None):
            return
        rows = np.flatnonzero(~same.to_numpy(zero_copy_only=False))
        taken = to_column(rows)
        for one, other in zip(decode_names(first.take(taken)), decode_names(column.take(taken)), strict=True):
            if one != other:
                raise _one_number(one, other)

    def _require_unnamed(self, dense: Ints) -> None:
        """Nodes that are their own numbers: none of them may have a name."""
        named = next((index for index in distinct(dense).tolist() if index in self.names), None)
        if named is not None:
            raise _one_number(self.names[named], int(self._numbers[named]))

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


def _one_number(one: Any, other: Any) -> DataflowError:
    return DataflowError(
        f"the nodes {show(one, 60)} and {show(other, 60)} have one number, the same 64-bit hash, and would be taken for one node: "
        "rename one of them, or number the nodes yourself"
    )


def grown(array: Any, count: int, fill: Any) -> Any:
    """``array`` with room for at least ``count`` elements, new ones holding ``fill``; doubles, so that growing step by
    step stays linear."""
    if count <= len(array):
        return array
    larger = np.full(max(count, 2 * len(array), 64), fill, array.dtype)
    larger[: len(array)] = array
    return larger
