"""``stateful_map``: a user's function of a state by key and a record."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from operator import itemgetter
from typing import Any

from rayad.dataflow.operators.state.key_groups import Kept, MovingVertex
from rayad.dataflow.operators.state.stored_rows import FEW_ROWS, plain_and_few
from rayad.dataflow.operators.state.touched_keys import TouchedKeys, now_and_gone
from rayad.dataflow.records.batches import to_rows
from rayad.progress import DataflowError, Timestamp, show


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


__all__ = ["StatefulMap"]
