"""The runs below a state: what of it does not fit in memory. There are some only beyond a bound on memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Generic, NamedTuple, TypeVar

from rayad.dataflow.operators.state.runs.disk import MemoryBound
from rayad.dataflow.operators.state.runs.files import RunFile
from rayad.dataflow.operators.state.runs.rows_below import RowsBelow
from rayad.dataflow.operators.state.runs.run import Run
from rayad.dataflow.operators.state.runs.runs import StoredRun

Runs = TypeVar("Runs", bound=RowsBelow)


class Beyond(NamedTuple):
    """Rows, and runs below them: in a snapshot, or on their way to a sibling."""

    rows: Any
    runs: list[StoredRun]


class RunsBelow(Generic[Runs]):
    """Runs that are made when they are first needed.

    Args:
        make: gives runs with nothing in them.
    """

    def __init__(self, make: Callable[[], Runs]) -> None:
        self._make = make
        self._memory: MemoryBound | None = None
        self.runs: Runs | None = None
        """None: all is in memory."""

    @property
    def memory(self) -> MemoryBound | None:
        """The bound on memory; None: there is none."""
        return self._memory

    @memory.setter
    def memory(self, memory: MemoryBound | None) -> None:
        self._memory = memory
        if self.runs is not None:
            self.runs.memory = memory

    def made(self) -> Runs:
        """The runs, where there are none with nothing in them."""
        if self.runs is None:
            self.runs = self._make()
            self.runs.memory = self._memory
        return self.runs

    @property
    def some(self) -> Runs | None:
        """The runs; None: nothing is in them."""
        return None if self.runs is None or self.runs.is_empty else self.runs

    def forget_nothing(self) -> None:
        """There are no runs where nothing is in them."""
        self.runs = self.some

    @property
    def memory_bytes(self) -> int:
        """Of the runs."""
        return 0 if self.runs is None else self.runs.memory_bytes

    def all(self) -> list[Run]:
        """The runs."""
        return [] if self.runs is None else self.runs.all()

    def each_live(self) -> Iterator[Run]:
        """The runs, without what nobody needs any more."""
        return iter(()) if self.runs is None else self.runs.each_live()

    def files(self) -> list[RunFile]:
        """Of the runs."""
        return [] if self.runs is None else self.runs.files()

    # -- snapshots, and to other replicas ----------------------------------------------
    def stored(self, rows: Any) -> Any:
        """Rows with the runs, for a snapshot."""
        return rows if self.runs is None else Beyond(rows, self.runs.checkpoint())

    def restored(self, stored: Any) -> Any:
        """The rows of what :meth:`stored` gave; the runs are here then."""
        if not isinstance(stored, Beyond):
            return stored
        self.made().restore(stored.runs)
        return stored.rows

    def index(self, key_groups: int) -> Iterator[None]:
        """As of state."""
        return iter(()) if self.runs is None else self.runs.index(key_groups)

    def given(self, rows: Any, groups: frozenset[int], key_groups: int) -> Any:
        """Rows of these key-groups with what runs have of them, for a sibling; None: nothing."""
        runs = [] if self.runs is None else self.runs.give(groups, key_groups)
        self.forget_nothing()
        return Beyond(rows, runs) if runs else rows

    def taken(self, given: Any) -> Any:
        """The rows of what :meth:`given` gave, None of none; the runs are here then."""
        if not isinstance(given, Beyond):
            return given
        self.made().take(given.runs)
        return given.rows

    def gave(self) -> None:
        """As of state."""
        if self.runs is not None:
            self.runs.gave()


__all__ = ["Beyond", "RunsBelow"]
