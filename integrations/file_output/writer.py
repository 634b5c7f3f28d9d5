"""Writing files into the staging directory of an output: the half of a :class:`FileTarget` that lives in a replica.

A writer has a directory of its own, ``<path>/_staging/<job>-r<run>-<replica>-<writer>/``, and unique file names, so a replica that replaces
a dead one never overwrites its files. Files that ``stage()`` has named stay until the sink moves or removes them. Both names have the run
number of the coordinator: whoever cleans up deletes leftovers of its own run and of earlier ones, never of a later one.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, ClassVar, NamedTuple, Protocol

import pyarrow as pa

from rayad.dataflow.records.exact import cast_batch
from rayad.dataflow.records.output_form import OutputForm, describe
from rayad.dataflow.sink import SinkWriter
from rayad.integrations.file_output.formats import FileFormat, TableWriter
from rayad.progress import DataflowError, Timestamp
from rayad.snapshots.port import Port

STAGING = "_staging"
"""The directory below an output in which files wait for their commit."""
OPEN_FILES_MAX = 16
"""Files of one writer of which something is written and that are not complete."""
WAITING_BYTES_MAX = 64 << 20
"""What waits in memory for its chunk, in all files of one writer together, where there are more than :data:`OPEN_FILES_MAX`."""
_RUN = re.compile(r"r(\d+)-")


class StagedFile(NamedTuple):
    """A finished file that is not yet visible: where it is, its name in the output (relative), and what is in it."""

    staged: str
    name: str
    rows: int
    size_bytes: int
    schema: pa.Schema


class FileTarget(Protocol):
    """What a writer uses of its sink, :class:`rayad.integrations.file_output.sink.FileSink`."""

    @property
    def port(self) -> Port: ...

    job: str
    run: int
    schema: pa.Schema | None
    epoch_column: str | None
    partition_by_epoch: bool
    partition_by: tuple[str, ...]
    where: ClassVar[str]
    format: FileFormat

    def stored(self, table: pa.Table) -> pa.Table: ...

    def cut(self, records: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]: ...

    def make_staging(self, name: str) -> None: ...


class _OpenFile:
    """A file being written: batches are collected until they fill a chunk (of Parquet a row group), and only then the file is made. Before
    the first chunk is written the types may change."""

    def __init__(self, sink: FileTarget, staged: str, name: str, schema: pa.Schema) -> None:
        self.staged, self.name, self.schema, self.rows = sink.port.path(staged), name, schema, 0
        self._sink, self._own = sink, staged
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_rows = self.waiting_bytes = 0
        self._writer: TableWriter | None = None
        self._stream: Any = None

    @property
    def is_made(self) -> bool:
        """Whether something is written."""
        return self._stream is not None

    @property
    def is_full(self) -> bool:
        """Whether a chunk waits to be written."""
        return self._waiting_rows >= self._sink.format.chunk_rows

    def add(self, batch: pa.RecordBatch) -> None:
        self._waiting.append(batch)
        self._waiting_rows += batch.num_rows
        self.waiting_bytes += _bytes_of(batch)
        self.rows += batch.num_rows

    def widen(self, form: OutputForm, schema: pa.Schema) -> None:
        """Cast the collected batches to the current types."""
        self.schema = schema
        names = form.schema.names if form.schema is not None else []
        for at, batch in enumerate(self._waiting):
            extra = [name for name in batch.schema.names if name not in names]
            wide = form.again(batch.drop_columns(extra) if extra else batch)
            for name in extra:
                wide = wide.append_column(name, batch.column(name))
            self._waiting[at] = wide
        self.waiting_bytes = sum(map(_bytes_of, self._waiting))

    def flush(self) -> None:
        if self._waiting:
            waiting = [cast_batch(batch, self.schema) for batch in self._waiting]
            table = pa.Table.from_batches(waiting, schema=self.schema)
            table = self._sink.stored(table.drop_columns(list(self._sink.partition_by)))
            if self._writer is None:
                self._sink.format.check_schema(table.schema, self._sink.where)
            table = self._sink.format.prepared(table, self._sink.where)
            if self._writer is None:
                self._sink.make_staging(self._own.rpartition("/")[0])
                self._stream = self._sink.port.open_new(self._own)
                self._writer = self._sink.format.writer(self._stream, table.schema)
            self._writer.write_table(table)
            self._waiting, self._waiting_rows, self.waiting_bytes = [], 0, 0

    def close(self) -> StagedFile:
        self.flush()
        assert self._writer is not None
        self._writer.close()
        self._stream.close()
        self._sink.port.sync(self._own)
        made = self._sink.port.file(self._own)
        return StagedFile(self.staged, self.name, self.rows, made.size if made is not None else -1, self.schema)

    def discard(self) -> None:
        self._waiting = []
        if self._writer is not None:
            self._writer.close()
        if self._stream is not None:
            self._stream.close()


def _bytes_of(batch: pa.RecordBatch) -> int:
    try:
        return int(batch.nbytes)
    except pa.ArrowTypeError:  # views, which not every version can measure
        return int(batch.get_total_buffer_size())


class FileWriter(SinkWriter):
    """Writes the files of one replica into staging."""

    def __init__(self, sink: FileTarget, replica: int, earlier: pa.Schema | None = None) -> None:
        self._sink = sink
        self._token = f"{replica:05d}-{uuid.uuid4().hex[:8]}"  # a replica that replaces a dead one must not overwrite its files
        self._directory = f"{STAGING}/{staged_by(sink.job, sink.run)}{self._token}"
        schema = sink.schema if sink.schema is not None else earlier
        self._form = OutputForm(schema, sink.where, settled=sink.schema is None)
        self._open: dict[str, _OpenFile] = {}
        """By directory, relative to the output."""
        self._waiting_bytes = 0
        self._closed: list[StagedFile] = []
        self._count = 0

    def write(self, time: Timestamp, batch: Any) -> None:
        """Append the records of ``time``. Raises DataflowError where they do not fit the schema exactly."""
        before = self._form.schema
        records = self._form.fit(batch)
        if not records.num_rows:
            return
        if self._form.schema is not before and self._form.schema is not None:
            for file in self._open.values():
                file.widen(self._form, self._with_epoch_field(self._form.schema))
            self._waiting_bytes = sum(file.waiting_bytes for file in self._open.values())
        if self._sink.epoch_column is not None:
            records = self._with_epoch(records, self._sink.epoch_column, time.epoch)
        folder = f"epoch={time.epoch}/" if self._sink.partition_by_epoch else ""
        for directory, some in self._sink.cut(records):
            self._add(f"{folder}{directory}/" if directory else folder, some)

    def _add(self, folder: str, records: pa.RecordBatch) -> None:
        file = self._open.get(folder) or self._start(folder, records.schema)
        self._waiting_bytes -= file.waiting_bytes
        file.add(records)
        if file.is_full:
            self._form.settle()
            file.flush()
        self._waiting_bytes += file.waiting_bytes
        while len(self._open) > OPEN_FILES_MAX and self._waiting_bytes > WAITING_BYTES_MAX:
            self._complete(max(self._open, key=lambda name: self._open[name].waiting_bytes))
        made = [name for name, one in self._open.items() if one.is_made]
        for name in made[:-OPEN_FILES_MAX]:
            self._complete(name)

    def _complete(self, folder: str) -> None:
        """Close a file; what comes later for its directory goes into another one."""
        self._form.settle()
        file = self._open.pop(folder)
        self._waiting_bytes -= file.waiting_bytes
        self._closed.append(file.close())

    def _with_epoch_field(self, schema: pa.Schema) -> pa.Schema:
        return schema if self._sink.epoch_column is None else schema.append(pa.field(self._sink.epoch_column, pa.int64()))

    def _with_epoch(self, records: pa.RecordBatch, name: str, epoch: int) -> pa.RecordBatch:
        if name in records.schema.names:
            raise DataflowError(
                f"{self._sink.where}: epoch_column={name!r} is already a column of the records: {describe(records.schema)}; "
                "choose another name"
            )
        return records.append_column(name, pa.repeat(pa.scalar(epoch, pa.int64()), records.num_rows))

    def _start(self, folder: str, schema: pa.Schema) -> _OpenFile:
        if self._sink.partition_by_epoch and "epoch" in schema.names:
            raise DataflowError(
                f"{self._sink.where}: partition_by_epoch makes a column 'epoch' from the directory names, but the records have one: "
                f"{describe(schema)}; rename it"
            )
        self._sink.format.check_schema(pa.schema([f for f in schema if f.name not in self._sink.partition_by]), self._sink.where)
        name = f"part-{staged_by(self._sink.job, self._sink.run)}{self._token}-{self._count:06d}{self._sink.format.suffix}"
        self._count += 1
        file = _OpenFile(self._sink, f"{self._directory}/{name}", f"{folder}{name}", schema)
        self._open[folder] = file
        return file

    def stage(self) -> tuple[StagedFile, ...]:
        """Close and sync the files written since the last call; nothing is touched when there are none."""
        if not self._open and not self._closed:
            return ()
        self._form.settle()  # readers of the folder expect one schema
        closed = [*self._closed, *(file.close() for file in self._open.values())]
        self._open, self._closed, self._waiting_bytes = {}, [], 0
        for directory in (self._directory, STAGING):
            self._sink.port.sync(directory)
        return tuple(closed)

    def abort(self) -> None:
        """Remove the files written since the last ``stage()``."""
        for file in self._open.values():
            try:
                file.discard()
            except (OSError, pa.ArrowException):
                pass
        port = self._sink.port
        gone = [file.staged for file in self._open.values()] + [file.staged for file in self._closed]
        self._open, self._closed, self._waiting_bytes = {}, [], 0
        with suppress(OSError):  # nothing is lost: nobody reads staged files
            for path in gone:
                port.delete(port.name_of(path))
            if not port.entries(self._directory):
                port.delete_folder(self._directory)


def staged_by(job: str, run: int) -> str:
    """What the names of files and directories have that writers of a run of a job make.

    >>> staged_by("ab12", 7)
    'ab12-r7-'
    """
    return f"{job}-r{run}-"


def run_of(name: str, job: str) -> int | None:
    """The run whose writers made a file or directory, from its own name; 0: an earlier version has made it; None: it is not of this job.

    >>> run_of("part-ab12-r7-00000-1f.parquet", "ab12"), run_of("ab12-00000-1f", "ab12"), run_of("part-0.parquet", "ab12")
    (7, 0, None)
    """
    rest = name.removeprefix("part-").removeprefix(f"{job}-")
    if f"{job}-{rest}" not in (name, name.removeprefix("part-")):
        return None
    found = _RUN.match(rest)
    return int(found[1]) if found is not None else 0


__all__ = ["STAGING", "FileWriter", "StagedFile", "run_of", "staged_by"]
