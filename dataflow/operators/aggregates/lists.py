"""A list for each key, held as columns: the items of all lists behind each other, and where each list begins and how long it is.

So a list costs no Python object, whatever is in it. A list that changes is written behind all others; what it was before stays until such
remains are more than half of the items.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rayad.dataflow.operators.state.runs.order import ranges
from rayad.dataflow.records.batches import taken_from

Numbers = npt.NDArray[np.int64]
REMAINS_MIN = 1 << 12
"""Fewer items than this that no list has any more may stay."""


def list_array(items: pa.Array, lengths: Numbers) -> pa.ListArray:
    """Lists of these lengths, one behind the other.

    >>> list_array(pa.array(["a", "b", "c"]), np.array([2, 0, 1])).to_pylist()
    [['a', 'b'], [], ['c']]
    """
    return pa.ListArray.from_arrays(pa.array(np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)]), pa.int32()), items)


def lengths_of(lists: pa.ListArray) -> Numbers:
    """How many items each list has, shape (lists,)."""
    lengths: Numbers = np.diff(lists.offsets.to_numpy()).astype(np.int64)
    return lengths


class Lists:
    """Lists by place, to be used as a numpy array of them: taken and set by slices, positions and masks.

    >>> some = Lists.of(pa.array([[1], [2, 3]]))
    >>> some = some.grown(3)
    >>> some[np.array([2, 0])] = Lists.of(pa.array([[7], [8, 9]]))
    >>> some.as_column(pa.list_(pa.int64())).to_pylist(), some[1:].as_column(pa.list_(pa.int64())).to_pylist()
    ([[8, 9], [2, 3], [7]], [[2, 3], [7]])
    """

    dtype = np.dtype(object)

    def __init__(self, items: Sequence[pa.Array], starts: Numbers, lengths: Numbers) -> None:
        self._items = tuple(items)
        self._starts = starts
        self.lengths = lengths
        self._live = int(lengths.sum())  # items that a list has

    @staticmethod
    def of(column: pa.ListArray) -> Lists:
        """A column of lists, none of them null."""
        lengths = lengths_of(column)
        return Lists((column.flatten(),), np.cumsum(lengths) - lengths, lengths)

    def __len__(self) -> int:
        return len(self.lengths)

    @property
    def nbytes(self) -> int:
        """Bytes, with items that no list has any more."""
        of_items: int = sum(items.nbytes for items in self._items)
        return of_items + self._starts.nbytes + self.lengths.nbytes

    def __getitem__(self, at: Any) -> Lists:
        return Lists(self._items, self._starts[at].copy(), self.lengths[at].copy())

    def __setitem__(self, at: Any, lists: Lists | None) -> None:
        """Set the lists of these places; None: empty ones."""
        self._live -= int(self.lengths[at].sum())
        if lists is None:
            self.lengths[at] = 0
            return
        begin = sum(map(len, self._items))
        self._starts[at] = begin + np.cumsum(lists.lengths) - lists.lengths
        self.lengths[at] = lists.lengths
        items = [*self._items, lists.items()]
        self._live += len(items[-1])
        if begin + len(items[-1]) > 2 * self._live + REMAINS_MIN:
            self._items = tuple(items)
            items = [self.items()]
            self._starts = np.cumsum(self.lengths) - self.lengths
        while len(items) > 1 and len(items[-2]) < 2 * len(items[-1]):  # so they stay few, and an item is copied a few times
            items[-2:] = [pa.concat_arrays(items[-2:])]
        self._items = tuple(items)

    def grown(self, size: int) -> Lists:
        """These lists, followed by empty ones up to ``size`` lists."""
        more = np.zeros(size - len(self), np.int64)
        return Lists(self._items, np.append(self._starts, more), np.append(self.lengths, more))

    def items(self) -> pa.Array:
        """The items of all lists, one behind the other."""
        return taken_from(self._items, ranges(self._starts, self.lengths))

    def as_column(self, kind: pa.DataType) -> pa.ListArray:
        """As a column of this type."""
        return list_array(self.items(), self.lengths).cast(kind)

    def beside(self, others: Lists) -> tuple[pa.Array, Numbers, Numbers]:
        """Items, and of each place the positions of its own and then of the other's, and how many these are."""
        mine, theirs = self.items(), others.items()
        starts = np.empty(2 * len(self), np.int64)
        lengths = np.empty(2 * len(self), np.int64)
        lengths[::2], lengths[1::2] = self.lengths, others.lengths
        starts[::2] = np.cumsum(self.lengths) - self.lengths
        starts[1::2] = len(mine) + np.cumsum(others.lengths) - others.lengths
        return pa.concat_arrays([mine, theirs]), ranges(starts, lengths), self.lengths + others.lengths
