"""A directory of Parquet files as a sink that is written exactly once.

Replicas write below ``<path>/_staging/<job>-<replica>-<writer>/``; readers pass over names that start with ``_``. ``publish`` moves the
finished files into place one by one and then replaces ``_SUCCESS``, a JSON manifest of all files that belong to the output: that
replacement is the commit. Each step can be repeated: a file that is already in place is left there, so a publish that was cut off is
finished by publishing the same again. ``mode="overwrite"`` deletes the old Parquet files after the commit, never before, so that at no time
there is neither the old output nor the new.

The directory has to be seen by all nodes. On object stores a move is a copy and a delete: the manifest still tells whole from partial
output.
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Iterable, Sequence
from typing import Any, Literal, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from rayad.dataflow.sink import Sink, SinkWriter
from rayad.integrations.blocks import conform, describe, schema_drift
from rayad.progress import ConfigError, DataflowError, Timestamp

STAGING = "_staging"
MANIFEST = "_SUCCESS"
MODES = ("error", "append", "overwrite")
OPEN_FILES_MAX = 16


class StagedFile(NamedTuple):
    """A finished file that is not yet visible: where it is, its name in the output (relative), and what is in it."""

    staged: str
    name: str
    rows: int
    size_bytes: int
    schema: pa.Schema


class PublishedFiles(NamedTuple):
    """What ``result[name]`` is: the directory, its files (relative names, all that the manifest lists) and their rows."""

    path: str
    files: tuple[str, ...]
    rows: int


def check_name(name: str) -> str:
    """Give a relative file name back; ConfigError if it could lead out of the output directory or into what is not output.

    >>> check_name("epoch=3/part-0.parquet")
    'epoch=3/part-0.parquet'
    """
    parts = name.split("/")
    bad = not name or "\0" in name or "\\" in name or name.startswith("/") or any(part in ("", ".", "..") for part in parts)
    if bad or parts[0].startswith((STAGING, MANIFEST)):
        raise ConfigError(f"write_parquet: refused the file name {name!r}; names are relative, below the output directory, without '..'")
    return name


class ParquetSink(Sink):
    """Writes records to Parquet files below ``path``; ``result`` gives :class:`PublishedFiles`.

    ``partition_by_epoch``: a directory ``epoch=<n>`` for each epoch. ``epoch_column``: a column of this name with the epoch of each row.
    ``mode``: what to do when the directory has something in it: ``"error"``, ``"append"`` or ``"overwrite"``. ``schema``: columns and
    types; else those of a replica's first batch, and all replicas must agree. ``row_group_rows`` are collected in memory before they are
    written.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        partition_by_epoch: bool = False,
        epoch_column: str | None = None,
        mode: Literal["error", "append", "overwrite"] = "error",
        schema: pa.Schema | None = None,
        compression: str = "zstd",
        row_group_rows: int = 131_072,
        filesystem: fs.FileSystem | None = None,
    ) -> None:
        if mode not in MODES:
            raise ConfigError(f"write_parquet: mode={mode!r}; give one of {', '.join(map(repr, MODES))}")
        if row_group_rows < 1:
            raise ConfigError(f"write_parquet: row_group_rows={row_group_rows!r}; give 1 or more")
        text = os.fspath(path)
        if not text or "\0" in text:
            raise ConfigError(f"write_parquet: {text!r} is not a directory name")
        if filesystem is not None:
            self.filesystem, self.path = filesystem, text.rstrip("/")
        elif "://" in text:
            try:
                home, inner = fs.FileSystem.from_uri(text)
            except (pa.ArrowException, OSError) as error:
                raise ConfigError(
                    f"write_parquet: cannot open the URI {text!r}: {error}; give a local directory, a known URI, or filesystem="
                ) from error
            self.filesystem, self.path = home, inner.rstrip("/")
        else:
            self.filesystem, self.path = fs.LocalFileSystem(), os.path.abspath(os.path.expanduser(text))
        self.job = uuid.uuid4().hex[:12]
        self.mode = mode
        self.partition_by_epoch = partition_by_epoch
        self.epoch_column = epoch_column
        self.schema = schema
        self.compression = compression
        self.row_group_rows = row_group_rows
        self._check_free(self._read_manifest())

    def open(self, replica: int, parallelism: int) -> SinkWriter:
        """The writer of one replica."""
        return ParquetWriter(self, replica)

    def staging(self) -> str:
        """Where the unpublished files of all jobs are."""
        return f"{self.path}/{STAGING}"

    def _read_manifest(self) -> dict[str, Any]:
        where = f"{self.path}/{MANIFEST}"
        if self.filesystem.get_file_info(where).type != fs.FileType.File:
            return {}
        with self.filesystem.open_input_stream(where) as file:
            text = file.read()
        if not text:
            return {}  # the empty marker that Spark and Hadoop write
        try:
            found = json.loads(text)
            return found if isinstance(found, dict) else {}
        except ValueError as error:
            raise ConfigError(
                f"write_parquet: {where!r} is not a manifest: {error}; remove it if the directory may be written to"
            ) from error

    def _present(self) -> list[str]:
        """Relative names of all files but the staged ones and the manifest."""
        info = self.filesystem.get_file_info(fs.FileSelector(self.path, recursive=True, allow_not_found=True))
        names = [i.path[len(self.path) :].lstrip("/") for i in info if i.type == fs.FileType.File]
        return sorted(name for name in names if name.split("/")[0] not in (STAGING, MANIFEST))

    def _check_free(self, manifest: dict[str, Any]) -> None:
        """Mode "error": nothing but what this job published itself may be there."""
        kind = self.filesystem.get_file_info(self.path).type
        if kind == fs.FileType.File:
            raise ConfigError(f"write_parquet: {self.path!r} is a file; give a directory")
        if self.mode != "error" or manifest.get("job") == self.job:
            return
        foreign = [name for name in self._present() if not name.rsplit("/", 1)[-1].startswith(f"part-{self.job}-")]
        if foreign:
            raise ConfigError(
                f"write_parquet: {self.path!r} already holds {len(foreign)} files ({foreign[0]!r} ..) and mode='error'; "
                "give mode='overwrite' or mode='append', or another directory"
            )

    def publish(self, staged: Sequence[Any]) -> PublishedFiles:
        """Move the staged files into place and commit them in the manifest; repeatable."""
        files = [file for group in staged for file in (group or ())]
        for file in files:
            check_name(file.name)
            if not os.path.normpath(file.staged).startswith(self.staging() + "/"):
                raise ConfigError(f"write_parquet: refused the staged file {file.staged!r}: it is not below {self.staging()!r}")
        self._check_schemas(files)
        before = self._read_manifest()
        self._check_free(before)
        old = self._kept(before)
        self.filesystem.create_dir(self.path, recursive=True)
        for file in files:
            self._move(file)
        listed = {entry["name"]: entry for entry in old}
        listed.update({file.name: {"name": file.name, "rows": file.rows, "size_bytes": file.size_bytes} for file in files})
        entries = [listed[name] for name in sorted(listed)]
        rows = sum(entry["rows"] for entry in entries)
        self._write_manifest({"format": "rayad-parquet-1", "job": self.job, "rows": rows, "files": entries})
        if self.mode == "overwrite":
            for name in self._present():
                if name not in listed and name.endswith(".parquet"):  # what else lies there is not ours to delete
                    self.filesystem.delete_file(f"{self.path}/{name}")
        return PublishedFiles(self.path, tuple(entry["name"] for entry in entries), rows)

    def _kept(self, manifest: dict[str, Any]) -> list[dict[str, Any]]:
        """The entries of the manifest that stay: those of this job, and with "append" those that were there before."""
        if manifest.get("job") == self.job:
            return list(manifest["files"])
        if self.mode != "append":
            return []
        if manifest.get("files"):
            return list(manifest["files"])
        mine = f"part-{self.job}-"
        return [self._entry(name) for name in self._present() if not name.rsplit("/", 1)[-1].startswith(mine)]

    def _entry(self, name: str) -> dict[str, Any]:
        path = f"{self.path}/{name}"
        rows = pq.read_metadata(path, filesystem=self.filesystem).num_rows if name.endswith(".parquet") else 0
        return {"name": name, "rows": rows, "size_bytes": self.filesystem.get_file_info(path).size}

    def _check_schemas(self, files: Iterable[StagedFile]) -> None:
        first: StagedFile | None = None
        for file in files:
            if first is None:
                first = file
                continue
            drift = schema_drift(f"the output of {file.name!r}", first.schema, file.schema)
            if drift is not None:
                raise DataflowError(f"write_parquet: replicas gave different columns: {drift}; or give schema= to the sink") from drift

    def _move(self, file: StagedFile) -> None:
        target = f"{self.path}/{file.name}"
        if self.filesystem.get_file_info(file.staged).type == fs.FileType.File:
            self.filesystem.create_dir(target.rsplit("/", 1)[0], recursive=True)
            self.filesystem.move(file.staged, target)
            return
        there = self.filesystem.get_file_info(target)
        if there.type != fs.FileType.File or there.size != file.size_bytes:
            raise DataflowError(
                f"write_parquet: cannot publish {file.name!r}: its staged file {file.staged!r} is gone and {target!r} "
                f"{'is missing' if there.type != fs.FileType.File else f'has {there.size} bytes, not {file.size_bytes}'}; "
                "was the directory cleaned while the job ran? Is it seen by all nodes?"
            )

    def _write_manifest(self, manifest: dict[str, Any]) -> None:
        temporary = f"{self.staging()}/manifest-{self.job}-{uuid.uuid4().hex[:8]}.json"
        self.filesystem.create_dir(self.staging(), recursive=True)
        with self.filesystem.open_output_stream(temporary) as out:
            out.write(json.dumps(manifest, indent=1).encode())
        sync(self.filesystem, temporary)
        self.filesystem.move(temporary, f"{self.path}/{MANIFEST}")
        sync(self.filesystem, self.path)

    def abort(self) -> None:
        """Remove what this job staged; nothing that is published."""
        self._clean()

    def _clean(self) -> None:
        try:
            info = self.filesystem.get_file_info(fs.FileSelector(self.staging(), allow_not_found=True))
            mine = [i for i in info if i.base_name.startswith((f"{self.job}-", f"manifest-{self.job}-"))]
            for item in mine:
                if item.type == fs.FileType.Directory:
                    self.filesystem.delete_dir(item.path)
                else:
                    self.filesystem.delete_file(item.path)
            if (info and len(mine) == len(info)) or not info:
                self.filesystem.delete_dir(self.staging())
        except OSError:
            pass  # nothing is lost: staged files are not read by anybody

    def result(self, receipt: PublishedFiles) -> PublishedFiles:
        """The job is over: also remove what replicas that died left in staging."""
        self._clean()
        return receipt


