"""Values as Arrow columns, and columns as other types: exactly, or refused.

Arrow's own conversions are not always exact: with a type that it is given ``pa.array`` cuts 1.5 to 1, drops the time of a datetime,
a time zone and unknown fields of a dict; ``cast`` rounds doubles to floats. Here nothing is lost in silence. *Exactly* means: what is read
back equals what went in, by Python's ``==``, with these allowances: an int may become a float or a decimal of the same value, a tuple a
list, a missing field of a dict null, a date (in a column of timestamps) its midnight.

Most types need no look at the values; where they do, it is one more pass over the column, and only then.
"""

from __future__ import annotations

import datetime as dt
import decimal
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from operator import attrgetter
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat

from rayad.dataflow.records.moments import moment
from rayad.progress import DataflowError, show

_REFUSED = (pa.ArrowException, ArithmeticError, TypeError, ValueError, AttributeError)
"""What Arrow raises for values that it cannot convert: ArrowInvalid, OverflowError, UnicodeEncodeError .."""

ARRAYS: dict[type, Callable[[list[Any]], pa.Array]] = {}
"""How values of our own types become columns: class -> function of a list of them, which may hold None."""


class Inexact(DataflowError):
    """A column cannot hold a value as it is; the message names both."""


# -- values ------------------------------------------------------------------------------------------------------------------------


def array_of(values: Sequence[Any], kind: pa.DataType | None = None, column: str = "value") -> pa.Array:
    """Python values as an Arrow column of type ``kind`` (None: the one that they have in common). Raises :class:`Inexact`.

    >>> array_of([1, 1.5, None]).to_pylist()
    [1.0, 1.5, None]
    >>> array_of([1.5], pa.int64(), "a")
    Traceback (most recent call last):
    rayad.dataflow.records.exact.Inexact: column 'a' cannot hold 1.5, a float, as int64: it would become 1
    """
    values = values if isinstance(values, list) else list(values)
    if ARRAYS:
        own = next((ARRAYS[cls] for cls in set(map(type, values)) if cls in ARRAYS), None)
        if own is not None:
            return _of_own_type(own, values, kind, column)
    try:
        array = _build(values, kind)
    except _REFUSED as error:
        common = _in_common(values) if kind is None else None
        if common is not None:
            return array_of(values, common, column)
        raise _refused(values, kind, column, error) from error
    if isinstance(array, pa.ChunkedArray):  # more than one array can hold
        raise Inexact(f"column {column!r} of {len(values)} records holds more than 2 GiB; make batches smaller")
    lost = _lost(values, array)
    if lost is not None:
        common = _in_common(values) if kind is None else None
        if common is not None and common != array.type:
            return array_of(values, common, column)
        value, back = lost
        raise Inexact(f"column {column!r} cannot hold {show(value)}, {_a(value)}, as {array.type}: it would become {show(back)}")
    return array


def _in_common(values: list[Any]) -> pa.DataType | None:
    """The type that holds the types of each value alone, where Arrow does not find it: days and times, whole numbers and small decimals."""
    common: pa.DataType | None = pa.null()
    for value in values:
        try:
            common = wider_type(common, _build([value], None).type)
        except _REFUSED:
            return None
        if common is None:
            return None
    return common


def _build(values: list[Any], kind: pa.DataType | None) -> Any:
    try:
        return pa.array(values, kind)
    except OverflowError:
        if kind is not None:
            raise
        return pa.array(values, pa.uint64())  # Arrow tries int64 only
    except pa.ArrowTypeError:
        if kind is None or not pat.is_timestamp(kind) or kind.tz is not None:
            raise
        midnight = dt.time()  # it takes no dates
        return pa.array([dt.datetime.combine(v, midnight) if type(v) is dt.date else v for v in values], kind)


def _of_own_type(make: Callable[[list[Any]], pa.Array], values: list[Any], kind: pa.DataType | None, column: str) -> pa.Array:
    try:
        array = make(values)
    except _REFUSED as error:
        raise _refused(values, kind, column, error) from error
    if kind is None or array.type == kind:
        return array
    if not isinstance(kind, pa.BaseExtensionType):
        array = array.storage
    return cast_exactly(array, kind.storage_type if isinstance(kind, pa.BaseExtensionType) else kind, column)


