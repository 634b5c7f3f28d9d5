"""Reads numbers, texts and bytes of Avro from many messages at once: the same field of all of them in one step.

A cursor knows of each message how far it has been read. All is numpy: a message costs no Python object. What lies behind the end of a
message is never used; a message that is too short, or whose numbers cannot be, raises :class:`Malformed`, which names it.

Source: Apache Avro 1.12, "Binary encoding".
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

Rows = np.ndarray[Any, Any]
"""Numbers of messages, which may be there more than once in no call."""
_VARINT_BYTES_MAX = 10
_BYTES_MAX = (1 << 31) - 1
"""The longest text or bytes, as in Java's library; what says that it is longer is damaged."""


class Malformed(ValueError):
    """A message is not what the schema says. ``row``: its number."""

    def __init__(self, told: str, row: int) -> None:
        super().__init__(told)
        self.row = row


class Cursor:
    """How far each message of a batch has been read.

    Args:
        messages: a column of large binary without nulls.
        skip: so many bytes of each are behind us.
    """

    def __init__(self, messages: pa.LargeBinaryArray, skip: int = 0) -> None:
        _, offsets, data = messages.buffers()
        ends = np.frombuffer(offsets, np.int64, len(messages) + 1, 8 * messages.offset) if offsets is not None else np.zeros(1, np.int64)
        given = np.frombuffer(data, np.uint8) if data is not None else np.zeros(0, np.uint8)
        self.data = given if len(given) else np.zeros(1, np.uint8)
        self.position = ends[:-1] + skip
        self._ends_of_longs: Rows | None = None
        self.end = ends[1:]

    def all_rows(self) -> Rows:
        """All messages."""
        return np.arange(len(self.position))

    def longs(self, rows: Rows) -> Rows:
        """The next int or long of each of these messages."""
        at = self.position[rows]
        byte = self.data.take(at, mode="clip")
        at += 1
        low = (byte & 0x7F).astype(np.uint64)
        more = np.flatnonzero(byte & 0x80)
        for number in range(1, _VARINT_BYTES_MAX):
            if not len(more):
                break
            byte = self.data.take(at[more], mode="clip")
            at[more] += 1
            if number == _VARINT_BYTES_MAX - 1 and (byte > 1).any():
                # of a message that has ended, these bytes are not its own
                self._advance(rows, at)
                self._refuse(rows[more], byte > 1, "a number has more than 64 bits")
            low[more] |= (byte & 0x7F).astype(np.uint64) << np.uint64(7 * number)
            more = more[np.flatnonzero(byte & 0x80)]
        self._advance(rows, at)
        return (low >> np.uint64(1)).astype(np.int64) ^ -(low & np.uint64(1)).astype(np.int64)

    def ints(self, rows: Rows) -> Rows:
        """The next int of each, as 64 bits."""
        numbers = self.longs(rows)
        self._refuse(rows, (numbers < -(1 << 31)) | (numbers >= 1 << 31), "an int has more than 32 bits")
        return numbers

    def sizes(self, rows: Rows) -> Rows:
        """The next long of each, which is a number of bytes."""
        sizes = self.longs(rows)
        self._refuse(rows, (sizes < 0) | (sizes > _BYTES_MAX), "a text or bytes has a negative length, or one of more than 2 GiB")
        return sizes

    def fixed(self, rows: Rows, size: int) -> Rows:
        """The next ``size`` bytes of each: one row of bytes a message."""
        at = self.position[rows]
        self._advance(rows, at + size)
        return self.data.take(at[:, None] + np.arange(size), mode="clip")

    def skip(self, rows: Rows, sizes: Any) -> Rows:
        """Go on by so many bytes; gives where these begin."""
        at = self.position[rows]
        self._advance(rows, at + sizes)
        return at

    def strings(self, rows: Rows) -> pa.LargeBinaryArray:
        """The next bytes or text of each."""
        sizes = self.sizes(rows)
        begins = self.skip(rows, sizes)
        offsets = np.zeros(len(rows) + 1, np.int64)
        np.cumsum(sizes, out=offsets[1:])
        taken = self.data[np.repeat(begins - offsets[:-1], sizes) + np.arange(offsets[-1])]
        return pa.LargeBinaryArray.from_buffers(pa.large_binary(), len(rows), [None, pa.py_buffer(offsets), pa.py_buffer(taken)])

    def begins_of_longs(self, rows: Rows, counts: Rows, places: Rows) -> Rows:
        """Where each of so many ints or longs of each message begins; the cursor is behind them. ``places``: 0 to n - 1 of each.

        A number ends with the first byte whose high bit is not set. So the k-th number from here begins behind the k-th such byte.
        """
        if self._ends_of_longs is None:
            self._ends_of_longs = np.flatnonzero(self.data < 0x80)
        ends, at = self._ends_of_longs, self.position[rows]
        first = ends.searchsorted(at)
        last = first + counts - 1
        self._refuse(rows, last >= len(ends), "its bytes end before its value does: it was written with another schema, or is damaged")
        self._advance(rows, ends[last] + 1)
        before = ends.take(np.repeat(first, counts) + places - 1, mode="clip") + 1
        return np.where(places == 0, np.repeat(at, counts), before)

    def of_items(self, begins: Rows, owners: Rows) -> ItemCursor:
        """A cursor over items of these messages, each of which is a message of its own."""
        return ItemCursor(self, begins, owners)

    def require_end(self) -> None:
        """Raise :class:`Malformed` where a message has more bytes than were read."""
        rest = self.end - self.position
        self._refuse(self.all_rows(), rest > 0, "its value ends before its bytes do: it was written with another schema, or is damaged")

    def refuse(self, rows: Rows, odd: Any, told: str) -> None:
        """Raise :class:`Malformed` for the first of the messages that is odd."""
        self._refuse(rows, odd, told)

    def _advance(self, rows: Rows, to: Rows) -> None:
        self._refuse(rows, to > self.end[rows], "its bytes end before its value does: it was written with another schema, or is damaged")
        self.position[rows] = to

    def _refuse(self, rows: Rows, odd: Any, told: str) -> None:
        if odd.any():
            raise Malformed(told, int(rows[int(np.argmax(odd))]))


class ItemCursor(Cursor):
    """A cursor over items, each of which is read as a message of its own. ``owners``: the messages that have them."""

    def __init__(self, of: Cursor, begins: Rows, owners: Rows) -> None:
        self.__dict__.update(of.__dict__)
        self.position, self.end = begins, of.end[owners]
        self._owned_by = owners

    def told_of(self, read: Callable[[Cursor, Rows], Any]) -> Any:
        """What ``read`` gives of all items; what it raises names the messages that they are in."""
        try:
            return read(self, self.all_rows())
        except Malformed as error:
            raise Malformed(str(error), int(self._owned_by[error.row])) from error


__all__ = ["Cursor", "Malformed", "Rows"]
