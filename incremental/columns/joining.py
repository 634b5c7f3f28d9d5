"""The join of two collections in columns: all changes of a moment are searched for in the runs of the other side at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from rayad.dataflow.operators.joins.matching import matches
from rayad.dataflow.operators.state.runs.run import Run
from rayad.dataflow.records.content_codes import differences
from rayad.dataflow.records.values import tuple_array
from rayad.incremental.columns.form import NotColumns, changes, contents
from rayad.incremental.columns.kept import COUNT, ColumnForm, Out, Part
from rayad.incremental.columns.weighted_runs import WeightedRuns
from rayad.progress import Timestamp


class JoinColumns(ColumnForm):
    """Both sides."""

    def __init__(self) -> None:
        super().__init__({"left": Part(), "right": Part()})

    def on_moment(self, time: Timestamp, runs: Sequence[Run | None], due: Sequence[pa.RecordBatch]) -> tuple[Out, Out]:
        """Each change of a side meets what the other one has; those of the same moment meet once."""
        sides = list(self.inputs.values())
        schemas = [part.schema for part in sides if part.schema is not None]
        if len({schema.field(0).type for schema in schemas}) > 1:
            raise NotColumns
        out: Out = []
        for side, run in enumerate(runs):
            if run is None or not len(run):
                continue
            for theirs in sides[1 - side].there():
                for other in theirs.all():
                    out += self._met(side, time, run, other, theirs)
            sides[side].now.add([run])
            self.time = time
        return sorted(out, key=lambda pair: pair[0].sort_key()), []

    def _met(self, side: int, time: Timestamp, run: Run, other: Run, theirs: WeightedRuns) -> Iterator[tuple[Timestamp, pa.RecordBatch]]:
        for mine, others in matches(run.place, other.place):
            if not (theirs.has_exact_places(run.rows) and theirs.has_exact_places(other.rows)):
                mine, others = _equal(run, mine, other, others)
            weights = run.beside[COUNT][mine] * other.beside[COUNT][others]
            if not len(weights):
                continue
            records = run.rows.column(1).take(pa.array(mine)), other.rows.column(1).take(pa.array(others))
            pairs = tuple_array(records if side == 0 else records[::-1])
            batch = changes(tuple_array([run.rows.column(0).take(pa.array(mine)), pairs]), weights)
            joins = np.maximum(theirs.counters_of(other, others), np.array(time.counters, np.int64))
            for at, rows in by_moment(joins):
                yield Timestamp.of(time.epoch, at), batch if rows is None else batch.take(pa.array(rows))


class SharedJoinColumns(JoinColumns):
    """One side of several joins, and the other side of each.

    Args:
        turned: for each other side, whether it is the left one.
        send: by an output, a batch, at a time.
    """

    def __init__(self, turned: Sequence[bool], send: Callable[[int, pa.RecordBatch, Timestamp], None]) -> None:
        ColumnForm.__init__(self, {"shared": Part()} | {f"other {i}": Part() for i in range(len(turned))})
        self._turned = turned
        self._send = send

    def on_moment(self, time: Timestamp, runs: Sequence[Run | None], due: Sequence[pa.RecordBatch]) -> tuple[Out, Out]:
        """See there; what leaves is sent."""
        (shared, *others), (run, *of_others) = self.inputs.values(), runs
        if len({part.schema.field(0).type for part in (shared, *others) if part.schema is not None}) > 1:
            raise NotColumns
        out: list[tuple[int, Timestamp, pa.RecordBatch]] = []

        def meet(port: int, some: Run | None, part: Part, side: int) -> None:
            if some is not None and len(some):
                self.time = time
                for theirs in part.there():
                    for other in theirs.all():
                        out.extend((port, at, batch) for at, batch in self._met(side, time, some, other, theirs))

        for port, part in enumerate(others):
            meet(port, run, part, int(self._turned[port]))
        if run is not None and len(run):
            shared.now.add([run])
        for port, (part, some) in enumerate(zip(others, of_others, strict=True)):
            meet(port, some, shared, 1 - int(self._turned[port]))
            if some is not None and len(some):
                part.now.add([some])
        for port, at, batch in sorted(out, key=lambda sent: (sent[1].sort_key(), sent[0])):
            self._send(port, batch, at)
        return [], []


def by_moment(moments: Any) -> Iterator[tuple[tuple[int, ...], Any]]:
    """The rows of each moment, of an array of shape (rows, depth) with at least one row; None: all.

    >>> [(at, rows.tolist()) for at, rows in by_moment(np.array([[1, 0], [0, 2], [1, 0]]))]
    [((0, 2), [1]), ((1, 0), [0, 2])]
    """
    if (moments == moments[0]).all():
        yield tuple(moments[0].tolist()), None
        return
    found, which = np.unique(moments, axis=0, return_inverse=True)
    for i, at in enumerate(found.tolist()):
        yield tuple(at), np.flatnonzero(which.reshape(-1) == i)


def _equal(run: Run, mine: Any, other: Run, others: Any) -> tuple[Any, Any]:
    """Of rows that have one place, those that have one key."""
    left = contents([run.rows.column(0).take(pa.array(mine))], len(mine))
    right = contents([other.rows.column(0).take(pa.array(others))], len(others))
    unlike = differences(left, right)
    return (np.delete(mine, unlike), np.delete(others, unlike)) if len(unlike) else (mine, others)


__all__ = ["JoinColumns", "SharedJoinColumns", "by_moment"]
