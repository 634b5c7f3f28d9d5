"""State as tables: what a collection keeps as keys with columns beside them, those as Arrow, and the way back.

A key is the column ``key``; keys that are tuples of one length are ``key0``, ``key1`` ... A column ``time`` of timestamps is shown as
``epoch`` (and ``counters``, where there are any), a column ``window`` as ``window_start`` and ``window_end``. Any other value is what Arrow
makes of it where that is exact, by the rules of ``records.exact``; a tuple is a struct whose fields are called ``0``, ``1`` ..., a dict a
struct, a record of a collection a struct whose field says so, and what Arrow does not hold is pickled, which its field says. So whatever
is kept comes back (docs/decisions/051-state-as-tables.md).
"""

from __future__ import annotations

import datetime as dt
import pickle
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal
from itertools import chain, islice
from typing import Any, Protocol, TypeAlias

import cloudpickle  # type: ignore[import-untyped]
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat

from rayad.dataflow.records.batches import one_array
from rayad.dataflow.records.exact import Inexact, array_of, needs_look, require_python
from rayad.dataflow.records.moments import moments
from rayad.dataflow.records.values import Row, fields_of, is_tuple
from rayad.dataflow.records.values import values_of as python_values
from rayad.dataflow.windows import Window
from rayad.progress import DataflowError, Timestamp

KEY, TIME, WINDOW = "key", "time", "window"
CHECKED = ".present"
"""The vertex that checks removals of a live collection, and so has the records that are there, is called as the collection, and this."""
PICKLED = {b"rayad.pickled": b"1"}
"""The metadata of a field whose values are pickled."""
KEY_FIELD = b"rayad.key_field"
"""In the metadata of a key: the field of the records that is the key."""
RECORDS = {b"rayad.records": b"1"}
"""The metadata of a field whose values are records of a collection: dicts that are keys, too, and whose fields have no order."""
_PLAIN = frozenset({int, float, bool, str, bytes, dt.date, dt.datetime, dt.time, dt.timedelta, Decimal})


Values: TypeAlias = Sequence[Any] | pa.Array
"""Values of Python, or a column in which tuples and records are structs as ``records.values`` has them, without windows."""


@dataclass(frozen=True, slots=True)
class Entries:
    """What a collection keeps: a key for each entry, and columns of the same length by name."""

    keys: Values
    columns: Mapping[str, Values]

    @staticmethod
    def together(parts: Sequence[Entries]) -> Entries:
        """Those of several replicas of a vertex.

        >>> Entries.together([Entries(["a"], {"value": [1]}), Entries(["b"], {"value": [2]})])
        Entries(keys=['a', 'b'], columns={'value': [1, 2]})
        """
        names = parts[0].columns
        return Entries(_joined([part.keys for part in parts]), {name: _joined([part.columns[name] for part in parts]) for name in names})

    def where(self, rows: Sequence[int]) -> Entries:
        """Those at these positions."""
        return Entries(_at(self.keys, rows), {name: _at(values, rows) for name, values in self.columns.items()})

    def in_python(self) -> Entries:
        """The same, without columns of Arrow."""
        return Entries(_listed(self.keys), {name: _listed(values) for name, values in self.columns.items()})


def _joined(parts: Sequence[Values]) -> Values:
    columns = [part for part in parts if isinstance(part, pa.Array)]
    if columns and len(columns) == len(parts) and all(column.type.equals(columns[0].type) for column in columns):
        return columns[0] if len(columns) == 1 else pa.concat_arrays(columns)
    return list(chain.from_iterable(_listed(part) for part in parts))


def _at(values: Values, rows: Sequence[int]) -> Values:
    return values.take(pa.array(rows, pa.int64())) if isinstance(values, pa.Array) else [values[row] for row in rows]


def _listed(values: Values) -> Sequence[Any]:
    return python_values(values) if isinstance(values, pa.Array) else values


class Opening(Protocol):
    """How a value that is kept becomes columns."""

    state_columns: tuple[str, ...]
    """What they are called."""

    def opened(self, values: list[Any]) -> list[list[Any]]:
        """Values as columns."""

    def closed(self, columns: Sequence[Sequence[Any]]) -> list[Any]:
        """The inverse of :meth:`opened`."""


