"""Columns of logical types from the numbers and bytes that they stand on, and back: dates, times, moments, decimals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.types as pat

_DAY = {"ms": 86_400_000, "us": 86_400_000_000}


class OutOfRange(ValueError):
    """A value is none of its logical type. ``at``: its place in the column."""

    def __init__(self, told: str, at: int) -> None:
        super().__init__(told)
        self.at = at


def as_logical(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """A column of numbers or bytes without nulls as one of ``kind``. Raises :class:`OutOfRange`."""
    if pat.is_decimal(kind):
        return _as_decimals(column.cast(pa.large_binary()), kind)
    if pat.is_time(kind):
        numbers = column.to_numpy()
        odd = (numbers < 0) | (numbers >= _DAY[kind.unit])
        if odd.any():
            at = int(np.argmax(odd))
            raise OutOfRange(f"{numbers[at]} {kind.unit} is no time of a day", at)
    return column.view(kind) if pat.is_date(kind) or pat.is_time32(kind) else column.cast(kind)


def _as_decimals(column: pa.LargeBinaryArray, kind: pa.DataType) -> pa.Array:
    """Numbers in two's complement, the highest byte first, of any length."""
    width, count = kind.byte_width, len(column)
    _, offsets, data = column.buffers()
    ends = np.frombuffer(offsets, np.int64, count + 1, 8 * column.offset) if count else np.zeros(1, np.int64)
    held = np.frombuffer(data, np.uint8) if data is not None and data.size else np.zeros(1, np.uint8)
    sizes = np.diff(ends)
    sign = np.where(sizes > 0, held.take(ends[:-1], mode="clip") >> 7, 0).astype(np.uint8) * np.uint8(0xFF)
    place = np.arange(width)
    made = held.take(ends[1:, None] - 1 - place, mode="clip")  # the lowest byte first
    made = np.where(place < sizes[:, None], made, sign[:, None])
    odd = (made[:, -1] ^ sign) & 0x80 != 0
    for at in np.flatnonzero(sizes > width).tolist():  # bytes beyond the width say nothing but the sign
        more = held[ends[at] : ends[at + 1] - width]
        odd[at] |= bool((more != sign[at]).any())
    if odd.any():
        raise OutOfRange(f"a number has more digits than {kind}", int(np.argmax(odd)))
    out = pa.Array.from_buffers(kind, count, [None, pa.py_buffer(np.ascontiguousarray(made))])
    try:
        out.validate(full=True)
    except pa.ArrowInvalid as error:
        at = next(at for at in range(count) if not _is_whole(out.slice(at, 1)))
        raise OutOfRange(f"a number has more digits than {kind}", at) from error
    return out


def _is_whole(one: pa.Array) -> bool:
    try:
        one.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def as_plain(column: pa.Array) -> pa.Array:
    """The numbers of a column of dates, times or moments."""
    return column.view(pa.int32() if column.type.bit_width == 32 else pa.int64())


def bytes_of_decimals(column: pa.Array) -> Any:
    """Two's complement of decimals without nulls, the highest byte first: a row of bytes each, and how many of them, from the end, say
    all."""
    width, count = column.type.byte_width, len(column)
    data = column.buffers()[1]
    held = np.frombuffer(data, np.uint8, count * width, column.offset * width).reshape(count, width)[:, ::-1] if count else None
    if held is None:
        return np.zeros((0, width), np.uint8), np.zeros(0, np.int64)
    sign = (held[:, :1] >> 7) * np.uint8(0xFF)
    needed = held != sign  # bytes that are no mere extension of the sign
    first = np.where(needed.any(axis=1), needed.argmax(axis=1), width - 1)
    first -= ((held[np.arange(count), first] ^ sign[:, 0]) & 0x80 != 0) & (first > 0)  # the sign's bit has to be there
    return held, width - first


__all__ = ["OutOfRange", "as_logical", "as_plain", "bytes_of_decimals"]
