"""Files as they appear in a folder or a bucket, as an endless source; which of them have been read is in the snapshots.

A file counts once it has its final name: writers give it another name first (``.tmp`` at the end, ``_`` or ``.`` at the beginning) and
rename it when it is whole; object stores show whole objects only. Files are read in the order of their modification times, then of their
names; a file that appears late, with an older time, is read when it is found. No file is skipped because of its age, and none is read
twice: the names of files that were read are remembered for as long as they are in the folder (Spark forgets them after a week, and skips
older files). So a snapshot grows with the folder: move files away once a snapshot covers them.

**Epochs**: each file is one, numbered in the order of reading, and complete when the file has been read. With ``epoch=`` a column gives the
epoch; it may not go back from one file to the next. There is one part: the epochs of several readers would have nothing to do with each
other (``rebalance()`` distributes the work behind it).

Which files are found depends on when the folder is listed. So after a failure files may come in another order, in other epochs
(``same_epochs = False``).
"""

from __future__ import annotations

import fnmatch
import os
import time as clock
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.dataset as pads
from pyarrow import fs

from rayad.actors.process.threads import OwnedThread
from rayad.dataflow.source import Source, SourceBatch, SourcePart
from rayad.integrations.blocks import DEFAULT_BATCH_ROWS, TablePart, check_batch_rows, check_epoch_column, describe, schema_drift
from rayad.integrations.file_output.committed import open_directory
from rayad.integrations.file_output.partitions import named_columns
from rayad.integrations.files import CsvSource, JsonLinesSource
from rayad.integrations.parquet import ParquetSource
from rayad.integrations.paths import FoundFile, check_schema, is_hidden
from rayad.integrations.text import COMPRESSED, TextSource
from rayad.progress import ConfigError, DataflowError, RayadError, arguments, show

UNFINISHED = (".tmp", "._COPYING_")
"""Endings of the names of files that are still being written; the second is Hadoop's."""
SUFFIXES = {
    ".parquet": "parquet",
    ".csv": "csv",
    ".json": "json",
    ".jsonl": "json",
    ".ndjson": "json",
    ".txt": "text",
    ".log": "text",
}
OPTIONS = {
    "parquet": ("columns", "filter", "partitioning", "batch_rows"),
    "csv": ("column_types", "delimiter", "partitioning", "block_bytes", "batch_rows"),
    "json": ("partitioning", "block_bytes", "batch_rows"),
    "text": ("columnar", "encoding", "batch_rows"),
}
"""The options of the reader of each format."""
FORGET_S = 3600.0
"""For how long the name of a file that was read and is gone is remembered: while a mount is away its folder looks empty."""
FAILING_S = 60.0
"""For how long the folder may be unreachable before that is an error."""
_WHOLE = "; a file has to be whole when it gets its name: write it as 'name.tmp' and rename it, or give settle_s="


class Listing(NamedTuple):
    """The content of the folder: files that can be read, whether others were changed too recently, and whether the input ends."""

    files: tuple[FoundFile, ...]
    has_younger: bool
    ends: bool


