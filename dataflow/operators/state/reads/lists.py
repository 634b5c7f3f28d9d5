"""What has come for each key at epochs: each row tells its time, and rows that are dropped are kept until no epoch before that is read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

from rayad.dataflow.operators.state.group_index import chosen, groups_of_keys
from rayad.dataflow.operators.state.reads.at_epochs import AtEpochs, Epochs
from rayad.dataflow.operators.state.tables import TIME, Entries

SIDES = ("left", "right")
Row = tuple[Any, int, Any, Any]
"""Key, side, value, time."""
Dropped = list[tuple[int, int, Any, Any]]
"""Of a key: the epoch in which a row was dropped, its side, value and time."""


class Sides(Protocol):
    """Both sides of a join, by key."""

    before_drop: Callable[[list[Any]], None] | None
    """Told of keys that are about to be dropped."""

    @property
    def kept(self) -> Sequence[Mapping[Any, list[Any]]]:
        """The values and times of each side."""

    def kept_of(self, keys: Sequence[Any]) -> Sequence[Mapping[Any, list[Any]]]:
        """The same, to be asked for these keys."""


class ListsAtEpochs(AtEpochs):
    """Both sides of a join in rows.

    Args:
        state: the sides; from now on it tells which keys are about to be dropped.
    """

    has_one_row = False
    rows_tell_times = True

    def __init__(self, state: Sides, epochs: Epochs) -> None:
        self._state = state
        self._epochs = epochs
        self._since = epochs.applied()
        self._dropped: dict[Any, Dropped] = {}
        state.before_drop = self.note

    @property
    def since(self) -> int:
        return self._since

    def note(self, keys: Sequence[Any]) -> None:
        """These keys are about to be dropped."""
        now, sides = self._epochs.now(), self._state.kept_of(list(keys))
        for key in keys:
            rows = [(now, side, value, time) for side, kept in enumerate(sides) for value, time in kept.get(key, ())]
            if rows:
                self._dropped.setdefault(key, []).extend(rows)

    def begin_now(self) -> None:
        self._since = max(self._since, self._epochs.now(), self._epochs.applied())

    def forget(self, epoch: int) -> None:
        if epoch > self._since:
            self._since = epoch
            left = {key: [row for row in rows if row[0] > epoch] for key, rows in self._dropped.items()}
            self._dropped = {key: rows for key, rows in left.items() if rows}

    def of_keys(self, epoch: int, keys: Sequence[Any], part: str = "") -> Entries:
        rows: list[Row] = []
        sides = self._state.kept_of(keys)
        for key in keys:
            for side, kept in enumerate(sides):
                rows += [(key, side, value, time) for value, time in kept.get(key, ()) if time.epoch <= epoch]
            rows += [(key, *row) for at, *row in self._dropped.get(key, ()) if at > epoch and row[2].epoch <= epoch]
        return entries_of_sides(rows, part)

    def of_all(self, epoch: int, part: str = "") -> Entries:
        return self.of_keys(epoch, list(dict.fromkeys([*(key for kept in self._state.kept for key in kept), *self._dropped])), part)

    def give(self, groups: frozenset[int], key_groups: int) -> Any:
        keys = list(self._dropped)
        leaves = chosen(groups, key_groups)[groups_of_keys(keys, key_groups)].tolist() if keys else []
        return {key: self._dropped.pop(key) for key, is_gone in zip(keys, leaves, strict=True) if is_gone}, self._since

    def take(self, given: tuple[Mapping[Any, Dropped], int]) -> None:
        dropped, since = given
        self._since = max(self._since, since)
        self._dropped.update(dropped)


def entries_of_sides(rows: Iterable[Row], part: str) -> Entries:
    """Rows of both sides, or of one, as a table."""
    some = [row for row in rows if not part or SIDES[row[1]] == part]
    columns: dict[str, list[Any]] = {} if part else {"side": [SIDES[side] for _, side, _, _ in some]}
    return Entries([row[0] for row in some], {**columns, TIME: [row[3] for row in some], "value": [row[2] for row in some]})


__all__ = ["SIDES", "ListsAtEpochs", "entries_of_sides"]
