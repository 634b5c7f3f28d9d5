"""The interval join's columnar half: a batch that arrives is sorted once, searched for in the runs of the other side, and becomes a run."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from rayad.dataflow.operators.joins.kept_runs import KeptRuns, passed_by
from rayad.dataflow.operators.joins.matching import ALONE, LEFT_ONLY, OWED, How, matches_within
from rayad.dataflow.operators.joins.pairs import joined_batch
from rayad.dataflow.operators.keys.column_keys import equal_keys
from rayad.dataflow.operators.keys.key_first import has_key, record_of
from rayad.dataflow.operators.keys.keyed import distinct_names
from rayad.dataflow.operators.results import record_array
from rayad.dataflow.operators.state.runs.order import Positions
from rayad.dataflow.operators.state.runs.run import Run
from rayad.dataflow.records.batches import mark_keyed, take_rows
from rayad.dataflow.records.event_times import TICKS_MAX, exact_moment
from rayad.dataflow.windows import Between


class IntervalColumns(KeptRuns):
    """Records of both sides that are not settled, in columns. ``more`` says of each whether it is owed a result of its own, since it
    has met none."""

    changing = frozenset({"more"})

    def __init__(self, between: Between, how: How) -> None:
        super().__init__()
        self.between = between
        self.how = how
        lower, upper = exact_moment(between.lower), exact_moment(between.upper)
        self._reach = ((lower, upper), (-upper, -lower))

    def bits(self, run: Run) -> Any:
        """Which are owed a result."""
        return run.beside["more"]

    def put_bits(self, side: int, run: Run, bits: Any) -> None:
        run.beside.update(more=bits, ends=self.ends_of(side, run))

    def taken_in(self, side: int, batch: pa.RecordBatch, *told: Any) -> list[Any]:
        (run,) = self.come(side, batch, np.full(batch.num_rows, OWED[self.how][side]))
        out = list(self._meet(side, run))
        self.side(side).add([run])
        return out

    def _meet(self, side: int, run: Run) -> Iterator[pa.RecordBatch]:
        """The results of records with those of the other side within their intervals."""
        low, high = self._reach[side]
        lows = run.tick + self.first(side, low)
        highs = run.tick - self.first(side, -high)  # the last tick at or before
        for other in self.near(1 - side, run.place):
            live = np.maximum(lows, passed_by(other))  # rows that are over stay for a while, and what is late could still meet them
            for mine, theirs in matches_within(run.place, live, highs, other.place, other.tick):
                left, right = ((run, mine), (other, theirs))[:: 1 if side == 0 else -1]
                yield from self._met(*left, *right)

    def _met(self, left: Run, at_left: Positions, right: Run, at_right: Positions) -> Iterator[pa.RecordBatch]:
        met = [take_rows(run.rows, pa.array(at)) for run, at in ((left, at_left), (right, at_right))]
        keys = self.keys(0)
        same = np.logical_and.reduce([equal_keys(met[0].column(i), met[1].column(i)) for i in range(keys)])
        if all(ALONE[self.how]):  # then both sides have kept records with a null key
            same = same & has_key(met[0], keys) & has_key(met[1], keys)
        if not same.all():
            at_left, at_right = at_left[same], at_right[same]
            met = [batch.filter(pa.array(same)) for batch in met]
        if not len(at_left):
            return
        if self.how not in LEFT_ONLY:
            yield self.results(met[0], met[1])
        elif self.how == "semi":
            first = np.unique(at_left[left.beside["more"][at_left]])
            if len(first):
                yield self._records(take_rows(left.rows, pa.array(first)))
        left.beside["more"][at_left] = right.beside["more"][at_right] = False

    def settle(self, mark: Any) -> list[Any]:
        """The records that are settled and met none, where the join gives these."""
        out: list[Any] = []
        for side, runs in enumerate(self.parts):
            if runs is not None:
                limit = TICKS_MAX if mark is None else self.first(side, exact_moment(mark) - self._reach[side][1])
                runs.change(partial(self._left_of, side, limit, out))
        return out

    def _left_of(self, side: int, limit: int, out: list[Any], run: Run) -> Run | None:
        """What is left of a run; ``out`` gets what is owed."""
        settled = run.beside["ends"] < limit
        if not settled.any():
            return run
        alone = settled & run.beside["more"]
        if ALONE[self.how][side] and alone.any():
            rows = run.some(alone).rows
            out.append(self._records(rows) if self.how == "anti" else self.alone(side, rows))
        run.beside["more"][settled] = False
        return self.side(side).left_at(run, limit)

    def results(self, left: pa.RecordBatch, right: pa.RecordBatch) -> pa.RecordBatch:
        """Rows that have met, as they are given."""
        return self._records(left) if self.how in LEFT_ONLY else joined_batch(left, right, self.schemas)

    def _records(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Records of the left side: key columns, ``record``."""
        schema = self.schemas[0]
        assert schema is not None
        keys = self.keys(0)
        columns = [*batch.columns[:keys], record_array(record_of(batch, schema))]
        return mark_keyed(pa.RecordBatch.from_arrays(columns, names=distinct_names(schema.names[:keys], ["record"])), keys)
