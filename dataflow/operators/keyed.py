"""Before the exchange: records become ``(key, something)`` pairs, combined per batch where the aggregation allows it.

These elements are stateless and run in the sender's process. A batch that leaves them is either a list of pairs or a columnar batch whose
leading columns are the key (see ``columnar.mark_keyed``); :data:`PAIRS` routes both.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from itertools import repeat
from operator import itemgetter
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from rayad.dataflow.columnar import mark_keyed, to_rows
from rayad.dataflow.elements import Element
from rayad.dataflow.graph import KeySelector
from rayad.dataflow.operators.aggregates import Aggregator, Count, Max, Min, Several
from rayad.progress import DataflowError

PAIRS = KeySelector(function=itemgetter(0), pairs=True)
"""Selector of batches made by the elements of this module: the first of each pair, or the leading key columns."""


def unhashable(key: Any) -> DataflowError:
    """The error for a key that cannot be a dict key."""
    return DataflowError(
        f"a key is not hashable: {key!r:.80} of type {type(key).__name__}; key_by must give hashable values (a tuple instead of a list)"
    )


def default_value(record: Any) -> Any:
    """What sum, min, max ... take when no value was named: the record, or the second of a pair."""
    return record[1] if isinstance(record, tuple) and len(record) == 2 else record


@dataclass(frozen=True, slots=True)
class ValueSelector:
    """Where a record's value is: a function, a column name, or None for :func:`default_value`."""

    function: Callable[[Any], Any] | None = None
    column: str | None = None

    def row_value(self) -> Callable[[Any], Any]:
        """A function from a record to its value."""
        if self.column is not None:
            return itemgetter(self.column)
        return self.function or default_value

    @staticmethod
    def of(value: Any) -> ValueSelector:
        """From what a user gave."""
        if value is None:
            return ValueSelector()
        if isinstance(value, str):
            return ValueSelector(column=value)
        if callable(value):
            return ValueSelector(function=value)
        raise DataflowError(f"the value to aggregate is {value!r}: give a function of the record or a column name")


def require_columns(batch: pa.RecordBatch, names: tuple[str, ...]) -> None:
    """Raise DataflowError if a column is missing."""
    missing = [name for name in names if name not in batch.schema.names]
    if missing:
        raise DataflowError(f"there is no column {missing[0]!r}: the batch has {batch.schema.names}")


def sole_value_column(batch: pa.RecordBatch, keys: tuple[str, ...]) -> str:
    """The one column that is not a key."""
    rest = [name for name in batch.schema.names if name not in keys]
    if len(rest) != 1:
        raise DataflowError(f"which column to aggregate is not clear: besides the key {list(keys)} there are {rest}; name one")
    return str(rest[0])


def import_group_by() -> None:
    """Load what ``Table.group_by`` needs: it takes a third of a second, which belongs to the start of a job and not to its first batch."""
    importlib.import_module("pyarrow.acero")


@dataclass(slots=True)
class Pair(Element):
    """``(key, record)`` pairs."""

    key: KeySelector

    def apply(self, batch: Any) -> Any:
        rows = to_rows(batch)
        return list(zip(map(self.key.row_key(), rows), rows, strict=True))


@dataclass(slots=True)
class PairValue(Element):
    """``(key, value)`` pairs."""

    key: KeySelector
    value: ValueSelector

    def apply(self, batch: Any) -> Any:
        rows = to_rows(batch)
        return list(zip(map(self.key.row_key(), rows), map(self.value.row_value(), rows), strict=True))


