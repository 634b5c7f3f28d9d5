"""State by slot: a number that a key, or a row, keeps as long as it is here. Beyond a bound on memory what is in slots becomes a sorted
run, and no slot is left.

A slot is found by an index that forgets nothing. So slots of what has left stay behind with nothing in them, until they are most of all.
What a state keeps by slot, arrays of totals or rows that have been seen, it says itself; how slots leave and go below is written here once.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rayad.dataflow.operators.state.beyond_memory import BeyondMemory
from rayad.dataflow.operators.state.group_index import chosen, compacted
from rayad.dataflow.operators.state.runs.above_runs import RunsBelow
from rayad.dataflow.operators.state.runs.order import Positions
from rayad.dataflow.operators.state.runs.rows_below import RowsBelow
from rayad.dataflow.operators.state.slots.slot_groups import SlotGroups, SlotKeys

Mask = npt.NDArray[np.bool_]
Below = TypeVar("Below", bound=RowsBelow)


class Slots(BeyondMemory[RunsBelow[Below]]):
    """State by slot above sorted runs of what has no slot.

    Args:
        runs_below: gives runs for the rows of :meth:`rows_at`, with nothing in them.
    """

    def __init__(self, runs_below: Callable[[], Below]) -> None:
        super().__init__(RunsBelow(runs_below))
        self._groups: SlotGroups | None = None
        self._given: Mask | None = None  # slots in which nothing is, of those that there were then

    # -- what a state says of its slots ------------------------------------------------
    @abstractmethod
    def __len__(self) -> int:
        """How many there are, those included in which nothing is."""

    @abstractmethod
    def slot_keys(self) -> SlotKeys:
        """The key of each."""

    @abstractmethod
    def rows_at(self, slots: Positions) -> pa.RecordBatch:
        """What is in these as rows, which can be taken in again. Raises NotColumns where Arrow does not have the keys."""

    @abstractmethod
    def take_held(self, given: pa.RecordBatch) -> None:
        """Keep what :meth:`rows_at` gave."""

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
    def count(self) -> int:
        """Slots, and rows without one, those included of which nothing is left."""
        return len(self) + self.count_below

    def put_below(self) -> None:
        """Nothing has a slot any more; but where Arrow does not have the keys nothing changes."""
        slots = self.used()
        if len(slots):
            rows = self.rows_at(slots)
            self._below.made().put(rows)
        self._given, self._groups = None, None
        self.forget_slots()

    # -- to other replicas ---------------------------------------------------------------
    def index_held(self, key_groups: int) -> Iterator[None]:
        self._groups = SlotGroups(key_groups)
        return self._groups.slices(self.slot_keys())

    def leaves(self, groups: frozenset[int], key_groups: int) -> Mask:
        """Which slots are of these groups, shape (slots,)."""
        self._groups = self._groups or SlotGroups(key_groups)
        leaves: Mask = chosen(groups, key_groups)[self._groups.of(self.slot_keys())]
        return leaves

    def slots_of_groups(self, groups: frozenset[int], key_groups: int) -> Positions:
        """Those of these groups in which something is."""
        slots: Positions = np.flatnonzero(self.leaves(groups, key_groups) & self.there(np.arange(len(self)), len(self)))
        return slots

    def give_held(self, groups: frozenset[int], key_groups: int) -> pa.RecordBatch | None:
        slots = self.slots_of_groups(groups, key_groups) if len(self) else np.zeros(0, np.int64)
        if not len(slots):
            return None
        rows = compacted(self.rows_at(slots))
        self.pass_over(slots)
        self.empty(slots)
        return rows

    def gave_held(self) -> None:
        self._groups = None
        if self._given is not None:
            needed = np.flatnonzero(self.needed())
            if 2 * len(needed) <= len(self):
                self.renumber(needed)


__all__ = ["Slots"]