class _OpenFile:
    """A file being written: batches are collected until they fill a row group."""

    def __init__(self, sink: ParquetSink, staged: str, name: str, schema: pa.Schema) -> None:
        self.staged, self.name, self.schema, self.rows = staged, name, schema, 0
        self._sink = sink
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_rows = 0
        sink.filesystem.create_dir(staged.rsplit("/", 1)[0], recursive=True)
        self._stream = sink.filesystem.open_output_stream(staged)
        self._writer = pq.ParquetWriter(self._stream, schema, compression=sink.compression)

    def write(self, batch: pa.RecordBatch) -> None:
        self._waiting.append(batch)
        self._waiting_rows += batch.num_rows
        self.rows += batch.num_rows
        if self._waiting_rows >= self._sink.row_group_rows:
            self.flush()

    def flush(self) -> None:
        if self._waiting:
            self._writer.write_table(pa.Table.from_batches(self._waiting, schema=self.schema), row_group_size=self._sink.row_group_rows)
            self._waiting, self._waiting_rows = [], 0

    def close(self) -> StagedFile:
        self.flush()
        self._writer.close()
        self._stream.close()
        sync(self._sink.filesystem, self.staged)
        size = self._sink.filesystem.get_file_info(self.staged).size
        return StagedFile(self.staged, self.name, self.rows, size, self.schema)

    def discard(self) -> None:
        self._waiting = []
        self._writer.close()
        self._stream.close()


