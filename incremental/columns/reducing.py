"""Results that follow from sums, in columns: one gather a moment for all keys that have changed, or may have.

As in rows (``reducing.py``): the result at a moment, with this epoch and without it; given is the difference, less what this epoch has
given at moments that count there. A key is looked at again at the join of this moment and each other of its moments that does not count at
this one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rayad.dataflow.operators.state.runs.order import Places
from rayad.dataflow.operators.state.runs.run import Run
from rayad.dataflow.records.batches import mark_tuples, rows_at
from rayad.dataflow.records.values import tuple_array, values_of
from rayad.incremental.columns.form import KEY, RECORD, changes, together, together_arrays, unlike
from rayad.incremental.columns.joining import by_moment
from rayad.incremental.columns.kept import COUNT, ColumnForm, Out, Part
from rayad.incremental.columns.linear import Linear, Numbers
from rayad.incremental.columns.weighted_runs import WeightedRuns, is_about
from rayad.incremental.records import negative
from rayad.progress import Timestamp, show


class Gathered:
    """The sums of some keys at a moment, and when else they have changed.

    Args:
        keys, places: in order.
        moment: its inner counters.
    """

    def __init__(self, keys: pa.RecordBatch, places: Places, moment: Sequence[int]) -> None:
        self.keys = keys
        self.places = places
        self._moment = np.array(moment, np.int64)
        self._later: list[tuple[Any, Any]] = []

    def found(self, runs: WeightedRuns, run: Run) -> tuple[Any, Any]:
        """The rows of a run that count at the moment, and the position of the key of each."""
        rows, which = runs.of_keys(self.keys, self.places, run)
        if len(self._moment) and len(rows):
            counts = runs.count_at(run, rows, self._moment)
            if not counts.all():
                later = ~counts
                self._later.append((which[later], runs.joins_at(run, rows[later], self._moment)))
                rows, which = rows[counts], which[counts]
        return rows, which

    def add(self, sums: Numbers, runs: WeightedRuns, some: Sequence[Run] | None = None) -> None:
        """Add what runs, or some of them, have of the keys."""
        for run in runs.near(self.places) if some is None else some:
            rows, which = self.found(runs, run) if len(run) else ([], [])
            for name, numbers in sums.items() if len(rows) else ():
                np.add.at(numbers, which, run.beside[name][rows])

    def due(self, epoch: int) -> Out:
        """The keys to be looked at again, and when."""
        if not self._later:
            return []
        which, joins = (np.concatenate(parts) for parts in zip(*self._later, strict=True))
        out: Out = []
        for at, rows in by_moment(joins):
            keys = rows_at(self.keys, np.unique(which if rows is None else which[rows]))
            out.append((Timestamp.of(epoch, at), mark_tuples(keys)))
        return out


class LinearColumns(ColumnForm):
    """Sums by key, and what has been given.

    Args:
        linear: what is summed, and what is made of it.
    """

    def __init__(self, linear: Linear) -> None:
        super().__init__({"input": Part((KEY,), linear.numbers, linear.vector)}, {"given": Part()})
        self.linear = linear

    def numbers_of(self, port: int, batch: pa.RecordBatch) -> dict[str, Any]:
        return self.linear.numbers_of(batch)

    def on_moment(self, time: Timestamp, runs: Sequence[Run | None], due: Sequence[pa.RecordBatch]) -> tuple[Out, Out]:
        """The difference of results, for all keys at once."""
        (run,), part, moment = runs, self.inputs["input"], time.counters
        if part.schema is None:
            return [], []
        gathered = keys_of(part.now, run, due, moment)
        before = sums_of(gathered, part.numbers)
        gathered.add(before, part.before)
        after = {name: numbers.copy() for name, numbers in before.items()}
        gathered.add(after, part.now)
        if run is not None and due:
            gathered.add(after, part.now, [run])
        elif run is not None:  # its keys are the gathered ones
            for name, numbers in after.items():
                numbers += run.beside[name]
        if not self.linear.takes_negative and (after[COUNT] < 0).any():
            first = int(np.argmin(after[COUNT]))
            (key,) = values_of(gathered.keys.column(0).slice(first, 1))
            raise negative(self.linear.of_key(show(key, 80)), int(after[COUNT][first]), time)
        again = gathered.due(time.epoch)
        out = self._difference(time, gathered, before, after)
        if run is not None and len(run):
            part.now.add([run])
        self.time = time
        return out, again

    def _difference(self, time: Timestamp, gathered: Gathered, before: Numbers, after: Numbers) -> Out:
        keys = gathered.keys.column(0)
        was, now = self.linear.often(keys, before), self.linear.often(keys, after)
        old, new = self.linear.results(before), self.linear.results(after)
        if not time.counters:
            is_other = was != now
            if pa.types.is_null(new.type):
                some = np.flatnonzero(is_other)
                return left_batch(time, (rows_at(keys, some), pa.nulls(len(some)), (now - was)[some]))
            is_other |= _are_unlike(old, new)
            gone, come = np.flatnonzero((was != 0) & is_other), np.flatnonzero((now != 0) & is_other)
            which, results, weights = changed([(gone, old, gone, -was[gone]), (come, new, come, now[come])])
            return left_batch(time, (rows_at(keys, which), results, weights))
        gone, come = np.flatnonzero(was), np.flatnonzero(now)
        parts = [(gone, old, gone, -was[gone]), (come, new, come, now[come])]
        given = self.given["given"]
        for runs in given.there()[1:]:
            for run in runs.near(gathered.places):
                rows, which = gathered.found(runs, run)
                parts.append((which, run.rows.column(1), rows, -run.beside[COUNT][rows]))
        difference = difference_of(gathered, parts, given, time, self.key_groups)
        given.now.add([difference])
        return left_batch(time, (difference.rows.column(0), difference.rows.column(1), difference.beside[COUNT]))


def _are_unlike(old: pa.Array, new: pa.Array) -> Any:
    """Where results differ, shape (keys,)."""
    if pa.types.is_struct(new.type):
        out = np.zeros(len(new), np.bool_)
        out[unlike(old, new)] = True
        return out
    same = pc.fill_null(pc.equal(old, new), pc.and_(old.is_null(), new.is_null()))
    return ~same.to_numpy(zero_copy_only=False)


def difference_of(
    gathered: Gathered, parts: Sequence[tuple[Any, pa.Array, Any, Any]], given: Part, time: Timestamp, key_groups: int
) -> Run:
    """What :func:`changed` takes as a run of what is given, equal results as one."""
    which, results, weights = changed(parts)
    rows = pa.RecordBatch.from_arrays([rows_at(gathered.keys.column(0), which), results], names=[KEY, RECORD])
    given.learn(rows.schema, len(time.counters), key_groups)
    return given.now.at_moment(rows, time.counters, gathered.places[which], **{COUNT: weights})


def left_batch(time: Timestamp, difference: tuple[pa.Array, pa.Array, Any]) -> Out:
    """Keys, results and weights as what leaves."""
    keys, results, weights = difference
    return [(time, changes(tuple_array([keys, results]), weights))] if len(weights) else []


def changed(parts: Sequence[tuple[Any, pa.Array, Any, Any]]) -> tuple[Any, pa.Array, Any]:
    """Positions of keys, results and weights of several parts: positions of keys, results, positions of these, weights."""
    parts = [part for part in parts if len(part[0])] or parts[:1]
    if len(parts) == 1:
        ((which, of, rows, weights),) = parts
        return which, pa.nulls(len(rows)) if pa.types.is_null(of.type) else rows_at(of, rows), weights
    which = np.concatenate([part[0] for part in parts])
    if all(pa.types.is_null(of.type) for _, of, _, _ in parts):
        results = pa.nulls(len(which))
    else:
        results = together_arrays([rows_at(of, rows) for _, of, rows, _ in parts])
    return which, results, np.concatenate([part[3] for part in parts])


def sums_of(gathered: Gathered, numbers: Sequence[str]) -> Numbers:
    """Nothing yet, for each key."""
    return {name: np.zeros(len(gathered.places), np.float64 if is_about(name) else np.int64) for name in numbers}


def keys_of(runs: WeightedRuns, run: Run | None, due: Sequence[pa.RecordBatch], moment: Sequence[int]) -> Gathered:
    """The keys that have changed, and those that are due, each once."""
    if run is not None and not due and len(run.rows.columns) == 1:
        return Gathered(run.rows.select([KEY]), run.place, moment)
    parts = [*([] if run is None else [run.rows.select([KEY])]), *(keys.replace_schema_metadata(None) for keys in due)]
    keys = together(parts)
    places = runs.places(keys)
    order, heads = runs.equal_rows(keys, places, [])
    which = heads if order is None else order[heads]
    return Gathered(rows_at(keys, which), places[which], moment)


__all__ = ["Gathered", "LinearColumns", "changed", "difference_of", "keys_of", "left_batch", "sums_of"]
