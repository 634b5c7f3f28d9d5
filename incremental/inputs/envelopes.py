"""Changes as Debezium has them: what a database's log says of a row, before and after, and which of both is there now.

Source: Debezium's documentation, "Change event values". ``op``: "c" create, "u" update, "d" delete, "r" read by a snapshot; "t" truncate;
"m" a message that is no row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from rayad.incremental.records import as_record
from rayad.progress import DataflowError, show

DEBEZIUM = "debezium"
ENVELOPES = (DEBEZIUM,)
Said = tuple[Any, bool, Any]
"""A row, whether it is gone, and what is compared to know the newest; None: nothing."""
_SIDES = {"c": "after", "r": "after", "u": "after", "d": "before"}


@dataclass(frozen=True, slots=True)
class Unwrapped:
    """What an envelope says of its row.

    Args:
        order: of the envelope, what makes it the newer one; None: nothing.

    >>> list(Unwrapped(None)({"op": "u", "before": {"id": 1, "n": 1}, "after": {"id": 1, "n": 2}}))
    [({'id': 1, 'n': 2}, False, None)]
    >>> list(Unwrapped(None)({"payload": {"op": "d", "before": {"id": 1}, "after": None}})), list(Unwrapped(None)(None))
    ([({'id': 1}, True, None)], [])
    """

    order: Callable[[Any], Any] | None

    def __call__(self, envelope: Any) -> Iterator[Said]:
        if envelope is None:
            return  # a tombstone, which follows a deletion, for the compaction of a topic
        inner = envelope["payload"] if isinstance(envelope, Mapping) and "op" not in envelope and "payload" in envelope else envelope
        if inner is None:
            return
        if not isinstance(inner, Mapping) or "op" not in inner:
            raise DataflowError(
                f"as_collection(envelope='debezium') was given {show(envelope, 120)}: it takes dicts with the fields op, before and after, "
                "or such in the field payload"
            )
        op = inner["op"]
        if op == "m":
            return
        side = _SIDES.get(op) if isinstance(op, str) else None
        if side is None:
            raise DataflowError(
                f"as_collection(envelope='debezium') was given op={show(op)}: c, r, u and d are of rows; of a table that is truncated (t) "
                "it does not say which rows go: let the connector leave it out (skipped.operations), or filter it out and start anew"
            )
        row = inner.get(side)
        if row is None:
            raise DataflowError(
                f"as_collection(envelope='debezium'): the field {side!r} of an envelope with op={show(op)} is missing, {show(inner, 120)}: "
                "let the database log it (in PostgreSQL REPLICA IDENTITY, in MySQL binlog_row_image=FULL)"
            )
        yield as_record(row), op == "d", None if self.order is None else self.order(inner)


@dataclass(frozen=True, slots=True)
class OfRow:
    """A function of the row of what was said."""

    function: Callable[[Any], Any]

    def __call__(self, said: Said) -> Any:
        return self.function(said[0])


def row_of(said: Said) -> Any:
    """The row."""
    return said[0]


def is_gone(said: Said) -> bool:
    """Whether it is gone."""
    return said[1]


def order_of(said: Said) -> Any:
    """What is compared."""
    return said[2]


__all__ = ["DEBEZIUM", "ENVELOPES", "OfRow", "Said", "Unwrapped", "is_gone", "order_of", "row_of"]