def _refused(values: list[Any], kind: pa.DataType | None, column: str, error: Exception) -> Inexact:
    """The error for values of which Arrow can make no column."""
    for value in values:
        try:
            _build([value], kind)
        except _REFUSED as its:
            why = f"as {kind}" if kind is not None else "as any type of column"
            return Inexact(f"column {column!r} cannot hold {show(value)}, {_a(value)}, {why}: {_first_line(its)}")
    kinds = sorted({type(value).__name__ for value in values if value is not None})
    return Inexact(f"column {column!r} holds {' and '.join(kinds)}, which have no type in common: {_first_line(error)}")


def _first_line(error: Exception) -> str:
    return str(error).strip().split("\n", 1)[0]


def _a(value: Any) -> str:
    name = type(value).__name__
    return f"{'an' if name[0] in 'aeiouAEIOU' else 'a'} {name}"


_EXACT: tuple[tuple[Callable[[pa.DataType], bool], tuple[type, ...]], ...] = (
    (pat.is_integer, (int, np.integer)),
    (pat.is_float64, (float, int, np.integer, np.floating)),
    (pat.is_float32, (np.float32, np.float16)),
    (pat.is_string, (str,)),
    (pat.is_large_string, (str,)),
    (pat.is_string_view, (str,)),
    (pat.is_binary, (bytes,)),
    (pat.is_large_binary, (bytes,)),
    (pat.is_binary_view, (bytes,)),
    (pat.is_fixed_size_binary, (bytes,)),
    (pat.is_boolean, (bool, np.bool_)),
    (pat.is_decimal, (decimal.Decimal, int)),
    (pat.is_date, (dt.date,)),
)
"""Types of columns that hold each value of these classes as it is, or Arrow refuses it. (``datetime`` is no ``date`` here.)"""


def _lost(values: Sequence[Any], array: pa.Array) -> tuple[Any, Any] | None:
    """The first value that ``array``, made from ``values``, does not hold as it is, and what it holds instead."""
    kind = array.type
    classes = set(map(type, values))
    classes.discard(type(None))
    if not classes:
        return None
    if isinstance(array, pa.DictionaryArray):
        return _lost(values, array.dictionary_decode())
    for is_kind, exact in _EXACT:
        if is_kind(kind):
            if classes.issubset(exact) or all(issubclass(cls, exact) and issubclass(cls, np.generic) for cls in classes):
                return None
            break
    else:
        if _is_exact_time(kind, classes, values):
            return None
        if (pat.is_list(kind) or pat.is_large_list(kind)) and classes <= {list, tuple, np.ndarray}:
            return _lost_in_lists(values, array)
        if pat.is_struct(kind) and classes == {dict}:
            return _lost_in_dicts(values, array)
    for value, back in zip(values, array.to_pylist(), strict=True):
        if not _same(value, back):
            return value, back
    return None


def _is_exact_time(kind: pa.DataType, classes: set[type], values: Sequence[Any]) -> bool:
    """Whether a column of timestamps, durations or times holds values of these classes as they are, going by zones alone."""
    if pat.is_timestamp(kind) and kind.unit in ("us", "ns") and classes == {dt.datetime}:
        zones = set(map(attrgetter("tzinfo"), (value for value in values if value is not None)))
        return zones == {None} if kind.tz is None else None not in zones
    return bool(pat.is_duration(kind) and kind.unit in ("us", "ns") and classes == {dt.timedelta})


def _lost_in_lists(values: Sequence[Any], array: pa.Array) -> tuple[Any, Any] | None:
    lost = _lost(list(chain.from_iterable(value for value in values if value is not None)), array.flatten())
    if lost is None:
        return None
    return next((pair for pair in zip(values, array.to_pylist(), strict=True) if not _same(*pair)), lost)


def _lost_in_dicts(values: Sequence[Any], array: pa.Array) -> tuple[Any, Any] | None:
    names = [field.name for field in array.type]
    known = set(names)
    if any(not known.issuperset(value) for value in values if value is not None):
        return next(pair for pair in zip(values, array.to_pylist(), strict=True) if not _same(*pair))
    for name, column in zip(names, array.flatten(), strict=True):
        if _lost([None if value is None else value.get(name) for value in values], column) is not None:
            return next((pair for pair in zip(values, array.to_pylist(), strict=True) if not _same(*pair)), None)
    return None


