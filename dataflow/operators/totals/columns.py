"""Running totals of columnar partials: numpy arrays, and an index from key to slot.

Columns stay columns from the sender to the output. The index from key to slot is not made before a second time needs it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rayad.dataflow.operators.aggregates.held import as_column, as_values, grown, nothing_held
from rayad.dataflow.operators.aggregates.lists import Lists
from rayad.dataflow.operators.aggregates.partial import Partials
from rayad.dataflow.operators.keys.schemas import as_schema
from rayad.dataflow.operators.state.group_index import chosen, compacted
from rayad.dataflow.operators.state.key_index import KeyIndex
from rayad.dataflow.operators.state.keyed_state import KeyedState
from rayad.dataflow.operators.state.reads.slots import Former, SlotVersions
from rayad.dataflow.operators.state.slot_groups import NotColumns, SlotGroups, SlotKeys, columns_of_slots
from rayad.dataflow.operators.state.stored_columns import narrow, stored, taken_back
from rayad.dataflow.records.batches import one_batch


class ColumnTotals(KeyedState):
    """Totals per key in numpy arrays; a key keeps its slot as long as it is here.

    Args:
        partials: what its columns are, and how they merge.
        schema: ``key_columns`` keys, then the columns of the partials.
    """

    def __init__(self, partials: Partials, schema: pa.Schema, key_columns: int) -> None:
        self.schema = schema
        self.key_columns = key_columns
        self.partials = partials
        self._index: KeyIndex | None = None
        self._first_keys: list[pa.Array] | None = None  # of the first time: their slots are their positions
        self._changes: _Changes | None = None
        self._groups: SlotGroups | None = None
        self._given: npt.NDArray[np.bool_] | None = None  # slots whose totals were given to another replica
        self.versions: SlotVersions | None = None
        """What changed slots had before; None: nobody has read yet."""
        self.arrays = [nothing_held(schema.field(key_columns + i).type) for i in range(partials.width)]

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
        if self.versions is not None:
            changed = np.arange(needed) if isinstance(slots, slice) else slots
            self.versions.note(changed, self._there(changed, before), arrays)
        if self._given is not None:
            self._given[slots if isinstance(slots, slice) else slots[slots < len(self._given)]] = False
        return self.partials.merge_at(arrays, slots, self.partials.filled(partial.columns[self.key_columns :]))

    def _there(self, slots: npt.NDArray[np.int64], known: int) -> npt.NDArray[np.bool_]:
        """Which of these slots have totals, of so many that had keys."""
        there: npt.NDArray[np.bool_] = slots < known
        if self._given is not None:
            marked = np.flatnonzero(slots < len(self._given))
            there[marked] &= ~self._given[slots[marked]]
        return there

    @property
    def count(self) -> int:
        """Slots, those included of which nothing is left."""
        return len(self)

    def __len__(self) -> int:
        return len(self._index) if self._index is not None else len(self._first_keys[0]) if self._first_keys is not None else 0

    def _slots_of(self, partial: pa.RecordBatch) -> Any:
        columns = partial.columns[: self.key_columns]
        if self._index is None and self._first_keys is None:
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

    # -- to be read ----------------------------------------------------------------
    def at(self, epoch: int, keys: Sequence[Any] | None) -> list[tuple[Any, tuple[Any, ...]]]:
        """``(key, partials)`` of these keys (None: of all) when an epoch was over, from what is kept in :attr:`versions`."""
        assert self.versions is not None
        index = self._made_index()
        if keys is None:
            slots, asked = np.arange(len(self)), index.keys()
        else:
            found = index.found(list(keys))
            which = np.flatnonzero(found >= 0)
            which = which[np.argsort(found[which])]
            slots, asked = found[which], [keys[at] for at in which.tolist()]
        was, *arrays = self.versions.at(epoch, slots, self._there(slots, len(self)), self.arrays)
        there = np.flatnonzero(was)
        columns = [as_values(array[there], kind) for array, (_, kind) in zip(arrays, self._typed(), strict=True)]
        return list(zip([asked[at] for at in there.tolist()], zip(*columns, strict=True), strict=True))

    def give_former(self, groups: frozenset[int], key_groups: int) -> list[Any]:
        """What slots of these groups had, with their keys, picklable; to be called before :meth:`give`.

        Raises NotColumns, with nothing given, where Arrow does not have the keys.
        """
        assert self.versions is not None
        if not len(self.versions):
            return []
        leaves = self._leaves(groups, key_groups)
        keys, fields = self._slot_keys(), list(self.schema)
        types = [field.type for field in fields[: self.key_columns]]
        columns_of_slots(keys, np.flatnonzero(leaves & self.versions.used(len(leaves))), types)
        return [
            (former.epoch, former.there, self._batch(columns_of_slots(keys, former.slots, types), former.arrays))
            for former in self.versions.taken_out(lambda slots: leaves[slots])
        ]

    def take_former(self, given: list[Any]) -> None:
        """Keep what :meth:`give_former` gave at a sibling with this schema; to be called after the totals have been taken."""
        assert self.versions is not None
        formers = []
        for epoch, there, batch in given:
            before, slots = len(self), self._slots_of(batch)
            slots = np.arange(batch.num_rows) if isinstance(slots, slice) else slots
            self._pass_over(slots[slots >= before])
            arrays = self.partials.filled(batch.columns[self.key_columns :])
            for i in range(self.partials.width):
                self._grown(i, len(self))
            formers.append(Former(epoch, slots, there, arrays))
        self._changes = None
        self.versions.add(formers)

    def _pass_over(self, slots: npt.NDArray[np.int64]) -> None:
        """These slots have nothing."""
        given = np.zeros(len(self), np.bool_)
        if self._given is not None:
            given[: len(self._given)] = self._given
        given[slots] = True
        self._given = given

    def rows(self) -> list[tuple[Any, tuple[Any, ...]]]:
        """``(key, partials)`` of every key."""
        columns = [as_values(array[: len(self)], kind) for array, kind in self._typed()]
        given = set() if self._given is None else set(np.flatnonzero(self._given).tolist())
        keys = enumerate(self._made_index().keys())
        return [(key, tuple(column[slot] for column in columns)) for slot, key in keys if slot not in given]

    # -- snapshots -----------------------------------------------------------------
    def checkpoint(self) -> dict[str, Any]:
        """Keys by slot and their totals; the index is made anew by :meth:`restore`."""
        types = [self.schema.field(i).type for i in range(self.key_columns)]
        keys = self._index.key_columns(types) if self._index is not None else self._first_keys
        totals = [_narrowed(a[: len(self)], kind) for a, kind in self._typed()]
        return {"keys": _stored_keys(keys), "totals": totals, "given": self._given_slots()}

    def restore(self, stored: dict[str, Any]) -> None:
        keys = stored["keys"]
        if isinstance(keys, list):
            self._made_index().restore(keys)
        elif keys is not None:
            self._first_keys = _columns_of(keys)
        self.arrays = [_widened(total, own) for total, own in zip(stored["totals"], self.arrays, strict=True)]
        self._restore_given(stored["given"])

    def take_changes(self) -> Callable[[], dict[str, Any]] | None:
        """The keys that are new since the last call, and the totals that have changed, or all of them where these are more than half."""
        changes, self._changes = self._changes, _Changes(len(self))
        return None if changes is None else lambda: self._changed(changes)

    def _changed(self, changes: _Changes) -> dict[str, Any]:
        is_most = 2 * changes.count(len(self)) > len(self)
        old: Any = slice(0, changes.known) if is_most else changes.touched()
        new = slice(changes.known, len(self))
        return {
            "keys": _stored(changes.new_keys),
            "slots": None if is_most else narrow(old),
            "given": self._given_slots(),
            "totals": [(_narrowed(array[old], kind), _narrowed(array[new], kind)) for array, kind in self._typed()],
        }

    def restore_changes(self, changes: dict[str, Any]) -> None:
        known = len(self)
        if changes["keys"] is not None:
            self._made_index().slots_of(taken_back(changes["keys"])[0].columns)
        for i, (old, new) in enumerate(changes["totals"]):
            array = self._grown(i, len(self))
            array[slice(0, known) if changes["slots"] is None else changes["slots"]] = _widened(old, array)
            array[known : len(self)] = _widened(new, array)
        self._restore_given(changes["given"])

    def _given_slots(self) -> Any:
        return None if self._given is None or not self._given.any() else narrow(np.flatnonzero(self._given))

    def _restore_given(self, slots: Any) -> None:
        self._given = None if slots is None else np.zeros(len(self), np.bool_)
        if self._given is not None:
            self._given[slots] = True

    # -- to other replicas ---------------------------------------------------------
    def _slot_keys(self) -> SlotKeys:
        if self._index is not None:
            return self._index.slot_keys()
        return [] if self._first_keys is None else tuple(self._first_keys)

    def index(self, key_groups: int) -> Iterator[None]:
        self._groups = SlotGroups(key_groups)
        return self._groups.slices(self._slot_keys())

    def give(self, groups: frozenset[int], key_groups: int) -> pa.RecordBatch | None:
        """The totals of these groups as partials, for :meth:`merge` at another replica; they are no longer here. Their slots stay behind
        with nothing in them, see :meth:`gave`.

        Raises NotColumns, with nothing given, where Arrow does not have the keys.
        """
        if not len(self):
            return None
        leaves = self._leaves(groups, key_groups)
        given = np.zeros(len(leaves), np.bool_)
        if self._given is not None:
            given[: len(self._given)] = self._given
        slots = np.flatnonzero(leaves & ~given)
        if not len(slots):
            return None
        out = self._partials_of(slots)
        given[slots] = True
        self._given = given
        for i, array in enumerate(self.arrays):
            array[slots] = self.partials.neutral(i, array.dtype)
        return compacted(out)

    def _leaves(self, groups: frozenset[int], key_groups: int) -> npt.NDArray[np.bool_]:
        """Which slots are of these groups."""
        self._groups = self._groups or SlotGroups(key_groups)
        leaves: npt.NDArray[np.bool_] = chosen(groups, key_groups)[self._groups.of(self._slot_keys())]
        return leaves

    def take(self, given: pa.RecordBatch) -> None:
        self.merge(given)

    def drop(self, keys: list[Any]) -> None:
        """Forget these keys, of which some may not be here. Their slots stay behind, as those of :meth:`give`; the next of
        :meth:`take_changes` gives None."""
        slots = self._made_index().known(keys)
        if self.versions is not None:
            there = slots[self._there(slots, len(self))]
            self.versions.note(there, np.ones(len(there), np.bool_), self.arrays)
        self._pass_over(slots)
        self._changes = None
        for i, array in enumerate(self.arrays):
            array[slots] = self.partials.neutral(i, array.dtype)
        self.gave()

    def _partials_of(self, slots: Any) -> pa.RecordBatch:
        fields = list(self.schema)
        columns = columns_of_slots(self._slot_keys(), slots, [field.type for field in fields[: self.key_columns]])
        return self._batch(columns, [array[slots] for array in self.arrays])

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
        slots = (
            np.arange(len(self)) if self._given is None else np.append(np.flatnonzero(~self._given), np.arange(len(self._given), len(self)))
        )
        if len(slots):
            out.merge(as_schema(self._partials_of(slots), schema))
        return out

    def forget_changes(self) -> None:
        self._changes = None

    def gave(self) -> None:
        """The change of layout is over: the slots that were left behind go, where they are most of all."""
        self._groups = None
        if self._given is None:
            return
        stays = np.ones(len(self), np.bool_)
        stays[: len(self._given)] = ~self._given
        if self.versions is not None:
            stays |= self.versions.used(len(self))  # somebody may ask what they had
        if 2 * np.count_nonzero(stays) > len(self):
            return
        slots = np.flatnonzero(stays)
        types = [self.schema.field(i).type for i in range(self.key_columns)]
        try:
            keys = columns_of_slots(self._slot_keys(), slots, types)
        except NotColumns:
            return
        self.arrays = [array[slots] for array in self.arrays]
        given = ~self._there(slots, len(self))
        self._index, self._first_keys, self._given, self._changes = None, keys if len(slots) else None, None, None
        if self.versions is not None:
            self.versions.renumber(np.cumsum(stays) - 1)
            self._pass_over(np.flatnonzero(given))


def _stored_keys(keys: list[Any] | None) -> Any:
    """Key columns as bytes; keys that Arrow does not have as they are."""
    if keys is None or not all(isinstance(column, pa.Array) for column in keys):
        return keys
    wide = [column.type == pa.int64() and not column.null_count for column in keys]
    return _stored([[pa.array(narrow(column.to_numpy())) if is_wide else column for column, is_wide in zip(keys, wide, strict=True)]]), wide


def _narrowed(array: Any, kind: pa.DataType) -> Any:
    """Integers in as few bytes as hold them, lists as columns, others as they are; a copy in any case, so that it stays as it
    was."""
    if isinstance(array, Lists):
        return tuple(stored([pa.RecordBatch.from_arrays([array.as_column(kind)], names=["lists"])]))
    small = narrow(array) if array.dtype == np.int64 else array
    own = small.copy() if small is array else small
    own.flags.writeable = False  # the writer needs no copy of its own
    return own


def _widened(narrowed: Any, own: Any) -> Any:
    """The inverse of :func:`_narrowed`, for the place of ``own``."""
    return Lists.of(taken_back(narrowed)[0].column(0)) if isinstance(own, Lists) else narrowed.astype(own.dtype)


def _stored(keys: list[list[pa.Array]]) -> Any:
    batches = [pa.RecordBatch.from_arrays(columns, names=[f"k{i}" for i in range(len(columns))]) for columns in keys]
    return tuple(stored([one_batch(pa.Table.from_batches(batches))])) if batches else None


def _columns_of(keys: Any) -> list[pa.Array]:
    parts, wide = keys
    columns: list[pa.Array] = taken_back(parts)[0].columns
    return [column.cast(pa.int64()) if is_wide else column for column, is_wide in zip(columns, wide, strict=True)]


class _Changes:
    """Which of ``known`` slots have been touched, and the keys of later ones."""

    def __init__(self, known: int) -> None:
        self.known = known
        self._dirty: npt.NDArray[np.bool_] = np.zeros(known, np.bool_)
        self.new_keys: list[list[pa.Array]] = []

    def note(self, keys: list[pa.Array], slots: Any, before: int, now: int) -> bool:
        """Rows with these keys, each a different one, had these slots, those from ``before`` on for the first time. False, and no longer
        right, when most slots of now are new."""
        if 2 * self.known < now:
            return False
        if now == before == self.known:
            self._dirty[slots] = True
            return True
        self._dirty[slots[slots < self.known]] = True
        if now > before:
            fresh = pa.array(np.flatnonzero(slots >= before))
            self.new_keys.append([column.take(fresh) for column in keys])
        return True

    def count(self, now: int) -> int:
        """How many slots of ``now`` were touched."""
        return int(np.count_nonzero(self._dirty)) + now - self.known

    def touched(self) -> npt.NDArray[np.int64]:
        """The known ones of them."""
        return np.flatnonzero(self._dirty)
