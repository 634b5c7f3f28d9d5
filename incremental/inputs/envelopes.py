"""Changes as Debezium has them: what a database's log says of a row, before and after, and which of both is there now.

Source: Debezium's documentation, "Change event values". ``op``: "c" create, "u" update, "d" delete, "r" read by a snapshot; "t" truncate;
"m" a message that is no row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rayad.dataflow.operators import stateless as el
from rayad.dataflow.records.batches import ROWS_KEY, to_rows
from rayad.dataflow.records.values import tuple_array
from rayad.incremental.columns.form import keyed_changes, normalised
from rayad.incremental.records import as_record
from rayad.incremental.steps import Field, Part
from rayad.progress import DataflowError, show

DEBEZIUM = "debezium"
ENVELOPES = (DEBEZIUM,)
Said = tuple[Any, bool, Any]
"""A row, whether it is gone, and what is compared to know the newest; None: nothing."""
ROW, GONE, ORDER = Part(0), Part(1), Part(2)
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
        if op == "m" or (op is None and inner.get("before") is None and inner.get("after") is None):
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


@dataclass(slots=True)
class BeginEnvelopes(el.Element):
    """What envelopes say of their rows, as changes with the key of the row.

    Args:
        key: of a row.
        order: of an envelope, what makes it the newer one; None: nothing.
    """

    base = "map"
    key: Callable[[Any], Any]
    order: Callable[[Any], Any] | None

    def apply(self, batch: Any) -> Any:
        columns = self._columns(batch) if isinstance(batch, pa.RecordBatch) else None
        if columns is not None:
            return columns
        said = Unwrapped(self.order)
        return [(as_record(self.key(row)), as_record((row, *more)), 1) for envelope in to_rows(batch) for row, *more in said(envelope)]

    def _columns(self, batch: pa.RecordBatch) -> pa.RecordBatch | None:
        """None: rows do it, which also say what is wrong."""
        if ROWS_KEY in (batch.schema.metadata or {}) or not isinstance(self.key, Field) or not isinstance(self.order, Field | None):
            return None
        envelopes = _inner(batch)
        if envelopes is None or not pa.types.is_string(envelopes["op"].type):
            return None
        op = envelopes["op"]
        is_gone, is_there = pc.equal(op, "d"), pc.is_in(op, pa.array(["c", "r", "u"]))
        said = pc.fill_null(pc.or_(is_gone, is_there), False)
        if pc.any(pc.invert(pc.or_(said, _say_nothing(envelopes)))).as_py():
            return None
        which = pa.array(np.flatnonzero(said.to_numpy(zero_copy_only=False)))
        if not len(which):
            return None
        gone = is_gone.take(which)
        row = _chosen(gone, *(None if side not in envelopes else envelopes[side].take(which) for side in ("before", "after")))
        order = pa.nulls(len(which)) if self.order is None else envelopes.get(self.order.name)
        if row is None or order is None or row.type.get_field_index(self.key.name) < 0:
            return None
        record, compared = normalised(row), normalised(order if self.order is None else order.take(which))
        if record is None or compared is None:
            return None
        key = record.field(self.key.name)
        return keyed_changes(key, tuple_array([record, gone, compared]), np.ones(len(which), np.int64))


def _inner(batch: pa.RecordBatch) -> dict[str, pa.Array] | None:
    """The columns of envelopes, or of those that are in ``payload``; None: there are none."""
    names = batch.schema.names
    if "op" not in names and "payload" in names and pa.types.is_struct(batch.schema.field("payload").type):
        payload = batch.column("payload")
        inner = dict(zip([field.name for field in payload.type], payload.flatten(), strict=True))
        return inner if "op" in inner else None
    return dict(zip(names, batch.columns, strict=True)) if "op" in names else None


def _say_nothing(envelopes: Mapping[str, pa.Array]) -> pa.Array:
    """Which are of no row: messages, and tombstones, of which all is null."""
    nothing = pc.is_null(envelopes["op"])
    for side in ("before", "after"):
        if side in envelopes:
            nothing = pc.and_(nothing, pc.is_null(envelopes[side]))
    return pc.or_(nothing, pc.fill_null(pc.equal(envelopes["op"], "m"), False))


def _chosen(gone: pa.Array, before: pa.Array | None, after: pa.Array | None) -> pa.Array | None:
    """Of each envelope the row that it is about, or None where one has none, or the two sides are of unlike columns."""
    if before is None or pa.types.is_null(before.type):
        row = after if not pc.any(gone).as_py() else None
    elif after is None or pa.types.is_null(after.type):
        row = before if pc.all(gone).as_py() else None
    else:
        row = pc.if_else(gone, before, after) if before.type.equals(after.type) else None
    return row if row is not None and pa.types.is_struct(row.type) and row.type.num_fields and not row.null_count else None


__all__ = ["DEBEZIUM", "ENVELOPES", "GONE", "ORDER", "ROW", "BeginEnvelopes", "Said", "Unwrapped"]
