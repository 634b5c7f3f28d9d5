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

    >>> dict(to_polars(pa.table({"n": [1, None]}), "to_polars").schema)
    {'n': Int64}
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
    said = _first_line(error)
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
            columns[name] = array = _of_objects(series, name) if series.dtype == object else pa.array(series, from_pandas=True)
            if getattr(array.type, "extension_name", "").startswith("pandas."):  # of a period, say, a record would have a number
                raise TypeError(f"only pandas knows what {array.type.storage_type} means there; convert it first")
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


def from_polars(frame: pl.DataFrame, what: str) -> pa.Table:
    """A Polars DataFrame as a table, with Arrow's ordinary types in place of the large ones and views that Polars has. Raises
    DataflowError, which begins with ``what``, naming a column that Arrow does not hold."""
    columns = {}
    for series in frame.get_columns():
        try:
            if str(series.dtype).startswith("Object"):  # what Polars gives for it are numbers
                raise TypeError("Arrow has no such type")
            columns[series.name] = series.to_arrow()
        except _REFUSED as error:
            told = _of_column(_first_line(error), series.name, series.dtype)
            raise DataflowError(f"{what} a DataFrame that Arrow cannot hold as columns: {told}; cast it first") from error
    table = pa.table(columns)
    schema = pa.schema([pa.field(one.name, _mapped(one.type, _ordinary)) for one in table.schema])
    with suppress(pa.ArrowInvalid):  # 2 GiB of text in one column stay large
        table = table.cast(schema)
    return table


# -- from whatever has columns -------------------------------------------------------------------------

GIVE = (
    "give a pyarrow.Table, a RecordBatch, a list of them, or what has columns of Arrow (__arrow_c_stream__): a DataFrame of pandas or "
    "Polars, a relation of DuckDB, a reader"
)


def table_from(data: Any, where: str) -> pa.Table | None:
    """The table in one object; None where it is none that has columns. Raises ConfigError where it is one column, DataflowError naming a
    column that cannot be held exactly."""
    if isinstance(data, pa.Table):
        return data
    if isinstance(data, pa.RecordBatch):
        return pa.Table.from_batches([data])
    if is_pandas(data):
        return table_of_pandas(data, where)
    if is_polars(data) or is_polars(data, "LazyFrame"):
        return table_of_polars(data, where)
    if is_pandas(data, "Series") or is_pandas(data, "Index") or is_polars(data, "Series"):
        raise ConfigError(f"{where}: got a {type(data).__name__}, which is one column: give x.to_frame(name='value')")
    if isinstance(data, pa.Array | pa.ChunkedArray):
        raise ConfigError(f"{where}: got a {type(data).__name__}, which is one column without a name: give pyarrow.table({{'value': x}})")
    if isinstance(data, pa.RecordBatchReader):
        return data.read_all()
    dataset = sys.modules.get("pyarrow.dataset")
    if dataset is not None and isinstance(data, dataset.Dataset | dataset.Scanner):
        return data.to_table()
    try:
        if type(data).__name__ == "DuckDBPyConnection":  # the result of its last execute()
            return (data.to_arrow_reader() if hasattr(data, "to_arrow_reader") else data.fetch_record_batch()).read_all()
        if hasattr(data, "__arrow_c_stream__"):
            return pa.RecordBatchReader.from_stream(data).read_all()
        if hasattr(data, "__arrow_c_array__"):
            return pa.Table.from_batches([pa.record_batch(data)])
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise ConfigError(f"{where}: the columns of a {type(data).__name__} could not be read: {_first_line(error)}; {GIVE}") from error
    return None


def _first_line(error: BaseException) -> str:
    return str(error).strip().split("\n", 1)[0]


def table_of_pandas(frame: Any, where: str) -> pa.Table:
    """A pandas DataFrame as a table: see :class:`rayad.integrations.PandasSource`. Raises ConfigError, and DataflowError naming a column
    that cannot be held."""
    if not is_pandas(frame):
        raise _not_one("pandas", frame, where)
    if any(level is None for level in frame.index.names) and not _is_numbered(frame.index):
        raise ConfigError(
            f"{where}: the index of the DataFrame, {show(list(frame.index[:3]), 80)} ..., has no name, so no column can be made of it: "
            "name it by x.rename_axis('key'), or leave it out by x.reset_index(drop=True)"
        )
    return from_pandas(frame, f"{where} was given")


def _not_one(library: str, data: Any, where: str) -> ConfigError:
    """The error for what is no frame of a library."""
    kind = type(data).__name__
    if is_pandas(data, "Series") or is_pandas(data, "Index") or is_polars(data, "Series"):
        return ConfigError(f"{where}: got a {kind}, which is one column: give x.to_frame(name='value')")
    other = "from_pandas" if is_pandas(data) else "from_polars" if is_polars(data) or is_polars(data, "LazyFrame") else "from_arrow"
    takes = {"pandas": "pandas.DataFrame", "Polars": "polars.DataFrame or LazyFrame"}[library]
    has_columns = other != "from_arrow" or isinstance(data, pa.Table | pa.RecordBatch) or hasattr(data, "__arrow_c_stream__")
    hint = f"use flow.{other}(x)" if has_columns else "for records use flow.from_items(x)"
    return ConfigError(f"{where}: got a {type(data).__module__.split('.', 1)[0]}.{kind}; it takes a {takes}: {hint}")


def _is_numbered(index: Any) -> bool:
    """Whether an index numbers rows: nothing is lost with it."""
    return index.nlevels == 1 and index.dtype.kind in "iu"


def table_of_polars(frame: Any, where: str) -> pa.Table:
    """A Polars DataFrame or LazyFrame as a table: see :class:`rayad.integrations.PolarsSource`. Raises ConfigError, and DataflowError
    naming a column that cannot be held."""
    if is_polars(frame, "LazyFrame"):
        frame = frame.collect()
    if not is_polars(frame):
        raise _not_one("Polars", frame, where)
    return from_polars(frame, f"{where} was given")


# -- types ---------------------------------------------------------------------------------------------


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


__all__ = [
    "GIVE",
    "from_pandas",
    "from_polars",
    "is_pandas",
    "is_polars",
    "required",
    "table_from",
    "table_of_pandas",
    "table_of_polars",
    "to_pandas",
    "to_polars",
]
