"""pyarrow's expressions over the columns of a batch, and over records that are dicts: the same kernels for both.

A record without a schema is typed by itself: an int is int64, a float a double, a list or a decimal what it is alone. Its result must not
depend on the records beside it in the batch (5 / 2 is 2, also next to 1.5), so where their types differ, records are evaluated in groups
of one type. Null goes with every type. docs/decisions/056-expressions-are-pyarrows.md says why.
"""

from __future__ import annotations

import datetime as dt
import importlib
import re
from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from rayad.dataflow.records.batches import one_batch
from rayad.dataflow.records.calling import did_you_mean
from rayad.dataflow.records.exact import Inexact, array_of, require_python
from rayad.dataflow.records.values import Row
from rayad.progress import DataflowError, arguments, show

_PLAIN = frozenset((bool, float, str, bytes, dt.date, dt.time, dt.timedelta))
"""Classes whose values are all of one type of column."""
_INT64 = range(-(1 << 63), 1 << 63)
_OF_NULLS = (
    pa.int64(), pa.float64(), pa.string(), pa.binary(), pa.bool_(), pa.timestamp("us"), pa.timestamp("us", "UTC"), pa.date32(),
    pa.time64("us"), pa.duration("us"), pa.decimal128(38, 9), pa.list_(pa.null()),
)  # fmt: skip
"""A field that is null in all records has no type; where the kernels want one, the first of these that they take: null has the same
result in each."""
_UNTYPED_MAX = 3
"""In an expression that reads more such fields they are not tried: there are too many ways."""
_ABSENT = object()
_NO_FIELD = re.compile(r"No match for FieldRef\.(?:Name\((.*?)\)|(.*?)) in ", re.DOTALL)
_FEW_DIGITS = "Precision is not great enough"
_DIGITS_OF_INTS = (
    "an int of a record is an int64, which has up to 19 digits: ask for as many before the point, or say that it is shorter with schema=, "
    "as map takes it"
)
_KEYS = "call|end|field_ref|literal|nested_field_ref|options"
_SERIALIZED = re.compile(rf"^({_KEYS}): '(.*?)'$(?=\n(?:{_KEYS}): '|\Z)", re.MULTILINE | re.DOTALL)


def col(name: str, *fields: str) -> pc.Expression:
    """Name a column in an expression over the columns of a record: ``stream.filter(rd.col("n") > 1)``.

    It is ``pyarrow.compute.field``: operators (``+ - * / == != < <= > >= & | ~``), methods (``cast``, ``is_null``, ``is_valid``, ``isin``)
    and the functions of ``pyarrow.compute`` that look at one record give expressions. ``filter``, ``select``, ``with_columns`` and others
    accept them, for records in columns and for dicts.

    Args:
        name: of the column.
        fields: names of fields inside it, if it is a struct, from the outside in: ``rd.col("address", "city")``.

    Raises:
        DataflowError: a name is not a string.

    >>> col("n") > 1, col("address", "city")
    (<pyarrow.compute.Expression (n > 1)>, <pyarrow.compute.Expression FieldRef.Nested(FieldRef.Name(address) FieldRef.Name(city))>)
    """
    for one in (name, *fields):
        arguments.text(one, "rd.col: the name of a column")
    return pc.field(name, *fields)


def checked_expression(value: Any, what: str) -> pc.Expression:
    """``value``, if it is an expression over named columns that looks at one record at a time. Raises DataflowError that begins with
    ``what``."""
    if not isinstance(value, pc.Expression):
        hint = f": a column is pyarrow.compute.field({value!r}), a text pyarrow.compute.scalar({value!r})" if isinstance(value, str) else ""
        raise DataflowError(f"{what} was given {show(value, 60)}: it takes an expression such as pyarrow.compute.field('n') + 1{hint}")
    try:
        parts = _serialized(value)
    except pa.ArrowException as error:
        raise DataflowError(
            f"{what} was given the expression {value}, which cannot be sent to replicas: {error}; columns have names, as in "
            "pyarrow.compute.field('n')"
        ) from error
    for key, name in parts:
        if key == "call" and pc.get_function(name).kind not in ("scalar", "meta"):  # a cast is "meta": it finds the kernel by the types
            raise DataflowError(
                f"{what} was given the expression {value}: {name} looks at all values of a column, which is here one batch of many; for "
                "totals use key_by(...) or window(...)"
            )
    return value


