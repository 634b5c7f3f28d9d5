"""Group-by over integer keys from a small range: the key is the place in an array, and no hash table is needed.

Ids, codes and buckets are mostly such keys. A table of a million groups costs 1.3 ns a row so, Arrow's hash table 24 to 45
(docs/performance.md); "perfect hash" aggregation in databases is the same idea. The results are those of Arrow's group-by, in the order
of the keys.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

ROWS_MIN = 1 << 10
"""Below this Arrow's group-by costs as little."""
RANGE_MAX = 1 << 24
"""Places in the array at most."""
ROWS_PER_PLACE = 4
"""The range may be this many times the number of rows: clearing and reading a place is that much cheaper than hashing a row."""


def _range(column: pa.Array | pa.ChunkedArray) -> tuple[int, int] | None:
    """The least and the greatest key of a column whose keys can be places."""
    kind = column.type
    if len(column) == 0 or column.null_count or not pa.types.is_integer(kind) or kind == pa.uint64():
        return None
    bounds = pc.min_max(column)
    return bounds["min"].as_py(), bounds["max"].as_py()


def has_dense_range(column: pa.Array | pa.ChunkedArray, rows: int) -> bool:
    """Whether keys as these are places in an array when there are ``rows`` of them."""
    bounds = _range(column)
    return bounds is not None and bounds[1] - bounds[0] < min(RANGE_MAX, ROWS_PER_PLACE * rows)


def dense_group(table: pa.Table, key: str, aggregations: list[Any]) -> list[pa.Array] | None:
    """The distinct keys in ascending order, then a column for each ``(column, function)``: sum, count, min or max of the values that are
    not null, or ``([], "count_all")``. None where keys or functions do not lend themselves to it.

    >>> table = pa.table({"k": [3, 1] * 1000, "v": [1, 2] * 1000})
    >>> [column.to_pylist() for column in dense_group(table, "k", [("v", "sum"), ([], "count_all")])]
    [[1, 3], [2000, 1000], [1000, 1000]]
    """
    if not all(_is_known(table, column, function) for column, function in aggregations):
        return None
    bounds = _range(table.column(key)) if table.num_rows >= ROWS_MIN else None
    if bounds is None or bounds[1] - bounds[0] >= min(RANGE_MAX, ROWS_PER_PLACE * table.num_rows):
        return None
    low, size = bounds[0], bounds[1] - bounds[0] + 1
    places = [chunk.to_numpy().astype(np.int64) - low for chunk in table.column(key).chunks]
    rows = _added(places, size, np.int64, [None] * len(places))
    present = np.flatnonzero(rows)
    counts: dict[str, Any] = {}
    out = [pa.array(present + low).cast(table.schema.field(key).type)]
    for column, function in aggregations:
        if function == "count_all":
            out.append(pa.array(rows[present]))
            continue
        chunks = table.column(column).chunks
        has_nulls = table.column(column).null_count > 0
        if has_nulls and column not in counts:
            valid = [chunk.is_valid().to_numpy(zero_copy_only=False).astype(np.int64) for chunk in chunks]
            counts[column] = _added(places, size, np.int64, valid)[present]
        count = counts[column] if has_nulls else rows[present]
        if function == "count":
            out.append(pa.array(count))
            continue
        made = _sums(places, size, chunks) if function == "sum" else _extremes(places, size, chunks, function)
        out.append(pa.array(made[present], mask=count == 0 if has_nulls else None))
    return out


def _is_known(table: pa.Table, column: Any, function: str) -> bool:
    if function in ("count_all", "count"):
        return True
    kind = table.schema.field(column).type
    if function == "sum":
        return bool(pa.types.is_integer(kind) or pa.types.is_float32(kind) or pa.types.is_float64(kind))
    return function in ("min", "max") and bool(pa.types.is_integer(kind))  # floats: NaN has rules of its own


def _values(chunk: pa.Array, neutral: int) -> Any:
    return (chunk.fill_null(neutral) if chunk.null_count else chunk).to_numpy()


def _added(places: list[Any], size: int, dtype: Any, values: list[Any]) -> Any:
    """Sums by place; None stands for ones."""
    out = np.zeros(size, dtype=dtype)
    for at, some in zip(places, values, strict=True):
        np.add.at(out, at, 1 if some is None else some)
    return out


def _sums(places: list[Any], size: int, chunks: list[pa.Array]) -> Any:
    kind = chunks[0].type
    dtype = np.float64 if pa.types.is_floating(kind) else np.uint64 if pa.types.is_unsigned_integer(kind) else np.int64
    return _added(places, size, dtype, [_values(chunk, 0).astype(dtype, copy=False) for chunk in chunks])


def _extremes(places: list[Any], size: int, chunks: list[pa.Array], function: str) -> Any:
    dtype = np.dtype(chunks[0].type.to_pandas_dtype())
    neutral = int(np.iinfo(dtype).max if function == "min" else np.iinfo(dtype).min)
    out = np.full(size, neutral, dtype=dtype)
    choose = np.minimum if function == "min" else np.maximum
    for at, chunk in zip(places, chunks, strict=True):
        choose.at(out, at, _values(chunk, neutral))
    return out
