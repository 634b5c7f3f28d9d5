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
from dataclasses import dataclass, field
from types import FunctionType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.types as pat

from rayad.dataflow.operators.stateless import Element
from rayad.dataflow.records import frames
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
    table, what = pa.Table.from_batches([columns]), f"map_batches(batch_format={batch_format!r})"
    return frames.to_pandas(table, what) if batch_format == PANDAS else frames.to_polars(table, what)


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
        return as_batch(frames.from_pandas(out, f"{_WHAT} returned"))
    if hasattr(out, "to_arrow") and hasattr(out, "get_columns"):
        return as_batch(frames.from_polars(out, f"{_WHAT} returned"))
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
