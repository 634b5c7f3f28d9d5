"""Batches: a list of Python objects, or a ``pyarrow.RecordBatch``; and the ways between the two.

A columnar batch stays columnar until a row function asks for Python objects. A row of it is then a dict by column name, or, when the
schema's metadata says ``rayad.rows = keyed:N``, a tuple: the first N columns are the key (a tuple of them when N > 1), the others follow.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from rayad.dataflow.records.exact import Inexact, array_of, cast_batch, needs_look, require_python
from rayad.dataflow.records.moments import moments_of
from rayad.dataflow.records.sorting import stable_order
from rayad.dataflow.records.values import values_of
from rayad.progress import DataflowError, show

ROWS_KEY = b"rayad.rows"
OF_TUPLES = {ROWS_KEY: b"tuples:1"}
"""The metadata that :func:`mark_tuples` gives."""

Batch = list[Any] | pa.RecordBatch
"""What travels on an edge: many records of one timestamp."""


def batch_rows(batch: Any) -> int:
    """Number of records in a batch."""
    return batch.num_rows if isinstance(batch, pa.RecordBatch) else len(batch)


def mark_keyed(batch: pa.RecordBatch, key_columns: int, *, named: bool = False) -> pa.RecordBatch:
    """Say that rows of ``batch`` are ``(key, *values)`` tuples with ``key_columns`` leading key columns; with ``named``, ``(key,
    {name: value})``."""
    return _marked(batch, b"named" if named else b"keyed", key_columns)


def mark_tuples(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Say that rows of ``batch`` are tuples whose first is the key, and that structs in them may be tuples, too (``values.is_tuple``)."""
    return batch.replace_schema_metadata({**(batch.schema.metadata or {}), **OF_TUPLES})


def has_tuples(batch: Any) -> bool:
    """Whether a batch is columns that :func:`mark_tuples` has marked."""
    return isinstance(batch, pa.RecordBatch) and (batch.schema.metadata or {}).get(ROWS_KEY, b"").startswith(b"tuples")


def _marked(batch: pa.RecordBatch, how: bytes, key_columns: int) -> pa.RecordBatch:
    metadata = dict(batch.schema.metadata or {})
    metadata[ROWS_KEY] = b"%s:%d" % (how, key_columns)
    return batch.replace_schema_metadata(metadata)


def keyed_columns(schema: pa.Schema) -> int | None:
    """How many leading columns are the key, when rows of this schema are ``(key, *values)`` tuples."""
    mark = (schema.metadata or {}).get(ROWS_KEY)
    return int(mark.split(b":")[1]) if mark is not None else None


def _listed(batch: Any) -> list[Any]:
    try:
        return batch if isinstance(batch, list) else list(batch)
    except TypeError as error:
        raise DataflowError(f"{show(batch)} is no batch: a batch is a list of records, a RecordBatch or a Table") from error


def to_rows(batch: Any) -> list[Any]:
    """The records of a batch as Python objects; a list is given back as it is.

    >>> to_rows(pa.record_batch({"a": [1, 2]}))
    [{'a': 1}, {'a': 2}]
    >>> to_rows(mark_keyed(pa.record_batch({"k": ["x"], "n": [2]}), 1))
    [('x', 2)]
    """
    if not isinstance(batch, pa.RecordBatch):
        if isinstance(batch, list):
            return batch
        if isinstance(batch, pa.Table):
            return [row for part in batch.to_batches() for row in to_rows(part)]
        return _listed(batch)
    require_distinct(batch.schema, "a batch")
    for field in batch.schema:
        if needs_look(field.type):
            require_python(batch.column(field.name), field.name)
    keys = keyed_columns(batch.schema)
    if keys is None:
        rows: list[Any] = batch.to_pylist()
        return rows
    if has_tuples(batch):
        return list(zip(*map(values_of, batch.columns), strict=True))
    columns = [moments_of(column) if at < keys else column.to_pylist() for at, column in enumerate(batch.columns)]
    if batch.schema.metadata[ROWS_KEY].startswith(b"named"):
        names = batch.schema.names[keys:]
        values = [dict(zip(names, row, strict=True)) for row in zip(*columns[keys:], strict=True)]
        columns = [*columns[:keys], values]
    if keys == 1:
        return list(zip(*columns, strict=True))
    return list(zip(zip(*columns[:keys], strict=True), *columns[keys:], strict=True))


