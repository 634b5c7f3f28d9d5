"""Parts of a plan for which DataFusion's Python interface has no names, out of the bytes that it writes (protobuf).

Of an aggregate these are the fields 3, its FILTER, and 4, its ORDER BY; of a term of an order 1, what is compared, 2, whether it ascends,
and 3, whether null comes first (``datafusion.proto``, of the version that ``pyproject.toml`` asks for; tests/sql compares what comes out).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

_FILTER, _ORDER = 3, 4
_OF_ORDER, _ASCENDING, _NULLS_FIRST = 1, 2, 3


def fields(message: bytes) -> Iterator[tuple[int, Any]]:
    """The fields of a message: numbers, and integers or bytes.

    >>> list(fields(bytes([0x08, 0x96, 0x01, 0x12, 0x01, 0x61])))
    [(1, 150), (2, b'a')]
    """
    at = 0
    while at < len(message):
        tag, at = _varint(message, at)
        match tag & 7:
            case 0:
                value, at = _varint(message, at)
                yield tag >> 3, value
            case 2:
                size, at = _varint(message, at)
                yield tag >> 3, message[at : at + size]
                at += size
            case kind:
                width = {1: 8, 5: 4}[kind]
                yield tag >> 3, message[at : at + width]
                at += width


def _varint(message: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = message[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value, at


def filter_and_order(aggregate: Any, expression_of: Any, context: Any) -> tuple[Any | None, list[tuple[Any, bool, bool]]]:
    """The FILTER of an aggregate, or None, and its ORDER BY: what is compared, whether it ascends, whether null comes first."""
    ((_, inner),) = fields(aggregate.to_bytes())
    condition, order = None, []
    for number, part in fields(inner):
        if number == _FILTER:
            condition = expression_of.from_bytes(part, context)
        elif number == _ORDER:
            term = dict(fields(part))
            order.append(
                (expression_of.from_bytes(term[_OF_ORDER], context), bool(term.get(_ASCENDING, 0)), bool(term.get(_NULLS_FIRST, 0)))
            )
    return condition, order


__all__ = ["fields", "filter_and_order"]
