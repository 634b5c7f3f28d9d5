"""Arrow tables in memory as a source, and data frames."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, NamedTuple, Protocol, TypeAlias

import pyarrow as pa

from rayad.dataflow.logical_graph import check_count
from rayad.dataflow.records import frames
from rayad.dataflow.records.batches import require_distinct
from rayad.dataflow.source import Source, SourcePart
from rayad.integrations.blocks import (
    DEFAULT_BATCH_ROWS,
    TablePart,
    check_batch_rows,
    check_epoch_column,
    describe,
    epochs_of,
    schema_drift,
    table_digest,
)
from rayad.progress import ConfigError

ArrowData: TypeAlias = "pa.Table | pa.RecordBatch | Iterable[pa.Table | pa.RecordBatch] | SupportsArrowStream | SupportsArrowArray"


class SupportsArrowStream(Protocol):
    """What gives its columns as a stream of Arrow: frames of pandas and Polars, relations of DuckDB, readers."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...


class SupportsArrowArray(Protocol):
    """What gives its columns as one array of Arrow."""

    def __arrow_c_array__(self, requested_schema: object | None = None) -> tuple[object, object]: ...


class ArrowRange(NamedTuple):
    """A part: rows ``start`` to ``stop`` of the table."""

    start: int
    stop: int


def as_table(data: ArrowData, where: str) -> pa.Table:
    """One table from what has columns of Arrow, or several of such in a list. Raises ConfigError where it is something else or the schemas
    differ."""
    table = frames.table_from(data, where)
    if table is not None:
        return table
    if isinstance(data, str | bytes | dict) or not isinstance(data, Iterable):
        raise ConfigError(f"{where}: got a {type(data).__name__}; {frames.GIVE}")
    tables: list[pa.Table] = []
    for index, item in enumerate(data):
        table = frames.table_from(item, f"{where}: item {index}")
        if table is None:
            raise ConfigError(f"{where}: item {index} is a {type(item).__name__}; {frames.GIVE}")
        if tables:
            advice = "all items must have the same columns: give the others to a source of their own"
            drift = schema_drift(f"{where}: item {index}", tables[0].schema, table.schema, advice)
            if drift is not None:
                raise drift
            table = table.select(tables[0].schema.names)
        tables.append(table)
    if not tables:
        raise ConfigError(f"{where}: got an empty list; an empty table needs a schema: give pyarrow.schema(...).empty_table()")
    return pa.concat_tables(tables)


