"""Rows that go into the snapshots themselves, as Arrow, for sinks whose commits need them at the coordinator; also of sinks that update.

A sink that updates is given changes of keys, ``(record, 1)`` or ``(record, -1)``, which are staged with their epochs. A snapshot may have
several changes of a key, and of several replicas if keys have moved: the one of the last epoch counts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from rayad.dataflow.records.batches import to_rows
from rayad.dataflow.records.output_form import OutputForm
from rayad.dataflow.sink import SinkWriter
from rayad.progress import ConfigError, Timestamp, show

EPOCH, THERE = "rayad_epoch", "rayad_there"
"""The columns that are staged beside those of the records of changes."""
TABLE_BYTES = 1 << 24
"""What is staged is read in tables of about so many bytes: small parts together, large ones one after another."""


class RowsWriter(SinkWriter):
    """Keeps a replica's rows until the next snapshot."""

    def __init__(self, schema: pa.Schema, where: str) -> None:
        self._form = OutputForm(schema, where)
        self._batches: list[pa.RecordBatch] = []
        self._bytes = 0

    def write(self, time: Timestamp, batch: Any) -> None:
        if len(batch):
            self._batches.append(self._form.again(self._form.fit(batch)))
            self._bytes += self._batches[-1].nbytes

    def kept_bytes(self) -> int:
        return self._bytes

    def stage(self) -> bytes:
        """The rows since the last call as an Arrow IPC stream; nothing when there were none."""
        if not self._batches:
            return b""
        batches, self._batches, self._bytes = self._batches, [], 0
        out = pa.BufferOutputStream()
        with pa.ipc.new_stream(out, batches[0].schema) as stream:
            for one in batches:
                stream.write_batch(one)
        return bytes(out.getvalue())


class ChangesWriter(RowsWriter):
    """Keeps a replica's changes, ``(record, 1)`` or ``(record, -1)``, until the next snapshot."""

    def __init__(self, schema: pa.Schema, where: str) -> None:
        super().__init__(pa.schema([*schema, (EPOCH, pa.int64()), (THERE, pa.bool_())]), where)
        self._where = where

    def write(self, time: Timestamp, batch: Any) -> None:
        super().write(time, [{**self._fields(record), EPOCH: time.epoch, THERE: weight > 0} for record, weight in to_rows(batch)])

    def _fields(self, record: Any) -> dict[str, Any]:
        if not isinstance(record, dict):
            raise ConfigError(f"{self._where}: the record {show(record, 80)} has no fields: make a dict of it first, by map()")
        return dict(record)


def tables(staged: Sequence[bytes]) -> Iterator[pa.Table]:
    """The rows in what is staged, as tables of about TABLE_BYTES, one in memory at a time."""
    batches: list[pa.RecordBatch] = []
    size = 0
    for one in staged:
        for batch in pa.ipc.open_stream(one) if one else ():
            batches.append(batch)
            size += batch.nbytes
        if size >= TABLE_BYTES:
            yield pa.Table.from_batches(batches)
            batches, size = [], 0
    if batches:
        yield pa.Table.from_batches(batches)


def checked_key(key: str | Sequence[str], schema: pa.Schema, where: str) -> list[str]:
    """The columns that tell rows apart. Raises ConfigError where they are not of the schema, or it uses names of the sink."""
    names = [key] if isinstance(key, str) else list(key)
    missing = [name for name in names if name not in schema.names]
    if missing or not names:
        raise ConfigError(f"{where}: key is {names}, and the schema has the columns {schema.names}: give one or some of these")
    taken = [name for name in schema.names if name in (EPOCH, THERE)]
    if taken:
        raise ConfigError(f"{where}: a column cannot be called {taken[0]!r} here: the sink uses that name itself; give it another one")
    return names


__all__ = ["EPOCH", "TABLE_BYTES", "THERE", "ChangesWriter", "RowsWriter", "checked_key", "tables"]
