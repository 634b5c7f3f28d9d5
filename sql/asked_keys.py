"""Which keys alone a query can read rows of, where its conditions say so: then these are read, instead of whole tables.

DataFusion plans the query over the columns that its tables had, so conditions are where they belong: through joins, subqueries and UNION,
beside each scan of a table, and with literals of the columns' own types. The query is executed over what was read with all its conditions,
so rows that are read in vain do no harm; what matters is that none is left out.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any

import pyarrow as pa
import pyarrow.types as pat

from rayad.dataflow.operators.state.tables import KEY, KEY_FIELD, PICKLED, RECORDS
from rayad.dataflow.records.values import Row
from rayad.sql.asking import rows_of
from rayad.sql.planning.planner import context

MOST_KEYS = 10_000
"""Where conditions leave more keys than these, tables are read whole."""

_SURE: tuple[tuple[Callable[[pa.DataType], bool], type], ...] = (
    (pat.is_boolean, bool),
    (pat.is_integer, int),
    (pat.is_string, str),
    (pat.is_large_string, str),
    (pat.is_binary, bytes),
    (pat.is_large_binary, bytes),
    (pat.is_date32, dt.date),
)
"""Types of keys of which equal in SQL is equal in Python, and the class of their values."""

Wanted = dict[str, frozenset[Any]]
"""By column the values of which it has one where a condition is true."""


@dataclass(frozen=True, slots=True)
class _Key:
    """The key of a table: in which columns of SQL it is, and what makes it of their values."""

    columns: tuple[str, ...]
    made: Callable[..., Any]


def keys_of_query(query: str, tables: Mapping[str, pa.Schema]) -> dict[str, tuple[Any, ...]]:
    """The keys of which rows are wanted, by table; tables of which any row may be are left out, and all where the query has an error.

    Args:
        query: in SQL.
        tables: what a scan of each table gives.

    >>> counts = pa.schema([("key", pa.string()), ("count", pa.int64())])
    >>> keys_of_query("select count from counts where key = 'tea' and count > 1", {"counts": counts})
    {'counts': ('tea',)}
    >>> keys_of_query("select count from counts where key <> 'tea'", {"counts": counts})
    {}
    """
    keys = {name: key for name, schema in tables.items() if (key := _key_of(schema)) is not None}
    if not keys:
        return {}
    planning = context()
    try:
        for name, schema in tables.items():
            shown = rows_of(schema.empty_table()).schema
            planning.register_record_batches(f'"{name}"', [[pa.RecordBatch.from_pylist([], shown)]])
        plan = planning.sql(query).optimized_logical_plan()
    except Exception:  # what is wrong is told when the query is run
        return {}
    found: dict[str, set[Any] | None] = {}
    scans = list(_scans(plan, {}))
    if len(scans) != plan.display_indent().count("TableScan: "):
        return {}  # some are inside expressions
    for name, wanted in scans:
        if name in keys and (more := _keys(keys[name], wanted)) is not None:
            some = found.setdefault(name, set())
            if some is not None:
                some |= more
        else:
            found[name] = None
    return {name: tuple(some) for name, some in found.items() if some and len(some) <= MOST_KEYS}


def _key_of(schema: pa.Schema) -> _Key | None:
    """The key of a scanned table, if equal in SQL is equal in Python for it, and nothing else is called as its columns."""
    names = [name for name in schema.names if name.startswith(KEY)]
    values = schema.field("value").type if "value" in schema.names else None
    fields = [field.name for field in values] if values is not None and pat.is_struct(values) else []
    if schema.names[:1] == [KEY]:
        key = schema.field(KEY)
        metadata = key.metadata or {}
        if metadata.items() >= RECORDS.items():
            columns = [(field.name, field.type) for field in key.type]
            made: Callable[..., Any] = lambda *values: Row(zip(key.type.names, values, strict=True))  # noqa: E731
        elif KEY_FIELD in metadata:
            columns, made = [(metadata[KEY_FIELD].decode(), key.type)], lambda value: value
            fields = []
        else:
            columns, made = [] if metadata.items() >= PICKLED.items() else [(KEY, key.type)], lambda value: value
    else:
        names = [name for name in names if name.removeprefix(KEY).isdigit()]
        columns, made = [(name, schema.field(name).type) for name in names], lambda *values: values
        if any((schema.field(name).metadata or {}).items() >= PICKLED.items() for name in names):
            columns = []
    is_sure = columns and all(_class_of(kind) is not None and name not in fields for name, kind in columns)
    return _Key(tuple(name for name, _ in columns), made) if is_sure else None


def _class_of(kind: pa.DataType) -> type | None:
    return next((cls for holds, cls in _SURE if holds(kind)), None)


def _keys(key: _Key, wanted: Wanted) -> set[Any] | None:
    """The keys that a scan wants; None: any."""
    if not all(wanted.get(column) for column in key.columns):
        return None
    return {key.made(*values) for values in product(*(wanted[column] for column in key.columns))}


def _scans(plan: Any, wanted: Wanted) -> Iterator[tuple[str, Wanted]]:
    """Each scan of a plan: its table, and what the conditions right above it say."""
    variant = plan.to_variant()
    kind = type(variant).__name__
    if kind == "TableScan":
        yield variant.table_name(), wanted
        return
    above = _both(wanted, _wanted(variant.predicate())) if kind == "Filter" else {}
    for part in plan.inputs():
        yield from _scans(part, above)


def _wanted(condition: Any) -> Wanted:
    """What columns have where a condition is true."""
    variant = condition.to_variant()
    match type(variant).__name__:
        case "BinaryExpr":
            left, right, operator = variant.left(), variant.right(), variant.op()
            if operator == "AND":
                return _both(_wanted(left), _wanted(right))
            if operator == "OR":
                one, other = _wanted(left), _wanted(right)
                return {column: one[column] | other[column] for column in one.keys() & other.keys()}
            if operator == "=":
                return _one_of(left, [right]) or _one_of(right, [left])
        case "InList" if not variant.negated():
            return _one_of(variant.expr(), variant.list())
    return {}


def _one_of(column: Any, literals: list[Any]) -> Wanted:
    if column.variant_name() != "Column" or any(literal.variant_name() != "Literal" for literal in literals):
        return {}
    values = [literal.python_value() for literal in literals]
    values = [value.as_py() if isinstance(value, pa.Scalar) else value for value in values]
    kinds = {type(value) for value in values}
    if len(kinds) != 1 or not kinds <= {cls for _, cls in _SURE}:
        return {}
    return {column.to_variant().name(): frozenset(values)}


def _both(one: Wanted, other: Wanted) -> Wanted:
    return {column: one.get(column, some) & other.get(column, some) for column, some in {**other, **one}.items()}


__all__ = ["keys_of_query"]