def no_rows(schema: pa.Schema) -> pa.RecordBatch | None:
    """A batch of this schema without rows; None for types of which Arrow makes no empty column.

    >>> no_rows(pa.schema({"a": pa.int64()})).num_rows
    0
    """
    try:
        return pa.RecordBatch.from_arrays([_no_values(kind) for kind in schema.types], schema=schema)
    except pa.ArrowNotImplementedError:
        return None


def _no_values(kind: pa.DataType) -> pa.Array:
    if not pa.types.is_union(kind):
        return pa.array([], kind)
    children = [_no_values(kind.field(i).type) for i in range(kind.num_fields)]
    names, types = [kind.field(i).name for i in range(kind.num_fields)], pa.array([], pa.int8())
    if kind.mode == "sparse":
        return pa.UnionArray.from_sparse(types, children, names, kind.type_codes)
    return pa.UnionArray.from_dense(types, pa.array([], pa.int32()), children, names, kind.type_codes)


_FEW_ROWS = 4
"""Arrow's ``take`` costs as much for one row as for hundreds; so few are faster put together from slices."""


def rows_at(rows: Any, positions: Any) -> Any:
    """Copy the rows of a batch, or of a column, at these positions; as they are where these are all in order.

    Args:
        rows: a RecordBatch or an Array.
        positions: shape (n,), integers.

    >>> rows_at(pa.array(["a", "b", "c"]), np.array([2, 0])).to_pylist()
    ['c', 'a']
    """
    few = len(positions)
    if few == len(rows) and (positions == np.arange(few)).all():
        return rows
    if 0 < few <= _FEW_ROWS:
        slices = [rows.slice(at, 1) for at in positions.tolist()]
        try:
            return pa.concat_batches(slices) if isinstance(rows, pa.RecordBatch) else pa.concat_arrays(slices)
        except pa.ArrowNotImplementedError:
            pass
    return take_rows(rows, pa.array(positions)) if isinstance(rows, pa.RecordBatch) else rows.take(pa.array(positions))


def taken_from(parts: Sequence[Any], positions: npt.NDArray[np.int64]) -> Any:
    """Copy the rows at these positions of batches, or of arrays, that lie one behind the other.

    What it takes depends on the positions. Arrow's own ``take`` of several chunks puts all of them together first where values are texts.

    Args:
        parts: RecordBatches or Arrays of one type; at least one.
        positions: shape (n,).

    >>> taken_from([pa.array(["a", "b"]), pa.array(["c"])], np.array([2, 0])).to_pylist()
    ['c', 'a']
    """
    if len(parts) == 1:
        return rows_at(parts[0], positions)
    starts = np.cumsum([0, *map(len, parts[:-1])])
    which = np.searchsorted(starts, positions, side="right") - 1
    order = stable_order(which)
    ends = np.cumsum(np.bincount(which, minlength=len(parts)))
    some = [
        rows_at(part, positions[order[low:high]] - start)
        for part, start, low, high in zip(parts, starts.tolist(), [0, *ends[:-1].tolist()], ends.tolist(), strict=True)
        if high > low
    ]
    if not some:
        return parts[0].slice(0, 0)
    rows = some[0] if len(some) == 1 else pa.concat_batches(some) if isinstance(some[0], pa.RecordBatch) else pa.concat_arrays(some)
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    return rows_at(rows, place)


