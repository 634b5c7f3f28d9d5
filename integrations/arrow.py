"""Arrow tables in memory as a source."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, TypeAlias

import pyarrow as pa

from rayad.dataflow.items import instead_of_frame
from rayad.dataflow.logical_graph import check_count
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

ArrowData: TypeAlias = pa.Table | pa.RecordBatch | Iterable[pa.Table | pa.RecordBatch]


class ArrowRange(NamedTuple):
    """A part: rows ``start`` to ``stop`` of the table."""

    start: int
    stop: int


def as_table(data: ArrowData, where: str) -> pa.Table:
    """One table from a table, a record batch or several of either; ConfigError if it is something else or the schemas differ."""
    if isinstance(data, pa.Table):
        return data
    if isinstance(data, pa.RecordBatch):
        return pa.Table.from_batches([data])
    if isinstance(data, pa.RecordBatchReader):
        return data.read_all()
    instead = instead_of_frame(data)
    if instead is not None and not instead.endswith("list()"):
        raise ConfigError(f"{where}: got a {type(data).__name__}: give {instead}")
    if isinstance(data, str | bytes | dict) or not isinstance(data, Iterable):
        raise ConfigError(f"{where}: got a {type(data).__name__}; give a pyarrow.Table, a RecordBatch, or a list of them")
    tables: list[pa.Table] = []
    for index, item in enumerate(data):
        if not isinstance(item, pa.Table | pa.RecordBatch):
            instead = instead_of_frame(item)
            if instead is not None and not instead.endswith("list()"):
                raise ConfigError(f"{where}: item {index} is a {type(item).__name__}: give {instead} of each")
            raise ConfigError(f"{where}: item {index} is a {type(item).__name__}; give a pyarrow.Table, a RecordBatch, or a list of them")
        table = item if isinstance(item, pa.Table) else pa.Table.from_batches([item])
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

    ``epoch`` names an integer column that gives each row's epoch; the rows of a part are put in its order (stable), each batch holds one
    epoch, and the column stays in the data. Without it all is in epoch 0. ``parts`` says into how many ranges of rows to split
    (default: one for each ``batch_rows``, 16 at most). With ``epoch`` the parts are read side by side, lowest epoch first.

    >>> source = ArrowSource(pa.table({"e": [1, 0, 1], "x": ["a", "b", "c"]}), epoch="e")
    >>> part = source.build_part(source.list_parts()[0], None)
    >>> [(b.epoch, b.batch.column("x").to_pylist()) for b in iter(part.next_batch, None)]
    [(0, ['b']), (1, ['a', 'c'])]
    """

    def __init__(
        self, data: ArrowData, *, batch_rows: int = DEFAULT_BATCH_ROWS, epoch: str | None = None, parts: int | None = None
    ) -> None:
        where = "from_arrow"
        self._table = as_table(data, where)
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
        where = f"from_arrow, rows {part.start} to {part.stop}"
        return TablePart(lambda: rows, batch_rows=self._batch_rows, epoch=self._epoch, resume=resume, where=where)


__all__ = ["ArrowRange", "ArrowSource", "as_table"]
