"""Where items of arrays and maps begin, found one after the other in Python: for few messages with many items each.

It only looks for ends, so it makes no value. What it cannot follow it leaves to the readers, which say what is wrong.
"""

from __future__ import annotations

from rayad.integrations.avro.schemas import AvroType

WIDTHS = {"boolean": 1, "float": 4, "double": 8}
_LEVELS_MAX = 100


class Lost(Exception):
    """The bytes are not those of the type."""


def begins_of(kind: AvroType, data: memoryview, at: int, end: int, count: int) -> tuple[list[int], int]:
    """Where each of so many values begins, and where the last one ends. Raises :class:`Lost`.

    >>> begins_of(AvroType("string"), memoryview(bytes([2, 97, 4, 98, 99])), 0, 5, 2)
    ([0, 2], 5)
    """
    begins = []
    try:
        for _ in range(count):
            begins.append(at)
            at = _end_of(kind, data, at, 0)
            if at > end:
                raise Lost
    except IndexError:
        raise Lost from None
    return begins, at


def _long(data: memoryview, at: int) -> tuple[int, int]:
    byte = data[at]
    number, shift, at = byte & 0x7F, 7, at + 1
    while byte & 0x80:
        if shift > 63:
            raise Lost
        byte = data[at]
        number, shift, at = number | (byte & 0x7F) << shift, shift + 7, at + 1
    return (number >> 1) ^ -(number & 1), at


def _end_of(kind: AvroType, data: memoryview, at: int, level: int) -> int:
    if level > _LEVELS_MAX or at > len(data):
        raise Lost
    match kind.kind:
        case "int" | "long" | "enum":
            return _long(data, at)[1]
        case "string" | "bytes":
            size, at = _long(data, at)
            if size < 0:
                raise Lost
            return at + size
        case "record":
            for one in kind.fields:
                at = _end_of(one.type, data, at, level + 1)
            return at
        case "union":
            number, at = _long(data, at)
            if not 0 <= number < len(kind.inner):
                raise Lost
            return _end_of(kind.inner[number], data, at, level + 1)
        case "array" | "map":
            return _end_of_items(kind, data, at, level)
        case "null":
            return at
        case _:
            return at + (WIDTHS.get(kind.kind) or kind.size)


def _end_of_items(kind: AvroType, data: memoryview, at: int, level: int) -> int:
    while True:
        count, at = _long(data, at)
        if count < 0:
            count, at = -count, _long(data, at)[1]
        if not count:
            return at
        if count > len(data) - at:
            raise Lost
        for _ in range(count):
            if kind.kind == "map":
                size, at = _long(data, at)
                if size < 0:
                    raise Lost
                at += size
            at = _end_of(kind.inner[0], data, at, level + 1)


__all__ = ["WIDTHS", "Lost", "begins_of"]
