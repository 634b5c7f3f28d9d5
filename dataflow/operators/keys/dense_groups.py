"""Group-by over integer keys from a small range: the key is the place in an array, and no hash table is needed.

Ids, codes and buckets are mostly such keys. With a thousand to a million groups a row takes 2.4 to 13 ns so, in Arrow's hash
table 5 to 63 (``python -m benchmarks kernels``, docs/benchmarks.md); "perfect hash" aggregation in databases is the same idea. The results
are those of Arrow's group-by, in the order of the keys.
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
PIECE_ROWS = 1 << 15
"""Rows are taken in pieces whose arrays stay in the cache."""
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
    rows = np.zeros(size, dtype=np.int64)
    nullable = {column for column, function in aggregations if function != "count_all" and table.column(column).null_count}
    counts = {column: np.zeros(size, dtype=np.int64) for column in nullable}
    made = {(column, function): _start(table.schema.field(column).type, function, size) for column, function in aggregations
            if function in ("sum", "min", "max")}  # fmt: skip
    for piece in table.to_batches(max_chunksize=PIECE_ROWS):
        at = piece.column(key).to_numpy()
        if low or at.dtype != np.int64:
            at = np.subtract(at, low, dtype=np.int64)
        np.add.at(rows, at, 1)
        for column, count in counts.items():
            np.add.at(count, at, piece.column(column).is_valid().to_numpy(zero_copy_only=False).astype(np.int64))
        for (column, function), totals in made.items():
            _ADD[function].at(totals, at, _values(piece.column(column), totals.dtype, function))
    present = np.flatnonzero(rows)
    out = [pa.array(present + low).cast(table.schema.field(key).type)]
    for column, function in aggregations:
        if function == "count_all" or (function == "count" and column not in counts):
            out.append(pa.array(rows[present]))
        elif function == "count":
            out.append(pa.array(counts[column][present]))
        else:
            empty = counts[column][present] == 0 if column in counts else None
            out.append(pa.array(made[column, function][present], mask=empty))
    return out


def _is_known(table: pa.Table, column: Any, function: str) -> bool:
    if function in ("count_all", "count"):
        return True
    kind = table.schema.field(column).type
    if function == "sum":
        return bool(pa.types.is_integer(kind) or pa.types.is_float32(kind) or pa.types.is_float64(kind))
    return function in ("min", "max") and bool(pa.types.is_integer(kind))  # floats: NaN has rules of its own


_ADD: dict[str, Any] = {"sum": np.add, "min": np.minimum, "max": np.maximum}


def _start(kind: pa.DataType, function: str, size: int) -> Any:
    """Totals before the first row, in the type that Arrow gives."""
    if function == "sum":
        return np.zeros(size, np.float64 if pa.types.is_floating(kind) else np.uint64 if pa.types.is_unsigned_integer(kind) else np.int64)
    dtype = np.dtype(kind.to_pandas_dtype())
    return np.full(size, _neutral(dtype, function), dtype=dtype)


def _neutral(dtype: Any, function: str) -> int:
    if function == "sum":
        return 0
    return int(np.iinfo(dtype).max if function == "min" else np.iinfo(dtype).min)


def _values(column: pa.Array, dtype: Any, function: str) -> Any:
    return (column.fill_null(_neutral(dtype, function)) if column.null_count else column).to_numpy().astype(dtype, copy=False)
