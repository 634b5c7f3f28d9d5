"""Which rows of sorted runs are over by event time, and what takes them away.

Runs are sorted by place. What is over is found in a second order, by end, which is found out once for each run, when the first of its rows
may be over; so an epoch costs what becomes over in it. Rows are taken away as all rows of collections are: by the same rows with numbers
below nothing, which leave with them when runs merge, and are in increments of snapshots and in moves without more.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from rayad.dataflow.operators.state.runs.order import Places, Positions
from rayad.dataflow.operators.state.runs.run import Run
from rayad.dataflow.records.batches import rows_at
from rayad.incremental.columns.form import together
from rayad.incremental.columns.kept import Part
from rayad.incremental.event_time.limits import Ends, Limits, of_places

Found = list[tuple[Run, Positions]]
"""Rows of runs."""


class ByEnd:
    """The second order of the runs of a part. No state: it follows from what is kept.

    Args:
        ends: of rows.
        at_end: whether they are over when their end is reached, and not only when it is passed.
        later: how much later they are over, once or several times, by the kind of their ends.
    """

    def __init__(self, ends: Ends, *, at_end: bool = False, later: Callable[[pa.DataType], Sequence[int]] = lambda kind: (0,)) -> None:
        self.ends = ends
        self._at_end = at_end
        self._later = later
        self._known: dict[int, _Order] = {}
        """By the id of a run."""

    def over(self, part: Part, since: Limits, until: Limits) -> Found:
        """The rows that were not over at the limits before, and are now."""
        known, self._known = self._known, {}
        runs = [run for some in part.there() for run in some.all() if len(run)]
        self._known = {id(run): known.get(id(run)) or _Order(run, self.ends) for run in runs}
        kinds = {order.kind for order in self._known.values()}
        edges = {kind: [limits.first_not_over(kind, at_end=self._at_end) for limits in (since, until)] for kind in kinds}
        out: Found = []
        for order in self._known.values():
            for more in self._later(order.kind):
                first, last = (_less(edge, more) for edge in edges[order.kind])
                rows, ends = order.between(first.min(), last.max())
                if not len(rows):
                    continue
                if first.ndim or last.ndim:
                    first, last = (of_places(edge, order.run.place[rows], part.now.key_groups) for edge in (first, last))
                    rows = rows[(first <= ends) & (ends < last)]
                out.append((order.run, rows))
        return out


class _Order:
    """The second order of a run, found out when the first of its rows is asked for."""

    def __init__(self, run: Run, ends: Ends) -> None:
        self.run = run
        at, self.kind = ends(run.rows)
        self._ends_of = ends
        self._first = at.min()
        self._ends: Any = None
        """In order; None: nobody has asked."""
        self._rows: Any = None
        """Where they are; None: as they are."""

    def between(self, first: Any, last: Any) -> tuple[Positions, Any]:
        """The rows whose ends are so, and these."""
        if last <= self._first or first >= last:
            return _NONE, _NONE
        if self._ends is None:
            self._ends = self._ends_of(self.run.rows).at
            if (self._ends[1:] < self._ends[:-1]).any():
                order = np.argsort(self._ends)
                self._ends, self._rows = self._ends[order], order.astype(np.int32 if len(order) < 1 << 31 else np.int64)
        low, high = np.searchsorted(self._ends, [first, last]).tolist()
        rows = np.arange(low, high) if self._rows is None else self._rows[low:high].astype(np.int64)
        return rows, self._ends[low:high]


_NONE = np.zeros(0, np.int64)


def _less(edge: Any, more: int) -> Any:
    """Limits as they are for ends that are so much later; what is no limit stays none."""
    return edge if not more else np.where(edge == np.iinfo(np.int64).min, edge, edge - more)


def taking_away(part: Part, some: Found) -> Run | None:
    """What takes all away that a part has of some rows, which are in several runs; None: it has nothing of them. Outside of loops."""
    if not some:
        return None
    rows = together([rows_at(run.rows, which) for run, which in some])
    places = np.concatenate([run.place[which] for run, which in some])
    numbers = {name: -np.concatenate([run.beside[name][which] for run, which in some]) for name in part.numbers}
    run = part.now.at_moment(rows, (), places, **numbers)
    return run if len(run) else None


def places_of_keys(part: Part, run: Run) -> Places:
    """The place of each key of a run, once."""
    _, heads = part.now.equal_rows(run.rows.select([part.columns[0]]), run.place, [])
    places: Places = run.place[heads]
    return places


__all__ = ["ByEnd", "Found", "places_of_keys", "taking_away"]
