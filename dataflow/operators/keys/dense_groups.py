"""Group-by over integer keys from a small range: the key is the place in an array, and no hash table is needed.

Ids, codes and buckets are mostly such keys. With a thousand to a million groups a row takes 2.4 to 13 ns so, in Arrow's hash
table 5 to 63 (``python -m benchmarks kernels``, docs/benchmarks.md); "perfect hash" aggregation in databases is the same idea. The results
are those of Arrow's group-by, in the order of the keys.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rayad.dataflow.operators.keys.group_functions import GroupFunction

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


def dense_group(table: pa.Table, key: str, aggregations: Sequence[tuple[str | None, GroupFunction]]) -> list[pa.Array] | None:
    """The distinct keys in ascending order, then a column for each ``(column, function)``; the column is None for ``COUNT_ROWS``.
    None where keys or functions do not lend themselves to it.

    >>> from rayad.dataflow.operators.keys.group_functions import COUNT_ROWS, SUM
    >>> table = pa.table({"k": [3, 1] * 1000, "v": [1, 2] * 1000})
    >>> [column.to_pylist() for column in dense_group(table, "k", [("v", SUM), (None, COUNT_ROWS)])]
    [[1, 3], [2000, 1000], [1000, 1000]]
    """
    kinds: dict[str | None, pa.DataType] = {column: table.schema.field(column).type for column, _ in aggregations if column is not None}
    if not all(function.is_dense(kinds.get(column)) for column, function in aggregations):
        return None
    bounds = _range(table.column(key)) if table.num_rows >= ROWS_MIN else None
    if bounds is None or bounds[1] - bounds[0] >= min(RANGE_MAX, ROWS_PER_PLACE * table.num_rows):
        return None
    low, size = bounds[0], bounds[1] - bounds[0] + 1
    rows = np.zeros(size, dtype=np.int64)
    valid: dict[str | None, Any] = {column: np.zeros(size, dtype=np.int64) for column in kinds if table.column(column).null_count}
    folded: dict[Any, Any] = {}
    for column, function in aggregations:
        if column is not None and function.fold is not None and (column, function) not in folded:
            dtype = function.dense_dtype(kinds[column])
            folded[column, function] = np.full(size, function.neutral(dtype), dtype=dtype)
    for piece in table.to_batches(max_chunksize=PIECE_ROWS):
        at = piece.column(key).to_numpy()
        if low or at.dtype != np.int64:
            at = np.subtract(at, low, dtype=np.int64)
        np.add.at(rows, at, 1)
        for column, count in valid.items():
            np.add.at(count, at, piece.column(column).is_valid().to_numpy(zero_copy_only=False).astype(np.int64))
        for (column, function), totals in folded.items():
            values = piece.column(column)
            values = values.fill_null(function.neutral(totals.dtype)) if values.null_count else values
            function.fold.at(totals, at, values.to_numpy().astype(totals.dtype, copy=False))
    present = np.flatnonzero(rows != 0)  # of integers it takes ten times as long
    out = [pa.array(present + low).cast(table.schema.field(key).type)]
    for column, function in aggregations:
        count, totals = valid.get(column), folded.get((column, function))
        out.append(function.dense(rows[present], count if count is None else count[present], totals if totals is None else totals[present]))
    return out
