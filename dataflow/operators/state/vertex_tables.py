"""The tables of a vertex with keyed state: all that its :class:`KeyedState` attributes have, by name."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from rayad.dataflow.operators.state.keyed_state import KeyedState, KeyedVertex
from rayad.dataflow.operators.state.tables import Entries
from rayad.progress import DataflowError


@dataclass(frozen=True, slots=True)
class StateTable:
    """One table.

    Args:
        state, part: whose it is, and what that calls it.
        entries: what is there.
    """

    state: KeyedState
    part: str
    entries: Entries

    @property
    def is_in_flight(self) -> bool:
        """Whether it waits for its time, and cannot be written."""
        return self.state.is_in_flight


def tables_in(vertex: KeyedVertex) -> dict[str, StateTable]:
    """Its tables: the one of a state has the name of the attribute, several have their own. Columns may become rows for it."""
    found = [(name, state, part, entries) for name, state in vertex.states().items() for part, entries in state.entries().items()]
    return {part or name: StateTable(state, part, entries) for name, state, part, entries in found}


def put_tables(vertex: KeyedVertex, tables: Mapping[str, Entries]) -> None:
    """Fill a vertex in which nothing is yet. Raises DataflowError."""
    places = tables_in(vertex)
    for name, entries in tables.items():
        places[name].state.put_entries(places[name].part, entries)


def chosen_table(tables: Mapping[str, StateTable], name: str | None, what: str) -> str:
    """The table that is asked for; None: the only one that stays, or the only one. Raises DataflowError that names those there are."""
    if name is not None:
        if name not in tables:
            raise DataflowError(f"{what} has no state {name!r}: it has {list(tables)}")
        return name
    staying = [each for each, table in tables.items() if not table.is_in_flight] or list(tables)
    if len(staying) != 1:
        raise DataflowError(f"{what} has the states {staying}: say which, with state={staying[0]!r}" if staying else f"{what} has none")
    return staying[0]


def names_that_stay(tables: Mapping[str, StateTable]) -> Collection[str]:
    """The tables that can be written."""
    return [name for name, table in tables.items() if not table.is_in_flight]


__all__ = ["StateTable", "chosen_table", "names_that_stay", "put_tables", "tables_in"]
