"""Lists by key: what has come for each, for several sides."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, MutableMapping, Sequence
from typing import Any

from rayad.dataflow.operators.state.by_key.changing import Changing
from rayad.dataflow.operators.state.by_key.dicts import KeyedDict
from rayad.dataflow.operators.state.keyed_state import NotedState, StateOfParts
from rayad.dataflow.operators.state.reads.at_epochs import AtEpochs, Epochs
from rayad.dataflow.operators.state.reads.lists import SIDES, ListsAtEpochs
from rayad.dataflow.operators.state.tables import TIME, Entries
from rayad.dataflow.operators.state.touched_keys import Additions
from rayad.dataflow.operators.state.two_forms import RowForm


class Lists(KeyedDict):
    """One side: lists by key. What has been added is noted by :class:`KeyedLists`, for all sides."""

    def put_in(self, name: str, some: Any) -> None:
        kept = self._kept
        for key, values in some.items():
            if key in kept:
                kept[key].extend(values)
            else:
                kept[key] = values  # a new list for each would set off the garbage collector


class KeyedLists(NotedState, StateOfParts, RowForm):
    """What has come for each key, for several sides: ``{key: [(value, mark), ...]}`` of each.

    >>> sides = KeyedLists(2)
    >>> sides.add(1, [("a", 7)], "now"); sides.kept, sides.rows
    (({}, {'a': [(7, 'now')]}), 1)
    """

    def __init__(self, sides: int) -> None:
        super().__init__()
        self._sides = tuple(Lists() for _ in range(sides))
        self.rows = 0
        """How many values there are; where some are in runs, not fewer than that."""
        self._noted: Additions = Additions()
        self.before_drop: Callable[[list[Any]], None] | None = None
        """Told of the keys that are about to be dropped; None: nobody has read yet."""

    @property
    def there(self) -> tuple[Lists, ...]:
        return self._sides

    @property
    def parts_read(self) -> tuple[str, ...]:
        return SIDES if len(self._sides) == len(SIDES) else ()

    def at_epochs(self, epochs: Epochs) -> AtEpochs | None:
        return ListsAtEpochs(self, epochs) if len(self._sides) == len(SIDES) else None

    @property
    def kept(self) -> tuple[Mapping[Any, list[Any]], ...]:
        """To be read, by side."""
        return tuple(side.kept for side in self._sides)

    def kept_of(self, keys: Sequence[Any]) -> tuple[Mapping[Any, list[Any]], ...]:
        """To be read, by side, for these keys above all."""
        return tuple(side.kept_of(keys) for side in self._sides)

    @property
    def is_used(self) -> bool:
        return any(side.is_used for side in self._sides)

    @property
    def is_beyond_memory(self) -> bool:
        """Whether any of it is in runs."""
        return any(side.is_beyond_memory for side in self._sides)

    def add(self, side: int, pairs: list[Any], mark: Any) -> None:
        """Keep ``(key, value)`` pairs of a side, each with ``mark``."""
        with self.adding(side, pairs, mark) as mine:
            for key, value in pairs:
                mine.setdefault(key, []).append((value, mark))

    def adding(self, side: int, pairs: list[Any], mark: Any) -> Changing[MutableMapping[Any, list[Any]]]:
        """A side, for these to be added by a loop of the operator's as :meth:`add` does it. ``pairs`` must stay as they are."""
        if self._sides[side].is_beyond_memory:
            self._sides[side].kept_of([key for key, _ in pairs])
        return Changing(self._sides[side].to_add_to(len(pairs)), lambda: self._note(side, pairs, mark))

    def _note(self, side: int, pairs: list[Any], mark: Any) -> None:
        self.rows += len(pairs)
        if self.is_beyond_memory:
            self.forget_changes()
        else:
            self._noted.note((side, pairs, mark), len(pairs), self.rows)

    def that_drops(self) -> KeyedLists:
        return self

    def drop(self, keys: list[Any]) -> None:
        if self.before_drop is not None:
            self.before_drop(keys)
        for side in self._sides:
            kept = side.kept_of(keys)
            self.rows -= sum(len(kept.get(key, ())) for key in keys)
            side.drop(keys)
        self._noted.note((None, keys, None), len(keys), self.rows)

    # -- snapshots -----------------------------------------------------------------
    def checkpoint(self) -> Any:
        return tuple(side.checkpoint() for side in self._sides)

    def restore(self, stored: Any) -> None:
        for side, part in zip(self._sides, stored, strict=True):
            side.restore(part)
            self.rows += _rows_of(part)

    def take_changes(self) -> Callable[[], Any] | None:
        """What is in runs is never part of an increment."""
        return None if self.is_beyond_memory else super().take_changes()

    def changed(self, noted: list[Any]) -> Any:
        return noted

    def restore_changes(self, changes: Any) -> None:
        for side, pairs, mark in changes:
            if side is None:
                self.drop(pairs)
            else:
                self.add(side, pairs, mark)

    # -- to other replicas -----------------------------------------------------------
    def give(self, groups: frozenset[int], key_groups: int) -> Any:
        given = [side.give(groups, key_groups) or {} for side in self._sides]
        self.rows -= sum(map(_rows_of, given))
        return tuple(given) if any(given) else None

    def take(self, given: Any) -> None:
        for side, part in zip(self._sides, given, strict=True):
            side.take(part)
            self.rows += _rows_of(part)

    # -- as a table --------------------------------------------------------------------
    def _names(self) -> list[str]:
        return list(SIDES) if len(self._sides) == len(SIDES) else [f"side{side}" for side in range(len(self._sides))]

    def entries(self) -> dict[str, Entries]:
        out = {}
        for name, side in zip(self._names(), self.kept, strict=True):
            rows = [(key, mark, value) for key, some in side.items() for value, mark in some]
            out[name] = Entries([key for key, _, _ in rows], {TIME: [mark for _, mark, _ in rows], "value": [row[2] for row in rows]})
        return out

    def put_entries(self, name: str, entries: Entries) -> None:
        side = self._names().index(name)
        for key, time, value in zip(entries.keys, entries.columns[TIME], entries.columns["value"], strict=True):
            self.add(side, [(key, value)], time)


def _rows_of(part: Any) -> int:
    return values_of([part]) if isinstance(part, dict) else 1


def values_of(sides: Iterable[dict[Any, list[Any]]]) -> int:
    """How many values dicts of lists have."""
    return sum(len(kept) for side in sides for kept in side.values())


__all__ = ["KeyedLists", "values_of"]