def _same(value: Any, back: Any) -> bool:
    """Whether ``back``, read from a column, is ``value`` for all that a column can say."""
    if value is None or back is None:
        return value is back or (back is None and type(value).__name__ in ("NaTType", "NAType"))
    if isinstance(value, float) and isinstance(back, (int, float, decimal.Decimal)):
        if value != value:
            return back != back
        return bool(value == back and (value or math.copysign(1, value) == math.copysign(1, back)))
    if isinstance(back, dict):
        if not isinstance(value, Mapping):
            return False
        return set(value) <= set(back) and all(_same(value.get(name), part) for name, part in back.items())
    if isinstance(back, list):
        if isinstance(value, Mapping):
            value = list(value.items())
        if isinstance(value, (set, frozenset)):
            return len(value) == len(back) and set(back) == value
        if isinstance(value, (str, bytes)) or not isinstance(value, (list, tuple, np.ndarray, pa.Array)):
            return False
        return len(value) == len(back) and all(map(_same, value, back))
    if isinstance(value, (bool, np.bool_)) is not isinstance(back, bool):
        return False
    if isinstance(back, tuple) and isinstance(value, tuple):
        return len(value) == len(back) and all(map(_same, value, back))
    if type(value) is dt.date and type(back) is not dt.date:
        return bool(back == dt.datetime.combine(value, dt.time()))
    if isinstance(value, np.generic) and not isinstance(value, (np.datetime64, np.timedelta64)):
        value = value.item()
    try:
        if isinstance(value, np.datetime64):
            return bool(value == np.datetime64(back.to_datetime64() if hasattr(back, "to_datetime64") else back))
        if isinstance(value, np.timedelta64):
            return bool(value == (back.to_timedelta64() if hasattr(back, "to_timedelta64") else np.timedelta64(back)))
        if isinstance(value, (bytearray, memoryview)):
            return bool(bytes(value) == back)
        if isinstance(back, str | bytes) and not isinstance(value, str | bytes):
            return False
        if isinstance(value, int) and not isinstance(back, (int, float, decimal.Decimal)):
            return False  # a number for a time
        return bool(value == back or (isinstance(value, dt.datetime) and moment(value) == moment(back)))
    except (ArithmeticError, TypeError, ValueError):
        return False


# -- columns -----------------------------------------------------------------------------------------------------------------------


def cast_exactly(column: pa.Array, kind: pa.DataType, name: str = "value") -> pa.Array:
    """A column as another type, every value as it was. Raises :class:`Inexact`.

    >>> cast_exactly(pa.array([1.0, 2.0]), pa.int64()).to_pylist()
    [1, 2]
    """
    given = column.type
    if given == kind:
        return column
    if _zones(given, kind):
        raise Inexact(f"column {name!r} of type {given} cannot become {kind}: one has a time zone and the other has none")
    try:
        out = column.cast(kind)
        if _never_loses(given, kind):
            return out
        back = out.cast(given)
    except _REFUSED as error:
        if isinstance(column, pa.ExtensionArray) and not isinstance(kind, pa.BaseExtensionType):
            return cast_exactly(column.storage, kind, name)
        raise Inexact(f"column {name!r} of type {given} cannot become {kind}: {_first_line(error)}") from error
    if not (pat.is_floating(given) or pat.is_nested(given)) and column.equals(back):
        return out
    if pat.is_floating(given) and _same_floats(column, back if pat.is_floating(kind) or pat.is_decimal(kind) else out):
        return out
    for before, after, became in zip(column.to_pylist(), back.to_pylist(), out.to_pylist(), strict=True):
        if not _same(before, after) or (isinstance(before, float) and not _same(before, became)):
            raise Inexact(f"column {name!r} of type {given} cannot become {kind}: {show(before)} would be {show(became)}")
    return out


def _zones(given: pa.DataType, kind: pa.DataType) -> bool:
    """Whether one of two types is a timestamp with a zone and the other one without."""
    if pat.is_timestamp(given) and pat.is_timestamp(kind):
        return (given.tz is None) is not (kind.tz is None)
    if pat.is_nested(given) and given.id == kind.id and given.num_fields == kind.num_fields:
        return any(_zones(given.field(i).type, kind.field(i).type) for i in range(given.num_fields))
    return False


