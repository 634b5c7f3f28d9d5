"""Batches: a list of Python objects, or a ``pyarrow.RecordBatch``; and the ways between the two.

A columnar batch stays columnar until a row function asks for Python objects. A row of it is then a dict by column name, or, when the
schema's metadata says ``rayad.rows = keyed:N``, a tuple: the first N columns are the key (a tuple of them when N > 1), the others follow.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from rayad.progress import DataflowError

ROWS_KEY = b"rayad.rows"

Batch = list[Any] | pa.RecordBatch
"""What travels on an edge: many records of one timestamp."""


def is_columnar(batch: Any) -> bool:
    """Whether a batch is an Arrow RecordBatch."""
    return isinstance(batch, pa.RecordBatch)


def batch_rows(batch: Any) -> int:
    """Number of records in a batch."""
    return batch.num_rows if isinstance(batch, pa.RecordBatch) else len(batch)


def mark_keyed(batch: pa.RecordBatch, key_columns: int, *, named: bool = False) -> pa.RecordBatch:
    """Say that rows of ``batch`` are ``(key, *values)`` tuples with ``key_columns`` leading key columns; with ``named``, ``(key, "
    "{name: value})``."""
    metadata = dict(batch.schema.metadata or {})
    metadata[ROWS_KEY] = b"%s:%d" % (b"named" if named else b"keyed", key_columns)
    return batch.replace_schema_metadata(metadata)


def keyed_columns(schema: pa.Schema) -> int | None:
    """How many leading columns are the key, when rows of this schema are ``(key, *values)`` tuples."""
    mark = (schema.metadata or {}).get(ROWS_KEY)
    return int(mark.split(b":")[1]) if mark is not None else None


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
        return list(batch)
    keys = keyed_columns(batch.schema)
    if keys is None:
        rows: list[Any] = batch.to_pylist()
        return rows
    columns = [column.to_pylist() for column in batch.columns]
    if batch.schema.metadata[ROWS_KEY].startswith(b"named"):
        names = batch.schema.names[keys:]
        values = [dict(zip(names, row, strict=True)) for row in zip(*columns[keys:], strict=True)]
        columns = [*columns[:keys], values]
    if keys == 1:
        return list(zip(*columns, strict=True))
    return list(zip(zip(*columns[:keys], strict=True), *columns[keys:], strict=True))


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


def to_record_batch(rows: Any, schema: pa.Schema | None = None) -> pa.RecordBatch:
    """Records as one columnar batch: dicts by name, ``(key, value)`` pairs as columns ``key`` and ``value``, other tuples as ``c0 c1
    ..``, anything else as one column ``value``. Raises DataflowError where the rows do not fit one schema, or not ``schema``.

    >>> to_record_batch([{"a": 1}, {"a": None}]).schema.names
    ['a']
    >>> to_rows(to_record_batch([("x", 1)]))
    [('x', 1)]
    """
    if isinstance(rows, pa.RecordBatch):
        return rows if schema is None else _cast(rows, schema)
    rows = rows if isinstance(rows, list) else list(rows)
    try:
        return _build(rows, schema)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, KeyError, TypeError) as error:
        expected = "one type per column" if schema is None else f"the schema {schema.to_string(show_schema_metadata=False)!r}"
        raise DataflowError(
            f"{len(rows)} records do not fit {expected}: {error}; first record: {rows[0] if rows else None!r:.120}; convert them "
            "with map() before this step"
        ) from error


def _build(rows: list[Any], schema: pa.Schema | None) -> pa.RecordBatch:
    first = rows[0] if rows else None
    if isinstance(first, dict) or (not rows and schema is not None):
        odd = next((i for i, row in enumerate(rows) if not isinstance(row, dict)), None)
        if odd is not None:
            raise TypeError(f"record {odd} is a {type(rows[odd]).__name__}, the first is a dict")
        if schema is not None:
            extra = {name for row in rows for name in row} - set(schema.names)
            if extra:
                raise TypeError(f"fields {sorted(extra)} are not in it")
            return pa.RecordBatch.from_pylist(rows, schema=schema)
        names = list(dict.fromkeys(name for row in rows for name in row))
        return pa.record_batch({name: [row.get(name) for row in rows] for name in names})
    if isinstance(first, tuple):
        odd = next((i for i, row in enumerate(rows) if not isinstance(row, tuple) or len(row) != len(first)), None)
        if odd is not None:
            raise TypeError(f"record {odd} is {rows[odd]!r:.60}, the first is a tuple of {len(first)}")
        columns = list(zip(*rows, strict=True))
        names = {2: ["key", "value"], 3: ["key", "window", "value"]}.get(len(columns)) or [f"c{i}" for i in range(len(columns))]
        if schema is not None:
            return pa.RecordBatch.from_arrays([pa.array(c, t.type) for c, t in zip(columns, schema, strict=True)], schema=schema)
        return mark_keyed(pa.RecordBatch.from_arrays([pa.array(c) for c in columns], names=names), 1)
    if schema is not None:
        return pa.RecordBatch.from_arrays([pa.array(rows, schema.field(0).type)], schema=schema)
    return pa.record_batch({"value": pa.array(rows)})


def _cast(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    if batch.schema.equals(schema):
        return batch
    if batch.schema.names != schema.names:
        raise DataflowError(
            f"schema drift: expected the columns {schema.names}, got {batch.schema.names}; select or rename them before this step"
        )
    try:
        return pa.RecordBatch.from_arrays([c.cast(f.type) for c, f in zip(batch.columns, schema, strict=True)], schema=schema)
    except pa.ArrowInvalid as error:
        raise DataflowError(f"schema drift: expected {schema.to_string()!r}, got {batch.schema.to_string()!r}: {error}") from error
