"""What a function makes of the values of a key, kept up to date.

The result at a moment is computed from what has accumulated there, with the epoch under way and without it; given is the difference, less
what the moments before it in this epoch have given already. So inputs are all that is kept over epochs. A key is looked at again where a
change of this moment and one of another, earlier or later in the same rounds, accumulate together for the first time: at the join of both.

Source: McSherry et al., *Differential dataflow* (CIDR 2013), 3.3 and 4.2; that no such moment leaves its epoch, and that results need not
be kept, follows from moments of one vertex coming one after another.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from operator import itemgetter
from typing import Any

import numpy as np
import pyarrow as pa

from rayad.incremental import functions
from rayad.incremental.columns.grouped import Grouped, GroupedColumns
from rayad.incremental.columns.linear import Linear
from rayad.incremental.columns.reducing import LinearColumns
from rayad.incremental.moment_vertex import Arrived, MomentVertex
from rayad.incremental.moments import counts_at, join
from rayad.incremental.reads import Shown, Weights
from rayad.incremental.records import negative
from rayad.incremental.sums import Sums, Vector
from rayad.incremental.traces import Kept, ThisEpoch, Trace, add
from rayad.progress import DataflowError, Timestamp, show

Function = Callable[[Any, Any], Iterable[tuple[Any, int]]]
"""Of a key and the weights of its values, or their sums: results and their weights. Not called for a key that has none."""


class Reduce(MomentVertex):
    """Gives ``(key, result)``. Raises DataflowError for a key of which more was removed than inserted, as far as what is kept tells.

    Args:
        function: see :data:`Function`.
        vector: of a value: then sums are kept and not values, and the function is given the sum over all.
        columns: the same in columns, or what keeps it in them; None: there is no such.
    """

    why_unreadable = ""

    def __init__(
        self,
        function: Function,
        vector: Callable[[Any], Vector] | None = None,
        columns: Linear | Grouped | GroupedColumns | None = None,
    ) -> None:
        form = LinearColumns(columns) if isinstance(columns, Linear) else columns
        super().__init__(GroupedColumns(form) if isinstance(form, Grouped) else form)
        is_over = self.epochs.is_over
        self.input: Kept = Trace(is_over) if vector is None else Sums(is_over, vector)
        self.given = ThisEpoch(is_over)
        """By key: by result: by moment: the weight."""
        self._function = function
        self._least: Callable[[Any], int] | None = _of_values if vector is None else itemgetter(0)
        if getattr(function, "takes_negative", False):
            self._least = None

    def kept(self) -> dict[str, Kept]:
        """See there."""
        return {"input": self.input}

    def of_epoch(self) -> dict[str, ThisEpoch]:
        """See there."""
        return {"given": self.given}

    def keeps(self) -> str:
        """See there."""
        return "sums by key" if isinstance(self.input, Sums) else "the records of each key"

    def shown(self) -> Shown | None:
        """See there."""
        return functions.shown(self._function) if self._function is not distinct else Shown(None, has_one_row=True)

    @property
    def gives_kept(self) -> bool:
        """See there."""
        return self._function is distinct

    def results_in_columns(self, kept: pa.RecordBatch, weights: Weights) -> tuple[pa.RecordBatch, Weights]:
        """Each record once."""
        return kept, np.ones(len(weights), np.int64)

    def results_of(self, key: Any, there: Sequence[Any]) -> Iterable[tuple[Any, int]]:
        """See there."""
        (values,) = there
        return self._function(key, values) if values else ()

    def on_moment(self, time: Timestamp, arrived: list[Arrived], scheduled: Collection[Any]) -> None:
        """Results of the keys that have changed, or may have."""
        moment, out = time.counters, []
        keys = dict.fromkeys(scheduled)
        for (key, value), weight in arrived[0].items():
            self.input.add(key, value, time, weight)
            keys[key] = None
        for key in keys:
            change = self._change(key, time)
            for result, weight in change.items():
                out.append(((key, result), weight))
                self.given.time = time
                add(self.given.kept.setdefault(key, {}).setdefault(result, {}), moment, weight)
            if moment:
                self._schedule_joins(time, key)
        self.send_changes(time, out)

    def _change(self, key: Any, time: Timestamp) -> dict[Any, int]:
        moment = time.counters
        before, now = self.input.accumulated(key, moment)
        if now and self._least is not None and self._least(now) < 0:
            raise self._less_than_nothing(key, now, time)
        change: dict[Any, int] = {}
        for values, sign in ((now, 1), (before, -1)):
            if values:
                for result, weight in self._function(key, values):
                    add(change, result, sign * weight)
        for result, weights in self.given.kept.get(key, {}).items():
            for at, weight in weights.items():
                if counts_at(at, moment):
                    add(change, result, -weight)
        return change

    def _less_than_nothing(self, key: Any, now: Any, time: Timestamp) -> DataflowError:
        if isinstance(self.input, Sums):
            return negative(f"what has the key {show(key, 80)}", now[0], time)
        value, weight = min(now.items(), key=itemgetter(1))
        return negative(show(key, 80) if value is None else f"{show(value, 80)} of key {show(key, 80)}", weight, time)

    def _schedule_joins(self, time: Timestamp, key: Any) -> None:
        moment = time.counters
        for at in set(self.input.moments(key)):
            if not counts_at(at, moment):
                self.schedule(time, join(at, moment), key)


def _of_values(weights: dict[Any, int]) -> int:
    return min(weights.values())


def distinct(key: Any, values: dict[Any, int]) -> Iterable[tuple[Any, int]]:
    """Each value that is there, once."""
    return [(value, 1) for value, weight in values.items() if weight > 0]


__all__ = ["Function", "Reduce", "distinct"]
