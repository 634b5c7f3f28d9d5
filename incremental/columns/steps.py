"""Steps without state in both forms: a function of changes in columns, and the function of one change for rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from rayad.dataflow.operators import stateless as el
from rayad.dataflow.operators.projections import OfFields, Projection, Where
from rayad.dataflow.records.batches import ROWS_KEY, rows_at, to_rows
from rayad.dataflow.records.values import fields_of, is_tuple, tuple_array, with_plain_tuples
from rayad.dataflow.streams.steps import stateless
from rayad.incremental.columns.form import (
    DIFF,
    KEY,
    RECORD,
    changes,
    is_changes,
    keyed_changes,
    normalised,
    valid_keys,
    weights_of,
)
from rayad.incremental.columns.from_rows import MANY, changes_of
from rayad.incremental.records import as_fields, as_record
from rayad.incremental.steps import of_total
from rayad.progress import DataflowError, show

if TYPE_CHECKING:
    from rayad.dataflow.streams.stream import Stream

InColumns = Callable[[pa.RecordBatch], pa.RecordBatch | list[Any] | None]
"""Of changes in columns, in columns or in few rows; None: rows must do it."""


@dataclass(slots=True)
class InBothForms(el.Element):
    """A step of changes.

    Args:
        rows: the step of rows.
        columns: the same of columns.
    """

    rows: el.PerRecord
    columns: InColumns

    @property
    def negates(self) -> bool:
        """Whether it gives an insertion for a removal (``rounds``)."""
        return self.columns is negated

    def apply(self, batch: Any) -> Any:
        out = self.columns(batch) if is_changes(batch) else None
        return self.rows.apply(batch) if out is None else out


def mapped(stream: Stream, function: Callable[[Any], Any], columns: InColumns, name: str | None = None) -> Stream:
    """``function(change)`` instead of each change."""
    return stateless(stream, el.Map.base, InBothForms(el.Map(function), columns), name)


def flat_mapped(stream: Stream, function: Callable[[Any], Iterable[Any]], columns: InColumns, name: str | None = None) -> Stream:
    """All changes of ``function(change)`` instead of each change."""
    return stateless(stream, el.FlatMap.base, InBothForms(el.FlatMap(function), columns), name)


def filtered(stream: Stream, predicate: Callable[[Any], Any], columns: InColumns, name: str | None = None) -> Stream:
    """The changes for which ``predicate(change)`` is true."""
    return stateless(stream, el.Filter.base, InBothForms(el.Filter(predicate), columns), name, keeps_time=True)


# -- where they begin ------------------------------------------------------------------------------------------------
@dataclass(slots=True)
class Begin(el.Element):
    """Records of a stream as changes: each is inserted once, or so often as a field says.

    Args:
        diff: the field; None: once.
    """

    base = "map"
    diff: str | None

    @property
    def only_inserts(self) -> bool:
        """Whether it gives no removals (``rounds``)."""
        return self.diff is None

    def apply(self, batch: Any) -> Any:
        columns = self._columns(batch) if isinstance(batch, pa.RecordBatch) else self._columns_of(batch)
        return list(map(self._row, to_rows(batch))) if columns is None else columns

    def _columns_of(self, rows: list[Any]) -> pa.RecordBatch | None:
        """Many records with fields in columns, where they have types of Arrow's."""
        if len(rows) < MANY or set(map(type, rows)) != {dict}:
            return None
        diff = self.diff
        if diff is None:
            return changes_of(rows, [1] * len(rows))
        if not all(diff in row for row in rows):
            return None
        return changes_of([{name: value for name, value in row.items() if name != diff} for row in rows], [row[diff] for row in rows])

    def _columns(self, batch: pa.RecordBatch) -> pa.RecordBatch | None:
        if ROWS_KEY in (batch.schema.metadata or {}):
            return None
        weights = pa.array(np.ones(batch.num_rows, np.int64))
        if self.diff is not None:
            if self.diff not in batch.schema.names:
                raise _no_weight(self.diff, f"columns {batch.schema.names}")
            weights = batch.column(self.diff)
            if not pa.types.is_integer(weights.type) or weights.null_count:
                return None  # rows say which one it is
            weights, batch = weights.cast(pa.int64()), batch.drop_columns([self.diff])
        record = normalised(batch.to_struct_array()) if batch.num_columns else None
        return None if record is None or _has_tuple(record.type) else changes(record, weights)

    def _row(self, record: Any) -> tuple[Any, int]:
        if self.diff is None:
            return as_record(record), 1
        if not isinstance(record, dict) or self.diff not in record:
            raise _no_weight(self.diff, show(record, 80))
        weight = record[self.diff]
        if not isinstance(weight, int) or isinstance(weight, bool):
            raise DataflowError(f"as_collection(diff={self.diff!r}) was given the weight {show(weight)} in {show(record, 80)}: give an int")
        return as_record({name: value for name, value in record.items() if name != self.diff}), weight


