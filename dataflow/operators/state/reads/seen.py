"""Distinct values at epochs: what has come stays, so it is enough to know in which epoch."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rayad.dataflow.operators.state.contents import originals
from rayad.dataflow.operators.state.group_index import chosen, groups_of_columns, groups_of_keys
from rayad.dataflow.operators.state.reads.at_epochs import AtEpochs, Epochs
from rayad.dataflow.operators.state.tables import Entries
from rayad.dataflow.records.key_hashing import key_group

BEFORE = -1
"""The epoch of what came before the first read."""
HASHES = 1 << 16
"""Rows of a key are looked for among those whose hash is the same in so many."""


Slots = npt.NDArray[np.int64]


class Pairs(Protocol):
    """``(key, something)`` pairs that stay."""

    came: PairsAtEpochs | None
    """Told of those that come, and when those in memory leave it."""

    def in_memory(self) -> Collection[Any]:
        """Those in memory."""

    @property
    def is_beyond_memory(self) -> bool:
        """Whether there are others."""

    def pairs_below(self, keys: Iterable[Any] | None = None) -> Iterable[Any]:
        """Those, perhaps only those of these keys and of some others."""


class Rows(Protocol):
    """Rows in columns, with slots or below them."""

    came: RowsAtEpochs | None
    """Told of the slots that come."""

    @property
    def slots(self) -> int:
        """How many there are, those that were given away included."""

    @property
    def is_beyond_memory(self) -> bool:
        """Whether there are rows without a slot."""

    def are_here(self) -> npt.NDArray[np.bool_]:
        """Whether the row of each slot is here."""

    def key_columns(self, first: int) -> list[Any]:
        """The keys of the slots from ``first`` on."""

    def pairs_at(self, slots: Slots) -> list[Any]:
        """The rows of slots as pairs."""

    def pairs_below(self, keys: Sequence[Any] | None = None) -> list[Any]:
        """The rows without a slot, perhaps only those of these keys and of some others."""

    def slots_of_groups(self, groups: frozenset[int], key_groups: int) -> Slots:
        """The slots whose rows are of these key-groups."""

    def rows_at(self, slots: Slots) -> pa.RecordBatch:
        """The rows of slots, marked with their key."""

    def slots_of(self, rows: pa.RecordBatch) -> Slots:
        """The slots of rows that are here."""


class CameIn(AtEpochs):
    """In which epochs rows came that stay.

    Args:
        epochs: of the vertex.
    """

    has_one_row = False

    def __init__(self, epochs: Epochs) -> None:
        self._epochs = epochs
        self._since = epochs.applied()

    @property
    def since(self) -> int:
        return self._since

    def begin_at(self, epoch: int) -> None:
        """It is the oldest that can be read, unless a later one is."""
        self._since = max(self._since, epoch)

    def begin_now(self) -> None:
        self.begin_at(max(self._epochs.now(), self._epochs.applied()))

    def forget(self, epoch: int) -> None:
        """Nothing is kept of former epochs."""
        self.begin_at(epoch)


class PairsAtEpochs(CameIn):
    """``(key, something)`` pairs in rows, by key.

    Args:
        state: the pairs; from now on it tells which come.
    """

    def __init__(self, state: Pairs, epochs: Epochs) -> None:
        super().__init__(epochs)
        self._state = state
        self._by_key: dict[Any, dict[Any, int]] = {}
        for key, value in state.in_memory():
            self._by_key.setdefault(key, {})[value] = BEFORE
        state.came = self

    def add(self, pairs: Sequence[Any]) -> None:
        """These have come now."""
        now = self._epochs.now()
        for key, value in pairs:
            self._by_key.setdefault(key, {})[value] = now

    def begin_anew(self) -> None:
        """What was in memory is below: it was there before all that can be read from now on."""
        self._by_key = {}
        self.begin_now()

    def of_keys(self, epoch: int, keys: Sequence[Any], part: str = "") -> Entries:
        pairs = self._there(epoch, keys)
        if self._state.is_beyond_memory:
            wanted = set(keys)
            pairs += [pair for pair in self._state.pairs_below(keys) if pair[0] in wanted]
        return _entries(pairs)

    def of_all(self, epoch: int, part: str = "") -> Entries:
        return _entries([*self._there(epoch, list(self._by_key)), *self._state.pairs_below()])

    def _there(self, epoch: int, keys: Sequence[Any]) -> list[Any]:
        return [(key, value) for key in keys for value, came in self._by_key.get(key, {}).items() if came <= epoch]

    def give(self, groups: frozenset[int], key_groups: int) -> Any:
        keys = list(self._by_key)
        leaves = chosen(groups, key_groups)[groups_of_keys(keys, key_groups)].tolist() if keys else []
        since = None if self._state.is_beyond_memory else self.since
        return {key: self._by_key.pop(key) for key, is_gone in zip(keys, leaves, strict=True) if is_gone}, since

    def take(self, given: Any) -> None:
        by_key, since = given
        if since is None:  # of pairs that were not in memory there nobody knows when they came
            self.begin_now()
        else:
            self.begin_at(since)
        self._by_key.update(by_key)


class RowsAtEpochs(CameIn):
    """Rows in columns, by slot.

    Args:
        state: the rows; from now on it tells which slots come, and how they are numbered anew.
    """

    def __init__(self, state: Rows, epochs: Epochs) -> None:
        super().__init__(epochs)
        self._state = state
        self._came: npt.NDArray[np.int64] = np.full(state.slots, BEFORE, np.int64)
        self._hashes: npt.NDArray[np.uint16] = np.zeros(0, np.uint16)
        state.came = self

    def add(self, slots: npt.NDArray[np.int64]) -> None:
        """The rows of these slots have come now, some of them for the first time."""
        self._came = np.append(self._came, np.zeros(self._state.slots - len(self._came), np.int64))
        self._came[slots] = self._epochs.now()

    def keep(self, slots: npt.NDArray[np.int64]) -> None:
        """Of the rows these are left, whose slots are 0, 1, 2 ... from now on."""
        self._came, self._hashes = self._came[slots], np.zeros(0, np.uint16)

    def begin_anew(self) -> None:
        """What was in slots is below: it was there before all that can be read from now on."""
        self._came, self._hashes = np.zeros(0, np.int64), np.zeros(0, np.uint16)
        self.begin_now()

    def of_keys(self, epoch: int, keys: Sequence[Any], part: str = "") -> Entries:
        known = len(self._hashes)
        if known < self._state.slots:
            self._hashes = np.append(self._hashes, groups_of_columns(self._state.key_columns(known), HASHES))
        slots = self._there(epoch)
        some = slots[np.isin(self._hashes[slots], [key_group(key, HASHES) for key in keys])]
        wanted = set(keys)
        pairs = [*self._state.pairs_at(some), *self._state.pairs_below(keys)]
        return _entries([pair for pair in pairs if pair[0] in wanted])

    def of_all(self, epoch: int, part: str = "") -> Entries:
        return _entries([*self._state.pairs_at(self._there(epoch)), *self._state.pairs_below()])

    def _there(self, epoch: int) -> npt.NDArray[np.int64]:
        slots: npt.NDArray[np.int64] = np.flatnonzero((self._came <= epoch) & self._state.are_here())
        return slots

    def give(self, groups: frozenset[int], key_groups: int) -> Any:
        slots = self._state.slots_of_groups(groups, key_groups)
        since = None if self._state.is_beyond_memory else self.since
        return self._state.rows_at(slots) if len(slots) else None, self._came[slots], since

    def take(self, given: Any) -> None:
        rows, came, since = given
        if since is None:  # of rows that had no slot there nobody knows when they came
            self.begin_now()
        else:
            self.begin_at(since)
        if rows is not None:
            self._came[self._state.slots_of(rows)] = came


def _entries(pairs: list[Any]) -> Entries:
    pairs = originals(pairs)
    return Entries([key for key, _ in pairs], {"value": [value for _, value in pairs]})


__all__ = ["PairsAtEpochs", "RowsAtEpochs"]
