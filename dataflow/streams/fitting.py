"""What is refused when the program is written because of types, where columns are known.

Each check asks what would run with two values of the type (``records.samples``): the aggregation, the hash of a key, the window. So a type
is refused here where its values would be refused later, as soon as two of them met, and nothing here says what goes with what.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from rayad.dataflow.logical_graph import LogicalGraph
from rayad.dataflow.operators.aggregates.aggregators import Aggregator
from rayad.dataflow.operators.aggregates.top_k import TopK
from rayad.dataflow.operators.keys.in_order import in_order
from rayad.dataflow.operators.keys.keyed import require_hashable
from rayad.dataflow.operators.windows.told_times import Side
from rayad.dataflow.records.event_times import event_time
from rayad.dataflow.records.key_hashing import stable_hash
from rayad.dataflow.records.samples import may_be_equal, samples
from rayad.dataflow.records.selectors import KeySelector, ValueSelector
from rayad.dataflow.records.users_line import users_line
from rayad.dataflow.streams.schemas import require_name, schema_of
from rayad.dataflow.windows import Between, Session, Sliding, Tumbling
from rayad.progress import DataflowError, show


def require_values(schema: pa.Schema | None, aggregator: Aggregator, value: ValueSelector, what: str, others: Sequence[str] = ()) -> None:
    """Raise DataflowError, with the user's line, where the type of the values is known and the aggregation has no answer for any of them.
    ``others``: the columns that are no values."""
    if isinstance(aggregator, TopK) and isinstance(aggregator.by, str) and value.is_record:
        require_order(schema, aggregator.by, f"{what} (by)")
    if schema is None or value.function is not None or not aggregator.takes_value:
        return
    names = [name for name in schema.names if name not in others] if value.column is None else [value.column]
    if len(names) != 1 or names[0] not in schema.names:
        return  # which others refuse
    (name,) = names
    values = samples(schema.field(name).type)
    why = aggregator.refusal(values)
    if why is not None:
        raise DataflowError(
            f"{_of_type(what, name, schema)}, for which {aggregator.name} has no answer: name another value, or a function of the "
            f"record that gives one; of {show(values[0], 60)} it says: {why}"
        )


def require_order(schema: pa.Schema | None, name: str, what: str) -> None:
    """Raise DataflowError, with the user's line, where the type of what orders records is known and none of its values has an order."""
    require_name(schema, name, what)
    if schema is not None:
        try:
            in_order(list(samples(schema.field(name).type)), lambda value: value, what)
        except DataflowError as error:
            raise DataflowError(f"{_of_type(what, name, schema)}: {error}") from error


def require_field(schema: pa.Schema | None, name: str, field: str, what: str) -> None:
    """Raise DataflowError, with the user's line, where a column is known and its values have no such field."""
    require_name(schema, name, what)
    kind = None if schema is None else schema.field(name).type
    if kind is not None and not (pa.types.is_struct(kind) and kind.get_field_index(field) >= 0):
        raise DataflowError(
            f"{what} at {users_line()} was given by={field!r} and value={name!r}: what is ordered is the value, which is {kind} and has no "
            f"field {field!r}; give by= as a function of the value, such as by=lambda value: value, or leave value= out"
        )


def require_keys(schema: pa.Schema | None, key: KeySelector) -> None:
    """Raise DataflowError, with the user's line, where the type of a key is known and none of its values can be a key."""
    if schema is None:
        return
    for name in key.columns:
        for value in samples(schema.field(name).type)[:1]:
            try:
                require_hashable(value)
                stable_hash(value)
            except DataflowError as error:
                raise DataflowError(f"{_of_type('key_by', name, schema)}: {error}") from error


def require_meeting(left: tuple[pa.Schema | None, KeySelector], right: tuple[pa.Schema | None, KeySelector], what: str) -> None:
    """Raise DataflowError, with the user's line, where the keys of two sides are known and none of the one equals any of the other."""
    (mine, key), (theirs, other) = left, right
    if not key.columns or not other.columns:
        return
    if len(key.columns) != len(other.columns):
        raise DataflowError(
            f"{what} at {users_line()}: the key of one side is {list(key.columns)}, that of the other {list(other.columns)}: keys with "
            "different numbers of columns are never equal; key both sides by as many"
        )
    for name, like in zip(key.columns, other.columns, strict=True):
        if mine is not None and theirs is not None and not may_be_equal(mine.field(name).type, theirs.field(like).type):
            raise DataflowError(
                f"{what} at {users_line()}: the key {name!r} of one side is {mine.field(name).type}, {like!r} of the other "
                f"{theirs.field(like).type}: values of these types are never equal; bring one to the other's type, for instance by "
                "with_columns({...: pc.field(...).cast(...)})"
            )


def require_moments(schema: pa.Schema | None, time: ValueSelector, what: str) -> None:
    """Raise DataflowError, with the user's line, where the type of the event times is known and none of its values is a moment."""
    _try_moments(schema, time, what, lambda moment: None)


def require_windows(graph: LogicalGraph, sides: Sequence[Side], windows: Any, what: str) -> None:
    """Raise DataflowError, with the user's line, where the type of event times is known and does not go with the windows' lengths."""
    for side in sides:
        schema = schema_of(graph, side.node, side.port)
        if isinstance(windows, (Tumbling, Sliding, Session)):
            _try_moments(schema, side.selector, what, windows.assign)
        elif isinstance(windows, Between):
            _try_moments(schema, side.selector, what, windows.scale.admit)


def _try_moments(schema: pa.Schema | None, time: ValueSelector, what: str, then: Callable[[Any], Any]) -> None:
    name = time.column
    if schema is None or name is None or name not in schema.names:
        return
    for value in samples(schema.field(name).type)[:1]:
        try:
            then(event_time(value, {name: value}))
        except DataflowError as error:
            raise DataflowError(f"{_of_type(what, name, schema)}: {error}") from error


def _of_type(what: str, name: str, schema: pa.Schema) -> str:
    return f"{what} at {users_line()}: the column {name!r} is {schema.field(name).type}"


__all__ = ["require_keys", "require_meeting", "require_moments", "require_values", "require_windows"]
