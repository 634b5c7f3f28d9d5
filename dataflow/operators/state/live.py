"""State of a running vertex that others read, at one epoch (docs/design/state.md, 10).

Its states keep from the first read on what they were at the epochs that may still be read (``reads/``). Which epochs are complete is the
runtime's to know; here is what a key, or a key-group, had at the end of one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from rayad.dataflow.operators.state.reads.at_epochs import AtEpochs, Epochs
from rayad.progress import DataflowError

if TYPE_CHECKING:
    from rayad.dataflow.operators.state.keyed_state import KeyedVertex, TableOfOthers
    from rayad.dataflow.operators.state.tables import Entries

INSTEAD = "read it from a snapshot: rd.read_state(job.savepoint(), vertex)"


class LiveState:
    """What others read of a vertex.

    Args:
        vertex: whose state it is.
        epoch, applied: see :class:`Epochs`.
    """

    def __init__(self, vertex: KeyedVertex, epoch: Callable[[], int], applied: Callable[[], int]) -> None:
        self._vertex = vertex
        self._epochs = Epochs(epoch, applied)
        self._read: dict[str, AtEpochs] = {}  # by state
        self._tables: dict[str, tuple[AtEpochs, str]] = {}  # by table: of which state, and which part of it

    @property
    def is_read(self) -> bool:
        """Whether somebody has read anything."""
        return bool(self._read)

    def begin(self, name: str | None, what: str) -> str:
        """Keep a state at epochs from now on; gives the name of its table. Raises DataflowError that says why that cannot be.

        Args:
            name: of the table: a state, or a part of one; None: the only state that stays.
            what: the vertex, for errors.
        """
        if name in self._tables:
            return str(name)
        if self._vertex.why_unreadable:
            raise DataflowError(f"{what} {self._vertex.why_unreadable}: it cannot be read while the job runs; {INSTEAD}")
        states = self._vertex.tables_read()
        found = name or (next(iter(states)) if len(states) == 1 else None)
        if found is not None and found in states:
            self._tables[found] = self._begun(found, states[found], what), ""
            return found
        for key, state in states.items() if found is not None else ():
            if name in state.parts_read:
                self._tables[str(name)] = self._begun(key, state, what), str(name)
                return str(name)
        names = sorted({*states, *(part for state in states.values() for part in state.parts_read)})
        if name is not None:
            raise DataflowError(f"{what} has no state {name!r} that stays: it has {names}")
        raise DataflowError(
            f"{what} has the states {names}: say which, with job.table(..., state={min(names)!r})"
            if names
            else f"{what} keeps nothing by key from one epoch to the next: there is no table to read"
        )

    def _begun(self, name: str, state: TableOfOthers, what: str) -> AtEpochs:
        if name not in self._read:
            read = state.at_epochs(self._epochs)
            if read is None:
                raise DataflowError(
                    f"{what} keeps {name!r} as {state.form_now}, which has no former values: it cannot be read while the job runs; "
                    f"{INSTEAD}"
                )
            self._read[name] = read
        return self._read[name]

    def is_of_epochs(self, name: str) -> bool:
        """Whether a table is of an epoch at any time: it is changed in the order of epochs, or each of its rows tells its own."""
        return self._vertex.sequential or self._vertex.in_order or self._tables[name][0].rows_tell_times

    def since(self, name: str) -> int:
        """The oldest epoch that can be read."""
        return self._tables[name][0].since

    def forget(self, epoch: int) -> None:
        """Nobody will read an epoch before this one."""
        for read in self._read.values():
            read.forget(epoch)

    # -- to be read ----------------------------------------------------------------------
    def of_keys(self, name: str, epoch: int, keys: Sequence[Any]) -> tuple[Entries, bool]:
        """The rows of these keys at the end of an epoch, and whether a key has one row at most. They are the reader's own."""
        read, part = self._tables[name]
        return read.of_keys(epoch, keys, part), read.has_one_row

    def of_groups(self, name: str, epoch: int, groups: Collection[int] | None) -> Entries:
        """All rows of these key-groups (None: of all that are here) at the end of an epoch. They are the reader's own."""
        read, part = self._tables[name]
        return read.of_all(epoch, part) if groups is None else read.of_groups(epoch, groups, self._vertex.key_groups, part)

    # -- to other replicas -----------------------------------------------------------------
    def give(self, groups: frozenset[int], key_groups: int) -> dict[str, Any]:
        """Take out the former values of these key-groups, by state; before the states give theirs."""
        return {name: read.give(groups, key_groups) for name, read in self._read.items()}

    def take(self, given: Mapping[str, Any]) -> None:
        """Keep what a sibling gave. A state that nobody has read here is read from now on, as there."""
        states = self._vertex.tables_read()
        for name in {**dict.fromkeys(given), **dict.fromkeys(self._read)}:
            if name in given:
                with suppress(DataflowError):  # it cannot be read in the form that it has here: who asks is told so
                    self._begun(name, states[name], self._vertex.name).take(given[name])
            else:
                self._read[name].begin_now()


def tables_of(made: Any, depth: int) -> tuple[str, ...]:
    """What others can read of a vertex while it runs: the names of its states, "" where none has to be said.

    Args:
        made: what makes the vertex.
        depth: how many loops are around it.
    """
    cls = getattr(made, "cls", None)
    if depth or not hasattr(cls, "tables_read") or cls.why_unreadable:  # type: ignore[union-attr]
        return ()
    vertex = made()
    live, found, states = LiveState(vertex, lambda: -1, lambda: -1), [], vertex.tables_read()
    for name, state in states.items():
        with suppress(DataflowError):
            if live.is_of_epochs(live.begin(name, name)):
                found += [name if len(states) > 1 else "", *state.parts_read]
    return tuple(found)


def told_tables(name: str, tables: Sequence[str]) -> str:
    """How a vertex is read, in words; "" where it is not.

    >>> told_tables("both", ["", "left", "right"])
    "job.table('both'), state='left', state='right'"
    """
    if not tables:
        return ""
    first, *others = tables
    call = f"job.table({name!r})" if not first else f"job.table({name!r}, state={first!r})"
    return ", ".join([call, *(f"state={each!r}" for each in others)])


__all__ = ["LiveState", "tables_of", "told_tables"]
