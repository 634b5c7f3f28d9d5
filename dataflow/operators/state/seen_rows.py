"""Rows that have been seen, in columns: which of those that come are new is found without an object for a row.

The code of a row (``content_codes``) leads to the slot of the row that is kept, and the two are compared: codes alone decide nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rayad.dataflow.operators.state.group_index import chosen
from rayad.dataflow.operators.state.key_index import FIRST_SLOTS, integer_table
from rayad.dataflow.operators.state.keyed_state import NotedState
from rayad.dataflow.operators.state.reads.at_epochs import AtEpochs, Epochs
from rayad.dataflow.operators.state.reads.seen import RowsAtEpochs
from rayad.dataflow.operators.state.slot_groups import NotColumns, SlotGroups
from rayad.dataflow.operators.state.stored_columns import stored, taken_back
from rayad.dataflow.operators.state.touched_keys import Additions
from rayad.dataflow.operators.state.two_forms import ColumnForm
from rayad.dataflow.records.batches import keyed_columns, one_array, one_batch
from rayad.dataflow.records.content_codes import content_codes, contents_of, differences, next_codes

Positions = npt.NDArray[np.int64]


class RowIndex:
    """Slots 0, 1, 2, ... for distinct rows, in the order in which they are first seen. It has codes and no rows: whoever has the rows of
    the slots gives them to be compared.

    A row whose code leads to another row is looked for under its next code, and so on: a hash table with open addressing.
    """

    def __init__(self, rows: int) -> None:
        self._slots = integer_table(max(FIRST_SLOTS, rows))
        self._count = 0

    def slots_of(self, contents: pa.RecordBatch, kept: Callable[[Positions], pa.RecordBatch]) -> tuple[Positions, Positions]:
        """The slot of each row of what ``contents_of`` gave, shape (rows,), and where the rows of the new slots are, shape (new slots,).

        Args:
            kept: gives the rows of slots that are not new.

        Raises NotColumns with a pandas that does not have the table.
        """
        if self._slots is None:
            raise NotColumns
        slots = np.empty(contents.num_rows, np.int64)
        heads: list[Positions] = []
        rows, codes, before = np.arange(contents.num_rows), content_codes(contents), self._count
        while len(rows):
            found = self._slots.factorize(codes).astype(np.int64, copy=False)
            fresh = np.flatnonzero(found >= self._count)
            head = np.empty(int(self._slots.count) - self._count, np.int64)
            head[found[fresh[::-1]] - self._count] = rows[fresh[::-1]]
            heads.append(head)
            self._count += len(head)
            slots[rows] = found
            odd = self._odd(contents, rows, found, kept, before, np.concatenate(heads))
            rows, codes = rows[odd], next_codes(codes[odd])
        return slots, np.concatenate(heads) if heads else rows

    @staticmethod
    def _odd(contents: pa.RecordBatch, rows: Positions, slots: Positions, kept: Any, before: int, heads: Positions) -> Positions:
        """Which of these rows are others than those of the slots that their codes lead to."""
        old, new = np.flatnonzero(slots < before), np.flatnonzero(slots >= before)
        new = new[heads[slots[new] - before] != rows[new]]
        odd = [np.zeros(0, np.int64)]
        if len(old):
            odd.append(old[differences(contents.take(pa.array(rows[old])), kept(slots[old]))])
        if len(new):
            first = heads[slots[new] - before]
            odd.append(new[differences(contents.take(pa.array(rows[new])), contents.take(pa.array(first)))])
        return np.sort(np.concatenate(odd))


def first_positions(contents: pa.RecordBatch) -> Positions:
    """Where each distinct row of what ``contents_of`` gave is first, shape (distinct rows,). Raises NotColumns as :class:`RowIndex`.

    >>> first_positions(pa.record_batch({"x": [7, 5, 7]})).tolist()
    [0, 1]
    """
    return RowIndex(contents.num_rows).slots_of(contents, contents.take)[1]


class SeenRows(NotedState, ColumnForm):
    """Distinct rows of batches whose leading columns are marked as the key.

    Args:
        pairs: gives rows of columns as the ``(key, something)`` pairs of the row form.

    >>> from rayad.dataflow.records.batches import mark_keyed, to_rows
    >>> seen, batch = SeenRows(to_rows), mark_keyed(pa.record_batch({"k": [1, 1, 2], "v": ["a", "a", "a"]}), 1)
    >>> seen.new(batch).tolist(), seen.new(batch).tolist(), seen.as_rows()
    ([0, 2], [], [(1, 'a'), (2, 'a')])
    """

    inline = True

    def __init__(self, pairs: Callable[[pa.RecordBatch], list[Any]]) -> None:
        self._pairs = pairs
        self._schema: pa.Schema | None = None
        self._batches: list[pa.RecordBatch] = []  # slot after slot
        self._index: RowIndex | None = None
        self._count = 0
        self._given: npt.NDArray[np.bool_] | None = None  # slots whose rows were given to another replica
        self._groups: SlotGroups | None = None
        self._noted: Additions = Additions()
        self.came: RowsAtEpochs | None = None
        """Told of the slots that come; None: nobody has read yet."""

    @property
    def is_used(self) -> bool:
        return self._count > (0 if self._given is None else int(np.count_nonzero(self._given)))

    def new(self, batch: pa.RecordBatch) -> Positions:
        """The positions of the rows that have not been seen, each the first of its like; now they have.

        Raises NotColumns, with nothing changed, where rows must do it.
        """
        contents = contents_of(batch)
        if contents is None or not self.fits(batch := contents.replace_schema_metadata(batch.schema.metadata)):
            raise NotColumns
        return self._new(batch)

    def _new(self, contents: pa.RecordBatch) -> Positions:
        if self._index is None:
            self._index = RowIndex(contents.num_rows)
        slots, first = self._index.slots_of(contents, self._at)
        again = self._again(slots)
        self._schema = contents.schema if self._schema is None else self._schema
        self._put(contents.take(pa.array(first)))
        rows = np.concatenate([first, again]) if len(again) else first
        if len(rows) and self.came is not None:
            self.came.add(slots[rows])
        if len(rows):
            self._noted.note(contents.take(pa.array(rows)), len(rows), self._count)
        return rows

    def _again(self, slots: Positions) -> Positions:
        """Where rows are that had been given away, and are here now."""
        if self._given is None:
            return np.zeros(0, np.int64)
        known = np.flatnonzero(slots < self._count)
        _, at = np.unique(slots[known], return_index=True)
        rows: Positions = known[at]
        rows = rows[self._given[slots[rows]]]
        self._given[slots[rows]] = False
        return rows

    def _put(self, rows: pa.RecordBatch) -> None:
        if not rows.num_rows:
            return
        batches = self._batches
        batches.append(rows)
        self._count += rows.num_rows
        if self._given is not None:
            self._given = np.append(self._given, np.zeros(rows.num_rows, np.bool_))
        while len(batches) > 1 and batches[-2].num_rows < 2 * batches[-1].num_rows:  # so they stay few, and a row is copied a few times
            batches[-2:] = [one_batch(pa.Table.from_batches(batches[-2:]))]

    def _table(self) -> pa.Table:
        return pa.Table.from_batches(self._batches, schema=self._schema)

    def _at(self, slots: Positions) -> pa.RecordBatch:
        return one_batch(self._table().take(pa.array(slots)))

    def _kept(self) -> list[pa.RecordBatch]:
        """What is here, without what was given away."""
        if self._given is None or not self._given.any():
            return self._batches
        return [self._at(np.flatnonzero(~self._given))] if self.is_used else []

    # -- to be read ----------------------------------------------------------------
    def at_epochs(self, epochs: Epochs) -> AtEpochs:
        return RowsAtEpochs(self, epochs)

    @property
    def slots(self) -> int:
        """How many there are, those that were given away included."""
        return self._count

    def are_here(self) -> npt.NDArray[np.bool_]:
        """Whether the row of each slot is here, shape (slots,)."""
        return np.ones(self._count, np.bool_) if self._given is None else ~self._given

    def key_columns(self, first: int) -> list[Any]:
        """The keys of the slots from ``first`` on."""
        return [one_array(column.slice(first)) for column in self._keys()]

    def pairs_at(self, slots: Positions) -> list[Any]:
        """The rows of slots as the row form has them."""
        return self._pairs(self.rows_at(slots)) if len(slots) else []

    def rows_at(self, slots: Positions) -> pa.RecordBatch:
        """The rows of slots, marked with their key."""
        return self._at(slots)

    def slots_of(self, rows: pa.RecordBatch) -> Positions:
        """The slots of rows, all of which are here."""
        assert self._index is not None
        return self._index.slots_of(rows, self._at)[0]

    def slots_of_groups(self, groups: frozenset[int], key_groups: int) -> Positions:
        """Where rows are of these key-groups, and are here."""
        if not self.is_used:
            return np.zeros(0, np.int64)
        self._groups = self._groups or SlotGroups(key_groups)
        return np.flatnonzero(chosen(groups, key_groups)[self._groups.of(self._keys())] & self.are_here())

    def as_rows(self) -> list[Any]:
        return [pair for batch in self._kept() for pair in self._pairs(batch)]

    # -- snapshots -----------------------------------------------------------------
    def checkpoint(self) -> Any:
        return stored(self._kept())

    def restore(self, stored: Any) -> None:
        for batch in taken_back(stored):
            self._new(batch)
        self.forget_changes()

    def changed(self, noted: list[pa.RecordBatch]) -> Any:
        return stored(noted)

    def restore_changes(self, changes: Any) -> None:
        for batch in taken_back(changes):
            self._new(batch)

    # -- to other replicas ---------------------------------------------------------
    def _keys(self) -> tuple[Any, ...]:
        assert self._schema is not None
        return tuple(self._table().columns[: keyed_columns(self._schema) or 0])

    def index(self, key_groups: int) -> Iterator[None]:
        if self._count:
            self._groups = SlotGroups(key_groups)
            yield from self._groups.slices(self._keys())

    def give(self, groups: frozenset[int], key_groups: int) -> pa.RecordBatch | None:
        if not self.is_used:
            return None
        slots = self.slots_of_groups(groups, key_groups)
        if self._given is None:
            self._given = np.zeros(self._count, np.bool_)
        self._given[slots] = True
        return self._at(slots) if len(slots) else None

    def fits(self, given: pa.RecordBatch) -> bool:
        schema = self._schema
        return schema is None or (bool(schema.equals(given.schema)) and keyed_columns(schema) == keyed_columns(given.schema))

    def take(self, given: pa.RecordBatch) -> None:
        self._new(given)

    def gave(self) -> None:
        """The change of layout is over: what was given goes, where that is most."""
        self._groups = None
        if self._given is None or 2 * np.count_nonzero(self._given) < self._count:
            return
        kept, came, self.came = self._kept(), self.came, None
        if came is not None:
            came.keep(np.flatnonzero(self.are_here()))
        self._batches, self._index, self._count, self._given = [], None, 0, None
        if not kept:
            self._schema = None
        for batch in kept:
            self._new(batch)
        self.came = came
        self.forget_changes()


__all__ = ["SeenRows", "first_positions"]