def _serialized(expression: pc.Expression) -> list[tuple[str, str]]:
    """An expression as Arrow writes it for other processes: calls, fields and literals, in order. Raises ArrowException where it cannot."""
    schema = pa.ipc.open_file(expression.__reduce__()[1][0]).schema  # the tree is in the metadata, in keys that repeat themselves
    return _SERIALIZED.findall(schema.to_string(truncate_metadata=False))


Fields: TypeAlias = "dict[str, Fields]"


def fields_of(expression: pc.Expression) -> Fields:
    """The columns that an expression reads, and of structs the fields in them.

    >>> fields_of((pc.field("a") + pc.field("s", "x")) * pc.field("s", "y"))
    {'a': {}, 's': {'x': {}, 'y': {}}}
    """
    out: Fields = {}
    at, depth = out, 0
    for key, text in _serialized(expression):
        if key == "nested_field_ref":
            depth = int(text)
        elif key == "field_ref":
            inner = at.setdefault(text, {})
            depth = max(depth - 1, 0)
            at = inner if depth else out
    return out


def path_of(expression: pc.Expression) -> tuple[str, ...] | None:
    """The names of the field that an expression is, from the outside in; None: it is something else.

    >>> path_of(pc.field("s", "x")), path_of(pc.field("s") + 1)
    (('s', 'x'), None)
    """
    parts = _serialized(expression)
    names = tuple(text for key, text in parts if key == "field_ref")
    nested = [("nested_field_ref", str(len(names)))] if len(names) > 1 else []
    return names if names and parts == [*nested, *(("field_ref", name) for name in names)] else None


