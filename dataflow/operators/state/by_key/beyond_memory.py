"""Rows that go to sorted runs beyond a bound on memory, a key with all that it has as one row there.

A key is at one place, in memory or in a run. One that is looked for, or comes due, goes up into memory.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any

import pyarrow as pa

from rayad.dataflow.operators.state.by_key.rows import RowsByKey
from rayad.dataflow.operators.state.keyed_state import NotedState
from rayad.dataflow.operators.state.runs.above_runs import RunsBelow
from rayad.dataflow.operators.state.runs.disk import Bounded, MemoryBound
from rayad.dataflow.operators.state.runs.due_rows import has_order
from rayad.dataflow.operators.state.runs.files import RunFile
from rayad.dataflow.operators.state.runs.run import Run
from rayad.dataflow.operators.state.slot_groups import NotColumns
from rayad.dataflow.records.exact import Inexact, array_of


class RowsBeyondMemory(RowsByKey):
    """State in dicts by key, of which what does not fit in memory is in runs."""

    def __init__(self) -> None:
        super().__init__()
        self._below = RunsBelow(self.moments)

    # -- what a form says ------------------------------------------------------------
    @abstractmethod
    def in_memory(self) -> Collection[Any]:
        """What is in memory, for its size."""

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
    @property
    def is_beyond_memory(self) -> bool:
        """Whether any of it is in runs."""
        return self._below.runs is not None

    def fetch(self, keys: Iterable[Any]) -> None:
        """Let what these keys have be in memory."""
        if self._below.runs is not None:
            self.go_up(self._below.up(keys))

    def fetch_due(self, has_come: Callable[[Any], bool]) -> None:
        """Let the keys be in memory for whose moments this holds; it holds for all moments before one for which it does."""
        if self._below.runs is not None:
            self.go_up(self._below.due(has_come))

    def fetch_all(self) -> None:
        """Let all be in memory."""
        if self._below.runs is not None:
            self.fetch(list(self._below.runs.keys_here()))

    def below(self) -> Iterator[tuple[Any, Any]]:
        """The keys that are in runs, and what they have. They stay."""
        return iter(()) if self._below.runs is None else self._below.runs.items_here()

    # -- within a bound ----------------------------------------------------------------
    def runs(self) -> Iterable[Bounded]:
        return (self,)

    @property
    def memory(self) -> MemoryBound | None:
        """The bound on memory; None: there is none."""
        return self._below.memory

    @memory.setter
    def memory(self, memory: MemoryBound | None) -> None:
        self._below.memory = memory

    @property
    def memory_bytes(self) -> int:
        """Bytes of rows in memory, about, and of runs in memory."""
        runs = self._below.runs
        return self._below.size.of(self.in_memory()) + (0 if runs is None else runs.memory_bytes)

    def all(self) -> list[Run]:
        """What is in memory becomes a run, if that is worth one; gives the runs."""
        if self._below.is_worth_a_run(self.in_memory()) and self._below.put(self.by_key()):
            self.all_gone_down()
            self._indices.forget()
            self.forget_changes()
        return self._below.all()

    def files(self) -> list[RunFile]:
        """Of the runs."""
        return self._below.files()

    # -- snapshots, and to other replicas ----------------------------------------------
    def checkpoint(self) -> Any:
        return self._below.stored(self.rows_stored())

    def restore(self, stored: Any) -> None:
        self.restore_rows(self._below.restored(stored))

    def rows_stored(self) -> Any:
        """What is in memory, for a snapshot."""
        return super().checkpoint()

    def restore_rows(self, stored: Any) -> None:
        """Take back what :meth:`rows_stored` gave."""
        super().take(stored)

    def index(self, key_groups: int) -> Iterator[None]:
        yield from super().index(key_groups)
        if self._below.runs is not None:
            yield from self._below.runs.index(key_groups)

    def give(self, groups: frozenset[int], key_groups: int) -> Any:
        return self._below.given(super().give(groups, key_groups), groups, key_groups)

    def take(self, given: Any) -> None:
        rows = self._below.taken(given)
        if rows is not None:
            super().take(rows)

    def gave(self) -> None:
        super().gave()
        if self._below.runs is not None:
            self._below.runs.gave()


class NotedBeyondMemory(RowsBeyondMemory, NotedState):
    """The same, whose changes are noted. What is in runs is never part of an increment."""

    def take_changes(self) -> Callable[[], Any] | None:
        return super().take_changes() if self._below.runs is None else None


def moments_of(moments: Iterable[Any]) -> pa.Array:
    """Moments, None where nothing happens, as a column that can be put in order. Raises NotColumns where Arrow does not have them so."""
    try:
        found = array_of(list(moments))
    except Inexact as error:
        raise NotColumns from error
    if not has_order(found.type):
        raise NotColumns
    return found


__all__ = ["NotedBeyondMemory", "RowsBeyondMemory", "moments_of"]