def take_rows(batch: pa.RecordBatch, rows: pa.Array) -> pa.RecordBatch:
    """The rows at these positions, int64; also of columns of types that Arrow's own ``take`` does not know."""
    try:
        return batch.take(rows)
    except pa.ArrowNotImplementedError:
        return pa.RecordBatch.from_arrays([_taken(column, rows) for column in batch.columns], schema=batch.schema)


def _taken(column: pa.Array, rows: pa.Array) -> pa.Array:
    kind = column.type
    if pa.types.is_run_end_encoded(kind):
        return pc.run_end_encode(_taken(pc.run_end_decode(column), rows), run_end_type=kind.run_end_type)
    for view, plain in ((pa.string_view(), pa.large_string()), (pa.binary_view(), pa.large_binary())):
        if kind == view:
            return column.cast(plain).take(rows).cast(view)
    try:
        return column.take(rows)
    except pa.ArrowNotImplementedError:  # views inside of lists or structs
        values = column.to_pylist()
        return pa.array([values[row] for row in rows.to_pylist()], kind)


def one_or_more(table: pa.Table) -> list[pa.RecordBatch]:
    """The rows of a table in as few batches as can be: one, unless a column is too large for one (2 GiB of strings); none for no rows."""
    chunks = max((column.num_chunks for column in table.columns), default=0)
    return [batch for batch in (table.combine_chunks() if chunks > 1 else table).to_batches() if batch.num_rows]


def one_array(column: pa.ChunkedArray) -> pa.Array:
    """A column as one array; strings and bytes that one cannot hold (2 GiB) as large ones. Dictionaries must be unified before."""
    if column.num_chunks <= 1:
        return column.chunk(0) if column.num_chunks else pa.array([], column.type)
    try:
        return pa.concat_arrays(column.chunks)
    except pa.ArrowInvalid:
        large = {pa.string(): pa.large_string(), pa.binary(): pa.large_binary()}.get(column.type)
        if large is None:
            raise
        return pa.concat_arrays(column.cast(large).chunks)


def require_distinct(schema: pa.Schema, what: str) -> None:
    """Raise DataflowError where two columns have one name: a row as a dict would lose the first."""
    names = schema.names
    if len(set(names)) < len(names):
        twice = next(name for i, name in enumerate(names) if name in names[:i])
        raise DataflowError(f"{what} has {names.count(twice)} columns {twice!r} of {names}: names must differ, rename them")


def to_record_batch(rows: Any, schema: pa.Schema | None = None) -> pa.RecordBatch:
    """Convert records to one RecordBatch.

    Dicts become columns by name, ``(key, value)`` pairs the columns ``key`` and ``value``, other tuples ``c0 c1 ..``, anything else one
    column ``value``. With ``schema`` the columns and types are those, and tuples go by position. No value is rounded, cut or left out (see
    ``records.exact``): raises DataflowError if the rows do not fit one schema, or not ``schema``.

    >>> to_record_batch([{"a": 1}, {"a": None}]).schema.names
    ['a']
    >>> to_rows(to_record_batch([("x", 1)]))
    [('x', 1)]
    """
    if isinstance(rows, pa.RecordBatch):
        return rows if schema is None else _cast(rows, schema)
    rows = _listed(rows)
    try:
        return _build(rows, schema)
    except (DataflowError, pa.ArrowException, KeyError, TypeError, ValueError) as error:
        expected = "one type per column" if schema is None else f"the schema {schema.to_string(show_schema_metadata=False)!r}"
        raise DataflowError(
            f"{len(rows)} records do not fit {expected}: {error}; first record: {show(rows[0] if rows else None, 120)}; convert them "
            f"with map() before this step{'' if schema is None else ', or give a schema that holds them'}"
        ) from error


