"""Arrow tables as data frames of pandas and Polars, and back: every value as it is, or an error that names the column.

Both libraries are imported where a frame is made. What pandas' own types would round or leave out (whole numbers with nulls, NaN beside
null, nanoseconds of a time) is held by another type of pandas.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat

from rayad.dataflow.records.exact import array_of
from rayad.progress import ConfigError, DataflowError, show

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl

_REFUSED = (pa.ArrowException, TypeError, ValueError, OverflowError, NotImplementedError)


def required(module: str, what: str) -> Any:
    """A library that is not needed otherwise. Raises ConfigError where it is not installed; ``what`` needs it."""
    try:
        return import_module(module)
    except ImportError as error:
        raise ConfigError(f"{what} needs {module}, which cannot be imported here: {error}; pip install {module}") from error


def is_pandas(data: Any, cls: str = "DataFrame") -> bool:
    """Whether this is a DataFrame (or another class) of pandas; without importing it."""
    return _is_of("pandas", data, cls)


def is_polars(data: Any, cls: str = "DataFrame") -> bool:
    """Whether this is a DataFrame (or another class) of Polars; without importing it."""
    return _is_of("polars", data, cls)


def _is_of(library: str, data: Any, cls: str) -> bool:
    known = getattr(sys.modules.get(library), cls, None)  # where it is not imported, nobody has an instance
    return isinstance(known, type) and isinstance(data, known)


# -- to a frame ----------------------------------------------------------------------------------------


def to_pandas(table: pa.Table, what: str, *, arrow_types: bool = False) -> pd.DataFrame:
    """A table as a pandas DataFrame with a plain index, in pandas' own types where these have the same values, else, and with
    ``arrow_types`` throughout, in ``pandas.ArrowDtype``. Raises DataflowError, for ``what``, naming a column that pandas cannot hold.

    >>> to_pandas(pa.table({"n": [1, None], "x": [0.5, 1.5]}), "to_pandas").dtypes.astype(str).to_dict()
    {'n': 'Int64', 'x': 'float64'}
    """
    pandas = required("pandas", what)
    columns = {}
    for name, column in zip(table.schema.names, table.columns, strict=True):
        try:
            columns[name] = _series(column, pandas, arrow_types)
        except _REFUSED as error:
            raise _not_held(what, "pandas", name, column.type, error) from error
    frame: pd.DataFrame = pandas.DataFrame(columns, index=pandas.RangeIndex(table.num_rows))
    return frame


def _series(column: pa.ChunkedArray, pandas: Any, arrow_types: bool) -> Any:
    kind = column.type
    if not arrow_types:
        if pat.is_integer(kind) or pat.is_boolean(kind):
            named = "boolean" if pat.is_boolean(kind) else str(kind).replace("uint", "UInt").replace("int", "Int")
            return column.to_pandas(types_mapper={kind: pandas.api.types.pandas_dtype(named)}.get if column.null_count else None)
        if pat.is_floating(kind) and not pc.any(pc.is_nan(column)).as_py():  # in pandas' own floats NaN is null
            return column.to_pandas()
        if any(is_kind(kind) for is_kind in _HELD_BY_PANDAS):
            return column.to_pandas()
    return pandas.Series(pandas.arrays.ArrowExtensionArray(column))


_HELD_BY_PANDAS: tuple[Callable[[pa.DataType], bool], ...] = (
    pat.is_string, pat.is_large_string, pat.is_binary, pat.is_timestamp, pat.is_duration, pat.is_date32, pat.is_decimal, pat.is_null,
)  # fmt: skip
"""Types of which pandas' own ones hold each value; null of times is NaT there."""


def to_polars(table: pa.Table, what: str) -> pl.DataFrame:
    """A table as a Polars DataFrame. Raises DataflowError, for ``what``, naming a column that Polars cannot hold.

    >>> to_polars(pa.table({"n": [1, None]}), "to_polars").schema
    Schema({'n': Int64})
    """
    polars = required("polars", what)
    plain = table.replace_schema_metadata(None)
    columns = {}
    for name, column in zip(plain.schema.names, plain.columns, strict=True):
        try:
            columns[name] = polars.Series(name, column.cast(_mapped(column.type, _for_polars)))
        except (Exception, polars.exceptions.PanicException) as error:
            raise _not_held(what, "Polars", name, column.type, error) from error
    frame: pl.DataFrame = polars.DataFrame(columns)
    return frame


