"""Keeping results in memory as Arrow, for sinks whose result is a data set on the driver.

A writer gives its records as the bytes of one Arrow IPC stream: compact (a slice does not include its parent's buffers), of one schema, and
not a Ray object, which would be lost with the replica that owns it. The driver owns what it makes from them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from rayad.dataflow.records.batches import one_or_more
from rayad.dataflow.records.exact import cast_batch, wider_schema
from rayad.dataflow.records.output_form import OutputForm, schema_drift
from rayad.dataflow.sink import Sink, SinkWriter
from rayad.progress import DataflowError, Timestamp


class ArrowWriter(SinkWriter):
    """Keeps a replica's records as RecordBatches of one schema."""

    def __init__(self, schema: pa.Schema | None, epoch_column: str | None, where: str) -> None:
        self._form = OutputForm(schema, where)
        self._epoch_column = epoch_column
        self._where = where
        self._batches: list[tuple[Timestamp, pa.RecordBatch]] = []
        self._bytes = 0

    def write(self, time: Timestamp, batch: Any) -> None:
        """Keep the records. Raises DataflowError where they do not fit the schema exactly."""
        before = self._form.schema
        records = self._form.fit(batch)
        if not records.num_rows:
            return
        if self._form.schema is not before:
            self._batches = [(at, self._form.again(kept)) for at, kept in self._batches]
        if self._epoch_column is not None and self._epoch_column in records.schema.names:
            raise DataflowError(
                f"{self._where}: epoch_column={self._epoch_column!r} is already a column of the records; choose another name"
            )
        self._batches.append((time, records))
        self._bytes += records.nbytes

    def kept_bytes(self) -> int:
        """What was written since the last call of ``stage``."""
        return self._bytes

    def stage(self) -> bytes:
        """The records since the last call as one Arrow IPC stream; nothing when there were none."""
        batches, self._batches, self._bytes = self._batches, [], 0
        if not batches:
            return b""
        ready = [self._with_epoch(self._form.again(batch), time.epoch) for time, batch in batches]
        out = pa.BufferOutputStream()
        with pa.ipc.new_stream(out, ready[0].schema) as stream:
            for batch in one_or_more(pa.Table.from_batches(ready)):
                stream.write_batch(batch)
        return bytes(out.getvalue())

    def _with_epoch(self, records: pa.RecordBatch, epoch: int) -> pa.RecordBatch:
        if self._epoch_column is None:
            return records
        return records.append_column(self._epoch_column, pa.repeat(pa.scalar(epoch, pa.int64()), records.num_rows))

    def abort(self) -> None:
        """Forget what was kept."""
        self._batches, self._bytes = [], 0


class ArrowSink(Sink):
    """Keeps results as Arrow; ``result`` gives a list of tables, one for each replica and snapshot, which subclasses convert."""

    where = "to_arrow"

    def __init__(self, *, schema: pa.Schema | None = None, epoch_column: str | None = None) -> None:
        self.schema = schema
        self.epoch_column = epoch_column

    def open(self, replica: int, parallelism: int) -> SinkWriter:
        """The writer of one replica."""
        return ArrowWriter(self.schema, self.epoch_column, self.where)

    def publish(self, staged: Sequence[Any]) -> tuple[bytes, ...]:
        """Return the Arrow streams that are not empty."""
        return tuple(data for data in staged if data)

    def tables(self, receipt: Sequence[bytes]) -> list[pa.Table]:
        """Return the tables of a receipt, all of one schema. Raises DataflowError if replicas differ."""
        tables = [pa.ipc.open_stream(data).read_all() for data in receipt]
        if tables:
            schema = self._in_common([table.schema for table in tables])
            tables = [pa.Table.from_batches([cast_batch(batch, schema) for batch in table.to_batches()], schema) for table in tables]
        if not tables and self.schema is not None:
            schema = self.schema
            if self.epoch_column is not None:
                schema = schema.append(pa.field(self.epoch_column, pa.int64()))
            tables.append(schema.empty_table())
        return tables

    def _in_common(self, schemas: Sequence[pa.Schema]) -> pa.Schema:
        """The schema that holds the records of all replicas."""
        common = schemas[0]
        for schema in schemas[1:]:
            wide = wider_schema(common, schema) if set(common.names) == set(schema.names) else None
            if wide is None:
                drift = schema_drift(f"{self.where}: the results of another replica", common, schema, "give schema= to the sink")
                if drift is not None:
                    raise drift
            else:
                common = wide
        return common

    def result(self, receipt: Sequence[bytes]) -> Any:
        """The tables."""
        return self.tables(receipt)


__all__ = ["ArrowSink", "ArrowWriter"]
