"""``map_batches``: a function of whole batches, in the form that it asks for.

``batch_format`` has the names of Ray Data. A form gives values as they are, or the batch is refused: what numpy or pandas would round or
leave out (integers with nulls as floats, NaN beside null, nanoseconds, time zones) comes as another type of theirs, or is an error that
names the column.
What a function gives back is recognised by its type, whatever was asked for.
"""

from __future__ import annotations

import importlib.util
import inspect
from collections.abc import Callable, Iterator, Mapping, MappingView, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, field
from types import FunctionType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat

from rayad.dataflow.operators.stateless import Element
from rayad.dataflow.records.batches import one_or_more, require_distinct, to_record_batch, to_rows
from rayad.dataflow.records.calling import checked_function, require_arguments, require_plain, require_result
from rayad.dataflow.records.exact import array_of, needs_look, require_python
from rayad.progress import DataflowError, arguments, show

ROWS, PYARROW, NUMPY, PANDAS, POLARS = FORMATS = ("rows", "pyarrow", "numpy", "pandas", "polars")
_WHAT = "the function given to map_batches"
_MAY_BE = "a list, a RecordBatch, a Table, a dict of numpy arrays, or a DataFrame of pandas or Polars"


def of_batches(function: Any, batch_format: Any, args: Any, kwargs: Any) -> MapBatches:
    """The step for what ``map_batches`` was given: a function of a batch, or a class whose instances are called with one. Raises
    DataflowError."""
    if batch_format is not None:
        arguments.choice(batch_format, "map_batches: batch_format", *FORMATS)
    if batch_format == POLARS and importlib.util.find_spec("polars") is None:
        raise DataflowError("map_batches(batch_format='polars') needs Polars, here and on all nodes: pip install 'rayad[polars]'")
    if not isinstance(args, (tuple, list)) or not isinstance(kwargs, Mapping):
        raise DataflowError(
            f"map_batches: fn_constructor_args={show(args, 60)}, fn_constructor_kwargs={show(kwargs, 60)}: give a tuple and a dict"
        )
    if not is_built(function):
        if args or kwargs:
            raise DataflowError(f"map_batches: arguments of a constructor are for a class, {show(function, 60)} is a function")
        return MapBatches(checked_function(function, "map_batches", "batch"), batch_format)
    require_plain(function, "map_batches")
    signature = inspect.signature(function)  # it has one, as its __call__ is written in Python
    try:
        signature.bind(*args, **kwargs)
    except TypeError as error:
        raise DataflowError(
            f"map_batches: {function.__name__} is made once in each replica, with fn_constructor_args={show(tuple(args), 60)} and "
            f"fn_constructor_kwargs={show(dict(kwargs), 60)}: {error}"
        ) from error
    call = inspect.getattr_static(function, "__call__")
    if isinstance(call, FunctionType):
        require_arguments(call, "map_batches, for each batch,", ("self", "batch"))
    return MapBatches(function, batch_format, tuple(args), dict(kwargs))


@dataclass(slots=True)
class MapBatches(Element):
    """``f(batch)`` for each batch, in this form (None: as it comes); of a class: of an instance, one for each replica, made with these
    arguments."""

    base = "map_batches"

    function: Callable[[Any], Any]
    batch_format: str | None = None
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)

    def for_replica(self) -> Element:
        make: Any = self.function
        return MapBatches(make(*self.args, **self.kwargs), self.batch_format) if is_built(make) else self

    def warm_up(self) -> None:
        if self.batch_format in (PANDAS, POLARS):
            in_form(pa.record_batch({}), self.batch_format)

    def apply(self, batch: Any) -> Any:
        given = batch if self.batch_format is None else in_form(batch, self.batch_format)
        return as_batch(self.function(given))

    def rows_because(self, schema: pa.Schema) -> str | None:
        return "it was asked for: batch_format='rows'" if self.batch_format == ROWS else None

    def culprit(self, batch: Any) -> Any:
        return None


def is_built(function: Any) -> bool:
    """Whether a class is given whose instances are called with batches; a class such as ``list`` is itself called."""
    return isinstance(function, type) and any("__call__" in vars(cls) for cls in function.__mro__)


# -- to the function -----------------------------------------------------------------------------------


def in_form(batch: Any, batch_format: str) -> Any:
    """A batch as the function asks for it. Raises DataflowError where the form cannot hold the values."""
    if batch_format == ROWS:
        return to_rows(batch)
    columns = batch if isinstance(batch, pa.RecordBatch) else to_record_batch(to_rows(batch))
    if batch_format == PYARROW:
        return columns
    require_distinct(columns.schema, "a batch")
    if batch_format == NUMPY:
        return {name: _numpy(column, name) for name, column in zip(columns.schema.names, columns.columns, strict=True)}
    return _pandas(columns) if batch_format == PANDAS else _polars(columns)


