"""Changes in sorted runs: rows, and beside each its inner counters and the numbers that are added where rows are equal.

A row is a key, or a key and a record. Runs are sorted by place (key-group, then hash). Rows that are equal, in all their counters too, are
one row whose numbers are the sums; a row whose numbers are all zero is none. This is done to what comes and wherever runs merge. So what is
inserted and removed again is gone with the next merge of both, and no run has to be changed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from rayad.dataflow.operators.state.runs.files import RowsByValue, RowsInFile
from rayad.dataflow.operators.state.runs.order import Places, Positions, order_of, places_of_hashes, ranges
from rayad.dataflow.operators.state.runs.run import Run
from rayad.dataflow.operators.state.runs.runs import Runs
from rayad.dataflow.operators.state.slots.row_index import RowIndex
from rayad.dataflow.operators.state.stored_columns import Stored
from rayad.dataflow.records import content_codes
from rayad.dataflow.records.batches import rows_at
from rayad.dataflow.records.key_hashing import hash_values
from rayad.incremental.columns.form import codes_of, contents, has_nulls, in_schema, is_integer_key, unlike
from rayad.incremental.moments import Counters

COUNT = "n"
"""The number that is a weight."""
CODE = "code"
"""Beside each row: a code of its record, as long as it has one."""
ABOUT = "about"
"""A number whose name ends so is a float, there to see that another one does not leave 64 bits: it keeps no row alive."""


class WeightedRuns(Runs):
    """Runs of changes.

    Args:
        schema: of the rows: a key, or a key and a record.
        depth: how many inner counters a moment has.
        numbers: the names of what is added; ``about`` is a float, all others are int64.
        key_groups: by which places are.
    """

    derived: ClassVar[frozenset[str]] = frozenset({CODE})

    def __init__(self, schema: pa.Schema, depth: int, numbers: Sequence[str], key_groups: int) -> None:
        super().__init__(1)
        self.schema = schema
        self.depth = depth
        self.numbers = tuple(numbers)
        self.counters = tuple(f"at{i}" for i in range(depth))
        self.key_groups = key_groups
        self._has_codes = len(schema) > 1 and not pa.types.is_null(schema.field(1).type)
        self._has_integer_keys = is_integer_key(schema.field(0).type)

    # -- in -------------------------------------------------------------------------------------
    def read(self, rows: pa.RecordBatch, **beside: Any) -> Run:
        return self._read(rows, self.places(rows), beside)

    def _read(self, rows: pa.RecordBatch, places: Places, beside: dict[str, Any]) -> Run:
        rows = in_schema(rows, self.schema)
        return Run(rows, places, None, self._wide(rows, beside))

    def _run_of(self, rows: Stored | RowsInFile | RowsByValue, beside: dict[str, Any]) -> Run:
        """Also of rows in a file: codes of records are found out anew, and numbers are as wide as they are counted with."""
        run = super()._run_of(rows, beside)
        if run.file is not None:
            run.beside = self._wide(run.rows, run.beside)
            run.in_memory = tuple(run.beside)
        return run

    def _wide(self, rows: pa.RecordBatch, beside: Mapping[str, Any]) -> dict[str, Any]:
        wide = {name: np.asarray(value, np.float64 if is_about(name) else np.int64) for name, value in beside.items()}
        wide |= {name: np.zeros(rows.num_rows, np.int64) for name in self.numbers if name not in wide}
        if self._has_codes:
            wide[CODE] = codes_of(rows.column(1))
        return wide

    def places(self, rows: pa.RecordBatch) -> Places:
        """The places of the keys of rows, shape (rows,)."""
        return places_of_hashes(hash_values(rows.column(0)), self.key_groups)

    def as_they_are(self) -> list[Run]:
        """The runs, not merged."""
        return [*self._in_sequences(), *self._fresh]

    def widened(self, schema: pa.Schema, numbers: Sequence[str]) -> WeightedRuns:
        """The same rows in another schema, which :func:`wider_schema` gave, and with more numbers, which are zero."""
        made = WeightedRuns(schema, self.depth, numbers, self.key_groups)
        made.memory = self.memory
        for run in self.each_live():
            wide = made.arranged(made.read(run.rows, **self._numbers_beside(run)))
            made.add(wide if self.memory is None else map(self.memory.put, wide))
        made.forget_changes()
        return made

    def _numbers_beside(self, run: Run) -> dict[str, Any]:
        return {name: numbers for name, numbers in run.beside.items() if name != CODE}

    def at_moment(self, rows: pa.RecordBatch, moment: Counters, places: Places | None = None, **numbers: Any) -> Run:
        """Changes of one moment, in any order, as one run; it may be empty. ``places``: of their keys; None: to be found."""
        beside = {name: np.full(rows.num_rows, at, np.int64) for name, at in zip(self.counters, moment, strict=True)} | numbers
        runs = self.arranged(self._read(rows, self.places(rows) if places is None else places, beside))
        return runs[0] if runs else self.read(rows.slice(0, 0), **dict.fromkeys((*self.numbers, *self.counters), ()))

    def arranged(self, run: Run) -> list[Run]:
        """In order, equal rows as one, without those that come to nothing: one run, or none."""
        if len(run) <= 1:
            return [run] if len(run) and any(run.beside[name][0] for name in self.numbers if not is_about(name)) else []
        code = [run.beside[CODE]] if self._has_codes else []
        order, heads = self.equal_rows(run.rows, run.place, [*code, *(run.beside[name] for name in self.counters)])
        beside = run.beside
        if order is not None:
            beside = {name: values[order] for name, values in beside.items()}
        if len(heads) < len(run):
            sums = {name: np.add.reduceat(beside[name], heads) for name in self.numbers}
        else:
            sums = {name: beside[name] for name in self.numbers}
        counted = [sums[name] for name in self.numbers if not is_about(name)]
        stays = np.logical_or.reduce([numbers != 0 for numbers in counted])
        if not stays.all():
            heads, sums = heads[stays], {name: numbers[stays] for name, numbers in sums.items()}
        if not len(heads):
            return []
        if order is None and len(heads) == len(run):
            return [run]
        which = heads if order is None else order[heads]
        out = run.at(which)
        out.beside.update(sums)
        return [out]

    def has_exact_places(self, rows: pa.RecordBatch) -> bool:
        """Whether keys of one place are equal: integers, or records of one, none of them null."""
        return self._has_integer_keys and not has_nulls(rows.column(0))

    def is_exact(self, run: Run) -> bool:
        """See :meth:`has_exact_places`; looked at once."""
        if run.index is None:
            run.index = self.has_exact_places(run.rows)
        return bool(run.index)

    def equal_rows(self, rows: pa.RecordBatch, place: Places, then: Sequence[Any]) -> tuple[Positions | None, Positions]:
        """Rows grouped by what they hold and by ``then``, columns of integers: the order by place in which equal ones are beside each other
        (None: they are), and where in that order each group begins, shape (groups,). Codes and places alone decide nothing."""
        order = order_by_place(place, then)
        same = _same_as_before(order, place, then)
        some = np.flatnonzero(same)
        if not len(some) or (self.has_exact_places(rows) and not self._has_codes):
            return order, np.flatnonzero(~np.append(False, same))
        kept = contents(rows.columns, rows.num_rows)
        left, right = (some, some + 1) if order is None else (order[some], order[some + 1])
        if len(content_codes.differences(rows_at(kept, left), rows_at(kept, right))):
            numbers = RowIndex(len(place)).slots_of(kept, kept.take)[0]  # different rows with equal codes: each gets a number of its own
            then = [numbers, *then]
            order = order_by_place(place, then)
            same = _same_as_before(order, place, then)
        return order, np.flatnonzero(~np.append(False, same))

    def removals(self, run: Run) -> int:
        return int(np.count_nonzero(run.beside[COUNT] < 0))

    # -- out ------------------------------------------------------------------------------------
    def of_keys(self, keys: pa.RecordBatch, places: Places, run: Run) -> tuple[Positions, Positions]:
        """The rows of a run that these keys have, and the position of the key of each, both shape (rows,); grouped by key.

        Args:
            keys: one column, in the order of ``places``; they differ.
            run: has rows.
        """
        if len(places) == 1:
            rows, which = _of_place(run.place, places[0])
            return (rows, which) if not len(rows) else self._of_equal_keys(keys, run, rows, which)
        low = run.place.searchsorted(places)
        met = (run.place.take(low, mode="clip") == places).nonzero()[0]
        if not len(met):
            return met, met
        low = low[met]
        counts = np.searchsorted(run.place, places[met], side="right") - low
        return self._of_equal_keys(keys, run, ranges(low, counts), np.repeat(met, counts))

    def _of_equal_keys(self, keys: pa.RecordBatch, run: Run, rows: Positions, which: Positions) -> tuple[Positions, Positions]:
        """Of rows that have the places of keys, those that have the keys."""
        if len(rows) and not (self.is_exact(run) and self.has_exact_places(keys)):
            others = unlike(rows_at(keys.column(0), which), rows_at(run.rows.column(0), rows))
            if len(others):
                rows, which = np.delete(rows, others), np.delete(which, others)
        return rows, which

    def count_at(self, run: Run, rows: Any, moment: Any) -> Any:
        """Which of these rows have accumulated at a moment, shape (rows,)."""
        counts = run.beside[self.counters[0]][rows] <= moment[0]
        for name, at in zip(self.counters[1:], moment[1:], strict=True):
            counts &= run.beside[name][rows] <= at
        return counts

    def joins_at(self, run: Run, rows: Any, moment: Any) -> Any:
        """The first moments at which each of these rows and a moment have both accumulated, shape (rows, depth)."""
        return np.maximum(self.counters_of(run, rows), moment)

    def counters_of(self, run: Run, rows: Any) -> Any:
        """The inner counters of these rows, shape (rows, depth)."""
        return np.stack([run.beside[name][rows] for name in self.counters], axis=1) if self.depth else np.zeros((len(rows), 0), np.int64)


def is_about(name: str) -> bool:
    """See :data:`ABOUT`.

    >>> is_about("0 about"), is_about("sum")
    (True, False)
    """
    return name.endswith(ABOUT)


_NONE = np.zeros(0, np.int64)


def _of_place(places: Places, place: Any) -> tuple[Positions, Positions]:
    """The rows of one place, and 0 for each."""
    low = int(places.searchsorted(place))
    if low == len(places) or places[low] != place:
        return _NONE, _NONE
    high = int(places.searchsorted(place, "right"))
    return np.arange(low, high), np.zeros(high - low, np.int64)


def order_by_place(place: Places, then: Sequence[Any]) -> Positions | None:
    """The positions of rows by place, and of one place by ``then``; None where they are in order. Most places have one row or two."""
    order = order_of(place)
    sorted_places = place if order is None else place[order]
    same = sorted_places[1:] == sorted_places[:-1]
    if not then or not same.any():
        return order
    out = np.arange(len(place)) if order is None else order
    is_third = same[1:] & same[:-1]
    pairs = np.flatnonzero(same & ~np.append(False, is_third) & ~np.append(is_third, False))
    is_moved = _order_pairs(out, pairs, then)
    if is_third.any():
        is_tied = np.append(False, same) | np.append(same, False)
        is_tied[pairs] = is_tied[pairs + 1] = False
        tied = np.flatnonzero(is_tied)
        rows = out[tied]
        within = np.lexsort((*reversed([column[rows] for column in then]), sorted_places[tied]))
        is_moved |= bool((within != np.arange(len(within))).any())
        out[tied] = rows[within]
    return out if is_moved or order is not None else None


def _order_pairs(order: Positions, at: Positions, then: Sequence[Any]) -> bool:
    """Put the two rows that begin at these positions of an order in the order of ``then``; whether any has been moved."""
    left, right = order[at], order[at + 1]
    is_behind, is_equal = np.zeros(len(at), np.bool_), np.ones(len(at), np.bool_)
    for column in then:
        first, second = column[left], column[right]
        is_behind |= is_equal & (first > second)
        is_equal &= first == second
    some = np.flatnonzero(is_behind)
    order[at[some]], order[at[some] + 1] = right[some], left[some]
    return len(some) > 0


def _same_as_before(order: Positions | None, place: Places, then: Sequence[Any]) -> Any:
    """Whether a row in this order has the numbers of the row before it, shape (rows - 1,)."""
    same = np.ones(max(0, len(place) - 1), np.bool_)
    for column in (place, *then):
        column = column if order is None else column[order]
        same &= column[1:] == column[:-1]
    return same


__all__ = ["ABOUT", "CODE", "COUNT", "WeightedRuns", "is_about", "order_by_place"]
