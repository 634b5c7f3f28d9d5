"""State by slot: a number that a key, or a row, keeps as long as it is here. Beyond a bound on memory what is in slots becomes a sorted
run, and no slot is left.

A slot is found by an index that forgets nothing. So slots of what has left stay behind with nothing in them, until they are most of all.
What a state keeps by slot, arrays of totals or rows that have been seen, it says itself; how slots leave and go below is written here once.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rayad.dataflow.operators.state.group_index import chosen, compacted
from rayad.dataflow.operators.state.keyed_state import KeyedState
from rayad.dataflow.operators.state.runs import disk
from rayad.dataflow.operators.state.runs.above_runs import Beyond
from rayad.dataflow.operators.state.runs.disk import Bounded, MemoryBound
from rayad.dataflow.operators.state.runs.files import RunFile
from rayad.dataflow.operators.state.runs.order import Positions
from rayad.dataflow.operators.state.runs.rows_below import RowsBelow
from rayad.dataflow.operators.state.runs.run import Run
from rayad.dataflow.operators.state.slot_groups import NotColumns, SlotGroups, SlotKeys

KEY_BYTES_INTEGER, KEY_BYTES = 48, 200
"""A key in the index: pandas' table of integers keeps each twice, at most a third full; a dict has an object for each key and slot."""

Mask = npt.NDArray[np.bool_]


