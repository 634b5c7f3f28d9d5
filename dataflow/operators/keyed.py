"""Before the exchange: records become ``(key, something)`` pairs, combined per batch where the aggregation allows it.

These elements are stateless and run in the sender's process. A batch that leaves them is either a list of pairs or a columnar batch whose leading
columns are the key (see ``columnar.mark_keyed``); :data:`PAIRS` routes both.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

import pyarrow as pa

from rayad.dataflow.columnar import mark_keyed, to_rows
from rayad.dataflow.elements import Element
from rayad.dataflow.graph import KeySelector
from rayad.dataflow.operators.aggregates import Aggregator
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
    return rest[0]


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
    """``(key, accumulator)`` pairs, one for each key in the batch; columnar when the key and value are numeric columns."""

    key: KeySelector
    value: ValueSelector
    aggregator: Aggregator

    def apply(self, batch: Any) -> Any:
        if isinstance(batch, pa.RecordBatch) and self.key.columns and self.aggregator.partials:
            require_columns(batch, self.key.columns)
            partial = self._columnar(batch)
            if partial is not None:
                return partial
        rows = to_rows(batch)
        key = self.key.row_key()
        try:
            if self.aggregator.name == "count":
                return list(self.aggregator.combine(map(key, rows), ()).items())
            return list(self.aggregator.combine(map(key, rows), map(self.value.row_value(), rows)).items())
        except TypeError:
            for row in rows:
                try:
                    hash(key(row))
                except TypeError as error:
                    raise unhashable(key(row)) from error
            raise

    def _columnar(self, batch: pa.RecordBatch) -> pa.RecordBatch | None:
        keys = list(self.key.columns)
        if self.aggregator.name == "count":
            return group(batch, keys, [([], "count_all")], ["count"])
        if self.value.function is not None:
            return None
        column = self.value.column or sole_value_column(batch, self.key.columns)
        require_columns(batch, (column,))
        kind = batch.schema.field(column).type
        if not (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
            return None
        functions = [f for f, _ in self.aggregator.partials]
        return group(batch, keys, [(column, f) for f in functions], [f"{f}({column})" for f in functions])


def group(batch: pa.RecordBatch | pa.Table, keys: list[str], aggregations: list[Any], names: list[str]) -> pa.RecordBatch:
    """Arrow's group-by as one keyed batch: the key columns first, then the aggregated columns under ``names``."""
    table = batch if isinstance(batch, pa.Table) else pa.Table.from_batches([batch])
    out = table.group_by(keys, use_threads=False).aggregate(aggregations).combine_chunks()
    columns = [out.column(name) for name in keys] + [out.column(i) for i in range(len(keys), out.num_columns)]
    arrays = [c.chunk(0) if c.num_chunks == 1 else pa.array([], c.type) if c.num_chunks == 0 else pa.concat_arrays(c.chunks) for c in columns]
    return mark_keyed(pa.RecordBatch.from_arrays(arrays, names=[*keys, *names]), len(keys))
