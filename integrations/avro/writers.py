"""Messages of Avro from columns: each field of all records at once, as a column of bytes; those of a record are joined."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rayad.integrations.avro.logical import as_plain, bytes_of_decimals
from rayad.integrations.avro.schemas import AvroType
from rayad.integrations.avro.types import alternatives
from rayad.progress import show

_BYTES = pa.large_binary()
_join = functools.partial(pc.binary_join_element_wise, null_handling="emit_null")


def written(kind: AvroType, column: pa.Array, where: str) -> pa.Array:
    """The bytes of each value of a column of the type that ``column_type(kind)`` gives.

    Raises ValueError for a null where the schema has none, and for a value that its type does not hold.

    >>> written(AvroType("long"), pa.array([0, -1, 64]), "example").to_pylist()
    [b'\\x00', b'\\x01', b'\\x80\\x01']
    """
    some, has_nulls = alternatives(kind, where)
    if kind.kind != "union":
        if column.null_count and kind.kind != "null":
            raise ValueError(f"{where} is null, and its schema has no null there: {kind.told()}")
        return _written(some, column, where)
    null_at = next((at for at, one in enumerate(kind.inner) if one.kind == "null"), None)
    if column.null_count and null_at is None:
        raise ValueError(f"{where} is null, and its schema has no null there: {kind.told()}")
    if some.kind == "null":
        return _same(_number(null_at or 0), len(column))
    number = next(at for at, one in enumerate(kind.inner) if one is some)
    there = column.drop_null() if column.null_count else column
    made = joined(_same(_number(number), len(there)), _written(some, there, where))
    if not column.null_count or not has_nulls or null_at is None:
        return made
    valid = column.is_valid().to_numpy(zero_copy_only=False)
    at = np.cumsum(valid) - 1
    return pc.fill_null(made.take(pa.array(at, mask=~valid)), pa.scalar(_number(null_at), _BYTES))


def _written(kind: AvroType, column: pa.Array, where: str) -> pa.Array:
    match kind.kind:
        case "null":
            return _same(b"", len(column))
        case "boolean":
            return _cells(column.cast(pa.uint8()).to_numpy()[:, None])
        case "int" | "long":
            return longs(as_plain(column).to_numpy() if kind.logical else column.to_numpy())
        case "float":
            return _cells(column.to_numpy().astype("<f4").view(np.uint8).reshape(len(column), 4))
        case "double":
            return _cells(column.to_numpy().astype("<f8").view(np.uint8).reshape(len(column), 8))
        case "enum":
            return _symbols(kind, column, where)
        case "fixed":
            return _decimals_of_size(kind, column, where) if kind.logical else column.cast(_BYTES)
        case "bytes" | "string":
            return _with_sizes(_decimals(column) if kind.logical else column.cast(_BYTES))
        case "array":
            return _blocks(column, written(kind.inner[0], column.flatten(), f"{where}[]"))
        case "map":
            return _blocks(column, _pairs(kind, column, where))
        case _:
            parts = [written(one.type, inner, f"{where}.{one.name}") for one, inner in zip(kind.fields, column.flatten(), strict=True)]
            return joined(*parts)


def longs(numbers: Any) -> pa.Array:
    """Numbers in zigzag, in groups of 7 bits, the lowest first."""
    wide = numbers.astype(np.int64)
    left = ((wide << 1) ^ (wide >> 63)).view(np.uint64)
    widest = max(1, (int(left.max(initial=0)).bit_length() + 6) // 7)
    groups = left[:, None] >> (np.uint64(7) * np.arange(widest, dtype=np.uint64))
    sizes = np.maximum((groups != 0).sum(axis=1), 1)
    held = (groups & np.uint64(0x7F)).astype(np.uint8)
    place = np.arange(widest)
    held |= (place < sizes[:, None] - 1).astype(np.uint8) << 7
    return _of_sizes(held[place < sizes[:, None]], sizes)


def _of_sizes(held: Any, sizes: Any) -> pa.Array:
    offsets = np.zeros(len(sizes) + 1, np.int64)
    np.cumsum(sizes, out=offsets[1:])
    return pa.LargeBinaryArray.from_buffers(_BYTES, len(sizes), [None, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(held))])


def _cells(held: Any) -> pa.Array:
    """A row of bytes each."""
    return _of_sizes(held.ravel(), np.full(len(held), held.shape[1]))


def _same(value: bytes, count: int) -> pa.Array:
    return _of_sizes(np.tile(np.frombuffer(value, np.uint8), count), np.full(count, len(value)))


def _number(number: int) -> bytes:
    return longs(np.array([number]))[0].as_py()  # type: ignore[no-any-return]


def joined(*parts: Any) -> pa.Array:
    """Bytes behind each other."""
    return _join(*parts, pa.scalar(b"", _BYTES)) if len(parts) > 1 else parts[0]


def _with_sizes(column: pa.Array) -> pa.Array:
    return joined(longs(pc.binary_length(column).to_numpy()), column)


def _symbols(kind: AvroType, column: pa.Array, where: str) -> pa.Array:
    at = pc.index_in(column, pa.array(kind.symbols, pa.string()))
    if at.null_count:
        odd = column.filter(at.is_null())[0].as_py()
        raise ValueError(f"{where} is {show(odd, 60)}, which is no symbol of {kind.told()}: {show(list(kind.symbols), 120)}")
    return longs(at.to_numpy())


def _decimals(column: pa.Array) -> pa.Array:
    held, sizes = bytes_of_decimals(column)
    width = held.shape[1]
    return _of_sizes(held[np.arange(width) >= width - sizes[:, None]], sizes)


def _decimals_of_size(kind: AvroType, column: pa.Array, where: str) -> pa.Array:
    held, sizes = bytes_of_decimals(column)
    odd = sizes > kind.size
    if odd.any():
        raise ValueError(f"{where} is {column[int(np.argmax(odd))].as_py()}, which has no place in {kind.size} bytes: {kind.told()}")
    more = max(0, kind.size - held.shape[1])
    wide = np.concatenate([np.repeat((held[:, :1] >> 7) * np.uint8(0xFF), more, axis=1), held], axis=1)
    return _cells(wide[:, wide.shape[1] - kind.size :])


def _pairs(kind: AvroType, column: pa.MapArray, where: str) -> pa.Array:
    offsets = column.offsets.to_numpy()
    begin, count = int(offsets[0]), int(offsets[-1] - offsets[0])
    keys, values = column.keys.slice(begin, count), column.items.slice(begin, count)
    return joined(_with_sizes(keys.cast(_BYTES)), written(kind.inner[0], values, f"{where}[]"))


def _blocks(lists: pa.Array, items: pa.Array) -> pa.Array:
    """All items of a list in one block, and the end behind it."""
    counts = np.diff(lists.offsets.to_numpy()).astype(np.int64)
    sizes = pc.binary_length(items).to_numpy()
    ends = np.concatenate([[0], np.cumsum(sizes)])
    owned = np.concatenate([[0], np.cumsum(counts)])
    held = items.buffers()[2]
    data = np.frombuffer(held, np.uint8) if held is not None and held.size else np.zeros(0, np.uint8)
    begin = int(np.frombuffer(items.buffers()[1], np.int64, 1, 8 * items.offset)[0]) if len(items) else 0
    whole = _of_sizes(data[begin : begin + ends[-1]], np.diff(ends[owned]))
    numbers = longs(counts)
    return pc.if_else(pa.array(counts == 0), pa.scalar(b"\0", _BYTES), joined(numbers, whole, _same(b"\0", len(counts))))


__all__ = ["joined", "longs", "written"]