@dataclass(slots=True)
class Combine(Element):
    """``(key, accumulator)`` pairs, one for each key in the batch; columnar when keys and values are columns and the values numbers."""

    key: KeySelector
    value: ValueSelector
    aggregator: Aggregator

    def warm_up(self) -> None:
        if self.key.columns:
            import_group_by()

    def apply(self, batch: Any) -> Any:
        if isinstance(batch, pa.RecordBatch) and self.key.columns:
            require_columns(batch, self.key.columns)
            partial = self._columnar(batch)
            if partial is not None:
                return partial
        rows = to_rows(batch)
        key = self.key.row_key()
        try:
            if isinstance(self.aggregator, Count):
                return list(self.aggregator.combine(map(key, rows), repeat(None, len(rows))).items())
            return list(self.aggregator.combine(map(key, rows), map(self.value.row_value(), rows)).items())
        except TypeError:
            for row in rows:
                require_hashable(key(row))
            raise

    def _columnar(self, batch: pa.RecordBatch) -> pa.RecordBatch | None:
        """Partials by Arrow's group-by; None where it would give something else than the rows do, or nothing."""
        if not self.aggregator.partials:
            return None
        several = isinstance(self.aggregator, Several)
        parts = zip(self.aggregator.parts.items(), self.aggregator.values, strict=True) if isinstance(self.aggregator, Several) else [
            ((self.aggregator.name, self.aggregator), self.value)
        ]  # fmt: skip
        wanted: list[Any] = []
        names: list[str] = []
        for (name, aggregator), value in parts:
            if isinstance(aggregator, Count):
                wanted.append(([], "count_all"))
                names.append(f"{name}.count" if several else "count")
                continue
            column = numeric_column(batch, value, self.key.columns)
            if column is None or (not isinstance(aggregator, (Min, Max)) and may_overflow(batch.column(column))):
                return None
            wanted.extend((column, function) for function, _ in aggregator.partials)
            names.extend(f"{name}.{f}" if several else f"{f}({column})" for f, _ in aggregator.partials)
        return group(batch, list(self.key.columns), wanted, names)


def require_hashable(key: Any) -> None:
    """Raise DataflowError if ``key`` cannot be a dict key."""
    try:
        hash(key)
    except TypeError as error:
        raise unhashable(key) from error


def numeric_column(batch: pa.RecordBatch, value: ValueSelector, keys: tuple[str, ...]) -> str | None:
    """The column of numbers that a selector means; None when it is a function, or the column holds something else."""
    if value.function is not None:
        return None
    column = value.column or sole_value_column(batch, keys)
    require_columns(batch, (column,))
    kind = batch.schema.field(column).type
    return column if pa.types.is_integer(kind) or pa.types.is_float32(kind) or pa.types.is_float64(kind) else None


def may_overflow(column: pa.Array | pa.ChunkedArray) -> bool:
    """Whether a sum over some of these values could leave 64 bits; Arrow would wrap around silently, Python's ints do not."""
    kind = column.type
    if not pa.types.is_integer(kind) or (kind.bit_width <= 32 and len(column) < 1 << 31):
        return False
    bounds = pc.min_max(column).as_py()
    if bounds["max"] is None:
        return False
    largest = (1 << 64) if pa.types.is_unsigned_integer(kind) else (1 << 63)
    return bool(max(abs(bounds["min"]), abs(bounds["max"])) * len(column) >= largest)


def group(batch: pa.RecordBatch | pa.Table, keys: list[str], aggregations: list[Any], names: list[str]) -> pa.RecordBatch:
    """Arrow's group-by as one keyed batch: the key columns first, then the aggregated columns under ``names`` (with ``_`` behind "
    "one that is taken)."""
    table = batch if isinstance(batch, pa.Table) else pa.Table.from_batches([batch])
    for position, field in enumerate(table.schema):
        if field.name in keys and pa.types.is_floating(field.type):  # -0.0 and 0.0 are one key
            table = table.set_column(position, field.name, pc.add(table.column(position), pa.scalar(0.0, field.type)))
    out = table.unify_dictionaries().group_by(keys, use_threads=False).aggregate(aggregations).combine_chunks()
    columns = [out.column(name) for name in keys] + [out.column(i) for i in range(len(keys), out.num_columns)]
    return mark_keyed(pa.RecordBatch.from_arrays([_one_array(c) for c in columns], names=distinct_names(keys, names)), len(keys))


def _one_array(column: pa.ChunkedArray) -> pa.Array:
    if column.num_chunks == 1:
        return column.chunk(0)
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)


def distinct_names(taken: list[str], names: list[str]) -> list[str]:
    """``taken`` and then ``names``, each of these with as many ``_`` behind it as make it new."""
    out = list(taken)
    for name in names:
        while name in out:
            name += "_"
        out.append(name)
    return out
