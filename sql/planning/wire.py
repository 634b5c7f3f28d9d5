"""Parts of a plan for which DataFusion's Python interface has no names, out of the bytes that it writes (protobuf).

An expression is one field, whose number says what it is. Of an aggregate these are the fields 3, its FILTER, and 4, its ORDER BY; of a term
of an order 1, what is compared, 2, whether it ascends, and 3, whether null comes first (``datafusion.proto``, of the version that
``pyproject.toml`` asks for; tests/sql compares what comes out).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

_FILTER, _ORDER = 3, 4
_GROUPING_SETS, _CUBE, _ROLLUP, _ILIKE = 22, 23, 24, 32
_OF_LIST = 1
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


def filter_and_order(aggregate: Any, of_bytes: Any) -> tuple[Any | None, list[tuple[Any, bool, bool]]]:
    """The FILTER of an aggregate, or None, and its ORDER BY: what is compared, whether it ascends, whether null comes first."""
    condition: Any | None = None
    order: list[tuple[Any, bool, bool]] = []
    if " FILTER (" not in aggregate.canonical_name() and " ORDER BY [" not in aggregate.canonical_name():
        return condition, order  # DataFusion writes no columns of a query around
    ((_, inner),) = fields(aggregate.to_bytes())
    for number, part in fields(inner):
        if number == _FILTER:
            condition = of_bytes(part)
        elif number == _ORDER:
            term = dict(fields(part))
            order.append((of_bytes(term[_OF_ORDER]), bool(term.get(_ASCENDING, 0)), bool(term.get(_NULLS_FIRST, 0))))
    return condition, order


def is_ilike(like: Any) -> bool:
    """Whether a LIKE ignores case."""
    name, value = like.canonical_name(), like.to_variant().expr().canonical_name()
    if name.startswith(value):
        return bool(name[len(value) :].lstrip().removeprefix("NOT ").startswith("ILIKE"))
    ((number, _),) = fields(like.to_bytes())
    return number == _ILIKE


def grouping_sets(given: Any, of_bytes: Any) -> list[list[Any]]:
    """The keys of each grouping set of GROUPING SETS, CUBE or ROLLUP."""
    ((number, inner),) = fields(given.to_bytes())
    parts = [part for at, part in fields(inner) if at == _OF_LIST]
    if number == _GROUPING_SETS:
        return [[of_bytes(one) for at, one in fields(part) if at == _OF_LIST] for part in parts]
    keys = [of_bytes(part) for part in parts]
    if number == _ROLLUP:
        return [keys[:count] for count in range(len(keys), -1, -1)]
    return [[key for at, key in enumerate(keys) if not bits >> at & 1] for bits in range(1 << len(keys))]


__all__ = ["fields", "filter_and_order", "grouping_sets", "is_ilike"]
