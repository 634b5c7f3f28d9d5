"""State of which what does not fit in memory goes to sorted runs below it: what all such state does alike."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Generic, TypeVar

from rayad.dataflow.operators.state.keyed_state import KeyedState, NotedState
from rayad.dataflow.operators.state.runs import disk
from rayad.dataflow.operators.state.runs.above_runs import RunsBelow
from rayad.dataflow.operators.state.runs.disk import Bounded, MemoryBound
from rayad.dataflow.operators.state.runs.files import RunFile
from rayad.dataflow.operators.state.runs.run import Run
from rayad.dataflow.operators.state.slots.slot_groups import NotColumns

Below = TypeVar("Below", bound=RunsBelow[Any])


class BeyondMemory(KeyedState, Generic[Below]):
    """State in memory above sorted runs.

    Args:
        below: the runs.
    """

    def __init__(self, below: Below) -> None:
        self._below = below
        self._is_refused = False

    # -- what a form says of what is in memory -------------------------------------------
    @property
    @abstractmethod
    def held_bytes(self) -> int:
        """About how much memory it takes."""

    @abstractmethod
    def put_below(self) -> None:
        """All of it becomes a run. Raises NotColumns, with nothing changed, where it cannot be one."""

    @abstractmethod
    def index_held(self, key_groups: int) -> Iterator[None]:
        """See :meth:`index`, here and below."""

    @abstractmethod
    def give_held(self, groups: frozenset[int], key_groups: int) -> Any:
        """None: nothing."""

    @abstractmethod
    def take_held(self, given: Any) -> None:
        """What :meth:`give_held` gave."""

    @abstractmethod
    def gave_held(self) -> None:
        """The change of layout is over."""

    # -- within a bound ----------------------------------------------------------------
    @property
    def is_beyond_memory(self) -> bool:
        """Whether any of it is in runs."""
        return self._below.some is not None

    @property
    def count_below(self) -> int:
        """Rows in runs, those included of which nothing is left."""
        return 0 if self._below.runs is None else self._below.runs.count

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
        """Bytes of what is in memory, about, and of runs in memory."""
        return self.held_bytes + self._below.memory_bytes

    def all(self) -> list[Run]:
        """What is in memory becomes a run, if that is worth one; gives the runs. Where it cannot it is not asked for again after each
        batch, but when groups have moved."""
        if not self._is_refused and self.held_bytes >= disk.FILE_BYTES_MIN:
            try:
                self.put_below()
            except NotColumns:
                self._is_refused = True
                self._below.forget_nothing()
        return self._below.all()

    def files(self) -> list[RunFile]:
        """Of the runs."""
        return self._below.files()

    # -- to other replicas ---------------------------------------------------------------
    def index(self, key_groups: int) -> Iterator[None]:
        yield from self.index_held(key_groups)
        yield from self._below.index(key_groups)

    def give(self, groups: frozenset[int], key_groups: int) -> Any:
        """Rows, perhaps with runs. Raises NotColumns, with nothing given, where rows are columns and Arrow does not have the keys."""
        return self._below.given(self.give_held(groups, key_groups), groups, key_groups)

    def take(self, given: Any) -> None:
        rows = self._below.taken(given)
        if rows is not None:
            self.take_held(rows)

    def gave(self) -> None:
        self._is_refused = False
        self.gave_held()
        self._below.gave()


class NotedBeyondMemory(BeyondMemory[Below], NotedState):
    """The same, whose changes are noted. What is in runs is never part of an increment."""

    def take_changes(self) -> Callable[[], Any] | None:
        return None if self.is_beyond_memory else super().take_changes()


__all__ = ["BeyondMemory", "NotedBeyondMemory"]