class Expressions:
    """Expressions that are evaluated together; ``what`` is the operator, for errors."""

    def __init__(self, expressions: Sequence[pc.Expression], what: str) -> None:
        self.expressions = list(expressions)
        self._what = what
        self._fields = [fields_of(expression) for expression in self.expressions]
        self._read = frozenset(name for fields in self._fields for name in fields)
        paths = [path_of(expression) for expression in self.expressions]
        self._paths = [] if None in paths else [path for path in paths if path is not None]

    def warm_up(self) -> None:
        """Import what the first batch would otherwise wait for."""
        if self.expressions:
            importlib.import_module("pyarrow.acero")

    def of_columns(self, batch: pa.RecordBatch) -> list[pa.Array]:
        """Their values for each row: arrays of shape (rows,). Raises DataflowError where a column is missing or no kernel takes its type,
        ArrowInvalid where a kernel refuses a value."""
        if not self.expressions:
            return []
        for at, field in enumerate(batch.schema):
            if pa.types.is_run_end_encoded(field.type) and field.name in self._read:  # few kernels know runs; is_null of Arrow 21 is wrong
                batch = batch.set_column(at, field.name, pc.run_end_decode(batch.column(at)))
        columns = [_column_at(batch, path) for path in self._paths]
        if columns and None not in columns:
            return columns
        try:
            return self._of_batch(batch)
        except pa.ArrowException as error:
            raise self._error(batch, error, batch.schema.names) from error

    def _of_batch(self, batch: pa.RecordBatch) -> list[pa.Array]:
        if not any(_has_null(field.type) for field in batch.schema if field.name in self._read):
            return _evaluated(self.expressions, batch)
        return [_with_any_null(*each, batch) for each in zip(self.expressions, self._fields, strict=True)]

    def of_rows(self, rows: list[dict[str, Any]]) -> list[list[Any]]:
        """Their values for each record, one list for each expression."""
        found = self.found_in_rows(rows)
        if found is not None:
            return found
        out: list[list[Any]] = [[None] * len(rows) for _ in self.expressions]
        if self.expressions:
            for positions, values in self._groups(rows):
                for into, column in zip(out, values, strict=True):
                    require_python(column, self._what)
                    for position, value in zip(positions, column.to_pylist(), strict=True):
                        into[position] = value
        return out

    def found_in_rows(self, rows: list[dict[str, Any]]) -> list[list[Any]] | None:
        """The same where all expressions are fields, and their values are plain ones: many times faster than Arrow for few records. None:
        they are not. Fields of any depth may be a :class:`Row`."""
        found = []
        for path in self._paths:
            column = [_found(row, path) for row in rows]
            if _ODD in column:
                return None
            found.append(column)
        return found or None

    def _groups(self, rows: list[dict[str, Any]]) -> Iterator[tuple[Sequence[int], list[pa.Array]]]:
        """The positions of records of the same types, and their values."""
        names = [name for name in dict.fromkeys(name for row in rows for name in row) if name in self._read]
        columns = {name: [row.get(name, _ABSENT) for row in rows] for name in names}
        types = {name: _types(values) for name, values in columns.items()}
        groups: dict[tuple[Any, ...], list[int]] = {}
        if all(len(set(found) - {None}) <= 1 and (_ABSENT not in found or len(set(found)) == 1) for found in types.values()):
            yield range(len(rows)), self._of_group(rows[0], columns, len(rows))
            return
        for position, signature in enumerate(zip(*types.values(), strict=True)):
            groups.setdefault(signature, []).append(position)
        for positions in groups.values():
            some = {name: [values[position] for position in positions] for name, values in columns.items()}
            yield positions, self._of_group(rows[positions[0]], some, len(positions))

    def _of_group(self, first: dict[str, Any], columns: dict[str, list[Any]], count: int) -> list[pa.Array]:
        arrays: dict[str, pa.Array] = {}
        refused: dict[str, Inexact] = {}
        for name, values in columns.items():
            if values[0] is not _ABSENT:
                try:
                    arrays[name] = array_of(values, None, name)
                except Inexact as error:
                    refused[name] = error
        batch = _batch(arrays, count)
        try:
            return self._of_batch(batch)
        except pa.ArrowException as error:
            missing = _NO_FIELD.match(str(error))
            if missing is not None and missing[1] in refused:
                raise DataflowError(f"{self._what}: {refused[missing[1]]}") from error
            raise self._error(batch, error, list(first), of_rows=True) from error

    def _error(self, batch: pa.RecordBatch, error: pa.ArrowException, names: list[Any], *, of_rows: bool = False) -> Exception:
        """The error for the user: which column is missing, or which expression failed; ArrowInvalid where it is the fault of a value."""
        missing = _NO_FIELD.match(str(error))
        if missing is not None and missing[1] is not None:
            hint = did_you_mean(missing[1], [name for name in names if isinstance(name, str)])
            return DataflowError(f"{self._what}: there is no column {missing[1]!r} among {show(names, 120)}{hint}")
        for expression, fields in zip(self.expressions, self._fields, strict=True):
            try:
                _evaluated([expression], batch)
            except pa.ArrowException as its:
                types = ", ".join(f"{field.name}: {field.type}" for field in batch.schema if field.name in fields)
                told = f"{self._what}: the expression {expression} failed on columns {{{types}}}: {its}"
                if of_rows and _FEW_DIGITS in told:
                    told += "; " + _DIGITS_OF_INTS
                return pa.ArrowInvalid(told) if isinstance(its, pa.ArrowInvalid) else DataflowError(told)
        return DataflowError(f"{self._what}: {error}")


def _column_at(batch: pa.RecordBatch, path: tuple[str, ...]) -> pa.Array | None:
    """The column, or field in it, of this path, as an expression would give it; None: it is missing, or there are two of that name."""
    if batch.schema.get_field_index(path[0]) < 0:
        return None
    column = batch.column(path[0])
    kind = column.type
    for name in path[1:]:
        if pa.types.is_null(kind):
            return pa.nulls(batch.num_rows)
        at = kind.get_field_index(name) if pa.types.is_struct(kind) else -1
        if at < 0:
            return None
        kind = kind.field(at).type
        column = column.flatten()[at] if column.null_count else column.field(at)
    return column


_ODD = object()


def _found(row: Any, path: tuple[str, ...]) -> Any:
    """A field of a record that a column of its own would give back as it is; ``_ODD``: it is missing, or for Arrow to say."""
    value = row
    for name in path:
        kind = type(value)
        if (kind is not dict and kind is not Row) or name not in value:
            return _ODD
        value = value[name]
    cls = type(value)
    is_plain = value in _INT64 if cls is int else value.isascii() if cls is str else cls is bool or cls is float
    return value if is_plain else _ODD