class FolderSource(Source):
    """Reads the files of a folder, and those that appear in it later, without end.

    Args:
        path: a local directory or a URI. Files are found at any depth, except hidden ones (names with ``.`` or ``_`` first) and unfinished
            ones.
        pattern: which file names, such as ``*.csv``.
        format: "parquet", "csv", "json" (one object a line) or "text"; None: by the suffix of ``pattern``.
        schema: all columns of CSV, JSON or Parquet; None: those of the first file that is read. A file that differs is an error.
        epoch: an integer column that gives the epoch of each row; None: each file is an epoch.
        until: the input ends when the folder has a file of this name and all others have been read; None: it never ends.
        every_s: seconds between two listings of the folder.
        settle_s: a file is read only after it has not changed for so long; for writers that do not rename.
        options: of the reader: see :data:`OPTIONS` and :mod:`rayad.integrations.files`.
    """

    blocks = False
    interleave = True
    same_epochs = False
    where = "from_folder"

    def __init__(
        self,
        path: str | os.PathLike[str],
        pattern: str = "*",
        *,
        format: str | None = None,
        schema: pa.Schema | None = None,
        epoch: str | None = None,
        until: str | None = None,
        every_s: float = 1.0,
        settle_s: float = 0.0,
        filesystem: fs.FileSystem | None = None,
        **options: Any,
    ) -> None:
        self._filesystem, self._folder = open_directory(path, filesystem, self.where)
        self._pattern = _plain_name(pattern, "from_folder: pattern")
        self._until = None if until is None else _plain_name(until, "from_folder: until")
        self._format = self._format_of(format)
        self._every_s = arguments.number(every_s, "from_folder: every_s", error=ConfigError)
        self._settle_s = arguments.number(settle_s, "from_folder: settle_s", zero=True, error=ConfigError)
        unknown = sorted(set(options) - set(OPTIONS[self._format]))
        if unknown:
            raise ConfigError(f"from_folder: format={self._format!r} has no options {unknown}; it has {', '.join(OPTIONS[self._format])}")
        self.batch_rows = check_batch_rows(options.get("batch_rows", DEFAULT_BATCH_ROWS), self.where)
        check_schema(schema, self.where)
        if self._format == "text" and (schema is not None or epoch is not None):
            raise ConfigError("from_folder: lines of text have no columns, so neither schema= nor epoch=; use map() behind it")
        if schema is not None:
            check_epoch_column(schema, epoch, self.where)
        elif epoch is not None:
            arguments.text(epoch, "from_folder: epoch", error=ConfigError, more=", the name of a column, or None: each file is an epoch")
        self.given_schema = schema
        self.epoch = epoch
        self._options = options
        self._check_there()

    def _format_of(self, format: str | None) -> str:
        if format is not None:
            return arguments.choice(format, "from_folder: format", *OPTIONS, error=ConfigError)
        name = self._pattern
        for suffix in COMPRESSED:
            name = name.removesuffix(suffix)
        found = SUFFIXES.get(os.path.splitext(name)[1].lower())
        if found is None:
            raise ConfigError(
                f"from_folder: the format of files {self._pattern!r} is not known; give format= ({', '.join(OPTIONS)}), or a pattern with "
                "a suffix that determines it, such as '*.csv'"
            )
        return found

    def _check_there(self) -> None:
        try:
            kind = self._filesystem.get_file_info(self._folder).type
        except OSError as error:
            raise ConfigError(f"from_folder: cannot look at {self._folder!r}: {error}; check that it exists and may be read") from error
        is_local = isinstance(self._filesystem, fs.LocalFileSystem)  # in an object store a folder is there when something is in it
        if kind == fs.FileType.File or (kind == fs.FileType.NotFound and is_local):
            told = "is a file" if kind == fs.FileType.File else "does not exist"
            raise ConfigError(f"from_folder: {self._folder!r} {told}; give a directory, which may be empty")

    def list_parts(self) -> Sequence[str]:
        """A single part: the folder."""
        return [self._folder]

    def build_part(self, part: str, resume: Any | None) -> SourcePart:
        """Read the folder from the beginning, or what the snapshot had not yet read."""
        return FolderPart(self, resume)

    def fingerprint(self, parts: Sequence[Any]) -> dict[str, Any]:
        """Return the folder, and the settings that determine what a position in a file means; not its files, since more will appear."""
        return {
            "folder": self._folder,
            "pattern": self._pattern,
            "format": self._format,
            "columns": describe(self.given_schema) if self.given_schema is not None else None,
            "epoch": self.epoch,
            "options": {name: str(value) for name, value in sorted(self._options.items())},
        }

    @property
    def every_s(self) -> float:
        """Seconds between two listings."""
        return self._every_s

    def look(self) -> Listing:
        """List the files that exist now, in reading order. Raises OSError."""
        found = self._filesystem.get_file_info(fs.FileSelector(self._folder, recursive=True, allow_not_found=True))
        files: list[FoundFile] = []
        has_younger = ends = False
        newest_ns = (clock.time() - self._settle_s) * 1e9
        for info in found:
            if info.type != fs.FileType.File:
                continue
            name = info.path[len(self._folder) :].lstrip("/")
            if name == self._until:
                ends = True
            elif self._counts(name) and info.size:  # an empty file has no records, and its writer may only have begun
                if self._settle_s and (info.mtime_ns or 0) > newest_ns:
                    has_younger = True
                else:
                    files.append(FoundFile(info.path, info.size, info.mtime_ns))
        return Listing(tuple(sorted(files, key=lambda file: (file.changed_ns or 0, file.path))), has_younger, ends)

    def _counts(self, name: str) -> bool:
        return not (is_hidden(name) or name.endswith(UNFINISHED)) and fnmatch.fnmatchcase(name.rsplit("/", 1)[-1], self._pattern)

    def look_at(self, path: str) -> FoundFile | None:
        """Return the current state of a file; None if it is gone."""
        info = self._filesystem.get_file_info(path)
        return FoundFile(path, info.size, info.mtime_ns) if info.type == fs.FileType.File else None

    def reader(self, path: str, schema: pa.Schema | None) -> Any:
        """Make a source of one file."""
        if self._format == "parquet":
            options = self._options
            if (
                schema is not None and options.get("partitioning", "hive") == "hive"
            ):  # one file may not tell the type of a directory's value
                named = named_columns([path], {field.name: field.type for field in schema}, self.where).schema
                if len(named):
                    options = {**options, "partitioning": pads.partitioning(named, flavor="hive")}
            return ParquetSource(path, filesystem=self._filesystem, **options)
        if self._format == "text":
            return TextSource(path, filesystem=self._filesystem, split_bytes=1 << 62, **self._options)
        kind: Any = CsvSource if self._format == "csv" else JsonLinesSource
        return kind(path, schema=schema, filesystem=self._filesystem, **self._options)


