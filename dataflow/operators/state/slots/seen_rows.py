"""Rows that have been seen, in columns: which of those that come are new is found without an object for a row.

Rows have slots (``row_index``). Beyond a bound on memory they are in sorted runs, by key-group and code; one that comes again is found
there, and stays there.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rayad.dataflow.operators.state.group_index import groups_of_columns
from rayad.dataflow.operators.state.keyed_state import NotedState
from rayad.dataflow.operators.state.reads.at_epochs import AtEpochs, Epochs
from rayad.dataflow.operators.state.reads.seen import RowsAtEpochs
from rayad.dataflow.operators.state.runs.above_runs import Beyond
from rayad.dataflow.operators.state.runs.order import Places, places_in_groups, slices_of_groups
from rayad.dataflow.operators.state.runs.rows_below import RowsBelow
from rayad.dataflow.operators.state.slots.integers import NUMBER_BYTES
from rayad.dataflow.operators.state.slots.row_index import IndexedRows, first_positions
from rayad.dataflow.operators.state.slots.slot_groups import NotColumns, SlotKeys
from rayad.dataflow.operators.state.slots.slots import Slots
from rayad.dataflow.operators.state.stored_columns import stored, taken_back
from rayad.dataflow.operators.state.touched_keys import Additions
from rayad.dataflow.operators.state.two_forms import ColumnForm
from rayad.dataflow.records.batches import keyed_columns, one_array
from rayad.dataflow.records.content_codes import content_codes, contents_of, differences
from rayad.dataflow.records.key_hashing import key_group

Positions = npt.NDArray[np.int64]


class SeenBelow(RowsBelow):
    """Rows that have been seen and have no slot. The place of a row is its key-group, and then its code: a key may have many rows."""

    def __init__(self) -> None:
        super().__init__(0)

    def places(self, rows: pa.RecordBatch) -> Places:
        keys = rows.columns[: keyed_columns(rows.schema) or 0]
        return places_in_groups(groups_of_columns(keys, self.key_groups), content_codes(rows).view(np.uint64), self.key_groups)

    def are_alike(self, asked: pa.RecordBatch, rows: pa.RecordBatch) -> npt.NDArray[np.bool_]:
        alike = np.ones(rows.num_rows, np.bool_)
        alike[differences(asked, rows)] = False
        return alike

    def known(self, rows: pa.RecordBatch) -> npt.NDArray[np.bool_]:
        """Which of these rows, which differ, are here, shape (rows,)."""
        known = np.zeros(rows.num_rows, np.bool_)
        known[self.met(rows).mine] = True
        return known

    def rows_of_groups(self, groups: Collection[int]) -> Iterator[pa.RecordBatch]:
        """The rows of these key-groups."""
        for run in self.each_live():
            for low, high in slices_of_groups(run.place, groups, self.key_groups):
                yield run.rows.slice(low, high - low)


class SeenRows(Slots[SeenBelow], NotedState, ColumnForm):
    """Distinct rows of batches whose leading columns are marked as the key.

    Args:
        pairs: gives rows of columns as the ``(key, something)`` pairs of the row form.

    >>> from rayad.dataflow.records.batches import mark_keyed, to_rows
    >>> seen, batch = SeenRows(to_rows), mark_keyed(pa.record_batch({"k": [1, 1, 2], "v": ["a", "a", "a"]}), 1)
    >>> seen.new(batch).tolist(), seen.new(batch).tolist(), seen.as_rows()
    ([0, 2], [], [(1, 'a'), (2, 'a')])
    """

    inline = True
    runs_below: ClassVar[type[SeenBelow]] = SeenBelow

    def __init__(self, pairs: Callable[[pa.RecordBatch], list[Any]]) -> None:
        super().__init__(self.runs_below)
        self._pairs = pairs
        self._schema: pa.Schema | None = None
        self._rows: IndexedRows | None = None  # by slot
        self._noted: Additions = Additions()
        self.came: RowsAtEpochs | None = None
        """Told of the slots that come; None: nobody has read yet."""

    @property
    def is_used(self) -> bool:
        return self.is_beyond_memory or len(self) > (0 if self._given is None else int(np.count_nonzero(self._given)))

    @property
    def noted_bytes(self) -> int:
        return self._noted.nbytes

    def new(self, batch: pa.RecordBatch) -> Positions:
        """The positions of the rows that have not been seen, each the first of its like; now they have.

        Raises NotColumns, with nothing changed, where rows must do it.
        """
        contents = contents_of(batch)
        if contents is None or not self.fits(batch := contents.replace_schema_metadata(batch.schema.metadata)):
            raise NotColumns
        return self._new(batch)

    def _new(self, contents: pa.RecordBatch) -> Positions:
        runs = self._below.some
        if runs is None:
            return self._new_in_slots(contents)
        first = first_positions(contents)
        first = first[~runs.known(contents.take(pa.array(first)))]
        return first[self._new_in_slots(contents.take(pa.array(first)))]

    def _new_in_slots(self, contents: pa.RecordBatch) -> Positions:
        if self._rows is None:
            self._rows = IndexedRows(contents.num_rows)
        known = len(self)
        slots, first = self._rows.slots_of(contents)
        again = self._again(slots, known)
        self._schema = contents.schema if self._schema is None else self._schema
        rows = np.concatenate([first, again]) if len(again) else first
        if len(rows) and self.came is not None:
            self.came.add(slots[rows])
        if len(rows):
            fresh = contents.take(pa.array(rows))
            self._noted.note(fresh, len(rows), self.count, fresh.nbytes)
        return rows

    def _again(self, slots: Positions, known: int) -> Positions:
        """Where rows are that had been given away, and are here now: in the first ``known`` slots."""
        if self._given is None:
            return np.zeros(0, np.int64)
        old = np.flatnonzero(slots < known)
        _, at = np.unique(slots[old], return_index=True)
        rows: Positions = old[at]
        rows = rows[~self.there(slots[rows], known)]
        self.come(slots[rows])
        return rows

    def _at(self, slots: Positions) -> pa.RecordBatch:
        assert self._rows is not None
        return self._rows.at(slots)

    def _kept(self) -> list[pa.RecordBatch]:
        """What is in slots, without what was given away."""
        if self._given is None or not self._given.any():
            return [] if self._rows is None else self._rows.batches
        slots = self.used()
        return [self._at(slots)] if len(slots) else []

    # -- slots, and what is below them ---------------------------------------------
    def __len__(self) -> int:
        return 0 if self._rows is None else self._rows.count

    @property
    def held_bytes(self) -> int:
        return 0 if self._rows is None else self._rows.nbytes + NUMBER_BYTES * self._rows.count

    def slot_keys(self) -> SlotKeys:
        return self._keys() if len(self) else []

    def rows_at(self, slots: Positions) -> pa.RecordBatch:
        """The rows of slots, marked with their key."""
        return self._at(slots)

    def empty(self, slots: Positions) -> None:
        """Rows stay, since codes lead to them."""

    def forget_slots(self) -> None:
        self._rows = None
        if self.came is not None:
            self.came.begin_anew()

    def renumber(self, slots: Positions) -> None:
        left, came = self._at(slots), self.came
        if came is not None:
            came.keep(slots)
        self.came, self._given = None, None
        self._rows = None
        if left.num_rows:
            self._new_in_slots(left)
        elif not self.is_beyond_memory:
            self._schema = None
        self.came = came
        self.forget_changes()

    # -- to be read ----------------------------------------------------------------
    def at_epochs(self, epochs: Epochs) -> AtEpochs:
        return RowsAtEpochs(self, epochs)

    @property
    def slots(self) -> int:
        """How many there are, those that were given away included."""
        return len(self)

    def are_here(self) -> npt.NDArray[np.bool_]:
        """Whether the row of each slot is here, shape (slots,)."""
        return self.there(np.arange(len(self)), len(self))

    def pairs_below(self, keys: Sequence[Any] | None = None) -> list[Any]:
        """The rows without a slot, perhaps only those of these keys and of some others, as the row form has them."""
        below = self._below.runs
        if below is None:
            return []
        groups = range(below.key_groups) if keys is None else {key_group(key, below.key_groups) for key in keys}
        return [pair for rows in below.rows_of_groups(groups) for pair in self._pairs(rows)]

    def key_columns(self, first: int) -> list[Any]:
        """The keys of the slots from ``first`` on."""
        return [one_array(column.slice(first)) for column in self._keys()]

    def pairs_at(self, slots: Positions) -> list[Any]:
        """The rows of slots as the row form has them."""
        return self._pairs(self.rows_at(slots)) if len(slots) else []

    def slots_of(self, rows: pa.RecordBatch) -> Positions:
        """The slots of rows, all of which are here."""
        assert self._rows is not None
        return self._rows.found(rows)

    def as_rows(self) -> list[Any]:
        return [pair for batch in self._kept() for pair in self._pairs(batch)] + self.pairs_below()

    # -- snapshots -----------------------------------------------------------------
    def checkpoint(self) -> Any:
        rows = stored(self._kept())
        return rows if (below := self._below.some) is None else {"rows": rows, "schema": self._schema, "below": below.checkpoint()}

    def restore(self, stored: Any) -> None:
        if isinstance(stored, dict):
            self._schema = stored["schema"]
            self._below.made().restore(stored["below"])
            stored = stored["rows"]
        self.restore_changes(stored)
        self.forget_changes()

    def changed(self, noted: list[pa.RecordBatch]) -> Any:
        return stored(noted)

    def restore_changes(self, changes: Any) -> None:
        for batch in taken_back(changes):
            self._new(batch)

    # -- to other replicas ---------------------------------------------------------
    def _keys(self) -> tuple[Any, ...]:
        assert self._schema is not None
        assert self._rows is not None
        return tuple(self._rows.table().columns[: keyed_columns(self._schema) or 0])

    def give(self, groups: frozenset[int], key_groups: int) -> pa.RecordBatch | Beyond | None:
        """Where there are runs also of no rows a batch, which has their schema."""
        given = super().give(groups, key_groups)
        if isinstance(given, Beyond) and given.rows is None:
            return Beyond(pa.RecordBatch.from_pylist([], schema=self._schema), given.runs)
        return given

    def fits(self, given: pa.RecordBatch | Beyond) -> bool:
        mine, other = self._schema, _schema_of(given)
        return mine is None or (bool(mine.equals(other)) and keyed_columns(mine) == keyed_columns(other))

    def take(self, given: pa.RecordBatch | Beyond) -> None:
        self._schema = self._schema or _schema_of(given)
        super().take(given)

    def take_held(self, given: pa.RecordBatch) -> None:
        self._new(given)


def _schema_of(given: pa.RecordBatch | Beyond) -> pa.Schema:
    return given.rows.schema if isinstance(given, Beyond) else given.schema


__all__ = ["SeenBelow", "SeenRows"]
