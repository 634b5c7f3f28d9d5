"""State of a running vertex that others read, at one epoch (docs/design/state.md, 10).

Its dicts by key keep former values from the first read on. Which epochs are complete is the runtime's to know; here is what a key, or a
key-group, had at the end of one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from rayad.dataflow.operators.state.by_key import DictByKey
from rayad.dataflow.operators.state.group_index import chosen, groups_of_keys
from rayad.dataflow.operators.state.two_forms import TwoForms
from rayad.dataflow.operators.state.versions import ABSENT, Given, Versions, copied
from rayad.progress import DataflowError

if TYPE_CHECKING:
    from rayad.dataflow.operators.state.keyed_state import KeyedState, KeyedVertex
    from rayad.dataflow.operators.state.tables import Entries

INSTEAD = "read it from a snapshot: rd.read_state(job.savepoint(), vertex)"


class LiveState:
    """What others read of a vertex.

    Args:
        vertex: whose state it is.
        epoch, applied: see :class:`Versions`.
    """

    def __init__(self, vertex: KeyedVertex, epoch: Callable[[], int], applied: Callable[[], int]) -> None:
        self._vertex = vertex
        self._epoch, self._applied = epoch, applied
        self._tables: dict[str, DictByKey] = {}

    @property
    def is_read(self) -> bool:
        """Whether somebody has read anything."""
        return bool(self._tables)

    def begin(self, name: str | None, what: str) -> str:
        """Keep former values of a state from now on; gives its name. Raises DataflowError that says why that cannot be.

        Args:
            name: of the state; None: the only one that stays.
            what: the vertex, for errors.
        """
        found = _chosen(self._vertex, name, what)
        state = self._vertex.states()[found]
        if isinstance(state, TwoForms):
            if state.columns.is_used:
                raise DataflowError(
                    f"{what} keeps {found!r} in columns ({type(state.columns).__name__}) now, which have no former values: they cannot be "
                    f"read while the job runs. Give it records as Python objects, with .map(...) before it; or {INSTEAD}"
                )
            state = state.rows
        if found not in self._tables:
            if not isinstance(state, DictByKey) or not state.keeps_versions:
                raise DataflowError(
                    f"{what} keeps {found!r} as {type(state).__name__}, which has no former values: it cannot be read while the job runs. "
                    f"What is kept by key in rows can be (totals, folds, stateful_map, latest, lag, head, process); or {INSTEAD}"
                )
            state.versions = Versions(self._epoch, self._applied)
            self._tables[found] = state
        return found

    def since(self, name: str) -> int:
        """The oldest epoch that can be read."""
        return self._versions(name).since

    def forget(self, epoch: int) -> None:
        """Nobody will read an epoch before this one."""
        for name in self._tables:
            self._versions(name).forget(epoch)

    def _versions(self, name: str) -> Versions:
        versions = self._tables[name].versions
        assert versions is not None
        return versions

    # -- to be read ----------------------------------------------------------------------
    def of_keys(self, name: str, epoch: int, keys: Sequence[Any]) -> tuple[Entries, bool]:
        """The rows of these keys at the end of an epoch, and whether a key has one row at most. They are the reader's own."""
        table, versions = self._tables[name], self._versions(name)
        found = ((key, versions.value(epoch, key, table.kept)) for key in keys)
        return _rows_of(table, {key: value for key, value in found if value is not ABSENT}), table.has_one_row

    def of_groups(self, name: str, epoch: int, groups: Collection[int] | None) -> Entries:
        """All rows of these key-groups (None: of all that are here) at the end of an epoch. They are the reader's own."""
        table = self._tables[name]
        kept = self._versions(name).at(epoch, table.kept)
        if groups is not None and kept:
            keys, key_groups = list(kept), self._vertex.key_groups
            wanted = chosen(groups, key_groups)[groups_of_keys(keys, key_groups)].tolist()
            kept = {key: kept[key] for key, is_wanted in zip(keys, wanted, strict=True) if is_wanted}
        return _rows_of(table, kept)

    # -- to other replicas -----------------------------------------------------------------
    def give(self, groups: frozenset[int], key_groups: int) -> dict[str, Given]:
        """Take out the former values of these key-groups; of what is in columns now there are none."""
        for name in self._tables:
            state = self._vertex.states()[name]
            if isinstance(state, TwoForms) and state.columns.is_used:
                self._versions(name).begin_now()
        return {name: self._versions(name).give(groups, key_groups) for name in self._tables}

    def take(self, given: Mapping[str, Given]) -> None:
        """Keep what a sibling gave. A state that nobody has read here is read from now on, as there."""
        for name in {**dict.fromkeys(given), **dict.fromkeys(self._tables)}:
            if name in given:
                if name not in self._tables:
                    with suppress(DataflowError):  # it is in columns here: who asks is told so
                        self.begin(name, self._vertex.name)
                if name in self._tables:
                    self._versions(name).take(given[name])
            else:
                self._versions(name).begin_now()


def _chosen(vertex: KeyedVertex, name: str | None, what: str) -> str:
    states: dict[str, KeyedState] = {key: state for key, state in vertex.states().items() if not state.is_in_flight}
    if name is not None and name not in states:
        raise DataflowError(f"{what} has no state {name!r} that stays: it has {sorted(states)}")
    if name is None and len(states) != 1:
        raise DataflowError(
            f"{what} has the states {sorted(states)}: say which, with job.table(..., state={min(states)!r})"
            if states
            else f"{what} keeps nothing by key from one epoch to the next: there is no table to read"
        )
    return name if name is not None else next(iter(states))


def _rows_of(table: DictByKey, kept: dict[Any, Any]) -> Entries:
    entries = table.entries_of({key: copied(value) for key, value in kept.items()})
    return entries[""]


__all__ = ["LiveState"]
