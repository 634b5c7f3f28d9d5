"""Batches as bytes: a timestamp, then a list of Python objects or an Arrow RecordBatch.

    format u8 | depth u8 | 6 zero bytes | epoch i64 | depth counters i64 | body

The head is a multiple of 8 bytes, so the body is as aligned as the buffer that holds it.  Bodies:

- ROWS: a pickle, protocol 5, of the list.  Plain pickle where it works, else cloudpickle (lambdas, local classes).  What refers to
  `__main__` always takes cloudpickle: in the receiving process `__main__` is another module, and plain pickle would store only the name.
- COLUMNS: length of the schema, padded schema message, record batch message (Arrow IPC).  The schema is parsed once per process.
- STREAM: a whole Arrow IPC stream: for schemas with dictionaries, and for large batches, whose columns are handed to the socket as they
  are, without a copy.

Every body is self-contained: it can be logged, spilled and replayed.  Decoded columns point into the received buffer.
Of a slice only its own rows are written.  Pickles in here come from authenticated peers of the same job or from verified snapshots only.
"""

from __future__ import annotations

import pickle
import struct
from collections.abc import Sequence
from functools import lru_cache
from itertools import repeat
from sys import getsizeof
from typing import Any, TypeAlias

import cloudpickle  # type: ignore[import-untyped]
import pyarrow as pa

from rayad.progress import DataflowError, ProtocolError, Timestamp, say

Batch: TypeAlias = "list[Any] | pa.RecordBatch"

ROWS, COLUMNS, STREAM = 1, 2, 3
ZERO_COPY_BYTES_MIN = 64 * 1024
"""Columns of smaller batches are copied into one buffer: cheaper than many parts."""
ALIGNMENT = 8
ROWS_JOIN_BYTES_MAX = 4096
COUNTERS_MAX = 255

_HEAD = struct.Struct("<BB6xq")
_HEAD_1 = struct.Struct("<BB6xqq")
_LENGTH = struct.Struct("<II")
_dumps = pickle.dumps
_loads = pickle.loads
_of = Timestamp.of


def encode_batch(time: Timestamp, batch: Batch) -> list[bytes | memoryview]:
    """Give the parts of a frame's payload.  The parts of a large columnar batch refer to its columns: they must not change.

    Raises DataflowError when a record cannot be pickled (it names the record) or the time does not fit.
    """
    if isinstance(batch, list):
        try:
            data = _dumps(batch, 5)
            if b"__main__" in data:
                data = cloudpickle.dumps(batch, 5)
        except Exception:
            data = _dumps_fallback(batch)
        head = _encode_head(ROWS, time)
        return [head + data] if len(data) <= ROWS_JOIN_BYTES_MAX else [head, data]
    if isinstance(batch, pa.RecordBatch):
        return _encode_columns(time, batch)
    raise DataflowError(
        f"a batch at {time} is a {type(batch).__name__}: it must be a list of records or a pyarrow.RecordBatch; "
        "for a Table, send table.combine_chunks().to_batches() one by one"
    )


def decode_batch(buffer: bytes | bytearray | memoryview) -> tuple[Timestamp, Batch]:
    """Give the time and the batch.  Columns point into `buffer` and keep it alive; records are new objects."""
    view = memoryview(buffer)
    try:
        kind, depth, epoch = _HEAD.unpack_from(view)
        if depth == 0:
            time, at = _of(epoch, ()), 16
        elif depth == 1:
            time, at = _of(epoch, (_HEAD_1.unpack_from(view)[3],)), 24
        else:
            time, at = _of(epoch, struct.unpack_from(f"<{depth}q", view, 16)), 16 + 8 * depth
    except struct.error:
        raise ProtocolError(f"a batch of {len(view)} bytes ends inside its head; it was not made by encode_batch") from None
    if kind == ROWS:
        records: Batch = _loads(view[at:])
        return time, records
    if kind == COLUMNS:
        schema_bytes, _ = _LENGTH.unpack_from(view, at)
        at += _LENGTH.size
        schema = _parse_schema(bytes(view[at : at + schema_bytes]))
        return time, pa.ipc.read_record_batch(_aligned(view[at + schema_bytes :]), schema)
    if kind == STREAM:
        return time, pa.ipc.open_stream(_aligned(view[at:])).read_next_batch()
    raise ProtocolError(f"a batch of {len(view)} bytes at {time} has format {kind}: {ROWS}, {COLUMNS} and {STREAM} are known")