def _never_loses(given: pa.DataType, kind: pa.DataType) -> bool:
    """Whether a cast that Arrow does not refuse is exact."""
    if given == kind or pat.is_null(given) or (pat.is_dictionary(given) and given.value_type == kind):
        return True
    if (pat.is_list(given) or pat.is_large_list(given)) and (pat.is_list(kind) or pat.is_large_list(kind)):
        return _never_loses(given.value_type, kind.value_type)
    if pat.is_struct(given) and pat.is_struct(kind):
        wanted = {field.name: field.type for field in kind}
        distinct = len(wanted) == kind.num_fields and len({field.name for field in given}) == given.num_fields
        return distinct and all(field.name in wanted and _never_loses(field.type, wanted[field.name]) for field in given)
    if pat.is_integer(given) and (pat.is_integer(kind) or pat.is_floating(kind) or pat.is_decimal(kind)):
        return True
    if pat.is_floating(given) and pat.is_floating(kind):
        return bool(given.bit_width <= kind.bit_width)
    if pat.is_decimal(given) and pat.is_decimal(kind):
        return True
    texts = (pat.is_string, pat.is_large_string, pat.is_string_view)
    data = (pat.is_binary, pat.is_large_binary, pat.is_binary_view)
    return any(any(is_kind(given) for is_kind in family) and any(is_kind(kind) for is_kind in family) for family in (texts, data))


def _same_floats(column: pa.Array, out: pa.Array) -> bool:
    """Whether two columns hold the same numbers, NaN and the sign of zero included."""
    before = column.cast(pa.float64()).fill_null(0.0).to_numpy(zero_copy_only=False)
    after = out.cast(pa.float64()).fill_null(0.0).to_numpy(zero_copy_only=False)
    if not column.is_null().equals(out.is_null()):
        return False
    is_same = bool(np.array_equal(before, after, equal_nan=True))
    signs = not pat.is_floating(out.type) and bool(np.any((before == 0) & np.signbit(before)))
    return is_same and not signs and bool(np.array_equal(np.signbit(before), np.signbit(after)) or np.isnan(before).any())


def cast_batch(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """A batch in another schema: columns by name, each as its type says, missing ones null. Raises :class:`Inexact`."""
    if batch.schema.equals(schema):
        return batch
    columns = []
    for field in schema:
        at = batch.schema.get_field_index(field.name)
        column = cast_exactly(batch.column(at), field.type, field.name) if at >= 0 else pa.nulls(batch.num_rows, field.type)
        if column.null_count and not field.nullable:
            raise Inexact(f"column {field.name!r} holds {column.null_count} nulls, and the schema says that it has none")
        columns.append(column)
    return pa.RecordBatch.from_arrays(columns, schema=schema)


# -- types in common ---------------------------------------------------------------------------------------------------------------


def wider_type(left: pa.DataType, right: pa.DataType) -> pa.DataType | None:
    """The narrowest type for the values of both, as far as two types tell; None where there is none.

    >>> wider_type(pa.int64(), pa.float64()), wider_type(pa.null(), pa.date32()), wider_type(pa.int64(), pa.string()) is None
    (DataType(double), DataType(date32[day]), True)
    """
    if left == right:
        return left
    if pat.is_null(left) or pat.is_null(right):
        return right if pat.is_null(left) else left
    if pat.is_struct(left) and pat.is_struct(right):
        fields = _wider_fields(list(left), list(right))
        return pa.struct(fields) if fields is not None else None
    for is_kind, make in ((pat.is_list, pa.list_), (pat.is_large_list, pa.large_list)):
        if is_kind(left) and is_kind(right):
            inner = wider_type(left.value_type, right.value_type)
            return make(left.value_field.with_type(inner)) if inner is not None else None
    if pat.is_dictionary(left) or pat.is_dictionary(right):
        return wider_type(*(kind.value_type if pat.is_dictionary(kind) else kind for kind in (left, right)))
    if {left, right} == {pa.date32(), pa.timestamp("us")}:
        return pa.timestamp("us")
    if pat.is_nested(left) or pat.is_nested(right) or not _are_kin(left, right):
        return None
    for whole, fraction in ((left, right), (right, left)):
        if pat.is_integer(whole) and pat.is_decimal(fraction):
            bits = whole.bit_width - pat.is_signed_integer(whole)
            return _decimal(max(fraction.precision - fraction.scale, len(str(1 << bits))), fraction.scale)
    schemas = [pa.schema([("x", kind)]) for kind in (left, right)]
    try:
        return pa.unify_schemas(schemas, promote_options="permissive").field(0).type
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError):
        return None


