"""Keeping results in memory as Arrow, for sinks whose result is a data set on the driver.

A writer hands over its records as the bytes of one Arrow IPC stream: compact (a slice drags no parent buffer along), of one schema, and
no Ray object whose owner would die with the replica. The driver becomes the owner of what it makes from them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from rayad.dataflow.sink import Sink, SinkWriter
from rayad.integrations.blocks import conform, schema_drift
from rayad.progress import DataflowError, Timestamp


class ArrowWriter(SinkWriter):
    """Keeps a replica's records as RecordBatches of one schema."""

    def __init__(self, schema: pa.Schema | None, epoch_column: str | None, where: str) -> None:
        self._schema = schema
        self._given = schema is not None
        self._epoch_column = epoch_column
        self._where = where
        self._batches: list[pa.RecordBatch] = []

    def write(self, time: Timestamp, batch: Any) -> None:
        """Keep the records. Raises DataflowError where they do not fit the schema."""
        records = conform(batch, self._schema, may_cast=self._given, where=self._where)
        if not records.num_rows:
            return
        self._schema = self._schema or records.schema
        if self._epoch_column is not None:
            if self._epoch_column in records.schema.names:
                raise DataflowError(
                    f"{self._where}: epoch_column={self._epoch_column!r} is already a column of the records; choose another name"
                )
            records = records.append_column(self._epoch_column, pa.repeat(pa.scalar(time.epoch, pa.int64()), records.num_rows))
        self._batches.append(records)

    def stage(self) -> bytes:
        """The records since the last call as one Arrow IPC stream; nothing when there were none."""
        batches, self._batches = self._batches, []
        if not batches:
            return b""
        out = pa.BufferOutputStream()
        with pa.ipc.new_stream(out, batches[0].schema) as stream:
            for batch in pa.Table.from_batches(batches).combine_chunks().to_batches():
                stream.write_batch(batch)
        return bytes(out.getvalue())

    def abort(self) -> None:
        """Forget what was kept."""
        self._batches = []


class ArrowSink(Sink):
    """Keeps results as Arrow; ``result`` gives a list of tables, one for each replica and snapshot. Its subclasses make more of them."""

    where = "to_arrow"

    def __init__(self, *, schema: pa.Schema | None = None, epoch_column: str | None = None) -> None:
        self.schema = schema
        self.epoch_column = epoch_column

    def open(self, replica: int, parallelism: int) -> SinkWriter:
        """The writer of one replica."""
        return ArrowWriter(self.schema, self.epoch_column, self.where)

    def publish(self, staged: Sequence[Any]) -> tuple[bytes, ...]:
        """The Arrow streams that are not empty."""
        return tuple(data for data in staged if data)

    def tables(self, receipt: Sequence[bytes]) -> list[pa.Table]:
        """The tables of a receipt, all of one schema; DataflowError where replicas differ."""
        tables: list[pa.Table] = []
        for data in receipt:
            table = pa.ipc.open_stream(data).read_all()
            if tables:
                drift = schema_drift(f"{self.where}: the results of another replica", tables[0].schema, table.schema)
                if drift is not None:
                    raise drift
                table = table.select(tables[0].schema.names)
            tables.append(table)
        if not tables and self.schema is not None:
            schema = self.schema
            if self.epoch_column is not None:
                schema = schema.append(pa.field(self.epoch_column, pa.int64()))
            tables.append(schema.empty_table())
        return tables

    def result(self, receipt: Sequence[bytes]) -> Any:
        """The tables."""
        return self.tables(receipt)


__all__ = ["ArrowSink", "ArrowWriter"]