def _aligned(view: memoryview) -> pa.Buffer:
    """As Arrow wants columns to lie. A batch that was on disk behind others lies anywhere: Arrow would compute with it more slowly, and
    complain to stderr."""
    buffer = pa.py_buffer(view)
    return pa.py_buffer(bytes(view)) if buffer.address % ALIGNMENT else buffer


def payload_bytes(parts: Sequence[bytes | memoryview]) -> int:
    """Bytes of an encoded batch, as its receiver counts them."""
    return sum(part.nbytes if isinstance(part, memoryview) else len(part) for part in parts)


def batch_time(buffer: bytes | bytearray | memoryview) -> Timestamp:
    """Give the time of an encoded batch without decoding its records."""
    _, depth, epoch = _HEAD.unpack_from(buffer)
    return _of(epoch, struct.unpack_from(f"<{depth}q", buffer, 16))


def batch_len(batch: Batch) -> int:
    """Give the number of records.

    >>> batch_len(["a", "b"])
    2
    """
    return len(batch) if isinstance(batch, list) else int(batch.num_rows)


_OTHERWISE = repeat(64)
"""Assumed bytes of an object whose size is not known."""


def batch_bytes(batch: Batch) -> int:
    """Estimate the memory of a batch in bytes, cheaply: exact for columns, extrapolated from at most three records for rows."""
    if not isinstance(batch, list):
        return int(batch.nbytes)
    count = len(batch)
    if count < 2:
        return 8 + _record_bytes(batch[0]) if count else 0
    return count * (8 + (_record_bytes(batch[0]) + _record_bytes(batch[count // 2]) + _record_bytes(batch[-1])) // 3)


def _record_bytes(record: object) -> int:
    if isinstance(record, (tuple, list)):
        parts = sum(map(getsizeof, record[:8], _OTHERWISE))
        return getsizeof(record, 64) + (parts if len(record) < 16 else parts * (len(record) // 8))
    return getsizeof(record, 64)


def _encode_head(kind: int, time: Timestamp) -> bytes:
    epoch, counters = time
    try:
        if not counters:
            return _HEAD.pack(kind, 0, epoch)
        if len(counters) == 1:
            return _HEAD_1.pack(kind, 1, epoch, counters[0])
        return _HEAD.pack(kind, len(counters), epoch) + struct.pack(f"<{len(counters)}q", *counters)
    except struct.error:
        raise DataflowError(
            f"cannot send a batch at {time}: the epoch and each of at most {COUNTERS_MAX} counters must be an integer below 2**63"
        ) from None


def _dumps_fallback(batch: list[Any]) -> bytes:
    try:
        return bytes(cloudpickle.dumps(batch, 5))
    except Exception as error:
        cause = error
    for index, record in enumerate(batch):
        try:
            cloudpickle.dumps(record, 5)
        except Exception as error:
            kind = type(record)
            raise DataflowError(
                f"record {index} of {len(batch)} in a batch cannot be sent: a {kind.__module__}.{kind.__qualname__} cannot be pickled "
                f"({type(error).__name__}: {say(error)}); send its data, not handles such as files, sockets, locks or generators",
                index=index,
                record_type=f"{kind.__module__}.{kind.__qualname__}",
            ) from error
    raise DataflowError(f"a batch of {len(batch)} records cannot be pickled, though each record alone can: {cause}") from cause


# -- columns -----------------------------------------------------------------------------------------------------------------------


def _encode_columns(time: Timestamp, batch: pa.RecordBatch) -> list[bytes | memoryview]:
    schema = batch.schema
    message = _schema_message(_SchemaKey(schema))
    if message is None or _spans_at_least(batch, ZERO_COPY_BYTES_MIN):
        return _encode_stream(time, batch)
    body = batch.serialize()
    return [_encode_head(COLUMNS, time) + message, memoryview(body)] if body.size > 4096 else [
        b"".join((_encode_head(COLUMNS, time), message, memoryview(body)))
    ]  # fmt: skip


def _encode_stream(time: Timestamp, batch: pa.RecordBatch) -> list[bytes | memoryview]:
    sink = _PartsSink()
    sink.parts.append(_encode_head(STREAM, time))
    with pa.ipc.new_stream(pa.PythonFile(sink, mode="w"), batch.schema) as writer:
        writer.write_batch(batch)
    return sink.joined()


class _PartsSink:
    """A file for Arrow to write to that keeps references to the columns' buffers instead of copying them."""

    closed = False

    def __init__(self) -> None:
        self.parts: list[bytes | memoryview] = []
        self.position = 0

    def write(self, data: bytes | pa.Buffer) -> int:
        size = len(data)
        self.position += size
        if size:
            self.parts.append(data if isinstance(data, bytes) else memoryview(data).cast("B"))
        return size

    def tell(self) -> int:
        return self.position

    def flush(self) -> None:
        pass

    def close(self) -> None:
        pass

    def joined(self) -> list[bytes | memoryview]:
        """Give the parts, small neighbours joined."""
        joined: list[bytes | memoryview] = []
        small: list[bytes | memoryview] = []
        for part in self.parts:
            if len(part) <= ROWS_JOIN_BYTES_MAX:
                small.append(part)
            else:
                if small:
                    joined.append(b"".join(small))
                    small = []
                joined.append(part)
        if small:
            joined.append(b"".join(small))
        return joined


class _SchemaKey:
    """A schema as a key that also compares the metadata, which `==` on schemas leaves out."""

    __slots__ = ("_hash", "schema")

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema
        self._hash = hash(tuple(schema))  # pyarrow 21 cannot hash a schema that has metadata

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _SchemaKey) and bool(self.schema.equals(other.schema, check_metadata=True))


@lru_cache(maxsize=256)
def _schema_message(key: _SchemaKey) -> bytes | None:
    """Give length and schema message, padded to 8 bytes; None for a schema with dictionaries, whose values travel in a stream."""
    if any(_has_dictionary(field.type) for field in key.schema):
        return None
    message = bytes(key.schema.serialize())
    message += bytes(-len(message) % 8)
    return _LENGTH.pack(len(message), 0) + message


@lru_cache(maxsize=256)
def _parse_schema(message: bytes) -> pa.Schema:
    return pa.ipc.read_schema(pa.py_buffer(message))


def _has_dictionary(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind):
        return True
    if isinstance(kind, pa.BaseExtensionType):
        return _has_dictionary(kind.storage_type)
    if pa.types.is_run_end_encoded(kind):
        return _has_dictionary(kind.value_type)
    return any(_has_dictionary(kind.field(index).type) for index in range(kind.num_fields))


def _spans_at_least(batch: pa.RecordBatch, size: int) -> bool:
    """Say whether the batch itself, not its parents' buffers, has at least `size` bytes; most batches are decided by their length."""
    rows = batch.num_rows
    if rows == 0:
        return False
    return bool(batch.get_total_buffer_size() >= size and batch.nbytes >= size)


__all__: Sequence[str] = [
    "Batch", "batch_bytes", "batch_len", "batch_time", "decode_batch", "encode_batch", "payload_bytes",
]  # fmt: skip
