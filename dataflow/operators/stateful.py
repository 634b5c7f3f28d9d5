"""Keyed operators that answer record by record: distinct, stateful_map, join."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from operator import itemgetter
from typing import Any

import pyarrow as pa

from rayad.dataflow.columnar import to_rows
from rayad.dataflow.operators.column_join import ColumnJoin, NotColumnar, pairs_of, rows_of_given
from rayad.dataflow.operators.contents import comparable, originals
from rayad.dataflow.operators.key_groups import Kept, MovingVertex
from rayad.dataflow.operators.stored_rows import FEW_ROWS, plain_and_few
from rayad.dataflow.operators.touched_keys import Additions, TouchedKeys, now_and_gone
from rayad.progress import DataflowError, Timestamp, show


class Distinct(MovingVertex):
    """Each distinct ``(key, value)`` once, at the first time (in lexicographic order) that holds it; see :class:`Contents` for values that
    Python cannot hash."""

    sequential = True
    waits_for_siblings = False

    def __init__(self) -> None:
        self.pending: dict[Timestamp, dict[Any, None]] = {}
        self.seen: set[Any] = set()
        self._added = Additions()

    def checkpoint(self) -> Any:
        return {"pending": self.pending, "seen": self.seen}

    def restore(self, state: Any) -> None:
        self.pending, self.seen = state["pending"], state["seen"]

    def take_changes(self) -> Callable[[], Any] | None:
        added = self._added.take()
        return None if added is None else lambda: {"pending": self.pending, "added": [pair for pairs in added for pair in pairs]}

    def restore_changes(self, changes: Any) -> None:
        self.pending = changes["pending"]
        self.seen.update(changes["added"])

    def kept_by_key(self) -> Iterable[Kept]:
        return [self.seen]

    def give(self, groups: frozenset[int]) -> Any:
        leaving = self.leaving()
        waiting = {}
        for time, fresh in list(self.pending.items()):
            pairs = list(fresh)
            waiting[time] = leaving.out_of_pairs(pairs, groups)
            self.pending[time] = dict.fromkeys(pairs)
        self.pending = {time: fresh for time, fresh in self.pending.items() if fresh}
        self._added.forget()
        return {"pending": {time: pairs for time, pairs in waiting.items() if pairs}, "seen": leaving.out_of_set(self.seen, groups)}

    def take(self, state: Any) -> None:
        for time, pairs in state["pending"].items():
            if time not in self.pending:
                self.pending[time] = {}
                self.notify_at(time)
            self.pending[time].update(dict.fromkeys(pairs))
        self.seen.update(state["seen"])
        if self._leaving is not None:
            self._leaving.added(self.seen, state["seen"])
        self._added.forget()

    def on_recv(self, edge: int, batch: Any, time: Timestamp) -> None:
        fresh = self.pending.get(time)
        if fresh is None:
            fresh = self.pending[time] = {}
            self.notify_at(time)
        try:
            fresh.update(dict.fromkeys(pair for pair in comparable(to_rows(batch)) if pair not in self.seen))
        except TypeError as error:
            raise DataflowError(f"distinct {self.name!r} needs hashable keys and values: {error}; map records to tuples first") from error

    def on_notify(self, time: Timestamp) -> None:
        waiting = self.pending.pop(time, None)
        if waiting is None:
            return  # all of it was given to another replica
        fresh = [pair for pair in waiting if pair not in self.seen]
        self.seen.update(fresh)
        if self._leaving is not None:
            self._leaving.added(self.seen, fresh)
        self._added.note(fresh, len(fresh), len(self.seen))
        self.send_by(0, originals(fresh), time)


class StatefulMap(MovingVertex):
    """``f(state, value) -> (state, out)`` for each record on arrival; times are delivered in order, ``out`` of None is not sent."""

    in_order = True
    may_change = frozenset({"initial", "function"})

    def __init__(self, function: Any, initial: Any) -> None:
        self.function = function
        self.initial = initial
        self.state: dict[Any, Any] = {}
        self._touched = TouchedKeys(itemgetter(0))

    @property
    def checkpoint_inline(self) -> bool:  # type: ignore[override]
        """However many records have come, numbers of few keys are pickled faster than a process is forked."""
        return plain_and_few(self.state, FEW_ROWS)

    def checkpoint(self) -> Any:
        return self.state

    def restore(self, state: Any) -> None:
        self.state = state

    def take_changes(self) -> Callable[[], Any] | None:
        touched = self._touched.take()
        return None if touched is None else lambda: now_and_gone(touched(), self.state)

    def restore_changes(self, changes: Any) -> None:
        now, gone = changes
        self.state.update(now)
        for key in gone:
            self.state.pop(key, None)

    def kept_by_key(self) -> Iterable[Kept]:
        return [self.state]

    def give(self, groups: frozenset[int]) -> Any:
        self._touched.forget()
        return self.leaving().out_of(self.state, groups) or None

    def take(self, state: Any) -> None:
        self._came_back(self.state, state)
        self.state.update(state)
        self._touched.forget()

    def on_recv(self, edge: int, batch: Any, time: Timestamp) -> None:
        state, function, out = self.state, self.function, []
        initial = self.initial
        rows = to_rows(batch)
        for key, value in rows:
            before = state[key] if key in state else initial() if callable(initial) else copy.deepcopy(initial)
            answer = function(before, value)
            try:
                after, result = answer
            except (TypeError, ValueError) as error:
                raise DataflowError(
                    f"the function of stateful_map {self.name!r} returned {show(answer)}; it must return (state, output)"
                ) from error
            if after is None:
                if state.pop(key, None) is not None and self._leaving is not None:
                    self._leaving.removed(state, key)
            else:
                state[key] = after
            if result is not None:
                out.append((key, copy.deepcopy(result) if result is after else result))  # the state may go on changing in place
        self._touched.note(rows, len(state))
        self.send_by(0, out, time)


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
