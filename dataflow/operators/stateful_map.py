"""``stateful_map``: a user's function of a state by key and a record."""

from __future__ import annotations

import copy
from typing import Any

from rayad.dataflow.operators.state.by_key.dicts import KeyedDict
from rayad.dataflow.operators.state.keyed_state import KeyedVertex
from rayad.dataflow.records.batches import to_rows
from rayad.progress import DataflowError, Timestamp, show


class StatefulMap(KeyedVertex):
    """``f(state, value) -> (state, out)`` for each record on arrival; times are delivered in order, ``out`` of None is not sent."""

    in_order = True
    may_change = frozenset({"initial", "function"})

    def __init__(self, function: Any, initial: Any) -> None:
        self.function = function
        self.initial = initial
        self.state = KeyedDict(of_pairs=True)

    def on_recv(self, edge: int, batch: Any, time: Timestamp) -> None:
        function, initial = self.function, self.initial
        rows, out = to_rows(batch), []
        with self.state.changing(rows) as state:
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
                    state.pop(key, None)
                else:
                    state[key] = after
                if result is not None:
                    out.append((key, copy.deepcopy(result) if result is after else result))  # the state may go on changing in place
        self.send_by(0, out, time)


__all__ = ["StatefulMap"]
