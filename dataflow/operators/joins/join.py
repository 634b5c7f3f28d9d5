"""The join by key of two streams, each record with all that match it so far: in rows, and in columns while both sides have them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pyarrow as pa

from rayad.dataflow.operators.joins.columns import ColumnJoin, NotColumnar, rows_of_given
from rayad.dataflow.operators.keys.key_first import pairs_of
from rayad.dataflow.operators.state.key_groups import Kept, MovingVertex
from rayad.dataflow.operators.state.touched_keys import Additions
from rayad.progress import Timestamp


class Join(MovingVertex):
    """Symmetric hash join of two keyed inputs: ``(key, (left, right))`` at the least upper bound of the two times.

    Both sides are columns as long as all batches are; the first rows turn what is kept into rows.
    """

    def __init__(self) -> None:
        self.sides: tuple[dict[Any, list[Any]], dict[Any, list[Any]]] = ({}, {})
        self.columns: ColumnJoin | None = None
        self._rows = 0
        self._added = Additions()

    def checkpoint(self) -> Any:
        return {"sides": self.sides, "columns": None if self.columns is None else self.columns.checkpoint()}

    def restore(self, state: Any) -> None:
        self.sides = state["sides"]
        self._rows = _rows_of(self.sides)
        if state["columns"] is not None:
            self.columns = ColumnJoin()
            self.columns.restore(state["columns"])

    def take_changes(self) -> Callable[[], Any] | None:
        if self.columns is not None:
            return self.columns.take_changes()
        added = self._added.take()
        return None if added is None else lambda: added

    def restore_changes(self, changes: Any) -> None:
        if self.columns is not None:
            self.columns.restore_changes(changes)
            return
        for edge, pairs, time in changes:
            mine = self.sides[edge]
            for key, value in pairs:
                mine.setdefault(key, []).append((value, time))
            self._rows += len(pairs)

    def kept_by_key(self) -> Iterable[Kept]:
        return self.sides if self.columns is None else [self.columns]

    def gave(self) -> None:
        super().gave()
        if self.columns is not None:
            self.columns.forget_groups()

    def give(self, groups: frozenset[int]) -> Any:
        self._forget_changes()
        if self.columns is not None:
            return {"columns": self.columns.give(groups, self.key_groups)}
        sides = tuple(self.leaving().out_of(side, groups) for side in self.sides)
        self._rows -= _rows_of(sides)
        return {"sides": sides}

    def take(self, state: Any) -> None:
        if "columns" in state:
            if not self.sides[0] and not self.sides[1]:
                self.columns = self.columns or ColumnJoin()
                state = {"sides": self.columns.take(state["columns"])}
            else:
                state = {"sides": rows_of_given(state["columns"])}
        if any(state["sides"]):
            self._to_rows()
            for kept, side in zip(self.sides, state["sides"], strict=True):
                self._came_back(kept, side)
                for key, rows in side.items():
                    if key in kept:
                        kept[key].extend(rows)
                    else:
                        kept[key] = rows  # a new list for each would set off the garbage collector
            self._rows += _rows_of(state["sides"])
        self._forget_changes()

    def _forget_changes(self) -> None:
        self._added.forget()
        if self.columns is not None:
            self.columns.forget_changes()

    def _to_rows(self) -> None:
        if self.columns is not None:
            self.sides, self.columns = self.columns.sides(), None
            self._rows = _rows_of(self.sides)
            self._added.forget()

    def on_recv(self, edge: int, batch: Any, time: Timestamp) -> None:
        if isinstance(batch, pa.RecordBatch) and not self.sides[0] and not self.sides[1]:
            if self.columns is None:
                self.columns = ColumnJoin()
            try:
                joined = self.columns.accept(edge, batch, time)
            except NotColumnar:
                pass
            else:
                for at, out in joined:
                    self.send_by(0, out, at)
                return
        self._to_rows()
        pairs = pairs_of(batch)
        self._join_rows(edge, pairs, time)
        self._rows += len(pairs)
        self._added.note((edge, pairs, time), len(pairs), self._rows)

    def _join_rows(self, edge: int, pairs: list[Any], time: Timestamp) -> None:
        mine, other = self.sides[edge], self.sides[1 - edge]
        out: dict[Timestamp, list[Any]] = {}
        for key, value in pairs:
            kept = mine.get(key)
            if kept is None:
                mine[key] = [(value, time)]
            else:
                kept.append((value, time))
            for match, then in other.get(key, ()):
                at = time if then == time else time.join(then)
                met = out.get(at)
                if met is None:
                    met = out[at] = []
                met.append((key, (value, match) if edge == 0 else (match, value)))
        for at, met in out.items():
            self.send_by(0, met, at)


def _rows_of(sides: Iterable[dict[Any, list[Any]]]) -> int:
    return sum(len(kept) for side in sides for kept in side.values())


__all__ = ["Join"]