@dataclass(slots=True)
class BeginTotals(el.Element):
    """Changes of running totals as changes of the table that they are; many of them in columns, where they have types of Arrow's."""

    base = "flat_map"

    def apply(self, batch: Any) -> Any:
        rows = [row for change in to_rows(batch) for row in of_total(change)]
        made = changes_of(*zip(*rows, strict=True)) if len(rows) >= MANY else None
        return rows if made is None else made


def _no_weight(diff: str, got: str) -> DataflowError:
    return DataflowError(f"as_collection(diff={diff!r}) was given {got}: each record needs the field {diff!r}, how often it comes or goes")


def _has_tuple(kind: pa.DataType) -> bool:
    """Whether a record of columns that are called "0", "1", ... would be taken for a tuple."""
    return bool(pa.types.is_struct(kind)) and (is_tuple(kind) or any(_has_tuple(kind.field(i).type) for i in range(kind.num_fields)))


# -- keys ------------------------------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class KeyedBy:
    """Changes with a field of the record as the key."""

    field: str

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch | None:
        record = batch.column(RECORD)
        if not pa.types.is_struct(record.type) or is_tuple(record.type) or record.null_count or record.type.get_field_index(self.field) < 0:
            return None  # rows say what is wrong
        return keyed_changes(record.field(self.field), record, batch.column(DIFF))


def in_rows(batch: pa.RecordBatch) -> None:
    """A function of the user's: of rows."""


