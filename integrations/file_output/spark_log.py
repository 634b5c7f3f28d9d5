"""The log that makes a folder of committed Parquet files a stream for Spark: ``_spark_metadata/``, as Spark's own file sink writes it.

Spark's file source, streaming or batch, lists this log where there is one, and nothing else of the folder. An entry is a file ``<n>``: a
line ``v1``, then a line of JSON for each file that the commit added. Every tenth one, ``<n>.compact``, has all files up to there; a reader
takes the last of these and the entries behind it (``CompactibleFileStreamLog`` of Spark 3.5).

**The log follows from the manifest** (:mod:`rayad.integrations.file_output.committed`), which has the entry of each file and the time of
that entry. An entry is written after the manifest that names it, never before, and writing it again writes the same text. So after a
crash the next writer can compare the log with the manifest and repair it. Files that leave the manifest cannot be removed from an old
entry (Spark 3.5 reads all of them, whatever their ``action``). Instead numbering continues at the next ``.compact`` entry, which replaces
all entries before it in one step.

The time of an entry grows with its number: Spark reads files in order of time, and forgets those that are a week older than the newest.
"""

from __future__ import annotations

import json
import re
from urllib.parse import quote

from pyarrow import fs

from rayad.integrations.file_output.committed import CommittedFile, OutputManifest, SparkLog, replace_file
from rayad.progress import ConfigError

SPARK_LOG = "_spark_metadata"
COMPACT_EVERY = 10
"""Spark's default interval of compaction. A reader derives it from the names of entries; before the first compact one it uses its
default."""
KEPT_ENTRIES = 100
KEPT_S = 600.0
"""Entries that a compact one replaces are kept for so many entries and so long, as in Spark: a reader may still need them."""
_BLOCK_BYTES = 32 << 20  # Hadoop's block size of local files and S3; the log needs one, it has no effect
_ENTRY = re.compile(r"\d+(\.compact)?")
_SCHEMES = {"local": "file", "s3": "s3a", "gcs": "gs"}


def is_compact(entry: int) -> bool:
    """Whether an entry is compact: it has all files of the entries before it.

    >>> [n for n in range(25) if is_compact(n)]
    [9, 19]
    """
    return (entry + 1) % COMPACT_EVERY == 0


def entry_name(entry: int) -> str:
    """The name of an entry's file.

    >>> entry_name(8), entry_name(9)
    ('8', '9.compact')
    """
    return f"{entry}.compact" if is_compact(entry) else str(entry)


def next_compact(entry: int) -> int:
    """The first compact entry at or after this one.

    >>> next_compact(0), next_compact(9), next_compact(10)
    (9, 9, 19)
    """
    return entry + -(entry + 1) % COMPACT_EVERY


