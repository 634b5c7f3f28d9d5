"""Columnar state that stands for itself, cut to the rows that it shows: what snapshots hold of batches and key columns.

Batches never change, so a snapshot needs no copy of them: it keeps them until they are written. Small ones are put together, and a slice
is copied, because pickled it would carry the whole buffers that it points into.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable
from itertools import groupby
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

KEPT_BYTES_MIN = 1 << 16
"""Batches of at least this size are kept as they are; smaller ones are copied into one Arrow IPC stream."""
KEPT_WASTE_MAX = 1.25
"""How much larger the buffers of a batch may be than what it shows of them."""


class Unchanging:
    """A value which nothing changes any more: the memory of its columns, arrays and :class:`pickle.PickleBuffer` is written to a part
    without having been copied.

    >>> kept = Unchanging([pa.record_batch({"a": range(3)})])
    >>> pieces = []
    >>> data = pickle.dumps(kept, protocol=5, buffer_callback=pieces.append)
    >>> [piece.raw().readonly for piece in pieces], pickle.loads(data, buffers=pieces).value == kept.value
    ([True], True)
    """

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        buffers: list[pickle.PickleBuffer] = []
        data = pickle.dumps(self.value, protocol=5, buffer_callback=buffers.append if protocol >= 5 else None)
        return _unchanging, (data, *(out_of_band(buffer.raw().toreadonly()) for buffer in buffers))


def _unchanging(data: bytes, *buffers: Any) -> Unchanging:
    return Unchanging(pickle.loads(data, buffers=buffers))


def out_of_band(data: bytes | memoryview) -> pickle.PickleBuffer:
    """Bytes that are pickled beside the pickle. Between a PickleBuffer and a memoryview goes an Arrow buffer, because a garbage
    collection that finds the two in one cycle crashes Python before 3.12.7 (python/cpython#77894)."""
    return pickle.PickleBuffer(pa.py_buffer(data))


Stored: TypeAlias = list[Unchanging]
"""Batches, or an Arrow IPC stream."""


def stored(batches: Iterable[pa.RecordBatch]) -> Stored:
    """Batches, perhaps of several schemas, in their order.

    >>> batch = pa.record_batch({"a": range(100_000)}).slice(7, 2)
    >>> sum(part.value.size for part in stored([batch])) < 1_000
    True
    >>> [again.to_pydict() for again in taken_back(stored([batch, batch]))]
    [{'a': [7, 8]}, {'a': [7, 8]}]
    """
    out = []
    for kind, group in groupby(batches, key=_Kind):
        some = list(group)
        if kind.is_kept:
            out.append(Unchanging(some))
            continue
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, some[0].schema) as writer:
            for batch in some:
                writer.write_batch(batch)
        out.append(Unchanging(sink.getvalue()))
    return out


class _Kind:
    """Equal for batches that can be stored together: of one schema, metadata included, all to be kept or all to be copied."""

    def __init__(self, batch: pa.RecordBatch) -> None:
        self.schema = batch.schema
        size = batch.nbytes
        self.is_kept = size >= KEPT_BYTES_MIN and batch.get_total_buffer_size() <= KEPT_WASTE_MAX * size

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Kind) and self.is_kept == other.is_kept and bool(self.schema.equals(other.schema, check_metadata=True))

    __hash__ = None  # type: ignore[assignment]


def taken_back(parts: Stored) -> list[pa.RecordBatch]:
    """The inverse of :func:`stored`."""
    out: list[pa.RecordBatch] = []
    for part in parts:
        if isinstance(part.value, list):
            out.extend(part.value)
        else:
            with pa.ipc.open_stream(part.value) as reader:
                out.extend(reader)
    return out


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
