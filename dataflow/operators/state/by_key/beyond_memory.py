"""Rows that go to sorted runs beyond a bound on memory, a key with all that it has as one row there.

A key is at one place, in memory or in a run. One that is looked for, or comes due, goes up into memory.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any

import pyarrow as pa

from rayad.dataflow.operators.state.beyond_memory import Below, BeyondMemory, NotedBeyondMemory
from rayad.dataflow.operators.state.by_key.rows import RowsByKey
from rayad.dataflow.operators.state.runs.dict_above_runs import KeysBelow
from rayad.dataflow.operators.state.runs.due_rows import has_order
from rayad.dataflow.operators.state.runs.size_of_values import SizeOfRows
from rayad.dataflow.operators.state.slots.slot_groups import NotColumns
from rayad.dataflow.records.exact import Inexact, array_of


class RowsAboveRuns(BeyondMemory[Below], RowsByKey):
    """State in dicts by key, or in a set of pairs, above runs."""

    def __init__(self, below: Below) -> None:
        super().__init__(below)
        RowsByKey.__init__(self)
        self._size = SizeOfRows()

    @abstractmethod
    def in_memory(self) -> Collection[Any]:
        """What is in memory, for its size."""

    @property
    def held_bytes(self) -> int:
        return self._size.of(self.in_memory())

    # -- snapshots ---------------------------------------------------------------------
    def checkpoint(self) -> Any:
        return self._below.stored(self.rows_stored())

    def restore(self, stored: Any) -> None:
        self.restore_rows(self._below.restored(stored))

    def rows_stored(self) -> Any:
        """What is in memory, for a snapshot."""
        return RowsByKey.checkpoint(self)

    def restore_rows(self, stored: Any) -> None:
        """Take back what :meth:`rows_stored` gave."""
        RowsByKey.take(self, stored)

    # -- to other replicas -------------------------------------------------------------
    def index_held(self, key_groups: int) -> Iterator[None]:
        return RowsByKey.index(self, key_groups)

    def give_held(self, groups: frozenset[int], key_groups: int) -> Any:
        return RowsByKey.give(self, groups, key_groups)

    def take_held(self, given: Any) -> None:
        RowsByKey.take(self, given)

    def gave_held(self) -> None:
        RowsByKey.gave(self)


class RowsBeyondMemory(RowsAboveRuns[KeysBelow]):
    """State in dicts by key, of which what does not fit in memory is in runs."""

    def __init__(self) -> None:
        super().__init__(KeysBelow())

    # -- what a form says ------------------------------------------------------------
    @abstractmethod
    def by_key(self) -> dict[Any, Any]:
        """What each key has in memory."""

    @abstractmethod
    def all_gone_down(self) -> None:
        """All is in runs from now on: nothing is in memory."""

    @abstractmethod
    def go_up(self, came: Mapping[Any, Any]) -> None:
        """These keys come back into memory, with what :meth:`by_key` said of them."""

    def moments(self, kept: dict[Any, Any]) -> pa.Array | None:
        """When something happens to what these keys have, as :meth:`by_key` gives it, null where nothing does; None: nothing ever does.
        Raises NotColumns where Arrow does not have the moments: then all stays in memory."""
        return None

    # -- what is looked for ------------------------------------------------------------
    def fetch(self, keys: Iterable[Any]) -> None:
        """Let what these keys have be in memory."""
        if self._below.runs is not None:
            self._up(self._below.up(keys))

    def due_parts(self, has_come: Callable[[Any], bool]) -> Iterator[None]:
        """Let the keys be in memory for whose moments this holds, some after others; it holds for all moments before one for which it does.
        At each step those that are in memory are to be handled. What is left of them may go below, but not what would come again."""
        while came := self._below.due(has_come):
            self._up(came)
            yield
            if self._below.memory is not None and not self._has_due(has_come):
                self._below.memory.hold([self])
        yield  # what was in memory from the beginning

    def _has_due(self, has_come: Callable[[Any], bool]) -> bool:
        """Whether it holds for the moment of any key in memory: moments below may be earlier than what happens, as fractions have no
        column."""
        try:
            moments = self.moments(self.by_key())
        except NotColumns:
            return True
        return moments is not None and any(has_come(moment) for moment in moments.drop_null().to_pylist())

    def last_parts(self) -> Iterator[None]:
        """Let all keys be in memory, some after others, for the last time: those of a step are gone in the next one."""
        runs, self._below.runs = self._below.runs, None
        self.forget_changes()
        yield
        for some in () if runs is None else runs.parts():
            self.all_gone_down()
            self._up(some)
            yield
        self.all_gone_down()
        self._indices.forget()

    def below(self) -> Iterator[tuple[Any, Any]]:
        """The keys that are in runs, and what they have. They stay."""
        return iter(()) if self._below.runs is None else self._below.runs.items_here()

    def _up(self, came: Mapping[Any, Any]) -> None:
        self._size.changed(len(came))
        self.go_up(came)

    # -- within a bound ----------------------------------------------------------------
    def put_below(self) -> None:
        kept = self.by_key()
        self._below.put(kept, self.moments(kept))
        self.all_gone_down()
        self._indices.forget()
        self.forget_changes()


class NotedRowsBeyondMemory(NotedBeyondMemory[KeysBelow], RowsBeyondMemory):
    """The same, whose changes are noted."""


def moments_of(moments: Iterable[Any]) -> pa.Array:
    """Moments, None where nothing happens, as a column that can be put in order. Raises NotColumns where Arrow does not have them so."""
    try:
        found = array_of(list(moments))
    except Inexact as error:
        raise NotColumns from error
    if not has_order(found.type):
        raise NotColumns
    return found


__all__ = ["NotedRowsBeyondMemory", "RowsAboveRuns", "RowsBeyondMemory", "moments_of"]
