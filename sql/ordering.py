"""Records in order: ORDER BY with LIMIT, and the order in which windows look at the records of a partition.

Ties are in the order of the whole record, so that the same records give the same result, whenever and in whatever order they came.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rayad.dataflow.records.batches import rows_at
from rayad.dataflow.records.exact import array_of
from rayad.dataflow.records.values import values_of
from rayad.incremental.columns.grouped import Grouped, Records
from rayad.incremental.records import as_record
from rayad.progress import DataflowError, show
from rayad.sql.steps import names_of
from rayad.sql.values.casts import cast


@dataclass(frozen=True, slots=True)
class Order:
    """What records are in order by.

    Args:
        columns: their numbers.
        descending, nulls_first: of each.
    """

    columns: tuple[int, ...] = ()
    descending: tuple[bool, ...] = ()
    nulls_first: tuple[bool, ...] = ()


def positions(group: Any, columns: Sequence[pa.Array], order: Order, ties: Sequence[pa.Array]) -> Any:
    """The positions of records by group, then in their order, then by all of ``ties``."""
    keys: list[tuple[pa.Array, str]] = [(pa.array(group), "ascending")]
    for at, descending, nulls_first in zip(order.columns, order.descending, order.nulls_first, strict=True):
        if columns[at].null_count:
            keys.append((_number(columns[at].is_null()), "descending" if nulls_first else "ascending"))
        keys.append((_comparable(columns[at]), "descending" if descending else "ascending"))
    keys += [(_comparable(column), "ascending") for column in ties]
    table = pa.table([column for column, _ in keys], names=[str(at) for at in range(len(keys))])
    by = [(str(at), direction) for at, (_, direction) in enumerate(keys)]
    return pc.sort_indices(table, sort_keys=by).to_numpy().astype(np.int64)


def _number(flags: pa.Array) -> pa.Array:
    return flags.cast(pa.int8())


def _comparable(column: pa.Array) -> pa.Array:
    if pa.types.is_boolean(column.type):
        return _number(column)
    return pa.repeat(pa.scalar(0, pa.int8()), len(column)) if pa.types.is_null(column.type) else column


@dataclass(frozen=True)
class OfRecords(Grouped):
    """What is made of the records of a key that have these columns, one form for columns and for rows.

    Args:
        kinds: of the columns.
    """

    kinds: tuple[pa.DataType, ...]

    prefix = "c"

    def columns(self, record: pa.Array) -> list[pa.Array]:
        """Of records, in their types."""
        if not self.kinds:
            return []
        fields = names_of(len(self.kinds), self.prefix)
        return [cast(record.field(name), kind) for name, kind in zip(fields, self.kinds, strict=True)]

    def in_rows(self) -> InRows:
        """The same of rows."""
        return InRows(self)


@dataclass(frozen=True, slots=True)
class InRows:
    """Records of one key in rows, handled as columns.

    Args:
        form: what is made of them.
    """

    form: OfRecords

    def __call__(self, key: Any, values: dict[Any, int]) -> Iterable[tuple[Any, int]]:
        there = {record: weight for record, weight in values.items() if weight}
        if not there:
            return []
        fields = names_of(len(self.form.kinds), self.form.prefix)
        kinds = self.form.kinds or (pa.bool_(),)
        columns = [array_of([record[name] for record in there], kind, name) for name, kind in zip(fields, kinds, strict=True)]
        record = pa.StructArray.from_arrays(columns, names=list(fields))
        weights = np.fromiter(there.values(), np.int64, len(there))
        found = self.form.results(Records(np.zeros(len(there), np.int64), record, weights))
        return [(as_record(result), int(weight)) for result, weight in zip(values_of(found.record), found.weights, strict=True)]


@dataclass(frozen=True)
class First(OfRecords):
    """The records of a key from one place in their order on, so many.

    Args:
        order: of them.
        skip: how many are left out before.
        count: how many come out; None: all that are left.
    """

    order: Order
    skip: int
    count: int | None

    def results(self, there: Records) -> Records:
        """See there."""
        columns = self.columns(there.record)
        at = positions(there.group, columns, self.order, columns)
        group, weights = there.group[at], there.weights[at]
        heads = np.flatnonzero(np.append(True, group[1:] != group[:-1])) if len(group) else np.zeros(0, np.int64)
        ends = np.cumsum(weights)
        before = np.zeros(len(group), np.int64)
        if len(heads):
            starts = np.repeat(ends[heads] - weights[heads], np.diff(np.append(heads, len(group))))
            ends = ends - starts
            before = ends - weights
        stop = ends if self.count is None else np.minimum(ends, self.skip + self.count)
        often = stop - np.maximum(before, self.skip)
        kept = np.flatnonzero(often > 0)
        return Records(group[kept], rows_at(there.record, at[kept]), often[kept])


@dataclass(frozen=True)
class Single(OfRecords):
    """The one record of a key. Raises DataflowError where there are more."""

    def results(self, there: Records) -> Records:
        """See there."""
        groups, counts = np.unique(np.repeat(there.group, there.weights), return_counts=True)
        if len(groups) and counts.max() > 1:
            raise DataflowError(
                f"a subquery that stands for one value gives {counts.max()} rows, {show(values_of(there.record)[:3], 80)} among them: "
                "aggregate in it, or use ORDER BY with LIMIT 1"
            )
        return there


@dataclass(frozen=True)
class Counted(OfRecords):
    """One record for each key, with a weight that follows from how often it is on two sides, which a flag in the records tells apart.

    Args:
        is_except: whether what is on the right counts against what is on the left; else the smaller one counts.
    """

    is_except: bool

    def results(self, there: Records) -> Records:
        """See there."""
        (is_left,) = self.columns(there.record)
        sides = is_left.to_numpy(zero_copy_only=False).astype(bool)
        groups, heads, of_group = np.unique(there.group, return_index=True, return_inverse=True)
        left, right = (np.bincount(of_group, np.where(some, there.weights, 0), len(groups)).astype(np.int64) for some in (sides, ~sides))
        often = np.maximum(left - right, 0) if self.is_except else np.minimum(left, right)
        kept = np.flatnonzero(often)
        return Records(groups[kept], rows_at(there.record, heads[kept]), often[kept])


__all__ = ["Counted", "First", "InRows", "OfRecords", "Order", "Single", "positions"]
