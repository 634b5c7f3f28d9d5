"""Columnar state as bytes that stand for themselves, cut to the rows that it shows: what snapshots hold of batches and key columns.

A pickled slice of an Arrow array carries the whole buffers that it points into; an Arrow IPC stream carries the rows alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from rayad.progress import Timestamp

Stored: TypeAlias = list[pa.Buffer]
"""Arrow IPC streams."""


def stored(batches: Iterable[pa.RecordBatch]) -> Stored:
    """Batches, perhaps of several schemas, in their order.

    >>> batch = pa.record_batch({"a": range(100_000)}).slice(7, 2)
    >>> sum(part.size for part in stored([batch])) < 1_000
    True
    >>> [again.to_pydict() for again in taken_back(stored([batch, batch]))]
    [{'a': [7, 8]}, {'a': [7, 8]}]
    """
    out = []
    for _, group in groupby(batches, key=_SchemaKey):
        some = list(group)
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, some[0].schema) as writer:
            for batch in some:
                writer.write_batch(batch)
        out.append(sink.getvalue())
    return out


class _SchemaKey:
    """Equal for batches of one schema, metadata included: these can share a stream."""

    def __init__(self, batch: pa.RecordBatch) -> None:
        self.schema = batch.schema

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _SchemaKey) and bool(self.schema.equals(other.schema, check_metadata=True))

    __hash__ = None  # type: ignore[assignment]


def taken_back(parts: Stored) -> list[pa.RecordBatch]:
    """The inverse of :func:`stored`."""
    out: list[pa.RecordBatch] = []
    for part in parts:
        with pa.ipc.open_stream(part) as reader:
            out.extend(reader)
    return out


def stored_by_time(waiting: Mapping[Timestamp, Sequence[pa.RecordBatch]]) -> dict[Timestamp, Stored]:
    """Batches that wait for their times to be complete."""
    return {time: stored(batches) for time, batches in waiting.items()}


def taken_back_by_time(parts: Mapping[Timestamp, Stored]) -> dict[Timestamp, list[pa.RecordBatch]]:
    """The inverse of :func:`stored_by_time`."""
    return {time: taken_back(some) for time, some in parts.items()}


def stored_mixed(batches: Iterable[Any]) -> list[tuple[bool, Any]]:
    """Batches of rows and columns in their order: stretches of one kind, with whether they are columns."""
    stretches = groupby(batches, key=lambda batch: isinstance(batch, pa.RecordBatch))
    return [(columns, stored(some) if columns else list(some)) for columns, some in stretches]


def taken_back_mixed(parts: Iterable[tuple[bool, Any]]) -> list[Any]:
    """The inverse of :func:`stored_mixed`."""
    return [batch for columns, some in parts for batch in (taken_back(some) if columns else some)]


def narrow(values: Any) -> Any:
    """An int64 array in the smallest of int8, int16, int32 and int64 that holds its values.

    >>> narrow(np.array([3, -70_000])).dtype, narrow(np.array([1 << 40, -1])).dtype
    (dtype('int32'), dtype('int64'))
    """
    if not len(values):
        return values
    low, high = int(values.min()), int(values.max())
    for kind in (np.int8, np.int16, np.int32):
        if np.iinfo(kind).min <= low and high <= np.iinfo(kind).max:
            return values.astype(kind)
    return values
