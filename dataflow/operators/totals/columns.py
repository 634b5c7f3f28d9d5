"""Running totals of columnar partials: numpy arrays, and an index from key to slot; beyond a bound on memory in sorted runs.

Columns stay columns from the sender to the output. The index from key to slot is not made before a second time needs it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rayad.dataflow.operators.aggregates.held import as_column, as_values, grown, held_bytes, nothing_held
from rayad.dataflow.operators.aggregates.partial import Partials
from rayad.dataflow.operators.keys.schemas import as_schema
from rayad.dataflow.operators.state.reads.slots import Former, SlotVersions
from rayad.dataflow.operators.state.runs.order import Positions
from rayad.dataflow.operators.state.slots.key_index import KeyIndex
from rayad.dataflow.operators.state.slots.slot_groups import NotColumns, SlotKeys, columns_of_slots
from rayad.dataflow.operators.state.slots.slots import Slots
from rayad.dataflow.operators.state.stored_columns import narrow, taken_back
from rayad.dataflow.operators.totals.below import TotalsBelow
from rayad.dataflow.operators.totals.stored_slots import ChangedSlots, columns_of, narrowed, stored_columns, stored_keys, widened
from rayad.dataflow.records.batches import one_batch
from rayad.dataflow.records.moments import keys_in


class ColumnTotals(Slots[TotalsBelow]):
    """Totals per key in numpy arrays; a key keeps its slot as long as it is here.

    Args:
        partials: what its columns are, and how they merge.
        schema: ``key_columns`` keys, then the columns of the partials.
    """

    def __init__(self, partials: Partials, schema: pa.Schema, key_columns: int) -> None:
        super().__init__(partial(TotalsBelow, key_columns))
        self.schema = schema
        self.key_columns = key_columns
        self.partials = partials
        self._index: KeyIndex | None = None
        self._first_keys: list[pa.Array] | None = None  # of the first time: their slots are their positions
        self._changes: ChangedSlots | None = None
        self.versions: SlotVersions | None = None
        """What changed slots had before; None: nobody has read yet."""
        self.arrays = self._nothing()

    def _nothing(self) -> list[Any]:
        return [nothing_held(kind) for kind in self.schema.types[self.key_columns :]]

    def merge(self, partial: pa.RecordBatch) -> list[Any]:
        """Add one row per distinct key; gives the totals of those keys, as arrays in the same order.

        Raises OverflowError, before anything has changed, when a sum could leave 64 bits.
        """
        before = len(self)
        slots = self._slots_of(partial)
        needed = len(self)
        if self._changes is not None and not self._changes.note(partial.columns[: self.key_columns], slots, before, needed):
            self._changes = None
        arrays = [self._grown(i, needed) for i in range(self.partials.width)]
        back = self._brought_back(partial.columns[: self.key_columns], slots, before)
        if self.versions is not None:
            changed = np.arange(needed) if isinstance(slots, slice) else slots
            there = self.there(changed, before)
            self.versions.note(changed, there if back is None else there | np.isin(changed, back), arrays)
        self.come(slots)
        return self.partials.merge_at(arrays, slots, self.partials.filled(partial.columns[self.key_columns :]))

    def __len__(self) -> int:
        return len(self._index) if self._index is not None else len(self._first_keys[0]) if self._first_keys is not None else 0

    def _slots_of(self, partial: pa.RecordBatch) -> Any:
        columns = partial.columns[: self.key_columns]
        if self._index is None and self._first_keys is None and self._below.runs is None:
            self._first_keys = columns
            return slice(0, partial.num_rows)
        return self._made_index().slots_of(columns)

    def _made_index(self) -> KeyIndex:
        if self._index is None:
            self._index = KeyIndex(self.key_columns)
            if self._first_keys is not None:
                self._index.slots_of(self._first_keys)
                self._first_keys = None
        return self._index

    def _grown(self, i: int, needed: int) -> Any:
        array = self.arrays[i]
        if needed > len(array):
            size = max(needed, 2 * len(array), 1024)
            self.arrays[i] = array = grown(array, size, self.partials.neutral(i, array.dtype))
        return array

    def _typed(self) -> list[tuple[Any, pa.DataType]]:
        return list(zip(self.arrays, self.schema.types[self.key_columns :], strict=True))

    # -- beyond memory ---------------------------------------------------------------
    @property
    def held_bytes(self) -> int:
        keys = self._index.nbytes if self._index is not None else sum(column.nbytes for column in self._first_keys or ())
        return sum(map(held_bytes, self.arrays)) + keys

    def forget_slots(self) -> None:
        self._index, self._first_keys, self._changes = None, None, None
        self.arrays = self._nothing()
        if self.versions is not None:
            self.versions.begin_now()  # slots are others

    def _brought_back(self, keys: list[pa.Array], slots: Any, before: int) -> npt.NDArray[np.int64] | None:
        """Give the keys of rows in slots in which nothing was the totals that they have below; gives these slots. None: there is nothing
        below."""
        runs = self._below.some
        if runs is None:
            return None
        self._changes = None
        fresh = np.flatnonzero(~self.there(slots, before))
        at = pa.array(fresh)
        which, totals = runs.taken_out([column.take(at) for column in keys])
        back: npt.NDArray[np.int64] = slots[fresh[which]]
        if totals is not None:
            self.partials.merge_at(self.arrays, back, self.partials.filled(totals.columns[self.key_columns :]))
            self.come(back)
        return back

    def _bring_back(self, keys: Sequence[Any]) -> None:
        """Give those of these keys that have totals below a slot with them."""
        runs = self._below.some
        if runs is None:
            return
        found = self._made_index().found(list(keys))
        there = (found >= 0) & self.there(found, len(self))
        for columns in _as_columns([key for key, is_there in zip(keys, there.tolist(), strict=True) if not is_there], self._key_types()):
            _, totals = runs.taken_out(columns)
            if totals is not None:
                slots = self._slots_of(totals)
                for i in range(self.partials.width):
                    self._grown(i, len(self))
                self.partials.merge_at(self.arrays, slots, self.partials.filled(totals.columns[self.key_columns :]))
                self.come(slots)
                self._changes = None

    def _rows_below(self) -> list[tuple[Any, tuple[Any, ...]]]:
        out: list[tuple[Any, tuple[Any, ...]]] = []
        for run in self._below.each_live():
            columns = [column.to_pylist() for column in run.rows.columns[self.key_columns :]]
            out += zip(keys_in(run.rows.columns[: self.key_columns]), zip(*columns, strict=True), strict=True)
        return out

    # -- to be read ----------------------------------------------------------------
    def at(self, epoch: int, keys: Sequence[Any] | None) -> list[tuple[Any, tuple[Any, ...]]]:
        """``(key, partials)`` of these keys (None: of all) when an epoch was over, from what is kept in :attr:`versions`."""
        assert self.versions is not None
        index = self._made_index()
        self._bring_back(keys or ())
        if keys is None:
            slots, asked = np.arange(len(self)), index.keys()
        else:
            found = index.found(list(keys))
            which = np.flatnonzero(found >= 0)
            which = which[np.argsort(found[which])]
            slots, asked = found[which], [keys[at] for at in which.tolist()]
        was, *arrays = self.versions.at(epoch, slots, self.there(slots, len(self)), self.arrays)
        there = np.flatnonzero(was)
        columns = [as_values(array[there], kind) for array, (_, kind) in zip(arrays, self._typed(), strict=True)]
        below = self._rows_below() if keys is None else []  # they have not changed since anything is noted
        return [*zip([asked[at] for at in there.tolist()], zip(*columns, strict=True), strict=True), *below]

    def columns_at(self, epoch: int) -> pa.RecordBatch:
        """Of all keys what :meth:`at` gives, in columns. Raises NotColumns where Arrow does not have the keys."""
        assert self.versions is not None
        was, *arrays = self.versions.at(epoch, np.arange(len(self)), self.there(np.arange(len(self)), len(self)), self.arrays)
        there = np.flatnonzero(was)
        mine = self._batch(self._keys_at(there), [array[there] for array in arrays])
        below = [run.rows.cast(self.schema) for run in self._below.each_live()]  # they have not changed since anything is noted
        return one_batch(pa.Table.from_batches([mine, *below])) if below else mine

    def give_former(self, groups: frozenset[int], key_groups: int) -> list[Any]:
        """What slots of these groups had, with their keys, picklable; to be called before :meth:`give`.

        Raises NotColumns, with nothing given, where Arrow does not have the keys.
        """
        assert self.versions is not None
        if not len(self.versions):
            return []
        leaves = self.leaves(groups, key_groups)
        self._keys_at(np.flatnonzero(leaves & self.versions.used(len(leaves))))
        return [
            (former.epoch, former.there, self._batch(self._keys_at(former.slots), former.arrays))
            for former in self.versions.taken_out(lambda slots: leaves[slots])
        ]

    def take_former(self, given: list[Any]) -> None:
        """Keep what :meth:`give_former` gave at a sibling with this schema; to be called after the totals have been taken."""
        assert self.versions is not None
        formers = []
        for epoch, there, batch in given:
            before, slots = len(self), self._slots_of(batch)
            slots = np.arange(batch.num_rows) if isinstance(slots, slice) else slots
            for i in range(self.partials.width):
                self._grown(i, len(self))
            back = self._brought_back(batch.columns[: self.key_columns], slots, before)
            self.pass_over(np.setdiff1d(slots[slots >= before], [] if back is None else back))
            arrays = self.partials.filled(batch.columns[self.key_columns :])
            formers.append(Former(epoch, slots, there, arrays))
        self._changes = None
        self.versions.add(formers)

    def rows(self) -> list[tuple[Any, tuple[Any, ...]]]:
        """``(key, partials)`` of every key."""
        columns = [as_values(array[: len(self)], kind) for array, kind in self._typed()]
        given = set() if self._given is None else set(np.flatnonzero(self._given).tolist())
        keys = enumerate(self._made_index().keys())
        return [*((key, tuple(column[slot] for column in columns)) for slot, key in keys if slot not in given), *self._rows_below()]

    # -- snapshots -----------------------------------------------------------------
    def checkpoint(self) -> dict[str, Any]:
        """Keys by slot and their totals; the index is made anew by :meth:`restore`."""
        keys = self._index.key_columns(self._key_types()) if self._index is not None else self._first_keys
        totals = [narrowed(a[: len(self)], kind) for a, kind in self._typed()]
        out = {"keys": stored_keys(keys), "totals": totals, "given": self._given_slots()}
        return out if self._below.some is None else {**out, "below": self._below.some.checkpoint()}

    def restore(self, stored: dict[str, Any]) -> None:
        keys = stored["keys"]
        if isinstance(keys, list):
            self._made_index().restore(keys)
        elif keys is not None:
            self._first_keys = columns_of(keys)
        self.arrays = [widened(total, own) for total, own in zip(stored["totals"], self.arrays, strict=True)]
        self._restore_given(stored["given"])
        if "below" in stored:
            self._below.made().restore(stored["below"])

    def take_changes(self) -> Callable[[], dict[str, Any]] | None:
        """The keys that are new since the last call, and the totals that have changed, or all of them where these are more than half."""
        if self.is_beyond_memory:
            self._changes = None  # what is in slots is little, and the runs are in files that are written once
            return None
        changes, self._changes = self._changes, ChangedSlots(len(self))
        return None if changes is None else lambda: self._changed(changes)

    def _changed(self, changes: ChangedSlots) -> dict[str, Any]:
        is_most = 2 * changes.count(len(self)) > len(self)
        old: Any = slice(0, changes.known) if is_most else changes.touched()
        new = slice(changes.known, len(self))
        return {
            "keys": stored_columns(changes.new_keys),
            "slots": None if is_most else narrow(old),
            "given": self._given_slots(),
            "totals": [(narrowed(array[old], kind), narrowed(array[new], kind)) for array, kind in self._typed()],
        }

    def restore_changes(self, changes: dict[str, Any]) -> None:
        known = len(self)
        if changes["keys"] is not None:
            self._made_index().slots_of(taken_back(changes["keys"])[0].columns)
        for i, (old, new) in enumerate(changes["totals"]):
            array = self._grown(i, len(self))
            array[slice(0, known) if changes["slots"] is None else changes["slots"]] = widened(old, array)
            array[known : len(self)] = widened(new, array)
        self._restore_given(changes["given"])

    def _given_slots(self) -> Any:
        return None if self._given is None or not self._given.any() else narrow(np.flatnonzero(self._given))

    def _restore_given(self, slots: Any) -> None:
        self._given = None if slots is None else np.zeros(len(self), np.bool_)
        if self._given is not None:
            self._given[slots] = True

    # -- to other replicas ---------------------------------------------------------
    def slot_keys(self) -> SlotKeys:
        if self._index is not None:
            return self._index.slot_keys()
        return [] if self._first_keys is None else tuple(self._first_keys)

    def empty(self, slots: Positions) -> None:
        for i, array in enumerate(self.arrays):
            array[slots] = self.partials.neutral(i, array.dtype)

    def take_held(self, given: pa.RecordBatch) -> None:
        self.merge(given)

    def drop(self, keys: list[Any]) -> None:
        """Forget these keys, of which some may not be here. Their slots stay behind, as those of :meth:`give`; the next of
        :meth:`take_changes` gives None."""
        self._bring_back(keys)
        slots = self._made_index().known(keys)
        if self.versions is not None:
            there = slots[self.there(slots, len(self))]
            self.versions.note(there, np.ones(len(there), np.bool_), self.arrays)
        self.pass_over(slots)
        self._changes = None
        self.empty(slots)
        self.gave()

    def rows_at(self, slots: Positions) -> pa.RecordBatch:
        return self._batch(self._keys_at(slots), [array[slots] for array in self.arrays])

    def _key_types(self) -> list[pa.DataType]:
        return list(self.schema.types[: self.key_columns])

    def _keys_at(self, slots: Positions) -> list[pa.Array]:
        """The keys of slots. Raises NotColumns where Arrow does not have them."""
        types = self._key_types()
        return columns_of_slots(self.slot_keys(), slots, types) if self._index is None else self._index.keys_at(slots, types)

    def _batch(self, keys: list[pa.Array], totals: list[Any]) -> pa.RecordBatch:
        kinds = self.schema.types[self.key_columns :]
        return pa.RecordBatch.from_arrays([*keys, *map(as_column, totals, kinds)], schema=self.schema)

    def with_schema(self, schema: pa.Schema) -> ColumnTotals:
        """These totals in the types of ``schema``, which hold all of them.

        Raises NotColumns where Arrow does not have the keys.
        """
        if self.schema.equals(schema):
            return self
        out = ColumnTotals(self.partials, schema, self.key_columns)
        out.memory = self.memory
        slots = self.used()
        if len(slots):
            out.merge(as_schema(self.rows_at(slots), schema))
        for run in self._below.each_live():
            out.merge(as_schema(run.rows, schema))
            if self.memory is not None:
                self.memory.hold([out])
        return out

    def forget_changes(self) -> None:
        self._changes = None

    def needed(self) -> npt.NDArray[np.bool_]:
        needed = super().needed()
        return needed if self.versions is None else needed | self.versions.used(len(self))  # somebody may ask what they had

    def renumber(self, slots: Positions) -> None:
        try:
            keys = self._keys_at(slots)
        except NotColumns:
            return
        numbers, given = np.zeros(len(self), np.int64), np.flatnonzero(~self.there(slots, len(self)))
        numbers[slots] = np.arange(len(slots))
        self.arrays = [array[slots] for array in self.arrays]
        self._index, self._first_keys, self._given, self._changes = None, keys if len(slots) else None, None, None
        if self.versions is not None:
            self.versions.renumber(numbers)
            self.pass_over(given)


def _as_columns(keys: list[Any], types: list[pa.DataType]) -> Iterator[list[pa.Array]]:
    """Keys as columns of these types, all at once if that can be; without those that Arrow does not have in them."""
    if not keys:
        return
    try:
        yield columns_of_slots(keys, np.arange(len(keys)), types)
    except NotColumns:
        for key in keys if len(keys) > 1 else ():
            yield from _as_columns([key], types)


__all__ = ["ColumnTotals"]