def _decimal(digits: int, scale: int) -> pa.DataType | None:
    """The decimal with so many digits before and behind the point; None where it would be too long for Arrow."""
    precision = digits + scale
    return pa.decimal128(precision, scale) if precision <= 38 else pa.decimal256(precision, scale) if precision <= 76 else None


def _are_kin(left: pa.DataType, right: pa.DataType) -> bool:
    """Whether values of both can be of one type and stay what they are: not texts and bytes, not decimals and floats."""
    families: tuple[tuple[Callable[[pa.DataType], bool], ...], ...] = (
        (pat.is_integer, pat.is_floating),
        (pat.is_integer, pat.is_decimal),
        (pat.is_string, pat.is_large_string),
        (pat.is_binary, pat.is_large_binary),
        (pat.is_timestamp,),
        (pat.is_date,),
        (pat.is_time,),
        (pat.is_duration,),
    )
    return any(any(is_kind(left) for is_kind in family) and any(is_kind(right) for is_kind in family) for family in families)


def _wider_fields(left: Sequence[pa.Field], right: Sequence[pa.Field]) -> list[pa.Field] | None:
    theirs = {field.name: field for field in right}
    out: list[pa.Field] = []
    for field in left:
        other = theirs.pop(field.name, None)
        kind = field.type if other is None else wider_type(field.type, other.type)
        if kind is None:
            return None
        out.append(pa.field(field.name, kind, nullable=field.nullable or other is None or other.nullable))
    return [*out, *(field.with_nullable(True) for field in right if field.name in theirs)]


def wider_schema(left: pa.Schema, right: pa.Schema) -> pa.Schema | None:
    """The columns of both, each of :func:`wider_type`; None where one has none."""
    fields = _wider_fields(list(left), list(right))
    return pa.schema(fields) if fields is not None else None


# -- and back ----------------------------------------------------------------------------------------------------------------------


def require_python(column: pa.Array | pa.ChunkedArray, name: str) -> None:
    """Raise :class:`Inexact` where Python's types hold less than a column does: times of nanoseconds, and milliseconds of dates."""
    kind = column.type
    if pat.is_time64(kind) and kind.unit == "ns":
        _require_multiples(column, pa.int64(), 1_000, name, "cast it to time64('us') or int64")
    elif pat.is_date64(kind):
        _require_multiples(column, pa.int64(), 86_400_000, name, "cast it to timestamp('ms')")
    elif pat.is_dictionary(kind):
        for chunk in column.chunks if isinstance(column, pa.ChunkedArray) else [column]:
            require_python(chunk.dictionary, name)
    elif pat.is_struct(kind) and needs_look(kind):
        for field, inner in zip(kind, column.flatten(), strict=True):
            require_python(inner, f"{name}.{field.name}")
    elif (pat.is_list(kind) or pat.is_large_list(kind) or pat.is_fixed_size_list(kind)) and needs_look(kind):
        require_python(pc.list_flatten(column), f"{name}[]")


def needs_look(kind: pa.DataType) -> bool:
    """Whether :func:`require_python` has to look at the values of a type."""
    if pat.is_time64(kind) or pat.is_date64(kind):
        return bool(pat.is_date64(kind) or kind.unit == "ns")
    if pat.is_dictionary(kind):
        return needs_look(kind.value_type)
    return pat.is_nested(kind) and any(needs_look(kind.field(i).type) for i in range(kind.num_fields))


def _require_multiples(column: Any, plain: pa.DataType, unit: int, name: str, hint: str) -> None:
    numbers = column.cast(plain) if not pat.is_date64(column.type) else _units(column)
    if pc.any(pc.not_equal(pc.multiply(pc.divide(numbers, unit), unit), numbers)).as_py():
        raise Inexact(f"column {name!r} of type {column.type} holds values that Python's type for it cannot: {hint} first")


def _units(column: Any) -> Any:
    """The numbers of a date64 column; Arrow's cast would round them first."""
    chunks: Iterable[pa.Array] = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
    return pa.chunked_array([chunk.view(pa.int64()) for chunk in chunks], pa.int64())


__all__ = [
    "ARRAYS",
    "Inexact",
    "array_of",
    "cast_batch",
    "cast_exactly",
    "needs_look",
    "require_python",
    "wider_schema",
    "wider_type",
]