def read_from(latest: int) -> range:
    """The entries that a reader uses if this one is the last.

    >>> list(read_from(3)), list(read_from(9)), list(read_from(11))
    ([0, 1, 2, 3], [9], [9, 10, 11])
    """
    return range(max(0, (latest + 1) // COMPACT_EVERY * COMPACT_EVERY - 1), latest + 1)


def base_uri(filesystem: fs.FileSystem, path: str) -> str | None:
    """Spark's URI of a folder: ``file:///...``, ``s3a://bucket/...``; None where it is not known.

    >>> base_uri(fs.LocalFileSystem(), "/data/a b")
    'file:///data/a%20b'
    """
    scheme = _SCHEMES.get(filesystem.type_name)
    if scheme is None:
        return None
    return encoded(f"{scheme}://{path}" if path.startswith("/") or scheme != "file" else f"file:///{path}")


def encoded(uri: str) -> str:
    """The encoded form in which Spark writes the URI of a folder, ``scheme://authority/path``, into logs.

    >>> encoded("hdfs://host:9000/data/50% off")
    'hdfs://host:9000/data/50%25%20off'
    """
    scheme, _, rest = uri.rstrip("/").partition("://")
    authority, slash, path = rest.partition("/")
    return f"{scheme}://{authority}{slash}{quote(path, safe='/=')}"


def is_shown(file: CommittedFile) -> bool:
    """Whether a file is in the log: Parquet files that are not hidden."""
    return file.name.endswith(".parquet") and not file.name.rsplit("/", 1)[-1].startswith(("_", "."))


def numbered(before: OutputManifest | None, after: OutputManifest, base: str, now_ms: int, above: int = -1) -> OutputManifest:
    """The manifest with an entry of the log for each file; unchanged when it adds nothing to ``before`` and removes nothing.

    ``above``: for a log that replaces another program's, the last entry of that one.
    """
    log = before.spark if before is not None else None
    fresh = {file.name for file in after.files if is_shown(file) and file.entry < 0}
    shown = [file for file in before.files if file.entry >= 0] if before is not None and log is not None else []
    removes = {file.name for file in shown} - {file.name for file in after.files} or (log is not None and log.base != base)
    if log is not None and not fresh and not removes:
        return after.with_spark(after.files, log)
    if log is None:
        number = next_compact(above + 1) if above >= 0 else 0
    else:
        number = next_compact(log.entries) if removes else log.entries
    shown_ms = max([now_ms, *(file.shown_ms + 1 for file in shown)])
    files = tuple(file.in_entry(number, shown_ms) if file.name in fresh else file for file in after.files)
    return after.with_spark(files, SparkLog(base, number + 1))


def entry_text(manifest: OutputManifest, entry: int) -> bytes:
    """The text of an entry, from the manifest."""
    assert manifest.spark is not None
    files = [file for file in manifest.files if file.entry == entry or (is_compact(entry) and 0 <= file.entry < entry)]
    lines = [_line(file, manifest.spark.base) for file in sorted(files, key=lambda file: (file.entry, file.name))]
    return "\n".join(["v1", *lines]).encode()


def _line(file: CommittedFile, base: str) -> str:
    status = {
        "path": f"{base}/{quote(file.name, safe='/=')}",
        "size": file.size_bytes,
        "isDir": False,
        "modificationTime": file.shown_ms,
        "blockReplication": 1,
        "blockSize": _BLOCK_BYTES,
        "action": "add",
    }
    return json.dumps(status, separators=(",", ":"))


class SparkLogFolder:
    """The log of one output on its file system. ``staging``: where its files are made before they are moved into place."""

    def __init__(self, filesystem: fs.FileSystem, path: str, staging: str) -> None:
        self._filesystem = filesystem
        self._output = path
        self.path = f"{path}/{SPARK_LOG}"
        self._staging = staging

    def entries(self) -> dict[str, fs.FileInfo]:
        """The files that Spark reads as entries, by name."""
        found = self._filesystem.get_file_info(fs.FileSelector(self.path, allow_not_found=True))
        return {info.base_name: info for info in found if info.type == fs.FileType.File and _ENTRY.fullmatch(info.base_name)}

    def last(self) -> int:
        """The number of the last entry; -1: there is none."""
        return max((_number(name) for name in self.entries()), default=-1)

    def check(self, last: int, manifest: OutputManifest | None, *, may_replace: bool, where: str) -> None:
        """Raise ConfigError if another program writes the log: neither would know of the other's files.

        ``last`` has to be read before ``manifest``: then the manifest has that entry, if it is ours, even if there is a commit in between.
        """
        ours = manifest.spark.entries if manifest is not None and manifest.spark is not None else None
        if ours is None and last >= 0 and not may_replace:
            raise ConfigError(
                f"{where}: {self.path!r} is the log of a Spark query that writes to {self._output!r}: Spark reads what is in it and "
                "nothing else, so it would not see what is added; write to another directory, or give mode='overwrite'"
            )
        if ours is not None and last >= ours:
            raise ConfigError(
                f"{where}: {self.path!r} has entry {last}, the output's own are those below {ours}: another program writes there too; "
                "let one of them write to another directory"
            )

    def write_last(self, manifest: OutputManifest, now_s: float) -> None:
        """Write the entry of the newest commit."""
        assert manifest.spark is not None
        latest = manifest.spark.entries - 1
        self._write(manifest, latest)
        if is_compact(latest):
            self._expire(latest, now_s)

    def mend(self, manifest: OutputManifest) -> None:
        """Repair the log so that its readers get what the manifest says; write only what differs."""
        assert manifest.spark is not None
        latest = manifest.spark.entries - 1
        present = self.entries()
        for entry in read_from(latest):
            if entry_name(entry) not in present or self._read(entry_name(entry)) != entry_text(manifest, entry):
                self._write(manifest, entry)
        for name in present:
            if name != entry_name(_number(name)):  # another program's compact entry: readers would derive a wrong interval from it
                self._filesystem.delete_file(f"{self.path}/{name}")

    def remove(self) -> None:
        """Delete the log; Spark then lists the folder."""
        if self._filesystem.get_file_info(self.path).type == fs.FileType.Directory:
            self._filesystem.delete_dir(self.path)

    def _expire(self, latest: int, now_s: float) -> None:
        """Delete entries that compact ones have replaced long ago."""
        first = latest + 1 - KEPT_ENTRIES
        if first < COMPACT_EVERY:
            return
        for name, info in self.entries().items():
            if _number(name) < read_from(first - 1)[0] and now_s - (info.mtime_ns or 0) / 1e9 >= KEPT_S:
                self._filesystem.delete_file(info.path)

    def _read(self, name: str) -> bytes:
        with self._filesystem.open_input_stream(f"{self.path}/{name}") as stream:
            return bytes(stream.read())

    def _write(self, manifest: OutputManifest, entry: int) -> None:
        self._filesystem.create_dir(self.path, recursive=True)
        through = f"{self._staging}/spark-{manifest.job}"
        replace_file(self._filesystem, f"{self.path}/{entry_name(entry)}", entry_text(manifest, entry), through=through)


def _number(name: str) -> int:
    return int(name.removesuffix(".compact"))


__all__ = [
    "COMPACT_EVERY",
    "KEPT_ENTRIES",
    "KEPT_S",
    "SPARK_LOG",
    "SparkLogFolder",
    "base_uri",
    "encoded",
    "entry_name",
    "entry_text",
    "is_compact",
    "is_shown",
    "next_compact",
    "numbered",
    "read_from",
]
