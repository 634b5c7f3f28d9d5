"""Pairs of a join as columns: what they are made of, and which columns go together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from rayad.dataflow.operators.keys.column_keys import common_type
from rayad.dataflow.operators.keys.key_first import record_of
from rayad.dataflow.operators.keys.keyed import distinct_names
from rayad.dataflow.operators.results import pair_array
from rayad.dataflow.records.batches import keyed_columns, mark_keyed


class NotColumnar(Exception):
    """These columns do not go together as columns: the join goes on with rows."""


def joined_batch(
    left: pa.RecordBatch, right: pa.RecordBatch, schemas: Any, between: tuple[tuple[str, pa.Array], ...] = ()
) -> pa.RecordBatch:
    """Rows that have met: the left side's key columns, ``between``, and the column ``pair``."""
    keys = keyed_columns(schemas[0]) or 0
    right_names = schemas[1].names[: keyed_columns(schemas[1]) or 0]
    pairs = pair_array(record_of(left, schemas[0]), record_of(right, schemas[1]), right_names)
    labels = distinct_names(schemas[0].names[:keys], [*(name for name, _ in between), "pair"])
    columns = [*left.columns[:keys], *(column for _, column in between), pairs]
    return mark_keyed(pa.RecordBatch.from_arrays(columns, names=labels), keys)


def alone_batch(side: int, batch: pa.RecordBatch, schemas: Any, between: tuple[tuple[str, pa.Array], ...] = ()) -> pa.RecordBatch:
    """Records of one side as pairs without the other, as :func:`joined_batch` has them. Raises NotColumnar where the right side's keys
    are none of the type that the left side's have."""
    schema, other = schemas[side], schemas[1 - side]
    keys = keyed_columns(schema) or 0
    columns = batch.columns[:keys]
    if other is not None and side == 1:
        try:
            columns = [column.cast(other.field(i).type) for i, column in enumerate(columns)]
        except pa.ArrowInvalid as error:
            raise NotColumnar from error
    missing = pa.schema([]) if other is None else record_of(pa.RecordBatch.from_pylist([], schema=other), other).schema
    records = record_of(batch, schema)
    sides = (records, missing) if side == 0 else (missing, records)
    named, right = (other or schema, schema) if side == 1 else (schema, other)
    pairs = pair_array(*sides, [] if right is None else right.names[:keys])
    labels = distinct_names(named.names[:keys], [*(name for name, _ in between), "pair"])
    return mark_keyed(pa.RecordBatch.from_arrays([*columns, *(column for _, column in between), pairs], names=labels), keys)


def common_schema(side: int, batches: Sequence[pa.RecordBatch], schemas: Any, *, moments: bool) -> pa.Schema:
    """The schema of these batches of a side. Raises NotColumnar unless they go together with each other and with what is known of both
    sides: keys, and ``moments``, which are behind them."""
    known = schemas[side] or batches[0].schema
    keys = keyed_columns(known) or 0
    if any(not b.schema.equals(known, check_metadata=True) for b in batches):
        raise NotColumnar
    other = schemas[1 - side]
    if other is not None and (
        keys != keyed_columns(other)
        or any(common_type(known.field(i).type, other.field(i).type) is None for i in range(keys))
        or (moments and not known.field(keys).type.equals(other.field(keys).type))
    ):
        raise NotColumnar
    return known


__all__ = ["NotColumnar", "alone_batch", "common_schema", "joined_batch"]
