"""One run: rows in an order, and numbers beside them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa

from rayad.dataflow.operators.state.runs.files import RunFile
from rayad.dataflow.operators.state.runs.order import Positions
from rayad.dataflow.operators.state.stored_columns import narrow
from rayad.dataflow.records.batches import one_batch, rows_at

_COPIED_BELOW = 4
"""A cut of fewer than one of so many rows is copied, so that it does not keep the others alive."""


@dataclass(slots=True, eq=False)
class Run:
    """Rows that are never changed, sorted by ``place`` and then by ``tick``, or by ``tick`` alone.

    Args:
        place: of each row's key (``order``), uint64; None in a run by time, as long as nobody has asked for key-groups.
        tick: the moment of each row, int64; None where rows have none.
        beside: more numbers of each row, by name: one for all rows, or shape (rows,). An operator may change those that it put there.
        passed: the moment up to which the operator is done with the rows.
        consolidated: whether no two rows have one key and moment, where that is looked for.
        index: what a search has made of it, to be found again.
        is_mapped: whether its rows are a file of a snapshot, mapped: to put it on disk nothing needs to be written.
        in_memory: of a run that is mapped, the numbers beside rows that are not.
        on_disk: whether it is mapped, and counts as no memory (``disk``).
        size: see :attr:`nbytes`; None: nobody has asked.
        file: of snapshots, in which its rows are from row ``first`` on; None: in none.
    """

    rows: pa.RecordBatch
    place: Any = None
    tick: Any = None
    beside: dict[str, Any] = field(default_factory=dict)
    passed: int | None = None
    consolidated: bool = False
    index: Any = None
    is_mapped: bool = False
    in_memory: tuple[str, ...] = ()
    on_disk: bool = False
    size: int | None = None
    file: RunFile | None = None
    first: int = 0

    def __len__(self) -> int:
        return self.rows.num_rows  # type: ignore[no-any-return]

    @property
    def nbytes(self) -> int:
        """Bytes of its rows and numbers, wherever they are."""
        if self.size is None:
            arrays = {id(array): array for array in (self.place, self.tick, *self.beside.values()) if isinstance(array, np.ndarray)}
            self.size = self.rows.nbytes + sum(array.nbytes for array in arrays.values())
        return self.size

    def alone(self) -> Run:
        """The same rows; what is beside them may be changed in one and stays in the other."""
        beside = {name: numbers if isinstance(numbers, int) else numbers.copy() for name, numbers in self.beside.items()}
        return replace(self, beside=beside)

    def at(self, rows: Positions) -> Run:
        """The rows at these positions."""
        return self._with(rows_at(self.rows, rows), rows, is_mapped=False, in_memory=(), on_disk=False, file=None)

    def some(self, rows: Any) -> Run:
        """The rows of a mask."""
        return self if rows.all() else self.at(np.flatnonzero(rows))

    def cut(self, low: int, high: int) -> Run:
        """The rows from ``low`` to ``high``, without a copy unless they are few of those that would be kept alive."""
        if high - low == len(self):
            return self
        if (high - low) * _COPIED_BELOW < len(self):
            return self.at(np.arange(low, high))
        return self.slice(low, high)

    def slice(self, low: int, high: int) -> Run:
        """The rows from ``low`` to ``high``, which keep all others alive."""
        return self._with(self.rows.slice(low, high - low), slice(low, high), on_disk=self.on_disk, first=self.first + low)

    def without_file(self) -> Run:
        """The same rows, wherever they are."""
        return replace(self, file=None)

    def without(self, slices: Sequence[tuple[int, int]]) -> list[Run]:
        """The rows outside of these ranges, which ascend, as runs."""
        if not slices:
            return [self]
        edges = [0, *(edge for each in slices for edge in each), len(self)]
        return [self.cut(low, high) for low, high in zip(edges[::2], edges[1::2], strict=True) if high > low]

    def _with(self, rows: pa.RecordBatch, which: Any, **changed: Any) -> Run:
        beside = {name: numbers if isinstance(numbers, int) else numbers[which] for name, numbers in self.beside.items()}
        place, tick = (None if numbers is None else numbers[which] for numbers in (self.place, self.tick))
        return replace(self, rows=rows, place=place, tick=tick, beside=beside, index=None, size=None, **changed)


def one_behind_the_other(runs: Sequence[Run]) -> Run:
    """The rows of several runs, in no order. They have the same numbers beside them."""
    if len(runs) == 1:
        return runs[0]
    first = runs[0]
    place = None if any(run.place is None for run in runs) else np.concatenate([run.place for run in runs])
    tick = None if first.tick is None else np.concatenate([run.tick for run in runs])
    beside = {name: _together(runs, name) for name in first.beside}
    rows = one_batch(pa.Table.from_batches([run.rows for run in runs]))
    return Run(rows, place, tick, beside, passed=first.passed)


def _together(runs: Sequence[Run], name: str) -> Any:
    numbers = [run.beside[name] for run in runs]
    if all(isinstance(each, int) and each == numbers[0] for each in numbers):
        return numbers[0]
    parts = [np.full(len(run), each) if isinstance(each, int) else each for run, each in zip(runs, numbers, strict=True)]
    return narrow(np.concatenate(parts)) if any(isinstance(each, int) for each in numbers) else np.concatenate(parts)
