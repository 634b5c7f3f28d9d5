"""The one step without state that all of a query's expressions run in: changes in, a condition, columns computed, changes out.

Records between the operators of a query have fields ``c0``, ``c1``, ... of known types, so that rows, which some operators give, become the
columns that they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rayad.dataflow.operators import stateless as el
from rayad.dataflow.records.batches import to_rows
from rayad.dataflow.records.exact import Inexact, array_of
from rayad.dataflow.records.values import tuple_array
from rayad.incremental.columns.form import DIFF, RECORD, changes, is_changes, keyed_changes, normalised
from rayad.progress import DataflowError, show
from rayad.sql.values.casts import cast
from rayad.sql.values.expressions import Column, Expression, Frame

NOTHING = "nothing"
"""The field of a record that has no columns."""


def names_of(count: int, prefix: str = "c") -> tuple[str, ...]:
    """The fields of a record between operators.

    >>> names_of(2)
    ('c0', 'c1')
    """
    return tuple(f"{prefix}{at}" for at in range(count)) or (NOTHING,)


@dataclass(frozen=True, slots=True)
class Leaf:
    """A column of what comes.

    Args:
        path: of fields, from the outside in; the parts of a tuple are "0", "1", ...
        kind: its type.
    """

    path: tuple[str, ...]
    kind: pa.DataType

    def of_columns(self, record: pa.Array) -> pa.Array:
        """Out of records in columns: null where what it is in is null."""
        column = record
        for name in self.path:
            if pa.types.is_null(column.type):
                return pa.nulls(len(record), self.kind)
            at = column.type.get_field_index(name) if pa.types.is_struct(column.type) else -1
            if at < 0:
                raise DataflowError(f"a record of the type {show(str(record.type), 200)} has no field {'.'.join(self.path)!r}")
            column = column.flatten()[at] if column.null_count else column.field(at)
        return cast(column, self.kind)

    def of_rows(self, records: Sequence[Any]) -> pa.Array:
        """Out of records in rows. Raises DataflowError where one has no such field, or a value that the type does not hold."""
        values = [self._of(record) for record in records]
        try:
            return array_of(values, self.kind, ".".join(self.path))
        except Inexact as error:
            raise DataflowError(str(error)) from error

    def _of(self, record: Any) -> Any:
        value = record
        for name in self.path:
            if value is None:
                return None
            try:
                value = value[int(name)] if isinstance(value, tuple) else value[name]
            except (KeyError, IndexError, TypeError, ValueError):
                raise DataflowError(f"{show(record, 120)} has no field {name!r}, which its schema says") from None
        return value


@dataclass(frozen=True, slots=True)
class Key:
    """What records are keyed by.

    Args:
        columns: expressions and their types.
        nulls_meet: whether null is equal to null. Else a key with null in it meets nothing in a join.
    """

    columns: tuple[tuple[Expression, pa.DataType], ...]
    nulls_meet: bool = False


@dataclass(slots=True)
class Computed(el.Element):
    """Records as expressions make them.

    Args:
        told: of which query, for errors.
        leaves: the columns that come.
        outputs: what leaves, and its types.
        names: of the fields that leave.
        condition: which records are kept; None: all.
        key: what they are keyed by; None: they are not.
    """

    base = "sql"
    can_repeat = True

    told: str
    leaves: tuple[Leaf, ...]
    outputs: tuple[tuple[Expression, pa.DataType], ...]
    names: tuple[str, ...]
    condition: Expression | None = None
    key: Key | None = None

    def apply(self, batch: Any) -> Any:
        try:
            return self._applied(batch)
        except (pa.ArrowException, OverflowError, DataflowError) as error:
            raise DataflowError(f"{self.told}: {error}") from error

    def culprit(self, batch: Any) -> Any:
        return None

    def _applied(self, batch: Any) -> Any:
        if is_changes(batch):
            record, diff = batch.column(RECORD), batch.column(DIFF)
            columns = [leaf.of_columns(record) for leaf in self.leaves]
        else:
            rows = to_rows(batch)
            if not rows:
                return []
            records, diff = [record for record, _ in rows], pa.array([weight for _, weight in rows], pa.int64())
            columns = [leaf.of_rows(records) for leaf in self.leaves]
        frame = Frame(columns, len(diff))
        if self.condition is not None:
            holds = pc.fill_null(self.condition.array(frame, pa.bool_()), False).to_numpy(zero_copy_only=False)
            if not holds.any():
                return []
            if not holds.all():
                at = np.flatnonzero(holds)
                frame, diff = frame.taken(at), diff.take(pa.array(at))
        record = self._struct([(expression.array(frame, kind)) for expression, kind in self.outputs], frame.rows)
        if self.key is None:
            return changes(record, diff)
        return keyed_changes(self._key(self.key, frame), record, diff)

    def _struct(self, arrays: list[pa.Array], rows: int) -> pa.Array:
        made = arrays or [pa.repeat(pa.scalar(False), rows)]
        return _normalised(pa.StructArray.from_arrays(made, names=list(self.names)))

    def _key(self, key: Key, frame: Frame) -> pa.Array:
        parts = [_normalised(expression.array(frame, kind)) for expression, kind in key.columns]
        if not parts:
            parts = [pa.repeat(pa.scalar(0, pa.int8()), frame.rows)]
        return pa.StructArray.from_arrays(parts, names=list(names_of(len(parts), "k"))) if key.nulls_meet else tuple_array(parts)


def _normalised(column: pa.Array) -> pa.Array:
    found = normalised(column)
    if found is None:
        raise DataflowError(f"columns of the type {column.type} are not supported in SQL")
    return found


def leaves_of(kinds: Sequence[pa.DataType], *path: str, prefix: str = "c") -> tuple[Leaf, ...]:
    """The columns of a record of these types, which is found at a path."""
    return tuple(Leaf((*path, name), kind) for name, kind in zip(names_of(len(kinds), prefix), kinds, strict=False))


def columns_of(kinds: Sequence[pa.DataType], start: int = 0) -> tuple[tuple[Expression, pa.DataType], ...]:
    """Columns as they are, from this number on."""
    return tuple((Column(start + at), kind) for at, kind in enumerate(kinds))


__all__ = ["NOTHING", "Computed", "Key", "Leaf", "columns_of", "leaves_of", "names_of"]
