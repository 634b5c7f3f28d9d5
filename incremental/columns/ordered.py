"""The records of a key in their order, in columns: the same order as in rows (``ranking.py``)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rayad.dataflow.operators.state.runs.order import Positions
from rayad.dataflow.records.batches import rows_at
from rayad.dataflow.records.values import is_tuple, tuple_array
from rayad.incremental.columns.form import NotColumns, field_of, leaves, parts_of, unlike
from rayad.incremental.columns.grouped import Grouped, Records

_GROUP = "group"


@dataclass(frozen=True, slots=True)
class OrderOfFields:
    """How the records of a key are put in order: by fields, null last; then by all that they hold.

    Args:
        fields: of the record.
        descending: whether those are turned round.
    """

    fields: tuple[str, ...]
    descending: bool

    def __call__(self, there: Records) -> tuple[Records, list[pa.Array]]:
        """The records in order, and what they are in order by. Raises NotColumns."""
        by = [field_of(there.record, name) for name in self.fields]
        if any(pa.types.is_nested(column.type) for column in by):
            raise NotColumns
        direction = "descending" if self.descending else "ascending"
        keys = [(column, direction) for column in by] + [(column, "ascending") for column in _contents(there.record)]
        order = _order(there.group, keys)
        return _taken(there, order), [rows_at(column, order) for column in by]


def in_order(group: Positions, record: pa.Array, by: Sequence[pa.Array]) -> Positions:
    """The positions of records by group, then by these columns, then by their contents. Raises NotColumns."""
    return _order(group, [(column, "ascending") for column in (*by, *_contents(record))])


def _contents(record: pa.Array) -> list[pa.Array]:
    """The columns by which records are in the order of their contents: fields by name, what is null last."""
    kind = record.type
    if not pa.types.is_struct(kind):
        return [] if pa.types.is_null(kind) else [record]
    parts = list(zip((field.name for field in kind), parts_of(record), strict=True))
    if not is_tuple(kind):
        parts.sort(key=lambda pair: pair[0])
    return ([record.is_null()] if record.null_count else []) + [leaf for _, part in parts for leaf in _contents(part)]


def _order(group: Positions, keys: list[tuple[pa.Array, str]]) -> Positions:
    """The positions of rows by group, then by these columns, null last."""
    names = [str(at) for at in range(len(keys))]
    columns = [(column.cast(pa.int8()) if pa.types.is_boolean(column.type) else column) for column, _ in keys]
    table = pa.table([pa.array(group), *columns], names=[_GROUP, *names])
    by = [(_GROUP, "ascending"), *((name, direction) for name, (_, direction) in zip(names, keys, strict=True))]
    try:
        order: Positions = pc.sort_indices(table, sort_keys=by).to_numpy().astype(np.int64)
    except (pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
        raise NotColumns from error
    return order


def _taken(there: Records, order: Positions) -> Records:
    return Records(there.group[order], rows_at(there.record, order), there.weights[order])


def first_rows(group: Positions) -> Any:
    """Whether a row is the first of its group, shape (rows,)."""
    return np.append(True, group[1:] != group[:-1])


def _first(group: Positions) -> Positions:
    """The position of the first row of the group of each row, shape (rows,)."""
    begins = first_rows(group)
    first: Positions = np.flatnonzero(begins)[np.cumsum(begins) - 1]
    return first


def _each(there: Records) -> tuple[Positions, Positions]:
    """The number of the record, and of its group, of each time that it is there, shape (sum of weights,)."""
    at = np.repeat(np.arange(len(there.group)), there.weights)
    return at, there.group[at]


@dataclass(frozen=True, slots=True)
class Best(Grouped):
    """The smallest or the largest, of a field where one is named; null where all are null, as in SQL.

    Args:
        largest: which.
        field: of the record; None: the record itself, which has no nulls, nor dicts in it.
    """

    largest: bool
    field: str | None

    def results(self, there: Records) -> Records:
        values = there.record if self.field is None else field_of(there.record, self.field)
        columns = _comparable(values) if self.field is None else [values]
        if self.field is not None and pa.types.is_nested(values.type):
            raise NotColumns
        order = _order(there.group, [(column, "descending" if self.largest else "ascending") for column in columns])
        group = there.group[order]
        best = np.flatnonzero(first_rows(group))
        return Records(group[best], rows_at(values, order[best]), np.ones(len(best), np.int64))


def _comparable(record: pa.Array) -> list[pa.Array]:
    """The columns by which records themselves are compared, as Python does."""
    kind = record.type
    if record.null_count or (pa.types.is_struct(kind) and not is_tuple(kind)):
        raise NotColumns
    return [leaf for part in parts_of(record) for leaf in _comparable(part)] if pa.types.is_struct(kind) else leaves(record)


@dataclass(frozen=True, slots=True)
class Top(Grouped):
    """The first so many records.

    Args:
        k: how many.
        order: of the records; None: the largest first.
    """

    k: int
    order: OrderOfFields | None

    def results(self, there: Records) -> Records:
        if self.order is None:
            there = _taken(there, _order(there.group, [(column, "descending") for column in _comparable(there.record)]))
        else:
            there = self.order(there)[0]
        before = np.cumsum(there.weights) - there.weights
        often = np.minimum(there.weights, self.k - (before - before[_first(there.group)]))
        some = np.flatnonzero(often > 0)
        return Records(there.group[some], rows_at(there.record, some), often[some])


@dataclass(frozen=True, slots=True)
class Numbered(Grouped):
    """Each record with its number, from 1."""

    order: OrderOfFields

    def results(self, there: Records) -> Records:
        there = self.order(there)[0]
        at, group = _each(there)
        numbers = np.arange(len(at)) - _first(group) + 1
        return Records(group, tuple_array([rows_at(there.record, at), pa.array(numbers)]), np.ones(len(at), np.int64))


@dataclass(frozen=True, slots=True)
class Ranked(Grouped):
    """Each record with its rank, from 1."""

    order: OrderOfFields
    dense: bool

    def results(self, there: Records) -> Records:
        there, by = self.order(there)
        differs = first_rows(there.group)
        for column in by:
            differs[unlike(column.slice(1), column.slice(0, len(column) - 1)) + 1] = True
        begin = _first(there.group)
        if self.dense:
            steps = np.cumsum(differs)
            ranks = steps - steps[begin] + 1
        else:
            before = np.cumsum(there.weights) - there.weights
            ranks = (before - before[begin])[np.flatnonzero(differs)[np.cumsum(differs) - 1]] + 1
        return Records(there.group, tuple_array([there.record, pa.array(ranks)]), there.weights)


@dataclass(frozen=True, slots=True)
class Shifted(Grouped):
    """Each record with the one so many places before it, or after it where the number is negative; null where there is none."""

    order: OrderOfFields
    n: int

    def results(self, there: Records) -> Records:
        there = self.order(there)[0]
        at, group = _each(there)
        other = np.arange(len(at)) - self.n
        inside = (other >= 0) & (other < len(at))
        other = np.where(inside, other, 0)
        inside &= group[other] == group
        found = there.record.take(pa.array(at[other], mask=~inside))
        return Records(group, tuple_array([rows_at(there.record, at), found]), np.ones(len(at), np.int64))


__all__ = ["Best", "Numbered", "OrderOfFields", "Ranked", "Shifted", "Top"]
