"""Rows as records, and in a fixed number of buckets: what needs all rows is then computed of each bucket first, and of what these give.

A change looks at its bucket and at the results of all, not at all rows. Equal rows are in one bucket, always and in every process.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rayad.dataflow.records.key_hashing import hash_values

BUCKETS = 256


def bucket(*columns: Any) -> pa.Array | pa.Scalar:
    """The number of the bucket of each row. Constants make no difference."""
    arrays = [column for column in columns if not isinstance(column, pa.Scalar)]
    if not arrays:
        return pa.scalar(0, pa.int64())
    record = pa.StructArray.from_arrays(arrays, names=[f"c{at}" for at in range(len(arrays))])
    return pa.array((hash_values(record) % np.uint64(BUCKETS)).astype(np.int64))


def record(*values: Any) -> pa.Array | pa.Scalar:
    """Values as fields of one record."""
    return pc.make_struct(*values, field_names=[f"d{at}" for at in range(len(values))])


ROWS = {"bucket": bucket, "record": record}
"""By name."""

__all__ = ["BUCKETS", "ROWS"]