class ParquetWriter(SinkWriter):
    """Writes the files of one replica into staging."""

    def __init__(self, sink: ParquetSink, replica: int) -> None:
        self._sink = sink
        self._token = f"{replica:05d}-{uuid.uuid4().hex[:8]}"  # a replica that replaces a dead one must not write over its files
        self._directory = f"{sink.staging()}/{sink.job}-{self._token}"
        self._schema: pa.Schema | None = sink.schema
        self._open: dict[int | None, _OpenFile] = {}
        self._closed: list[StagedFile] = []
        self._count = 0

    def write(self, time: Timestamp, batch: Any) -> None:
        """Append the records of ``time``. Raises DataflowError where they do not fit the schema."""
        records = conform(batch, self._schema, may_cast=self._sink.schema is not None, where="write_parquet")
        if not records.num_rows:
            return
        self._schema = self._schema or records.schema
        key = time.epoch if self._sink.partition_by_epoch else None
        if self._sink.epoch_column is not None:
            records = self._with_epoch(records, self._sink.epoch_column, time.epoch)
        file = self._open.get(key) or self._start(key, records.schema)
        file.write(records)

    def _with_epoch(self, records: pa.RecordBatch, name: str, epoch: int) -> pa.RecordBatch:
        if name in records.schema.names:
            raise DataflowError(
                f"write_parquet: epoch_column={name!r} is already a column of the records: {describe(records.schema)}; choose another name"
            )
        return records.append_column(name, pa.repeat(pa.scalar(epoch, pa.int64()), records.num_rows))

    def _start(self, key: int | None, schema: pa.Schema) -> _OpenFile:
        if key is not None and "epoch" in schema.names:
            raise DataflowError(
                "write_parquet: partition_by_epoch makes a column 'epoch' from the directory names, but the records have one: "
                f"{describe(schema)}; rename it"
            )
        while len(self._open) >= OPEN_FILES_MAX:
            self._closed.append(self._open.pop(next(iter(self._open))).close())
        name = f"part-{self._sink.job}-{self._token}-{self._count:06d}.parquet"
        self._count += 1
        file = _OpenFile(self._sink, f"{self._directory}/{name}", name if key is None else f"epoch={key}/{name}", schema)
        self._open[key] = file
        return file

    def stage(self) -> tuple[StagedFile, ...]:
        """Close the files written since the last call."""
        closed = [*self._closed, *(file.close() for file in self._open.values())]
        self._open, self._closed = {}, []
        return tuple(closed)

    def abort(self) -> None:
        """Remove the directory of this writer."""
        for file in self._open.values():
            try:
                file.discard()
            except (OSError, pa.ArrowException):
                pass
        self._open, self._closed = {}, []
        try:
            self._sink.filesystem.delete_dir(self._directory)
        except OSError:
            pass


def sync(filesystem: fs.FileSystem, path: str) -> None:
    """Make a local file, or the names in a local directory, survive a power cut; other file systems do so on close."""
    if isinstance(filesystem, fs.LocalFileSystem):
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


__all__ = ["ParquetSink", "ParquetWriter", "PublishedFiles", "StagedFile", "check_name"]