class ArrowSource(Source):
    """Reads tables that are in memory, as RecordBatches.

    ``data``: a table, a record batch, anything that has columns of Arrow (``__arrow_c_stream__`` or ``__arrow_c_array__``: DataFrames
    of pandas and Polars, relations of DuckDB, readers, data sets of pyarrow), or a list of such with the same columns. All of it is read
    into memory, once, when the source is made: a reader is at its end afterwards, and one without an end is not for this. DataFrames of
    pandas and Polars are taken as by :class:`PandasSource` and :class:`PolarsSource`.

    ``epoch`` names an integer column that gives each row's epoch; the rows of a part are put in its order (stable), each batch holds one
    epoch, and the column stays in the data. Without it all is in epoch 0. ``parts`` says into how many ranges of rows to split
    (default: one for each ``batch_rows``, 16 at most). With ``epoch`` the parts are read side by side, lowest epoch first.

    >>> source = ArrowSource(pa.table({"e": [1, 0, 1], "x": ["a", "b", "c"]}), epoch="e")
    >>> part = source.build_part(source.list_parts()[0], None)
    >>> [(b.epoch, b.batch.column("x").to_pylist()) for b in iter(part.next_batch, None)]
    [(0, ['b']), (1, ['a', 'c'])]
    """

    blocks = False
    where: ClassVar[str] = "from_arrow"
    """What makes it, for errors."""
    _read: ClassVar[Any] = staticmethod(as_table)

    def __init__(
        self, data: ArrowData, *, batch_rows: int = DEFAULT_BATCH_ROWS, epoch: str | None = None, parts: int | None = None
    ) -> None:
        where = self.where
        self._table = self._read(data, where)
        require_distinct(self._table.schema, where)
        self._batch_rows = check_batch_rows(batch_rows, where)
        self._epoch = epoch
        self.one_epoch = epoch is None
        check_epoch_column(self._table.schema, epoch, where)
        if epoch is not None:
            epochs_of(self._table.column(epoch), epoch, where)
        if parts is not None:
            parts = check_count(parts, f"{where}: parts", more=", or None", error=ConfigError)
        self._parts = parts if parts is not None else min(16, max(1, -(-self._table.num_rows // batch_rows)))
        self.interleave = epoch is not None

    @property
    def schema(self) -> pa.Schema:
        """Columns and types of the batches."""
        return self._table.schema

    def list_parts(self) -> Sequence[ArrowRange]:
        """Split the table into ranges of about equally many rows, in order."""
        rows, parts = self._table.num_rows, self._parts
        cuts = [rows * i // parts for i in range(parts + 1)]
        ranges = [ArrowRange(a, b) for a, b in itertools.pairwise(cuts) if a < b]
        return ranges or [ArrowRange(0, 0)]

    def part_sizes(self, parts: Sequence[ArrowRange]) -> Sequence[float]:
        """Rows."""
        return [float(part.stop - part.start) for part in parts]

    def fingerprint(self, parts: Sequence[ArrowRange]) -> dict[str, Any]:
        """Rows, columns, how they are cut, and a digest of some rows: all of a small table, rows at even distances of a big one."""
        return {
            "rows": self._table.num_rows,
            "columns": describe(self._table.schema),
            "parts": len(parts),
            "epoch": self._epoch,
            "contents": table_digest(self._table),
        }

    def build_part(self, part: ArrowRange, resume: int | None) -> SourcePart:
        """Open a range; ``resume`` is the number of its rows already read."""
        rows = self._table.slice(part.start, part.stop - part.start)
        where = f"{self.where}, rows {part.start} to {part.stop}"
        return TablePart(lambda: rows, batch_rows=self._batch_rows, epoch=self._epoch, resume=resume, where=where)


class PandasSource(ArrowSource):
    """Reads a pandas DataFrame, as RecordBatches; ``epoch``, ``parts`` and ``batch_rows`` are those of :class:`ArrowSource`.

    Named levels of the index become the first columns. An index without a name that numbers the rows is left out, as Spark and Polars do;
    another one without a name is refused (name it by ``rename_axis``, or ``reset_index(drop=True)``). NaN in pandas' own floats is null, as
    pandas means it, and so is what is missing in a column of objects. Values of a column of objects stay what they are: they are
    refused, with the name of the column, where no type of Arrow holds all of them. Names of columns must be strings that differ.

    >>> import pandas
    >>> PandasSource(pandas.DataFrame({"n": [1, 2]}, index=pandas.Index(["a", "b"], name="key"))).schema.names
    ['key', 'n']
    """

    where = "from_pandas"
    _read = staticmethod(frames.table_of_pandas)


class PolarsSource(ArrowSource):
    """Reads a Polars DataFrame, or a LazyFrame, which is collected at once; as RecordBatches. ``epoch``, ``parts`` and ``batch_rows`` are
    those of :class:`ArrowSource`.

    Texts and bytes have Arrow's ordinary types. A column of a type that Arrow does not have (``Object``) is refused by its name.

    >>> import polars
    >>> PolarsSource(polars.LazyFrame({"n": ["a"]})).schema
    n: string
    """

    where = "from_polars"
    _read = staticmethod(frames.table_of_polars)


__all__ = ["ArrowRange", "ArrowSource", "PandasSource", "PolarsSource", "as_table"]