class Whole:
    """A value is one column."""

    def __init__(self, name: str = "value") -> None:
        self.state_columns: tuple[str, ...] = (name,)

    def opened(self, values: list[Any]) -> list[list[Any]]:
        return [values]

    def closed(self, columns: Sequence[Sequence[Any]]) -> list[Any]:
        return list(columns[0])


def entries_of_dict(kept: Mapping[Any, Any], opening: Opening) -> dict[str, Entries]:
    """A dict by key as the one table of a state."""
    columns = opening.opened(list(kept.values()))
    return {"": Entries(list(kept), dict(zip(opening.state_columns, columns, strict=True)))}


def dict_of_entries(entries: Entries, opening: Opening) -> dict[Any, Any]:
    """The inverse of :func:`entries_of_dict`. Raises DataflowError where a key is there twice."""
    values = opening.closed([entries.columns[name] for name in opening.state_columns])
    out = dict(zip(entries.keys, values, strict=True))
    if len(out) < len(values):
        seen: set[Any] = set()
        twice = next(key for key in entries.keys if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise DataflowError(f"a table of state has {len(values)} rows and {len(out)} keys, the key {twice!r} twice: one row for each key")
    return out


# -- to Arrow --------------------------------------------------------------------------------------


def table_of(entries: Entries, known: pa.Schema | None = None) -> pa.Table:
    """Entries as a table; columns that are ``known`` have those types, where these hold the values.

    >>> table_of(Entries([("a", 1)], {"time": [Timestamp(3)], "value": [(2, "x")]})).to_pylist()
    [{'key0': 'a', 'key1': 1, 'epoch': 3, 'value': {'0': 2, '1': 'x'}}]
    """
    known = known if known is not None else pa.schema([])
    columns = _key_columns(entries.keys)
    for name, values in entries.columns.items():
        if isinstance(values, pa.Array):
            columns[name] = values
        elif name == TIME:
            columns["epoch"] = [time.epoch for time in values]
            if any(time.counters for time in values):
                columns["counters"] = [list(time.counters) for time in values]
        elif name == WINDOW:
            columns["window_start"] = [window.start for window in values]
            columns["window_end"] = [window.end for window in values]
        else:
            columns[name] = values
    if not len(entries.keys):
        columns = {**{name: [] for name in known.names}, **{name: [] for name in columns if name != KEY or not known.names}}
    made = [column_of(values, name, known.field(name) if name in known.names else None) for name, values in columns.items()]
    return pa.Table.from_arrays([array for array, _ in made], schema=pa.schema([field for _, field in made]))


def _key_columns(keys: Values) -> dict[str, Values]:
    if isinstance(keys, pa.Array):
        parts = fields_of(keys) if is_tuple(keys.type) and not keys.null_count else None
        return {KEY: keys} if parts is None else {f"{KEY}{at}": part for at, part in enumerate(parts)}
    if keys and set(map(type, keys)) == {tuple} and len(set(map(len, keys))) == 1 and keys[0]:
        return {f"{KEY}{at}": part for at, part in enumerate(zip(*keys, strict=True))}
    return {KEY: keys}


def _told(array: pa.Array, name: str, known: pa.Field | None) -> tuple[pa.Array, pa.Field]:
    """A column, which says where it has records; of the type of ``known`` where nothing but nulls is known of a part of it."""
    if known is not None and not array.type.equals(known.type):
        with suppress(pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError):
            array = _filled(array, known.type)
    if not pat.is_struct(array.type):
        return array, pa.field(name, array.type, metadata=None if known is None else known.metadata)
    made = _struct_of([_told(part, field.name, None) for part, field in zip(fields_of(array), array.type, strict=True)], array.is_null())
    return made, pa.field(name, made.type, metadata=None if is_tuple(array.type) else RECORDS)


def _filled(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """A column with another type where it has nothing but nulls. Raises ArrowInvalid where there is more to do."""
    if pat.is_null(array.type):
        return pa.nulls(len(array), kind)
    if array.type.equals(kind):
        return array
    names = [[field.name for field in each] if pat.is_struct(each) else None for each in (array.type, kind)]
    if names[0] is None or names[0] != names[1]:
        raise pa.ArrowInvalid(f"{array.type} is not {kind}")
    parts = [(_filled(part, field.type), field) for part, field in zip(fields_of(array), kind, strict=True)]
    return _struct_of(parts, array.is_null())


def column_of(given: Values, name: str, known: pa.Field | None = None) -> tuple[pa.Array, pa.Field]:
    """Values as a column from which :func:`values_of` makes them again; of the type of ``known``, if that holds them.

    >>> array, field = column_of([{1, 2}, None], "value")
    >>> field.type, values_of(array, field)
    (DataType(binary), [{1, 2}, None])
    """
    if isinstance(given, pa.Array):
        return _told(given, name, known)
    values = list(given)
    kinds = set(map(type, values)) - {type(None)}
    if known is not None and (array := _as_known(values, kinds, known)) is not None:
        return array, pa.field(name, array.type, metadata=known.metadata)
    array, told = None, None
    if kinds == {tuple}:
        array = _tuples(values)
    elif kinds == {dict}:
        array = _dicts(values)
    elif kinds == {Row}:
        array, told = _records(values), RECORDS
    elif kinds == {list}:
        array = _lists(values)
    elif all(kind in _PLAIN or issubclass(kind, np.generic) for kind in kinds):
        try:
            array = array_of(values, None, name)
        except Inexact:
            array = None
    if array is not None:
        return array, pa.field(name, array.type, metadata=told)
    data = [None if value is None else cloudpickle.dumps(value) for value in values]
    return pa.array(data, pa.binary()), pa.field(name, pa.binary(), metadata=PICKLED)


def _as_known(values: list[Any], kinds: set[type], known: pa.Field) -> pa.Array | None:
    if not values:
        return pa.array([], known.type)
    if _has(known, RECORDS):
        names = [field.name for field in known.type]
        if not kinds <= {Row} or any(value is not None and value.keys() != set(names) for value in values):
            return None
        return _fields(values, names, known.type)
    try:
        return array_of(values, known.type, known.name) if kinds <= _PLAIN else None
    except Inexact:
        return None


def _tuples(values: list[Any]) -> pa.Array | None:
    sizes = {len(value) for value in values if value is not None}
    if len(sizes) > 1 or not (size := sizes.pop()):
        return None
    rows = [(None,) * size if value is None else value for value in values]
    return _struct([column_of(list(part), str(at)) for at, part in enumerate(zip(*rows, strict=True))], values)


def _dicts(values: list[Any]) -> pa.Array | None:
    names = next(list(value) for value in values if value is not None)
    if not names or not all(type(name) is str for name in names) or names == _tuple_names(len(names)):
        return None
    if any(value is not None and list(value) != names for value in values):
        return None
    return _fields(values, names)


def _records(values: list[Any]) -> pa.Array | None:
    names = next(list(value) for value in values if value is not None)
    if (
        not names
        or not all(type(name) is str for name in names)
        or any(value is not None and value.keys() != set(names) for value in values)
    ):
        return None
    return _fields(values, names)


def _fields(values: list[Any], names: list[str], known: pa.StructType | None = None) -> pa.Array:
    fields = [None] * len(names) if known is None else list(known)
    made = [
        column_of([None if value is None else value[name] for value in values], name, field)
        for name, field in zip(names, fields, strict=True)
    ]
    return _struct(made, values)


def _struct(made: list[tuple[pa.Array, pa.Field]], values: list[Any]) -> pa.Array:
    return _struct_of(made, pa.array([value is None for value in values]))


def _struct_of(made: list[tuple[pa.Array, pa.Field]], missing: pa.Array) -> pa.Array:
    return pa.StructArray.from_arrays([array for array, _ in made], fields=[field for _, field in made], mask=missing)


def _lists(values: list[Any]) -> pa.Array:
    flat, field = column_of(list(chain.from_iterable(value for value in values if value is not None)), "item")
    lengths = [0 if value is None else len(value) for value in values]
    offsets = pa.array(np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64))
    missing = pa.array([value is None for value in values])
    return pa.LargeListArray.from_arrays(offsets, flat, type=pa.large_list(field), mask=missing)


def _tuple_names(size: int) -> list[str]:
    return [str(at) for at in range(size)]


# -- from Arrow ------------------------------------------------------------------------------------


def entries_of(table: pa.Table, like: Entries, what: str) -> Entries:
    """The inverse of :func:`table_of`, of any table with the columns of ``like``. Raises DataflowError that names what is missing, or
    too many."""
    names = table.schema.names
    parts = [name for at in range(len(names)) if (name := f"{KEY}{at}") in names]
    wanted = [KEY] if KEY in names or not parts else list(parts)
    for name in like.columns:
        wanted += ["epoch"] if name == TIME else ["window_start", "window_end"] if name == WINDOW else [name]
    optional = {"counters"} if TIME in like.columns else set()
    missing = [name for name in wanted if name not in names]
    unknown = [name for name in names if name not in wanted and name not in optional]
    if missing or unknown or len(set(names)) < len(names):
        raise DataflowError(
            f"a table for {what} has the columns {names}: it needs {wanted}"
            + (f" (a key of several parts as {KEY}0, {KEY}1 ...)" if KEY in missing else "")
            + (f", lacks {missing}" if missing else "")
            + (f", has {unknown} besides" if unknown else "")
            + "; table.select(...) and table.rename_columns(...) bring it into that form"
        )
    read = {name: values_of(one_array(table.column(name)), table.schema.field(name)) for name in names}
    keys = moments(read[KEY] if wanted[0] == KEY else list(zip(*(read[name] for name in parts), strict=True)))
    columns: dict[str, Sequence[Any]] = {}
    for name in like.columns:
        if name == TIME:
            counters = read.get("counters") or [()] * len(keys)
            columns[name] = [Timestamp(epoch, tuple(loop or ())) for epoch, loop in zip(read["epoch"], counters, strict=True)]
        elif name == WINDOW:
            columns[name] = [Window(*bounds) for bounds in zip(read["window_start"], read["window_end"], strict=True)]
        else:
            columns[name] = read[name]
    return Entries(keys, columns)


def values_of(array: pa.Array, field: pa.Field) -> list[Any]:
    """The values of a column: tuples and pickled ones as :func:`column_of` was given them, others as Python has them."""
    if _has(field, PICKLED):
        return [None if data is None else pickle.loads(data) for data in array.to_pylist()]
    if _is_plain(field):
        if needs_look(array.type):
            require_python(array, field.name)
        return list(array.to_pylist())
    there = array.is_valid().to_pylist()
    if pat.is_struct(array.type):
        names = [child.name for child in array.type]
        children = [values_of(child, of) for child, of in zip(array.flatten(), array.type, strict=True)]
        rows: Iterable[Any] = zip(*children, strict=True)
        if _has(field, RECORDS):
            rows = (Row(zip(names, row, strict=True)) for row in rows)
        elif names != _tuple_names(len(names)):
            rows = (dict(zip(names, row, strict=True)) for row in rows)
        return [row if is_there else None for row, is_there in zip(rows, there, strict=True)]
    flat = iter(values_of(array.flatten(), array.type.value_field))
    lists = [list(islice(flat, length or 0)) for length in pc.list_value_length(array).to_pylist()]
    return [some if is_there else None for some, is_there in zip(lists, there, strict=True)]


def _has(field: pa.Field, told: Mapping[bytes, bytes]) -> bool:
    return bool((field.metadata or {}).items() >= told.items())


def without_pickled(schema: pa.Schema) -> pa.Schema:
    """The columns of a table with no pickled value, also inside: what is known of them holds for other values, too."""
    return pa.schema([field for field in schema if not _has_pickled(field)])


def _has_pickled(field: pa.Field) -> bool:
    kind = field.type
    inside = kind if pat.is_struct(kind) else [kind.value_field] if pat.is_list(kind) or pat.is_large_list(kind) else []
    return _has(field, PICKLED) or any(map(_has_pickled, inside))


def _is_plain(field: pa.Field) -> bool:
    kind = field.type
    if _has(field, PICKLED) or _has(field, RECORDS):
        return False
    if pat.is_struct(kind):
        return all(map(_is_plain, kind)) and [child.name for child in kind] != _tuple_names(kind.num_fields)
    return _is_plain(kind.value_field) if pat.is_list(kind) or pat.is_large_list(kind) else True


__all__ = [
    "CHECKED",
    "KEY_FIELD",
    "Entries",
    "Opening",
    "Whole",
    "column_of",
    "dict_of_entries",
    "entries_of",
    "entries_of_dict",
    "table_of",
    "values_of",
    "without_pickled",
]
