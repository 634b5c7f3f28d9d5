"""Totals beyond memory: those of keys that have no slot, in sorted runs.

A key is at one place: it has a slot, or it is one row of one run. Slots are where totals change. When they take too much memory all of
them become a run; a key that comes again goes back to a slot with what it had, and its row is marked. So the rows of a run never change,
a mark is all that a look-up writes, and what is left of a run moves and is stored like that of any other (docs/design/state.md, 6).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rayad.dataflow.operators.keys.column_keys import equal_keys
from rayad.dataflow.operators.state.runs.order import Positions, order_of, places_of, ranges, reaching
from rayad.dataflow.operators.state.runs.run import Run
from rayad.dataflow.operators.state.runs.runs import Runs
from rayad.dataflow.records.batches import take_rows

HERE = "here"


class TotalsBelow(Runs):
    """Rows of totals, each the only one of its key. Beside each is whether it is still here."""

    derived = frozenset((HERE,))
    changing = frozenset((HERE,))

    def __init__(self, keys: int) -> None:
        super().__init__(keys, among=lambda: 0)

    def put(self, totals: pa.RecordBatch) -> None:
        """Keep the totals of keys that are not here."""
        self.add(self.arranged(self.read(totals)))

    def read(self, rows: pa.RecordBatch, **beside: Any) -> Run:
        beside.setdefault(HERE, np.ones(rows.num_rows, np.bool_))
        return super().read(rows, **beside)

    def stay(self, run: Run, rows: slice = slice(None)) -> Any | None:
        here = run.beside[HERE][rows]
        return None if here.all() else here

    @property
    def is_empty(self) -> bool:
        """Whether nothing was ever put here, or nothing is left."""
        return not self.count

    def taken_out(self, keys: list[pa.Array]) -> Iterator[tuple[Positions, pa.RecordBatch]]:
        """Take out the totals of these keys, each a different one: positions among the keys, and the rows of their totals."""
        places = places_of(keys, self.key_groups)
        order = order_of(places)
        if order is not None:
            places = places[order]
        for run in list(self.all()):
            first, last = reaching(places, run.place)
            low, high = (np.searchsorted(run.place, places[first:last], side=side) for side in ("left", "right"))
            theirs = ranges(low, high - low)
            mine = np.repeat(np.arange(first, last), high - low)
            here = run.beside[HERE][theirs]
            mine, theirs = mine[here], theirs[here]
            if not len(mine):
                continue
            mine = mine if order is None else order[mine]
            rows, at = take_rows(run.rows, pa.array(theirs)), pa.array(mine)
            same = np.logical_and.reduce([equal_keys(column.take(at), rows.column(i)) for i, column in enumerate(keys)])
            if not same.all():
                mine, theirs, rows = mine[same], theirs[same], rows.filter(pa.array(same))
            run.beside[HERE][theirs] = False
            if len(mine):
                yield mine, rows

    # -- snapshots -----------------------------------------------------------------
    def marks(self, run: Run) -> Any:
        """A bit for each row: whether it is still here."""
        return np.packbits(run.beside[HERE])

    def marked(self, run: Run, marks: Any) -> None:
        run.beside[HERE] = np.unpackbits(marks, count=len(run)).astype(np.bool_)

    def take_changes(self) -> Callable[[], Any] | None:
        """What is here is never part of an increment."""
        return None


def bytes_of_slots(arrays: list[npt.NDArray[Any]], keys: int, *, are_integers: bool) -> int:
    """About how much memory slots take: their arrays, and the index of so many keys."""
    return sum(array.nbytes for array in arrays) + keys * (KEY_BYTES_INTEGER if are_integers else KEY_BYTES)


KEY_BYTES_INTEGER, KEY_BYTES = 48, 200
"""A key in the index: pandas' table of integers keeps each twice, at most a third full; a dict has an object for each key and slot."""

__all__ = ["TotalsBelow", "bytes_of_slots"]