def _build(rows: list[Any], schema: pa.Schema | None) -> pa.RecordBatch:
    first = rows[0] if rows else None
    if schema is not None and keyed_columns(schema) is not None and isinstance(first, tuple):
        rows = flat_rows(rows, schema)
        first = rows[0]
    if isinstance(first, dict) or (not rows and schema is not None):
        odd = None if set(map(type, rows)) == {dict} else next((i for i, row in enumerate(rows) if not isinstance(row, dict)), None)
        if odd is not None:
            raise TypeError(f"record {odd} is a {type(rows[odd]).__name__}, the first is a dict")
        names = list(dict.fromkeys(chain.from_iterable(rows)))
        strange = [name for name in names if not isinstance(name, str)]
        if strange:
            raise TypeError(f"the field {show(strange[0])} is a {type(strange[0]).__name__}, names of columns are strings")
        if schema is None:
            return pa.RecordBatch.from_arrays([array_of([row.get(name) for row in rows], None, name) for name in names], names=names)
        extra = set(names) - set(schema.names)
        if extra:
            raise TypeError(f"fields {sorted(extra)} are not in it")
        return _in_schema([[row.get(name) for row in rows] for name in schema.names], schema)
    if isinstance(first, tuple):
        odd = next((i for i, row in enumerate(rows) if not isinstance(row, tuple) or len(row) != len(first)), None)
        if odd is not None:
            raise TypeError(f"record {odd} is {show(rows[odd], 60)}, the first is a tuple of {len(first)}")
        columns = [list(column) for column in zip(*rows, strict=True)]
        if schema is not None:
            return _in_schema(columns, schema)
        names = {2: ["key", "value"], 3: ["key", "window", "value"]}.get(len(columns)) or [f"c{i}" for i in range(len(columns))]
        return mark_keyed(pa.RecordBatch.from_arrays([array_of(c, None, n) for c, n in zip(columns, names, strict=True)], names=names), 1)
    return _in_schema([rows], schema) if schema is not None else pa.record_batch({"value": array_of(rows)})


def _in_schema(columns: list[list[Any]], schema: pa.Schema) -> pa.RecordBatch:
    if len(columns) != len(schema):
        raise TypeError(f"the records have {len(columns)} values, it has {len(schema)} columns")
    arrays = [array_of(column, field.type, field.name) for column, field in zip(columns, schema, strict=True)]
    for array, field in zip(arrays, schema, strict=True):
        if array.null_count and not field.nullable:
            raise TypeError(f"column {field.name!r} may hold no nulls, {array.null_count} records have none or null there")
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def flat_rows(rows: list[Any], schema: pa.Schema) -> list[Any]:
    """Keyed rows with a value for each column of ``schema``: the inverse of :func:`to_rows`."""
    keys = keyed_columns(schema) or 1
    if keys > 1:
        rows = [(*row[0], *row[1:]) for row in rows]
    if schema.metadata[ROWS_KEY].startswith(b"named"):
        names = schema.names[keys:]
        unknown = next((name for row in rows for name in row[keys] if name not in names), None)
        if unknown is not None:
            raise TypeError(f"field {show(unknown)} is not in it")
        rows = [(*row[:keys], *(row[keys].get(name) for name in names)) for row in rows]
    return rows


def _cast(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    if batch.schema.equals(schema):
        return batch
    if batch.schema.names != schema.names:
        raise DataflowError(
            f"schema drift: expected the columns {schema.names}, got {batch.schema.names}; select or rename them before this step"
        )
    try:
        return cast_batch(batch, schema)
    except Inexact as error:
        raise DataflowError(
            f"schema drift: expected {schema.to_string(show_schema_metadata=False)!r}, got "
            f"{batch.schema.to_string(show_schema_metadata=False)!r}: {error}; cast it with map_batches() before this step"
        ) from error


def one_batch(table: pa.Table) -> pa.RecordBatch:
    """A table as one batch."""
    columns = [one_array(column) for column in table.unify_dictionaries().columns]
    fields = [field.with_type(column.type) for field, column in zip(table.schema, columns, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields, table.schema.metadata))