def _plain_name(name: Any, what: str) -> str:
    text = arguments.text(name, what, error=ConfigError)
    if "/" in text:
        raise ConfigError(f"{what} is {show(text)}: give the name of a file, without '/'; files are found at any depth below the folder")
    return text


class FileReading:
    """One file being read: the parts of its reader one after the other, or with an epoch column one table, sorted by it."""

    def __init__(self, source: FolderSource, file: FoundFile, schema: pa.Schema | None, place: tuple[int, Any] | None) -> None:
        self.file = file
        self._source = source
        reader = source.reader(file.path, schema)
        self.schema: pa.Schema | None = getattr(reader, "schema", None)
        if schema is not None and self.schema is not None:
            drift = schema_drift(repr(file.path), schema, self.schema)
            if drift is not None:
                raise drift
            self.schema = schema
        self._reader = reader
        self._parts: list[Any] = [None] if source.epoch is not None else list(reader.list_parts())
        self._number: int = place[0] if place is not None else 0
        self._resume: Any = place[1] if place is not None else None
        self._open: SourcePart | None = None

    def _build(self) -> SourcePart:
        if self._source.epoch is None:
            built: SourcePart = self._reader.build_part(self._parts[self._number], self._resume)
            return built
        where = f"{self._source.where}: {self.file.path!r}"
        return TablePart(self._load, batch_rows=self._source.batch_rows, epoch=self._source.epoch, resume=self._resume, where=where)

    def _load(self) -> pa.Table:
        batches: list[pa.RecordBatch] = []
        for part in self._reader.list_parts():
            opened = self._reader.build_part(part, None)
            try:
                batches += [given.batch for given in iter(opened.next_batch, None)]
            finally:
                opened.close()
        return pa.Table.from_batches(batches, schema=self._reader.schema)

    def next_batch(self) -> SourceBatch | None:
        """The next records, never an empty batch; None at the end of the file."""
        while self._number < len(self._parts):
            if self._open is None:
                self._open = self._build()
            given = self._open.next_batch()
            if given is None:
                self.close()
                self._number, self._resume = self._number + 1, None
            elif len(given.batch):
                batch = given.batch
                if isinstance(batch, pa.RecordBatch) and self.schema is not None and batch.schema.names != self.schema.names:
                    batch = batch.select(self.schema.names)
                return SourceBatch(given.epoch, batch)
        return None

    def place(self) -> tuple[int, Any]:
        """The number of the current part of the file, and the offset in it."""
        return self._number, self._open.offset() if self._open is not None else self._resume

    def close(self) -> None:
        """Release the file."""
        opened, self._open = self._open, None
        if opened is not None:
            opened.close()