def _numpy(column: pa.Array, name: str) -> np.ndarray[Any, Any]:
    """One array: numbers and times as numpy has them, lists of one length as a row each, all else as Python's objects."""
    kind = column.type
    if pat.is_fixed_size_list(kind) and pat.is_primitive(kind.value_type) and not column.null_count:
        values = _numpy(column.flatten(), f"{name}[]")
        return values.reshape(len(column), kind.list_size)
    is_number = pat.is_integer(kind) or pat.is_floating(kind) or pat.is_boolean(kind)
    if is_number and column.null_count:
        raise DataflowError(
            f"map_batches(batch_format='numpy'): column {name!r}, {kind}, has {column.null_count} nulls, which a numpy array of numbers "
            "cannot hold: fill them before (pyarrow.compute.fill_null), or give batch_format='pandas' or 'pyarrow'"
        )
    if is_number or pat.is_date32(kind) or pat.is_duration(kind) or (pat.is_timestamp(kind) and kind.tz is None):
        return column.to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]
    if needs_look(kind):
        require_python(column, name)
    return np.fromiter(column.to_pylist(), dtype=object, count=len(column))


def _pandas(batch: pa.RecordBatch) -> Any:
    import pandas

    whole: dict[pa.DataType, Any] = {getattr(pa, f"int{bits}")(): getattr(pandas, f"Int{bits}Dtype")() for bits in (8, 16, 32, 64)}
    whole |= {getattr(pa, f"uint{bits}")(): getattr(pandas, f"UInt{bits}Dtype")() for bits in (8, 16, 32, 64)}
    whole[pa.bool_()] = pandas.BooleanDtype()

    def series(column: pa.Array) -> Any:
        """With pandas' own types where these have the same values, else with Arrow's."""
        kind = column.type
        if kind in whole:
            return column.to_pandas(types_mapper=whole.get) if column.null_count else column.to_pandas()
        if pat.is_floating(kind) and not pc.any(pc.is_nan(column)).as_py():  # in pandas' own floats NaN is null
            return column.to_pandas()
        if pat.is_string(kind) or pat.is_binary(kind) or pat.is_timestamp(kind) or pat.is_duration(kind):
            return column.to_pandas()
        if pat.is_date32(kind) or pat.is_decimal(kind) or pat.is_null(kind):
            return column.to_pandas()
        return pandas.Series(pandas.arrays.ArrowExtensionArray(pa.chunked_array([column])))

    names, rows = batch.schema.names, pandas.RangeIndex(batch.num_rows)
    try:
        return pandas.DataFrame({name: series(column) for name, column in zip(names, batch.columns, strict=True)}, index=rows)
    except (pa.ArrowException, NotImplementedError, TypeError, ValueError, OverflowError) as error:
        raise _not_in(PANDAS, batch, error) from error


def _polars(batch: pa.RecordBatch) -> Any:
    import polars

    plain = pa.Table.from_batches([batch.replace_schema_metadata(None)])
    try:
        schema = pa.schema([one.with_type(_mapped(one.type, _for_polars)) for one in plain.schema])
        return polars.from_arrow(plain.cast(schema))
    except (Exception, polars.exceptions.PanicException) as error:
        raise _not_in(POLARS, batch, error) from error


def _not_in(batch_format: str, batch: pa.RecordBatch, error: Exception) -> DataflowError:
    told = show({one.name: str(one.type) for one in batch.schema}, 160)
    return DataflowError(f"map_batches(batch_format={batch_format!r}): it cannot hold the columns {told}: {error}; cast them before")


# -- from the function ---------------------------------------------------------------------------------


def as_batch(out: Any) -> Any:
    """What a function of batches gave, as a batch (a Table where one batch cannot hold it). Raises DataflowError where it is something
    else."""
    if isinstance(out, (pa.RecordBatch, pa.Table)):
        require_distinct(out.schema, f"what {_WHAT} returned")
        if isinstance(out, pa.RecordBatch):
            return out
        parts = one_or_more(out)
        return pa.Table.from_batches(parts) if len(parts) > 1 else parts[0] if parts else []
    if hasattr(out, "iloc") and hasattr(out, "columns"):
        return _of_pandas(out)
    if hasattr(out, "to_arrow") and hasattr(out, "get_columns"):
        return _of_polars(out)
    if isinstance(out, Mapping) and out and all(isinstance(value, np.ndarray) for value in out.values()):
        return _of_numpy(out)
    require_result(out, "map_batches")
    if isinstance(out, (Sequence, Set, MappingView, Iterator)) and not isinstance(out, (str, bytes)):
        records: Any = out
        rows: list[Any] = records if isinstance(records, list) else list(records)
        if rows and (isinstance(rows[0], (pa.RecordBatch, pa.Table)) or hasattr(rows[0], "iloc")):
            raise DataflowError(
                f"{_WHAT} returned several batches, the first a {type(rows[0]).__name__}: give one, e.g. by pyarrow.concat_tables"
            )
        return rows
    if out is None:
        raise DataflowError(f"{_WHAT} returned None; it must return {_MAY_BE}")
    hint = "for columns give pyarrow.table(x)" if isinstance(out, Mapping) else "for records give list(x)"
    raise DataflowError(f"{_WHAT} returned a {type(out).__name__}, {show(out, 60)}; it must return {_MAY_BE}: {hint}")


