"""Before the exchange: records become ``(key, something)`` pairs, combined per batch where the aggregation allows it.

These elements are stateless and run in the sender's process. A batch that leaves them is either a list of pairs or a columnar batch whose
leading columns are the key (see ``batches.mark_keyed``); :data:`PAIRS` routes both.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from operator import itemgetter
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rayad.dataflow.operators.keys.column_keys import key_normalised
from rayad.dataflow.operators.keys.dense_groups import dense_group
from rayad.dataflow.operators.keys.group_functions import DECIMAL_DIGITS, POSITIONS, GroupFunction
from rayad.dataflow.operators.stateless import Element
from rayad.dataflow.records.batches import mark_keyed, one_array, to_rows
from rayad.dataflow.records.calling import mapped
from rayad.dataflow.records.selectors import KeySelector, ValueSelector, require_columns, sole_value_column
from rayad.progress import DataflowError, show

TAGS = 1 << 10
"""Batches that move as they came get one of so many numbers in turn, as their key: several for each key-group, so that replicas get about
as many batches each (docs/decisions/067-broadcast-joins.md)."""
PAIRS = KeySelector(function=itemgetter(0), pairs=True)
"""Selector of batches made by the elements of this module: the first of each pair, or the leading key columns."""


def unhashable(key: Any) -> DataflowError:
    """The error for a key that cannot be a dict key."""
    return DataflowError(
        f"a key is not hashable: {show(key)} of type {type(key).__name__}; key_by must give hashable values (a tuple instead of a list)"
    )


def import_conversions() -> None:
    """Load what Arrow needs to give a column to numpy: its first conversion imports pandas."""
    pa.array([0]).to_numpy()


def import_group_by() -> None:
    """Load what ``Table.group_by`` needs: it takes a while, which belongs to the start of a job and not to its first batch."""
    importlib.import_module("pyarrow.acero")
    import_conversions()


@dataclass(slots=True)
class PairValue(Element):
    """``(key, value)`` pairs."""

    key: KeySelector
    value: ValueSelector

    def apply(self, batch: Any) -> Any:
        rows = to_rows(batch)
        return list(zip(self.key.keys_of(rows), mapped(self.value.row_value(self.key.columns), rows), strict=True))

    def rows_because(self, schema: pa.Schema) -> str | None:
        return "the operator behind it handles rows"


def require_hashable(key: Any) -> None:
    """Raise DataflowError if ``key`` cannot be a dict key."""
    try:
        hash(key)
    except TypeError as error:
        raise unhashable(key) from error


def value_column(batch: pa.RecordBatch | pa.Table, value: ValueSelector, keys: tuple[str, ...]) -> str | None:
    """The column that a selector means; None when it is a function."""
    if value.function is not None:
        return None
    column = value.column or sole_value_column(batch, keys)
    require_columns(batch, (column,))
    return column


def may_overflow(column: pa.Array | pa.ChunkedArray) -> bool:
    """Whether a sum over some of these values could leave 64 bits, or of decimals the digits of a decimal128; Arrow would wrap around
    silently, Python's numbers do not."""
    kind = column.type
    if pa.types.is_decimal(kind):
        return _may_exceed_digits(column)
    if pa.types.is_duration(kind):  # for which Arrow has no such kernel
        column, kind = column.cast(pa.int64()), pa.int64()
    if not pa.types.is_integer(kind) or (kind.bit_width <= 32 and len(column) < 1 << 31):
        return False
    bounds = pc.min_max(column).as_py()
    if bounds["max"] is None:
        return False
    largest = (1 << 64) if pa.types.is_unsigned_integer(kind) else (1 << 63)
    return bool(max(abs(bounds["min"]), abs(bounds["max"])) * len(column) >= largest)


def _may_exceed_digits(column: pa.Array | pa.ChunkedArray) -> bool:
    try:
        bounds = pc.min_max(column.cast(pa.decimal128(DECIMAL_DIGITS, column.type.scale))).as_py()
    except pa.ArrowInvalid:  # there are values with more digits
        return True
    largest = max((bound.copy_abs() for bound in bounds.values() if bound is not None), default=Decimal(0))  # abs() rounds
    return bool(int("".join(map(str, largest.as_tuple().digits))) * len(column) >= 10**DECIMAL_DIGITS)


def group(
    batch: pa.RecordBatch | pa.Table, keys: list[str], aggregations: Sequence[tuple[str | None, GroupFunction]], names: list[str]
) -> pa.RecordBatch:
    """A group-by as one keyed batch: the key columns first, then a column for each ``(column, function)`` under ``names`` (with ``_``
    behind one that is taken); the column is None for ``COUNT_ROWS`` and ``POSITIONS``."""
    table = batch if isinstance(batch, pa.Table) else pa.Table.from_batches([batch])
    if len(keys) == 1:
        dense = dense_group(table, keys[0], aggregations)
        if dense is not None:
            return mark_keyed(pa.RecordBatch.from_arrays(dense, names=distinct_names(keys, names)), 1)
    # Arrow calls its results after column and function: numbers in place of the user's names, so that no two are called alike.
    needed: list[Any] = [None if column is None else (column, f.taken_as(table.schema.field(column).type)) for column, f in aggregations]
    taken = dict.fromkeys([*((name, None) for name in keys), *(each for each in needed if each is not None)])
    number = {each: str(at) for at, each in enumerate(taken)}
    kinds = {name: table.schema.field(name).type for name, _ in number}
    columns = [table.column(name) if cast is None else table.column(name).cast(cast) for name, cast in number]
    table = pa.Table.from_arrays(columns, names=list(number.values()))
    leading = [number[name, None] for name in keys]
    for position in range(len(keys)):
        if pa.types.is_floating(table.schema.field(position).type):
            table = table.set_column(position, leading[position], key_normalised(table.column(position)))
    wanted: list[Any] = [([] if each is None else number[each], f.arrow) for each, (_, f) in zip(needed, aggregations, strict=True)]
    if any(function is POSITIONS for _, function in aggregations):
        rows = str(table.num_columns)
        table = table.append_column(rows, pa.array(np.arange(table.num_rows)))
        wanted = [(rows, f.arrow) if f is POSITIONS else each for each, (_, f) in zip(wanted, aggregations, strict=True)]
    out = table.unify_dictionaries().group_by(leading, use_threads=False).aggregate(wanted).combine_chunks()
    columns = [out.column(name) for name in leading] + [out.column(i) for i in range(len(keys), out.num_columns)]
    for at, (column, function) in enumerate(aggregations, len(keys)):
        kind = None if column is None else function.given_as(kinds[column])
        if kind is not None and not columns[at].type.equals(kind):
            columns[at] = columns[at].cast(kind)
    return mark_keyed(pa.RecordBatch.from_arrays([one_array(c) for c in columns], names=distinct_names(keys, names)), len(keys))


def distinct_names(taken: list[str], names: list[str]) -> list[str]:
    """``taken`` and then ``names``, each of these with as many ``_`` behind it as make it new."""
    out = list(taken)
    for name in names:
        while name in out:
            name += "_"
        out.append(name)
    return out
