"""Results that need all records of a key, in columns: the smallest, the first so many, numbers, ranks, neighbours.

One gather a moment for all keys that have changed, or may have: their records, each once, with how often it is there without this epoch and
with it. What a :class:`Grouped` makes of both is told apart as in ``reducing.py``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from rayad.dataflow.operators.state.runs.order import Positions
from rayad.dataflow.operators.state.runs.run import Run
from rayad.dataflow.records.batches import rows_at
from rayad.dataflow.records.values import values_of
from rayad.incremental.columns.form import together
from rayad.incremental.columns.kept import COUNT, ColumnForm, Out, Part
from rayad.incremental.columns.reducing import Gathered, difference_of, keys_of, left_batch
from rayad.incremental.columns.weighted_runs import CODE, WeightedRuns
from rayad.incremental.records import negative
from rayad.progress import Timestamp, show


class Records(NamedTuple):
    """Distinct records of several keys.

    Args:
        group: the number of the key of each, ascending, shape (rows,).
        record: the records.
        weights: how often each is there, at least once, shape (rows,).
    """

    group: Positions
    record: pa.Array
    weights: Any


class Grouped(ABC):
    """What is made of the records of a key."""

    @abstractmethod
    def results(self, there: Records) -> Records:
        """Results, with the numbers of their keys, and their weights. Raises NotColumns where rows must do it."""


class OfSides(Grouped):
    """None for each key that the first side has, and the second one, or not. Records are the number of the side, 0 or 1.

    Args:
        in_both: whether the second side must have it; else it must not.
    """

    def __init__(self, in_both: bool) -> None:
        self._in_both = in_both

    def results(self, there: Records) -> Records:
        sides = there.record.to_numpy()
        first, second = there.group[sides == 0], there.group[sides == 1]
        found = np.intersect1d(first, second, assume_unique=True) if self._in_both else np.setdiff1d(first, second, assume_unique=True)
        return Records(found, pa.nulls(len(found)), np.ones(len(found), np.int64))


class GroupedColumns(ColumnForm):
    """The records of each key, and what has been given.

    Args:
        grouped: what is made of them.
    """

    def __init__(self, grouped: Grouped) -> None:
        super().__init__({"input": Part()}, {"given": Part()})
        self.grouped = grouped

    def on_moment(self, time: Timestamp, runs: Sequence[Run | None], due: Sequence[pa.RecordBatch]) -> tuple[Out, Out]:
        """The difference of results, for all keys at once."""
        (run,), part = runs, self.inputs["input"]
        if part.schema is None or ((run is None or not len(run)) and not due):
            return [], []
        gathered = keys_of(part.now, run, due, time.counters)
        some = self._gathering(gathered, run)
        again = gathered.due(time.epoch)
        out = self._difference(time, gathered, some) if some.rows else []
        if run is not None and len(run):
            part.now.add([run])
        self.time = time
        return out, again

    def records_of(self, gathered: Gathered) -> Records:
        """All that there is of some keys. Outside of loops."""
        some = self._gathering(gathered, None)
        return some.totals()[1] if some.rows else Records(np.zeros(0, np.int64), pa.nulls(0), np.zeros(0, np.int64))

    def _gathering(self, gathered: Gathered, run: Run | None) -> _Gathering:
        part = self.inputs["input"]
        some = _Gathering(gathered, part.now)
        some.add(part.before, part.before.near(gathered.places), is_now=False)
        some.add(part.now, [*part.now.near(gathered.places), *([] if run is None else [run])], is_now=True)
        return some

    def _difference(self, time: Timestamp, gathered: Gathered, some: _Gathering) -> Out:
        before, after = some.totals()
        if len(after.weights) and after.weights.min() < 0:
            worst = int(np.argmin(after.weights))
            (record,) = values_of(after.record.slice(worst, 1))
            (key,) = values_of(gathered.keys.column(0).slice(int(after.group[worst]), 1))
            raise negative(f"{show(record, 80)} of key {show(key, 80)}", int(after.weights[worst]), time)
        parts = []
        for there, sign in ((before, -1), (after, 1)):
            if len(there.group):
                group, results, weights = self.grouped.results(there)
                parts.append((group, results, np.arange(len(group)), sign * weights))
        given = self.given["given"]
        if time.counters:
            for theirs in given.there()[1:]:
                for each in theirs.near(gathered.places):
                    rows, which = gathered.found(theirs, each)
                    parts.append((which, each.rows.column(1), rows, -each.beside[COUNT][rows]))
        if not any(len(part[0]) for part in parts):
            return []
        difference = difference_of(gathered, parts, given, time, self.key_groups)
        if time.counters:
            given.now.add([difference])
        return left_batch(time, (difference.rows.column(0), difference.rows.column(1), difference.beside[COUNT]))


class _Gathering:
    """The rows of some keys, out of several runs."""

    def __init__(self, gathered: Gathered, runs: WeightedRuns) -> None:
        self.rows = 0
        self._gathered = gathered
        self._runs = runs
        self._parts: list[tuple[Any, pa.RecordBatch, Any, Any, Any]] = []

    def add(self, runs: WeightedRuns, some: Sequence[Run], *, is_now: bool) -> None:
        """What runs have of the keys."""
        for run in some:
            rows, which = self._gathered.found(runs, run) if len(run) else ([], [])
            if len(rows):
                code = run.beside[CODE][rows] if CODE in run.beside else np.zeros(len(rows), np.int64)
                self._parts.append((which, rows_at(run.rows, rows), code, run.beside[COUNT][rows], np.full(len(rows), is_now)))
                self.rows += len(rows)

    def totals(self) -> tuple[Records, Records]:
        """The records that are there without this epoch, and with it."""
        which, batches, code, weights, is_now = zip(*self._parts, strict=True)
        group, codes, weight, now = (np.concatenate(parts) for parts in (which, code, weights, is_now))
        rows = together(batches)
        order, heads = self._runs.equal_rows(rows, group.astype(np.uint64), [codes])
        if order is not None:
            group, weight, now = group[order], weight[order], now[order]
        at = heads if order is None else order[heads]
        group, record = group[heads], rows_at(rows.column(1), at)
        before, after = np.add.reduceat(np.where(now, 0, weight), heads), np.add.reduceat(weight, heads)
        return _present(group, record, before), _present(group, record, after)


def _present(group: Positions, record: pa.Array, weights: Any) -> Records:
    some = np.flatnonzero(weights)
    return Records(group[some], rows_at(record, some), weights[some])


__all__ = ["Grouped", "GroupedColumns", "OfSides", "Records"]
