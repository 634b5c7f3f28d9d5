"""Distinct rows in columns, by slot: 0, 1, 2, ... in the order in which they are first seen, without an object for a row.

The code of a row (``content_codes``) leads to the slot of the row that is kept, and the two are compared: codes alone decide nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rayad.dataflow.operators.state.slots.integers import FIRST_SLOTS, integer_table
from rayad.dataflow.operators.state.slots.slot_groups import NotColumns
from rayad.dataflow.records.batches import one_batch, taken_from
from rayad.dataflow.records.content_codes import content_codes, differences, next_codes

Positions = npt.NDArray[np.int64]

_BATCH_BYTES_MAX = 1 << 30
"""Larger ones are not put together: a column of strings holds 2 GiB."""


class RowIndex:
    """Slots 0, 1, 2, ... for distinct rows, in the order in which they are first seen. It has codes and no rows: whoever has the rows of
    the slots gives them to be compared.

    A row whose code leads to another row is looked for under its next code, and so on: a hash table with open addressing. Its numbers are
    the slots until that has happened to rows that came together: such a row is numbered after all that came with it.
    """

    def __init__(self, rows: int) -> None:
        self._numbers = integer_table(max(FIRST_SLOTS, rows))
        self._slots: Positions | None = None  # by number; None: they are the same

    def slots_of(self, contents: pa.RecordBatch, kept: Callable[[Positions], pa.RecordBatch]) -> tuple[Positions, Positions]:
        """The slot of each row of what ``contents_of`` gave, shape (rows,), and where the rows of the new slots are, shape (new slots,).

        Args:
            kept: gives the rows of slots that are not new.

        Raises NotColumns with a pandas that does not have the table.
        """
        if self._numbers is None:
            raise NotColumns
        numbers = np.empty(contents.num_rows, np.int64)
        heads = np.zeros(0, np.int64)
        rows, codes, before = np.arange(contents.num_rows), content_codes(contents), len(self._numbers)
        while len(rows):
            count = before + len(heads)
            found = self._numbers.numbers_of(codes)
            fresh = np.flatnonzero(found >= count)
            head = np.empty(len(self._numbers) - count, np.int64)
            head[found[fresh[::-1]] - count] = rows[fresh[::-1]]
            heads = np.concatenate([heads, head])
            numbers[rows] = found
            odd = self._odd(contents, rows, found, kept, before, heads)
            rows, codes = rows[odd], next_codes(codes[odd])
        return self._in_order(numbers, before, heads), np.sort(heads)

    def _in_order(self, numbers: Positions, before: int, heads: Positions) -> Positions:
        """The slots of these numbers, of which those after ``before`` are new: they are where ``heads`` says."""
        if (heads[1:] < heads[:-1]).any() or self._slots is not None:
            known = np.arange(before) if self._slots is None else self._slots
            self._slots = np.concatenate([known, before + np.argsort(np.argsort(heads))])
        return self._at(numbers)

    def _at(self, numbers: Positions) -> Positions:
        return numbers if self._slots is None else self._slots[numbers]

    def found(self, contents: pa.RecordBatch, kept: Callable[[Positions], pa.RecordBatch]) -> Positions:
        """The slot of each row, shape (rows,); -1 of one that is not here. Arguments as of :meth:`slots_of`."""
        slots = np.full(contents.num_rows, -1, np.int64)
        rows, codes = np.arange(contents.num_rows), content_codes(contents)
        while self._numbers is not None and len(rows):
            found = self._numbers.found(codes)
            there = np.flatnonzero(found >= 0)
            slots[rows] = -1
            rows, codes = rows[there], codes[there]
            slots[rows] = self._at(found[there])
            odd = differences(contents.take(pa.array(rows)), kept(slots[rows])) if len(rows) else there
            rows, codes = rows[odd], next_codes(codes[odd])
        return slots

    def _odd(
        self, contents: pa.RecordBatch, rows: Positions, numbers: Positions, kept: Callable[[Positions], Any], before: int, heads: Positions
    ) -> Positions:
        """Which of these rows are others than those that their codes lead to."""
        old, new = np.flatnonzero(numbers < before), np.flatnonzero(numbers >= before)
        new = new[heads[numbers[new] - before] != rows[new]]
        odd = [np.zeros(0, np.int64)]
        if len(old):
            odd.append(old[differences(contents.take(pa.array(rows[old])), kept(self._at(numbers[old])))])
        if len(new):
            first = heads[numbers[new] - before]
            odd.append(new[differences(contents.take(pa.array(rows[new])), contents.take(pa.array(first)))])
        return np.sort(np.concatenate(odd))


class IndexedRows:
    """Distinct rows that ``contents_of`` gave, all of one schema, with their index.

    Args:
        rows: room for so many at first.

    >>> rows = IndexedRows(2)
    >>> [each.tolist() for each in rows.slots_of(pa.record_batch({"x": ["a", "b", "a"]}))], rows.at(np.array([1])).column(0).to_pylist()
    ([[0, 1, 0], [0, 1]], ['b'])
    """

    def __init__(self, rows: int) -> None:
        self._index = RowIndex(rows)
        self._schema: pa.Schema | None = None
        self.batches: list[pa.RecordBatch] = []
        """Slot after slot, each at most half as large as the one before it."""
        self.count = 0

    def slots_of(self, contents: pa.RecordBatch) -> tuple[Positions, Positions]:
        """The slot of each row, shape (rows,), and where the rows are that are new, in the order of their slots. Raises NotColumns as
        :class:`RowIndex`."""
        slots, first = self._index.slots_of(contents, self.at)
        self._put(contents.take(pa.array(first)))
        return slots, first

    def found(self, contents: pa.RecordBatch) -> Positions:
        """The slot of each row, shape (rows,); -1 of one that is not here."""
        return self._index.found(contents, self.at)

    def _put(self, rows: pa.RecordBatch) -> None:
        self._schema = self._schema or rows.schema
        if not rows.num_rows:
            return
        batches = self.batches
        batches.append(rows)
        while len(batches) > 1 and batches[-2].num_rows < 2 * batches[-1].num_rows:  # so they stay few, and a row is copied a few times
            if batches[-2].nbytes + batches[-1].nbytes > _BATCH_BYTES_MAX:
                break
            batches[-2:] = [one_batch(pa.Table.from_batches(batches[-2:]))]
        self.count += rows.num_rows

    def table(self) -> pa.Table:
        """All of them, slot after slot."""
        return pa.Table.from_batches(self.batches, schema=self._schema)

    def at(self, slots: Positions) -> pa.RecordBatch:
        """The rows of these slots, in their order."""
        rows: pa.RecordBatch = taken_from(self.batches, slots)
        return rows

    @property
    def nbytes(self) -> int:
        """Bytes of the rows."""
        return sum(batch.nbytes for batch in self.batches)


def first_positions(contents: pa.RecordBatch) -> Positions:
    """Where each distinct row of what ``contents_of`` gave is first, shape (distinct rows,). Raises NotColumns as :class:`RowIndex`.

    >>> first_positions(pa.record_batch({"x": [7, 5, 7]})).tolist()
    [0, 1]
    """
    return RowIndex(contents.num_rows).slots_of(contents, contents.take)[1]


__all__ = ["IndexedRows", "RowIndex", "first_positions"]