def _evaluated(expressions: Sequence[pc.Expression], batch: pa.RecordBatch) -> list[pa.Array]:
    from pyarrow import acero

    if not batch.num_columns:
        batch = _batch({}, batch.num_rows)
    source = acero.Declaration("table_source", acero.TableSourceNodeOptions(pa.Table.from_batches([batch])))
    names = [str(number) for number in range(len(expressions))]
    project = acero.Declaration("project", acero.ProjectNodeOptions(list(expressions), names))
    table = acero.Declaration.from_sequence([source, project]).to_table(use_threads=False)  # on one thread the order stays
    return list(one_batch(table).columns)


def _batch(arrays: dict[str, pa.Array], rows: int) -> pa.RecordBatch:
    """Columns as a batch that knows how many rows it has, also without any column."""
    return pa.record_batch(arrays or {"": pa.nulls(rows)})


def _with_any_null(expression: pc.Expression, fields: Fields, batch: pa.RecordBatch) -> pa.Array:
    """The values of one expression for a batch in which columns of null, and fields of structs, may have any type. What is null in all rows
    then has none either."""
    try:
        return _evaluated([expression], batch)[0]
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid, pa.ArrowKeyError) as error:
        untyped = sum(_nulls_read(field.type, fields[field.name]) for field in batch.schema if field.name in fields)
        for kinds in product(_OF_NULLS, repeat=untyped) if 0 < untyped <= _UNTYPED_MAX else ():
            left = iter(kinds)
            columns = {
                name: _typed(column, fields[name], left) if name in fields else column
                for name, column in zip(batch.schema.names, batch.columns, strict=True)
            }
            try:
                (found,) = _evaluated([expression], _batch(columns, batch.num_rows))
            except pa.ArrowException:
                continue
            return pa.nulls(len(found)) if found.null_count == len(found) else found
        raise error


def _has_null(kind: pa.DataType) -> bool:
    """Whether a column of this type, or a field in it, is null in all rows."""
    return bool(pa.types.is_null(kind) or (pa.types.is_struct(kind) and any(_has_null(field.type) for field in kind)))


def _nulls_read(kind: pa.DataType, fields: Fields) -> int:
    """How many parts of a column, of those that are read, are of type null."""
    if pa.types.is_null(kind):
        return 1
    inner = {field.name: field.type for field in kind} if pa.types.is_struct(kind) else {}
    return sum(_nulls_read(inner[name], of) for name, of in fields.items() if name in inner)


def _typed(column: pa.Array, fields: Fields, kinds: Iterator[pa.DataType]) -> pa.Array:
    """A column whose parts of type null, of those that are read, have the next of these types."""
    if pa.types.is_null(column.type):
        return pa.nulls(len(column), _struct(fields, next(kinds)))
    if not pa.types.is_struct(column.type) or not fields:
        return column
    names = [field.name for field in column.type]
    parts = dict(zip(names, column.flatten(), strict=True))
    parts |= {name: _typed(parts[name], of, kinds) for name, of in fields.items() if name in parts}
    return pa.StructArray.from_arrays([parts[name] for name in names], names=names, mask=column.is_null())


def _struct(fields: Fields, leaf: pa.DataType) -> pa.DataType:
    """A struct of these fields, all of them ``leaf``; without fields ``leaf`` itself."""
    return pa.struct([(name, _struct(inner, leaf)) for name, inner in fields.items()]) if fields else leaf


def _types(values: list[Any]) -> list[Any]:
    """What stands for the type of each value alone: equal for equal types; None for null."""
    classes = set(map(type, values)) - {type(None)}
    if len(classes) == 1 and classes <= _PLAIN:
        (only,) = classes
        return [None if value is None else only for value in values]
    return [_type_alone(value) for value in values]


def _type_alone(value: Any) -> Any:
    cls = type(value)
    if value is None or value is _ABSENT:
        return value
    if cls in _PLAIN or (cls is int and value in _INT64):
        return cls
    try:
        return array_of([value]).type
    except Inexact:
        return cls


__all__ = ["Expressions", "checked_expression", "col"]