def _for_polars(kind: pa.DataType) -> pa.DataType:
    """Polars makes times of date64; its first version reads small decimals wrong, and with pyarrow 21 it crashes on views. What it
    would give as something else without a word is refused."""
    if isinstance(kind, pa.BaseExtensionType) or pat.is_map(kind):
        raise TypeError(f"{kind} would come as {kind.storage_type if isinstance(kind, pa.BaseExtensionType) else 'a list of structs'}")
    if pat.is_decimal256(kind):
        raise TypeError("its decimals have 38 digits at most")
    if pat.is_date64(kind):
        return pa.date32()
    if pat.is_decimal32(kind) or pat.is_decimal64(kind):
        return pa.decimal128(kind.precision, kind.scale)
    return pa.large_string() if pat.is_string_view(kind) else pa.large_binary() if pat.is_binary_view(kind) else kind


def _not_held(what: str, library: str, name: str, kind: pa.DataType, error: BaseException) -> DataflowError:
    said = str(error).strip().split("\n", 1)[0]
    return DataflowError(f"{what}: column {name!r} of type {kind} cannot become a column of {library}: {said}; cast it before")


# -- from a frame --------------------------------------------------------------------------------------


def from_pandas(frame: pd.DataFrame, what: str) -> pa.Table:
    """A pandas DataFrame as a table. Named levels of its index become the first columns, one without a name is left out, as nothing can
    name it. NaN in pandas' own floats, and what pandas takes for missing in a column of objects, is null.

    Raises DataflowError, which begins with ``what``, where names of columns are no strings or do not differ, and naming a column that
    Arrow cannot hold exactly.
    """
    named = [name for name in frame.index.names if name is not None]
    names = [*named, *frame.columns]
    if not all(isinstance(name, str) for name in names) or len(set(names)) < len(names):
        raise DataflowError(f"{what} a DataFrame with columns {show(names, 120)}: they must be strings that differ, rename them")
    if named:
        frame = frame.reset_index(level=named)
    columns = {}
    for name in names:
        series = frame[name]
        try:
            columns[name] = _of_objects(series, name) if series.dtype == object else pa.array(series, from_pandas=True)
        except (*_REFUSED, DataflowError) as error:
            told = "; ".join(map(str, error.args))
            raise DataflowError(f"{what} a DataFrame that Arrow cannot hold as columns: {_of_column(told, name, series.dtype)}") from error
    return pa.table(columns) if columns else pa.table({"": pa.nulls(len(frame))}).select([])


def _of_column(told: str, name: str, dtype: Any) -> str:
    return told if repr(name) in told else f"column {name!r} of dtype {dtype}: {told}"


def _of_objects(series: Any, name: str) -> pa.Array:
    """A column of Python objects, in which pandas has None, NaN, NaT and NA for what is missing."""
    values: list[Any] = series.to_list()
    missing = series.isna().to_numpy()
    if missing.any():
        values = [None if is_missing else value for value, is_missing in zip(values, missing, strict=True)]
    return array_of(values, None, name)


def from_polars(frame: pl.DataFrame) -> pa.Table:
    """A Polars DataFrame as a table, with Arrow's ordinary types in place of the large ones and views that Polars has."""
    table = frame.to_arrow()
    schema = pa.schema([pa.field(one.name, _mapped(one.type, _ordinary)) for one in table.schema])
    with suppress(pa.ArrowInvalid):  # 2 GiB of text in one column stay large
        table = table.cast(schema)
    return table


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


def _ordinary(kind: pa.DataType) -> pa.DataType:
    if pat.is_large_string(kind) or pat.is_string_view(kind):
        return pa.string()
    if pat.is_large_binary(kind) or pat.is_binary_view(kind):
        return pa.binary()
    return pa.list_(kind.value_type) if pat.is_large_list(kind) else kind


__all__ = ["from_pandas", "from_polars", "is_pandas", "is_polars", "required", "to_pandas", "to_polars"]