class Slots(KeyedState):
    """State by slot above sorted runs, which there are only beyond a bound on memory."""

    def __init__(self) -> None:
        self._groups: SlotGroups | None = None
        self._given: Mask | None = None  # slots in which nothing is, of those that there were then
        self._memory: MemoryBound | None = None
        self.below: RowsBelow | None = None
        """What has no slot; None: all has one."""

    # -- what a state says of its slots ------------------------------------------------
    @abstractmethod
    def __len__(self) -> int:
        """How many there are, those included in which nothing is."""

    @property
    @abstractmethod
    def slot_bytes(self) -> int:
        """About how much memory they take."""

    @abstractmethod
    def slot_keys(self) -> SlotKeys:
        """The key of each."""

    @abstractmethod
    def rows_at(self, slots: Positions) -> pa.RecordBatch:
        """What is in these as rows, which can be taken in again. Raises NotColumns where Arrow does not have the keys."""

    @abstractmethod
    def take_rows(self, rows: pa.RecordBatch) -> None:
        """Keep what :meth:`rows_at` gave."""

    @abstractmethod
    def nothing_below(self) -> RowsBelow:
        """Runs for such rows."""

    @abstractmethod
    def empty(self, slots: Positions) -> None:
        """What was in these has left."""

    @abstractmethod
    def forget_slots(self) -> None:
        """What was in all of them is below."""

    @abstractmethod
    def renumber(self, slots: Positions) -> None:
        """These alone are left, which ascend: they are 0, 1, 2, ... from now on. Others may stay, where it cannot be done."""

    def needed(self) -> Mask:
        """Which are not to go, shape (slots,)."""
        return self.there(np.arange(len(self)), len(self))

    # -- slots in which nothing is -----------------------------------------------------
    def there(self, slots: Positions, known: int) -> Mask:
        """In which of these slots there is something, of so many that have been used."""
        there: Mask = slots < known
        if self._given is not None:
            marked = np.flatnonzero(slots < len(self._given))
            there[marked] &= ~self._given[slots[marked]]
        return there

    def pass_over(self, slots: Positions) -> None:
        """There is nothing in these."""
        given = np.zeros(len(self), np.bool_)
        if self._given is not None:
            given[: len(self._given)] = self._given
        given[slots] = True
        self._given = given

    def come(self, slots: Positions | slice) -> None:
        """There is something in these."""
        if self._given is not None:
            self._given[slots if isinstance(slots, slice) else slots[slots < len(self._given)]] = False

    def used(self) -> Positions:
        """The slots in which something is."""
        slots: Positions = np.flatnonzero(self.there(np.arange(len(self)), len(self)))
        return slots

    # -- beyond memory -----------------------------------------------------------------
    @property
    def is_below(self) -> bool:
        """Whether anything is below."""
        return self.below is not None and not self.below.is_empty

    @property
    def count(self) -> int:
        """Slots, and rows without one, those included of which nothing is left."""
        return len(self) + (0 if self.below is None else self.below.count)

    def runs(self) -> Iterable[Bounded]:
        return (self,)

    @property
    def memory(self) -> MemoryBound | None:
        """The bound on memory; None: there is none."""
        return self._memory

    @memory.setter
    def memory(self, memory: MemoryBound | None) -> None:
        self._memory = memory
        if self.below is not None:
            self.below.memory = memory

    @property
    def memory_bytes(self) -> int:
        """Bytes of slots, about, and of what else is in memory."""
        return self.slot_bytes + (0 if self.below is None else self.below.memory_bytes)

    def all(self) -> list[Run]:
        """What is in slots becomes a run, if that is worth one; gives the runs."""
        if self.slot_bytes >= disk.FILE_BYTES_MIN:
            self._put_below()
        return [] if self.below is None else self.below.all()

    def files(self) -> list[RunFile]:
        """Of the runs."""
        return [] if self.below is None else self.below.files()

    def made_below(self) -> RowsBelow:
        """The runs, where there are none with nothing in them."""
        if self.below is None:
            self.below = self.nothing_below()
            self.below.memory = self._memory
        return self.below

    def _put_below(self) -> None:
        """Nothing has a slot any more; but where Arrow does not have the keys nothing changes."""
        slots = self.used()
        if len(slots):
            try:
                rows = self.rows_at(slots)
            except NotColumns:
                return
            self.made_below().put(rows)
        self._given, self._groups = None, None
        self.forget_slots()

    # -- to other replicas ---------------------------------------------------------------
    def index(self, key_groups: int) -> Iterator[None]:
        self._groups = SlotGroups(key_groups)
        yield from self._groups.slices(self.slot_keys())
        if self.below is not None:
            yield from self.below.index(key_groups)

    def leaves(self, groups: frozenset[int], key_groups: int) -> Mask:
        """Which slots are of these groups, shape (slots,)."""
        self._groups = self._groups or SlotGroups(key_groups)
        leaves: Mask = chosen(groups, key_groups)[self._groups.of(self.slot_keys())]
        return leaves

    def slots_of_groups(self, groups: frozenset[int], key_groups: int) -> Positions:
        """Those of these groups in which something is."""
        slots: Positions = np.flatnonzero(self.leaves(groups, key_groups) & self.there(np.arange(len(self)), len(self)))
        return slots

    def give(self, groups: frozenset[int], key_groups: int) -> pa.RecordBatch | Beyond | None:
        """What these groups have as rows, perhaps with runs. Raises NotColumns, with nothing given, where Arrow does not have the keys."""
        slots = self.slots_of_groups(groups, key_groups) if len(self) else np.zeros(0, np.int64)
        rows = compacted(self.rows_at(slots)) if len(slots) else None
        if len(slots):
            self.pass_over(slots)
            self.empty(slots)
        runs = [] if self.below is None else self.below.give(groups, key_groups)
        return Beyond(rows, runs) if runs else rows

    def take(self, given: pa.RecordBatch | Beyond) -> None:
        rows, runs = given if isinstance(given, Beyond) else (given, None)
        if runs is not None:
            self.made_below().take(runs)
        if rows is not None:
            self.take_rows(rows)

    def gave(self) -> None:
        self._groups = None
        if self.below is not None:
            self.below.gave()
        if self._given is not None:
            needed = np.flatnonzero(self.needed())
            if 2 * len(needed) <= len(self):
                self.renumber(needed)


__all__ = ["KEY_BYTES", "KEY_BYTES_INTEGER", "Slots"]