def _of_pandas(frame: Any) -> Any:
    """A pandas DataFrame as a batch: named levels of its index become columns, one without a name is left out, as nothing can name it.
    NaN in pandas' own floats is null, as pandas means it."""
    named = [name for name in frame.index.names if name is not None]
    names = [*named, *frame.columns]
    if not all(isinstance(name, str) for name in names) or len(set(names)) < len(names):
        raise DataflowError(f"{_WHAT} returned a DataFrame with columns {show(names, 120)}: they must be strings that differ, rename them")
    if named:
        frame = frame.reset_index(level=named)
    try:
        return as_batch(pa.Table.from_pandas(frame, preserve_index=False).replace_schema_metadata(None))
    except pa.ArrowException as error:
        raise DataflowError(f"{_WHAT} returned a DataFrame that Arrow cannot hold as columns: {'; '.join(map(str, error.args))}") from error


def _of_polars(frame: Any) -> Any:
    """A Polars DataFrame as a batch, with Arrow's ordinary types in place of the large ones and views that Polars has."""
    table = frame.to_arrow()
    schema = pa.schema([pa.field(one.name, _mapped(one.type, _ordinary)) for one in table.schema])
    with suppress(pa.ArrowInvalid):  # 2 GiB of text in one column stay large
        table = table.cast(schema)
    return as_batch(table)


def _mapped(kind: pa.DataType, other: Callable[[pa.DataType], pa.DataType]) -> pa.DataType:
    """A type with ``other`` in place of each type in it, and of itself."""
    if pat.is_list(kind):
        kind = pa.list_(_mapped(kind.value_type, other))
    elif pat.is_large_list(kind):
        kind = pa.large_list(_mapped(kind.value_type, other))
    elif pat.is_fixed_size_list(kind):
        kind = pa.list_(_mapped(kind.value_type, other), kind.list_size)
    elif pat.is_struct(kind):
        kind = pa.struct([pa.field(one.name, _mapped(one.type, other)) for one in kind])
    elif pat.is_dictionary(kind):
        kind = pa.dictionary(kind.index_type, _mapped(kind.value_type, other), kind.ordered)
    return other(kind)


def _for_polars(kind: pa.DataType) -> pa.DataType:
    """Polars makes times of date64; its first version reads small decimals wrong, and with pyarrow 21 it crashes on views. What it
    would give as something else without a word is refused."""
    if isinstance(kind, pa.BaseExtensionType) or pat.is_map(kind):
        raise TypeError(f"{kind} would come as {kind.storage_type if isinstance(kind, pa.BaseExtensionType) else 'a list of structs'}")
    if pat.is_date64(kind):
        return pa.date32()
    if pat.is_decimal32(kind) or pat.is_decimal64(kind):
        return pa.decimal128(kind.precision, kind.scale)
    return pa.large_string() if pat.is_string_view(kind) else pa.large_binary() if pat.is_binary_view(kind) else kind


def _ordinary(kind: pa.DataType) -> pa.DataType:
    if pat.is_large_string(kind) or pat.is_string_view(kind):
        return pa.string()
    if pat.is_large_binary(kind) or pat.is_binary_view(kind):
        return pa.binary()
    return pa.list_(kind.value_type) if pat.is_large_list(kind) else kind


def _of_numpy(arrays: Mapping[Any, np.ndarray[Any, Any]]) -> pa.RecordBatch:
    """A dict of arrays as columns: a row of an array of more dimensions is a list of fixed length."""
    if not all(isinstance(name, str) for name in arrays):
        raise DataflowError(f"{_WHAT} returned a dict with the keys {show(list(arrays), 120)}: names of columns must be strings")
    shapes = {name: array.shape for name, array in arrays.items()}
    if not all(shapes.values()) or len({shape[0] for shape in shapes.values()}) > 1:
        raise DataflowError(f"{_WHAT} returned arrays of the shapes {show(shapes, 160)}: each must have the same number of rows")
    return pa.RecordBatch.from_pydict({name: _of_array(array, name) for name, array in arrays.items()})


def _of_array(array: np.ndarray[Any, Any], name: str) -> pa.Array:
    if array.ndim > 1:
        return pa.FixedSizeListArray.from_arrays(_of_array(array.reshape(-1, *array.shape[2:]), name), array.shape[1])
    if array.dtype == object:
        return array_of(array.tolist(), column=name)
    try:
        return pa.array(array.copy())  # Arrow would share its memory, and the function may use it again
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise DataflowError(f"{_WHAT} returned {name!r} as an array of {array.dtype}, which Arrow cannot hold: {error}") from error


__all__ = ["FORMATS", "MapBatches", "as_batch", "in_form", "is_built", "of_batches"]