class FolderPart(SourcePart):
    """The folder being read."""

    def __init__(self, source: FolderSource, resume: Any | None) -> None:
        self._source = source
        self._epoch: int = resume["epoch"] if resume is not None else 0
        self._read: dict[str, int] = dict(resume["read"]) if resume is not None else {}  # sizes, by path; the file being read is in it
        self._ended: bool = resume["ended"] if resume is not None else False
        self._schema = source.given_schema
        if self._schema is None and resume is not None and resume["schema"] is not None:
            self._schema = pa.ipc.read_schema(pa.py_buffer(resume["schema"]))
        self._waiting: deque[FoundFile] = deque()
        self._reading: FileReading | None = None
        self._listing: Future[Listing] | None = None
        self._look_s = 0.0  # when to list the folder next
        self._end_seen = False
        self._gone_s: dict[str, float] = {}  # since when a file that was read is not there
        self._failing_s: float | None = None
        if resume is not None and resume["reading"] is not None:
            self._resume_file(*resume["reading"])

    def _resume_file(self, before: FoundFile, place: tuple[int, Any]) -> None:
        now = self._source.look_at(before.path)
        if now != before:
            told = "gone" if now is None else f"of {now.size_bytes} bytes, or was changed at another time"
            raise DataflowError(
                f"from_folder: {before.path!r}, of {before.size_bytes} bytes, was being read when the snapshot was taken, and now is "
                f"{told}: put it back as it was, or begin afresh (resume='never'); a file has to stay until a snapshot covers it"
            )
        self._start(before, place)

    # -- reading ---------------------------------------------------------------------------------------
    def next_batch(self) -> SourceBatch | None:
        """The next records of the current file, or of the next one."""
        while True:
            if self._reading is not None:
                given = self._next_of(self._reading)
                if given is not None:
                    return given
            elif self._ended:
                return None
            elif self._waiting:
                self._open(self._waiting.popleft())
            elif not self._has_looked():
                return SourceBatch(self._epoch, [])

    def _next_of(self, reading: FileReading) -> SourceBatch | None:
        try:
            given = reading.next_batch()
        except RayadError as error:
            raise DataflowError(f"from_folder: {error}{_WHOLE}") from error
        if given is None:
            reading.close()
            self._reading = None
            if self._source.epoch is None:
                self._epoch += 1
            return None
        if self._source.epoch is None:
            return SourceBatch(self._epoch, given.batch)
        if given.epoch < self._epoch:
            raise DataflowError(
                f"from_folder: {reading.file.path!r} has rows of epoch {given.epoch} (column {self._source.epoch!r}), but the files before "
                f"it reached epoch {self._epoch}: input time may not go back; leave epoch= out, so that each file is an epoch, and use "
                "event-time windows"
            )
        self._epoch = given.epoch
        return given

    def _open(self, file: FoundFile) -> None:
        now = self._source.look_at(file.path)
        if now is not None:  # else it was removed before reading began
            self._start(now, None)

    def _start(self, file: FoundFile, place: tuple[int, Any] | None) -> None:
        try:
            self._reading = FileReading(self._source, file, self._schema, place)
        except (RayadError, OSError) as error:
            raise DataflowError(f"from_folder: {error}{_WHOLE}") from error
        if self._schema is None:
            self._schema = self._reading.schema
        self._read[file.path] = file.size_bytes

    # -- looking ---------------------------------------------------------------------------------------
    def _has_looked(self) -> bool:
        """Whether there may be new files to read. Another thread lists the folder: it may be large or remote."""
        now_s = clock.monotonic()
        if self._listing is None:
            if now_s < self._look_s:
                return False
            self._listing = Future()
            OwnedThread("folder", partial(_look, self._source, self._listing)).start()  # not waited for: the store may hang
        listing = self._listing
        if not listing.done():
            return False
        self._listing = None
        self._look_s = now_s + self._source.every_s
        error = listing.exception(0)
        if error is None:
            self._failing_s = None
            self._take(listing.result(0), now_s)
            return bool(self._waiting) or self._ended
        self._failing_s = now_s if self._failing_s is None else self._failing_s
        if now_s - self._failing_s >= FAILING_S or not isinstance(error, OSError):
            raise DataflowError(f"from_folder: the folder could not be listed for {now_s - self._failing_s:.0f} s: {error}") from error
        return False

    def _take(self, listing: Listing, now_s: float) -> None:
        for file in listing.files:
            size = self._read.get(file.path)
            if size is None:
                self._waiting.append(file)
            elif size != file.size_bytes:
                raise DataflowError(
                    f"from_folder: {file.path!r} had {size} bytes when it was read and has {file.size_bytes} now: what was added or "
                    "changed would be lost; give new records a file of their own"
                )
        self._forget({file.path for file in listing.files}, now_s, keep=listing.has_younger)
        if listing.ends and not self._waiting and not listing.has_younger:
            self._ended = self._end_seen  # only with the second listing: the first may lack files that appeared while it was made
            self._look_s = now_s
        self._end_seen = listing.ends

    def _forget(self, present: set[str], now_s: float, *, keep: bool) -> None:
        self._gone_s = {path: self._gone_s.get(path, now_s) for path in self._read if path not in present} if not keep else {}
        for path in [path for path, since_s in self._gone_s.items() if now_s - since_s >= FORGET_S]:
            del self._read[path], self._gone_s[path]

    def epoch_floor(self) -> int:
        """The epoch of the current file, or of the next one."""
        return self._epoch

    def offset(self) -> Any:
        """Which files have been read, and the position in the current one."""
        reading = self._reading
        return {
            "epoch": self._epoch,
            "read": dict(self._read),
            "reading": (reading.file, reading.place()) if reading is not None else None,
            "schema": self._schema.serialize().to_pybytes() if self._schema is not None else None,
            "ended": self._ended,
        }

    def close(self) -> None:
        """Close the current file."""
        if self._reading is not None:
            self._reading.close()
            self._reading = None
        self._ended = True
        self._waiting.clear()


def _look(source: FolderSource, listing: Future[Listing]) -> None:
    try:
        listing.set_result(source.look())
    except BaseException as error:  # raised where the future's result is read
        listing.set_exception(error)


__all__ = ["FORGET_S", "OPTIONS", "SUFFIXES", "UNFINISHED", "FileReading", "FolderPart", "FolderSource", "Listing"]
