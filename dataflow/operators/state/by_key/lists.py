"""Lists by key: what has come for each, for several sides."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from rayad.dataflow.operators.state.by_key.changing import Changing
from rayad.dataflow.operators.state.by_key.rows import Named, RowsByKey
from rayad.dataflow.operators.state.keyed_state import NotedState
from rayad.dataflow.operators.state.reads.at_epochs import AtEpochs, Epochs
from rayad.dataflow.operators.state.reads.lists import SIDES, ListsAtEpochs
from rayad.dataflow.operators.state.tables import TIME, Entries
from rayad.dataflow.operators.state.touched_keys import Additions


class KeyedLists(NotedState, RowsByKey):
    """What has come for each key, for several sides: ``{key: [(value, mark), ...]}`` of each.

    >>> sides = KeyedLists(2)
    >>> sides.add(1, [("a", 7)], "now"); sides.kept, sides.rows
    (({}, {'a': [(7, 'now')]}), 1)
    """

    def __init__(self, sides: int) -> None:
        super().__init__()
        self._kept: tuple[dict[Any, list[Any]], ...] = tuple({} for _ in range(sides))
        self.rows = 0
        self._noted: Additions = Additions()
        self.before_drop: Callable[[list[Any]], None] | None = None
        """Told of the keys that are about to be dropped; None: nobody has read yet."""

    @property
    def parts_read(self) -> tuple[str, ...]:
        return SIDES if len(self._kept) == len(SIDES) else ()

    def at_epochs(self, epochs: Epochs) -> AtEpochs | None:
        return ListsAtEpochs(self, epochs) if len(self._kept) == len(SIDES) else None

    @property
    def kept(self) -> tuple[Mapping[Any, list[Any]], ...]:
        """To be read, by side."""
        return self._kept

    @property
    def is_used(self) -> bool:
        return any(self._kept)

    def add(self, side: int, pairs: list[Any], mark: Any) -> None:
        """Keep ``(key, value)`` pairs of a side, each with ``mark``."""
        with self.adding(side, pairs, mark) as mine:
            for key, value in pairs:
                mine.setdefault(key, []).append((value, mark))

    def adding(self, side: int, pairs: list[Any], mark: Any) -> Changing[dict[Any, list[Any]]]:
        """A side, for these to be added by a loop of the operator's as :meth:`add` does it. ``pairs`` must stay as they are."""
        return Changing(self._kept[side], lambda: self._note(side, pairs, mark))

    def _note(self, side: int, pairs: list[Any], mark: Any) -> None:
        self.rows += len(pairs)
        self._noted.note((side, pairs, mark), len(pairs), self.rows)

    def that_drops(self) -> KeyedLists:
        return self

    def drop(self, keys: list[Any]) -> None:
        if self.before_drop is not None:
            self.before_drop(keys)
        for kept in self._kept:
            for key in keys:
                self.rows -= len(kept.pop(key, ()))
            self._indices.removed(kept, keys)
        self._noted.note((None, keys, None), len(keys), self.rows)

    def changed(self, noted: list[Any]) -> Any:
        return noted

    def restore_changes(self, changes: Any) -> None:
        for side, pairs, mark in changes:
            if side is None:
                self.drop(pairs)
            else:
                self.add(side, pairs, mark)

    def named(self) -> Named:
        return dict(enumerate(self._kept))

    def shaped(self, named: Named) -> Any:
        return tuple(named.get(side, {}) for side in range(len(self._kept)))

    def unshaped(self, stored: Any) -> Named:
        return dict(enumerate(stored))

    def put_in(self, name: int, some: Any) -> None:
        kept = self._kept[name]
        for key, values in some.items():
            if key in kept:
                kept[key].extend(values)
            else:
                kept[key] = values  # a new list for each would set off the garbage collector
        self.rows += values_of([some])

    def left(self, given: Named) -> None:
        self.rows -= values_of(given.values())

    def _names(self) -> list[str]:
        return list(SIDES) if len(self._kept) == len(SIDES) else [f"side{side}" for side in range(len(self._kept))]

    def entries(self) -> dict[str, Entries]:
        out = {}
        for name, side in zip(self._names(), self._kept, strict=True):
            rows = [(key, mark, value) for key, some in side.items() for value, mark in some]
            out[name] = Entries([key for key, _, _ in rows], {TIME: [mark for _, mark, _ in rows], "value": [row[2] for row in rows]})
        return out

    def put_entries(self, name: str, entries: Entries) -> None:
        side = self._kept[self._names().index(name)]
        for key, time, value in zip(entries.keys, entries.columns[TIME], entries.columns["value"], strict=True):
            side.setdefault(key, []).append((value, time))
        self.rows += len(entries.keys)


def values_of(sides: Iterable[dict[Any, list[Any]]]) -> int:
    """How many values dicts of lists have."""
    return sum(len(kept) for side in sides for kept in side.values())


__all__ = ["KeyedLists", "values_of"]