def by_record(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The record as the key."""
    return keyed_changes(batch.column(RECORD), pa.nulls(batch.num_rows), batch.column(DIFF))


def by_first(batch: pa.RecordBatch) -> pa.RecordBatch | None:
    """A pair by its first."""
    record = batch.column(RECORD)
    if not is_tuple(record.type) or record.null_count or record.type.num_fields != 2:
        return None
    return keyed_changes(record.field(0), record.field(1), batch.column(DIFF))


@dataclass(frozen=True, slots=True)
class Tagged:
    """The record as the key, and which side it is of."""

    side: int

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        return keyed_changes(batch.column(RECORD), pa.array(np.full(batch.num_rows, self.side)), batch.column(DIFF))


def first(batch: pa.RecordBatch) -> pa.RecordBatch | None:
    """The first of a tuple."""
    record = batch.column(RECORD)
    return changes(record.field(0), batch.column(DIFF)) if is_tuple(record.type) else None


def plain(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The pair of key and record."""
    return changes(tuple_array([batch.column(KEY), batch.column(RECORD)]), batch.column(DIFF))


def negated(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Removals for insertions."""
    return batch.set_column(batch.num_columns - 1, DIFF, pa.array(-weights_of(batch)))


def with_key(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Without keys that are null, or tuples with null in them."""
    valid = valid_keys(batch.column(KEY))
    return batch if valid is None else rows_at(batch, np.flatnonzero(valid))


def left_of(batch: pa.RecordBatch) -> pa.RecordBatch | None:
    """The left one of joined pairs."""
    pair = _joined(batch)
    return None if pair is None else changes(tuple_array([pair[0], pair[1]]), batch.column(DIFF))


def swapped(batch: pa.RecordBatch) -> pa.RecordBatch | None:
    """The sides the other way round."""
    pair = _joined(batch)
    return None if pair is None else changes(tuple_array([pair[0], tuple_array([pair[2], pair[1]])]), batch.column(DIFF))


def alone(batch: pa.RecordBatch) -> pa.RecordBatch | None:
    """Left records that have no match; nothing is known of right ones."""
    record = batch.column(RECORD)
    if not is_tuple(record.type) or record.type.num_fields != 2:
        return None
    key, left = fields_of(record)
    return changes(tuple_array([key, tuple_array([left, pa.nulls(len(left))])]), batch.column(DIFF))


def alone_right(batch: pa.RecordBatch) -> pa.RecordBatch | None:
    """Right records that have no match; nothing is known of left ones."""
    record = batch.column(RECORD)
    if not is_tuple(record.type) or record.type.num_fields != 2:
        return None
    key, right = fields_of(record)
    return changes(tuple_array([key, tuple_array([pa.nulls(len(right)), right])]), batch.column(DIFF))


def alone_in_tuple(batch: pa.RecordBatch) -> pa.RecordBatch:
    """A key that is never null."""
    return changes(tuple_array([batch.column(RECORD)]), batch.column(DIFF))


def content_of(batch: pa.RecordBatch) -> pa.RecordBatch | None:
    """What is alone in the key."""
    key = first(batch)
    return None if key is None else first(key)


def _joined(batch: pa.RecordBatch) -> tuple[pa.Array, pa.Array, pa.Array] | None:
    """Keys, left and right records."""
    record = batch.column(RECORD)
    if not is_tuple(record.type) or record.type.num_fields != 2 or not is_tuple(record.type.field(1).type):
        return None
    key, pair = fields_of(record)
    return key, *fields_of(pair)


# -- expressions over the fields of records ----------------------------------------------------------------------------
@dataclass(slots=True)
class Projected(el.Element):
    """Records as a projection by expressions makes them. Parts of tuples, and of windows, are fields called "0", "1", ...

    Args:
        projection: ``select``, ``with_columns``, or a filter by an expression.
    """

    projection: OfFields

    def warm_up(self) -> None:
        self.projection.warm_up()

    def apply(self, batch: Any) -> Any:
        out = self._columns(batch) if is_changes(batch) else None
        return self._rows([(as_record(record), weight) for record, weight in to_rows(batch)]) if out is None else out

    def _columns(self, batch: pa.RecordBatch) -> pa.RecordBatch | None:
        record = batch.column(RECORD)
        if not pa.types.is_struct(record.type) or record.null_count:
            return None
        fields = pa.RecordBatch.from_struct_array(with_plain_tuples(record))
        if isinstance(self.projection, Where):
            numbered = fields.append_column(_ROW, pa.array(np.arange(batch.num_rows)))
            kept = self.projection.of_columns(numbered).column(_ROW)
            return batch if len(kept) == batch.num_rows else batch.take(kept)
        made = normalised(self.projection.of_columns(fields).to_struct_array())
        return None if made is None or is_tuple(made.type) else changes(made, batch.column(DIFF))

    def _rows(self, rows: list[tuple[Any, int]]) -> list[tuple[Any, int]]:
        if not rows:
            return []
        if isinstance(self.projection, Projection):
            plain = self.projection.of_plain_rows([_shallow(record) for record, _ in rows])
            if plain is not None:
                return [(as_record(_value(record)), weight) for record, (_, weight) in zip(plain, rows, strict=True)]
        fields = [as_fields(record) for record, _ in rows]
        odd = next((record for (record, _), made in zip(rows, fields, strict=True) if not isinstance(made, dict)), None)
        if odd is not None:
            raise DataflowError(
                f"{self.projection.base} of a collection was given {show(odd, 80)}: an expression takes records whose fields have names, "
                'dicts, or tuples, whose parts are called "0", "1", ...'
            )
        if isinstance(self.projection, Where):
            kept = self.projection.of_rows([{**made, _ROW: at} for at, made in enumerate(fields)])
            return [rows[made[_ROW]] for made in kept]
        made = self.projection.of_rows(fields)
        return [(as_record(_value(record)), weight) for record, (_, weight) in zip(made, rows, strict=True)]


_ROW = "\0row"


def _shallow(value: Any) -> Any:
    """As :func:`as_fields`, for fields that are looked up: dicts are as they are, whatever is in them."""
    return {str(i): _shallow(part) for i, part in enumerate(value)} if type(value) is tuple else value


def _value(value: Any) -> Any:
    """A projected record, in whose fields are tuples again."""
    return {name: _tuples(part) for name, part in value.items()}


def _tuples(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    parts = {name: _tuples(part) for name, part in value.items()}
    return tuple(parts.values()) if parts and list(parts) == [str(i) for i in range(len(parts))] else parts


def projected(stream: Stream, projection: OfFields, name: str | None) -> Stream:
    """The stream of changes behind a projection."""
    return stateless(stream, projection.base, Projected(projection), name)


__all__ = [
    "Begin", "BeginTotals", "KeyedBy", "Tagged", "alone", "alone_in_tuple", "alone_right", "by_first", "by_record", "content_of",
    "filtered", "first", "flat_mapped", "in_rows", "left_of", "mapped", "negated", "plain", "projected", "swapped", "with_key",
]  # fmt: skip
