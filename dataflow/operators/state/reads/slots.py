"""Arrays by slot at epochs: what changed slots had before, as arrays.

A change costs what it takes to copy the entries that it is about to write, and no object for a key. Changes of one epoch are of different
keys, or the first one is what counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from rayad.dataflow.operators.state.reads.at_epochs import Epochs

Positions = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


@dataclass(slots=True)
class Former:
    """What some slots had before they were changed in an epoch.

    Args:
        slots: shape (slots,), each once.
        there: which of them had anything.
        arrays: what they had, in the order of ``slots``: numpy arrays, or what is indexed and set like one.
    """

    epoch: int
    slots: Positions
    there: Mask
    arrays: list[Any]

    def some(self, which: Any) -> Former:
        """Of some of these slots."""
        return Former(self.epoch, self.slots[which], self.there[which], [array[which] for array in self.arrays])


class SlotVersions:
    """The former entries of arrays by slot.

    >>> versions = SlotVersions(Epochs(lambda: 4, lambda: 3))
    >>> totals = np.array([10, 20, 0])
    >>> versions.note(np.array([1, 2]), np.array([True, False]), [totals]); totals[1:] = 25, 7
    >>> [array.tolist() for array in versions.at(3, np.arange(3), np.ones(3, bool), [totals])]
    [[True, True, False], [10, 20, 0]]
    """

    def __init__(self, epochs: Epochs) -> None:
        self.since = epochs.applied()
        self._epochs = epochs
        self._formers: list[Former] = []

    def __len__(self) -> int:
        """How many former entries are kept."""
        return sum(len(former.slots) for former in self._formers)

    # -- what changes --------------------------------------------------------------------
    def note(self, slots: Positions, there: Mask, arrays: Sequence[Any]) -> None:
        """These slots, each once, are about to be written. ``there``: which of them have anything; ``arrays``: all slots."""
        if len(slots):
            self.add([Former(self._epochs.now(), slots, there, [array[slots] for array in arrays])])

    def add(self, formers: Sequence[Former]) -> None:
        """Keep these, of slots of which nothing else is kept of their epochs."""
        self._formers = sorted([*self._formers, *formers], key=lambda former: former.epoch)

    def begin_at(self, epoch: int) -> None:
        """What was before the end of this epoch is not known: it is the oldest that can be read, unless a later one is."""
        self.since = max(self.since, epoch)

    def begin_now(self) -> None:
        """What came before is not known; slots may have another meaning now."""
        self.begin_at(max(self._epochs.now(), self._epochs.applied()))
        self._formers.clear()

    def forget(self, epoch: int) -> None:
        """Nobody will read an epoch before this one."""
        if epoch > self.since:
            self.since = epoch
            self._formers = [former for former in self._formers if former.epoch > epoch]

    def renumber(self, numbers: Positions) -> None:
        """Slots have other numbers now, shape (slots before,)."""
        for former in self._formers:
            former.slots = numbers[former.slots]

    def used(self, slots: int) -> Mask:
        """Which of so many slots have former entries."""
        used = np.zeros(slots, np.bool_)
        for former in self._formers:
            used[former.slots] = True
        return used

    # -- to be read ----------------------------------------------------------------------
    def at(self, epoch: int, slots: Positions, there: Mask, arrays: Sequence[Any]) -> tuple[Mask, *tuple[Any, ...]]:
        """What slots, which ascend, had when an epoch, not before :attr:`since`, was over: whether anything, and the entries.

        Args:
            there: which of these slots have something now.
            arrays: all slots, now.
        """
        was, entries = there.copy(), [array[slots] for array in arrays]
        for former in self._later(epoch):
            place = np.searchsorted(slots, former.slots)
            place[place == len(slots)] = 0
            mine = np.flatnonzero(slots[place] == former.slots) if len(slots) else np.zeros(0, np.int64)
            if not len(mine):
                continue
            was[place[mine]] = former.there[mine]
            for array, values in zip(entries, former.arrays, strict=True):
                array[place[mine]] = values[mine]
        return was, *entries

    def _later(self, epoch: int) -> Iterator[Former]:
        """Those of later epochs, the earliest last: it is what was there."""
        return (former for former in reversed(self._formers) if former.epoch > epoch)

    # -- to other replicas ---------------------------------------------------------------
    def taken_out(self, leaves: Callable[[Positions], Mask]) -> list[Former]:
        """Those of the slots that leave, which are no longer here."""
        gone = [(former, leaves(former.slots)) for former in self._formers]
        self._formers = [former.some(~mask) for former, mask in gone if not mask.all()]
        return [former.some(mask) for former, mask in gone if mask.any()]


__all__ = ["Former", "SlotVersions"]
