"""The join of two collections in columns: all changes of a moment are searched for in the runs of the other side at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from rayad.dataflow.operators.joins.matching import matches
from rayad.dataflow.operators.state.runs.run import Run
from rayad.dataflow.records.batches import rows_at
from rayad.dataflow.records.values import tuple_array
from rayad.incremental.columns.form import NotColumns, changes, unlike, valid_keys
from rayad.incremental.columns.kept import COUNT, ColumnForm, Out, Part
from rayad.incremental.columns.weighted_runs import WeightedRuns
from rayad.incremental.joins.kinds import LEFT, RIGHT, Gives, Kind, Side
from rayad.progress import Timestamp


class JoinColumns(ColumnForm):
    """The inputs of a join.

    Args:
        kind: what it gives.
    """

    def __init__(self, kind: Kind) -> None:
        super().__init__({name: Part() for name in kind.inputs})
        self.kind = kind

    def on_moment(self, time: Timestamp, runs: Sequence[Run | None], due: Sequence[pa.RecordBatch]) -> tuple[Out, Out]:
        """Each change of an input meets what the others have; those of the same moment meet once."""
        parts = list(self.inputs.values())
        require_one_key(parts)
        out: Out = []
        for port in self.kind.order:
            run = runs[port]
            if run is None or not len(run):
                continue
            alone = None if (gives := self.kind.alone_as(port)) is None else Alone(run, time)
            for meeting in self.kind.of(port):
                is_first = port == meeting.records
                theirs = parts[meeting.other if is_first else meeting.records]
                for met in meetings(run, theirs, time, alone if meeting.gives is gives and is_first else None):
                    first, second = (met.mine, met.others) if is_first else (met.others, met.mine)
                    out.append(met.given(made(meeting.gives, met.keys, first, second, self._kind_of(meeting.gives)), meeting.sign))
            if alone is not None and gives is not None:
                out += alone.given(gives, self._kind_of(gives))
            parts[port].now.add([run])
            self.time = time
        return sorted(out, key=lambda pair: pair[0].sort_key()), []

    def _kind_of(self, gives: Gives) -> pa.DataType:
        """The type of what is not there, as far as it is known."""
        part = self.inputs.get({Gives.LEFT_ALONE: RIGHT, Gives.RIGHT_ALONE: LEFT}.get(gives, ""))
        return pa.null() if part is None or part.schema is None else part.schema.field(1).type


def require_one_key(parts: Iterable[Part]) -> None:
    """Raises NotColumns unless the keys of all that is known are of one type."""
    kinds = [part.schema.field(0).type for part in parts if part.schema is not None]
    if any(not kind.equals(kinds[0]) for kind in kinds[1:]):
        raise NotColumns


def made(gives: Gives, keys: pa.Array, records: pa.Array, others: pa.Array | None, missing: pa.DataType) -> pa.Array:
    """What comes out of records and others, or nothing else; ``missing``: the type of what is not there."""
    if gives is Gives.LEFT:
        return tuple_array([keys, records])
    if gives is Gives.PAIR:
        return tuple_array([keys, tuple_array([records, others])])
    nothing = pa.nulls(len(records), missing)
    return tuple_array([keys, tuple_array([records, nothing] if gives is Gives.LEFT_ALONE else [nothing, records])])


class Alone:
    """The changes of a side that come out alone, less those of which it is known at once that the other side has the key."""

    def __init__(self, run: Run, time: Timestamp) -> None:
        self._run = run
        self._time = time
        self._weights = run.beside[COUNT].copy()

    def taken_away(self, rows: Any, weights: Any) -> None:
        """So often."""
        np.subtract.at(self._weights, rows, weights)

    def given(self, gives: Gives, missing: pa.DataType) -> Out:
        """What is left; see :func:`made`."""
        left = np.flatnonzero(self._weights)
        if not len(left):
            return []
        keys, records = self._run.rows.columns if len(left) == len(self._run) else rows_at(self._run.rows, left).columns
        return [(self._time, changes(made(gives, keys, records, None, missing), self._weights[left]))]


@dataclass(slots=True)
class Met:
    """Changes of a moment, each with one that was there, and the moment at which both count."""

    time: Timestamp
    keys: pa.Array
    mine: pa.Array
    others: pa.Array
    weights: Any

    def given(self, records: pa.Array, sign: int = 1) -> tuple[Timestamp, pa.RecordBatch]:
        """Records made of them as what leaves."""
        return self.time, changes(records, self.weights if sign == 1 else -self.weights)


def meetings(run: Run, part: Part, time: Timestamp, alone: Alone | None = None) -> Iterator[Met]:
    """All that changes of a moment meet in a part. ``alone``: where what is met at that moment itself is taken away instead."""
    moment = np.array(time.counters, np.int64)
    for theirs in part.there():
        for other in theirs.near(run.place):
            for mine, others in matches(run.place, other.place):
                mine, others = _equal(run, mine, other, others, theirs)
                joins = theirs.joins_at(other, others, moment)
                weights = run.beside[COUNT][mine] * other.beside[COUNT][others]
                if alone is not None:
                    here = (joins == moment).all(axis=1)
                    alone.taken_away(mine[here], weights[here])
                    mine, others, joins, weights = mine[~here], others[~here], joins[~here], weights[~here]
                if not len(weights):
                    continue
                for at, rows in by_moment(joins):
                    some, met, count = (mine, others, weights) if rows is None else (mine[rows], others[rows], weights[rows])
                    records = rows_at(run.rows, some)
                    yield Met(Timestamp.of(time.epoch, at), records.column(0), records.column(1), rows_at(other.rows.column(1), met), count)


class SharedJoinColumns(ColumnForm):
    """One side of several joins, and the other side of each.

    Args:
        ports: of each other side.
        send: by an output, a batch, at a time.
    """

    def __init__(self, ports: Sequence[Side], send: Callable[[int, pa.RecordBatch, Timestamp], None]) -> None:
        super().__init__({"shared": Part()} | {f"other {i}": Part() for i in range(len(ports))})
        self._ports = ports
        self._send = send

    def on_moment(self, time: Timestamp, runs: Sequence[Run | None], due: Sequence[pa.RecordBatch]) -> tuple[Out, Out]:
        """See there; what leaves is sent."""
        (shared, *others), (run, *of_others) = self.inputs.values(), runs
        require_one_key(self.inputs.values())
        out: list[tuple[int, Timestamp, pa.RecordBatch]] = []

        def meet(port: int, some: Run | None, part: Part, *, is_left: bool) -> None:
            if some is not None and len(some):
                self.time = time
                for met in meetings(some, part, time):
                    left, right = (met.mine, met.others) if is_left else (met.others, met.mine)
                    out.append((port, *met.given(made(Gives.PAIR, met.keys, left, right, pa.null()))))

        for port, part in enumerate(others):
            meet(port, run, part, is_left=not self._ports[port].is_left)
        if run is not None and len(run):
            shared.now.add([run])
        for port, (part, some) in enumerate(zip(others, of_others, strict=True)):
            side = self._ports[port]
            meet(port, some, shared, is_left=side.is_left)
            if some is not None and len(some):
                if side.is_alone:
                    missing = pa.null() if shared.schema is None else shared.schema.field(1).type
                    keys, records = some.rows.columns
                    batch = changes(made(Gives.LEFT_ALONE, keys, records, None, missing), some.beside[COUNT])
                    out.append((port, time, batch))
                part.now.add([some])
        for port, at, batch in sorted(out, key=lambda sent: (sent[1].sort_key(), sent[0])):
            self._send(port, batch, at)
        return [], []


def by_moment(moments: Any) -> Iterator[tuple[tuple[int, ...], Any]]:
    """The rows of each moment, of an array of shape (rows, depth) with at least one row; None: all.

    >>> [(at, rows.tolist()) for at, rows in by_moment(np.array([[1, 0], [0, 2], [1, 0]]))]
    [((0, 2), [1]), ((1, 0), [0, 2])]
    """
    if len(moments) == 1 or (moments == moments[0]).all():
        yield tuple(moments[0].tolist()), None
        return
    found, which = np.unique(moments, axis=0, return_inverse=True)
    for i, at in enumerate(found.tolist()):
        yield tuple(at), np.flatnonzero(which.reshape(-1) == i)


def _equal(run: Run, mine: Any, other: Run, others: Any, runs: WeightedRuns) -> tuple[Any, Any]:
    """Of rows that have one place, those that have one key, which is not null."""
    if runs.is_exact(run) and runs.is_exact(other):
        return mine, others
    left = rows_at(run.rows.column(0), mine)
    wrong = unlike(left, rows_at(other.rows.column(0), others))
    valid = valid_keys(left)
    if valid is not None:
        wrong = np.union1d(wrong, np.flatnonzero(~valid))
    return (np.delete(mine, wrong), np.delete(others, wrong)) if len(wrong) else (mine, others)


__all__ = ["JoinColumns", "SharedJoinColumns", "by_moment", "made", "meetings"]
