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
import uuid
from collections.abc import Iterable
from dataclasses import replace
from urllib.parse import quote

from pyarrow import fs

from rayad.integrations.file_output.manifests import CommittedFile, Delta, Head, Output, SparkLog
from rayad.progress import ConfigError
from rayad.snapshots.port import Entry, Port

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


def numbered(output: Output | None, head: Head, change: Delta, base: str, now_ms: int, above: int = -1) -> tuple[Head, Delta]:
    """A commit on top of ``output``, with an entry of the log for each file that it adds; unchanged when the log shows what it did.

    ``above``: for a log that replaces another program's, the last entry of that one.
    """
    log = output.head.spark if output is not None else None
    before = output.files if output is not None else {}
    added = dict(change.added)
    if log is None:  # the log begins: it shows what is there, too
        added = {**{name: file for name, file in before.items() if name not in change.removed}, **added}
    fresh = {name: file for name, file in added.items() if is_shown(file) and file.entry < 0}
    shown = (before[name] for name in change.removed if name in before)
    removes = log is not None and (log.base != base or any(file.entry >= 0 for file in shown))
    if log is not None and not fresh and not removes:
        return replace(head, spark=log), change
    if log is None:
        number = next_compact(above + 1) if above >= 0 else 0
    else:
        number = next_compact(log.entries) if removes else log.entries
    shown_ms = max(now_ms, output.shown_ms + 1 if output is not None and output.shown_ms else 0)
    entered = {name: file.in_entry(number, shown_ms) for name, file in fresh.items()}
    return replace(head, spark=SparkLog(base, number + 1)), Delta({**change.added, **entered}, change.removed)


def entry_text(files: Iterable[CommittedFile], base: str, entry: int) -> bytes:
    """The text of an entry. ``files``: all of the output; where the entry is not compact, at least its own."""
    own = [file for file in files if file.entry == entry or (is_compact(entry) and 0 <= file.entry < entry)]
    lines = [_line(file, base) for file in sorted(own, key=lambda file: (file.entry, file.name))]
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
    """The log of one output. It follows from the manifests, so whoever writes an entry writes what everybody would.

    Args:
        port: of the output.
        staging: where files are made before they are moved into place.
    """

    def __init__(self, port: Port, staging: str) -> None:
        self._port = port
        self._staging = staging

    def entries(self) -> dict[str, Entry]:
        """The files that Spark reads as entries, by name."""
        names = ((entry.name.rpartition("/")[2], entry) for entry in self._port.entries(SPARK_LOG) if entry.is_file)
        return {name: entry for name, entry in names if _ENTRY.fullmatch(name)}

    def last(self) -> int:
        """The number of the last entry; -1: there is none."""
        return max((_number(name) for name in self.entries()), default=-1)

    def check(self, last: int, log: SparkLog | None, *, may_replace: bool, where: str) -> None:
        """Raise ConfigError if another program writes the log: neither would know of the other's files.

        ``last`` has to be read before the manifest: then that has the entry, if it is ours, even if there is a commit in between.
        """
        path = self._port.path(SPARK_LOG)
        if log is None and last >= 0 and not may_replace:
            raise ConfigError(
                f"{where}: {path!r} is the log of a Spark query that writes to {self._port.folder!r}: Spark reads what is in it and "
                "nothing else, so it would not see what is added; write to another directory, or give mode='overwrite'"
            )
        if log is not None and last >= log.entries:
            raise ConfigError(
                f"{where}: {path!r} has entry {last}, the output's own are those below {log.entries}: another program writes there too; "
                "let one of them write to another directory"
            )

    def write_last(self, log: SparkLog, output: Output, change: Delta, now_s: float) -> None:
        """Write the entry of the newest commit."""
        latest = log.entries - 1
        self._write(entry_text((output.files if is_compact(latest) else change.added).values(), log.base, latest), latest)
        if is_compact(latest):
            self._expire(latest, now_s)

    def mend(self, log: SparkLog, output: Output) -> None:
        """Repair the log so that its readers get what the manifest says; write only what differs."""
        latest = log.entries - 1
        present = self.entries()
        for entry in read_from(latest):
            text = entry_text(output.files.values(), log.base, entry)
            if entry_name(entry) not in present or self._port.read(f"{SPARK_LOG}/{entry_name(entry)}") != text:
                self._write(text, entry)
        for name in present:
            if name != entry_name(_number(name)):  # another program's compact entry: readers would derive a wrong interval from it
                self._port.delete(f"{SPARK_LOG}/{name}")

    def remove(self) -> None:
        """Delete the log; Spark then lists the folder."""
        self._port.delete_folder(SPARK_LOG)

    def _expire(self, latest: int, now_s: float) -> None:
        """Delete entries that compact ones have replaced long ago."""
        first = latest + 1 - KEPT_ENTRIES
        if first < COMPACT_EVERY:
            return
        for name, entry in self.entries().items():
            if _number(name) < read_from(first - 1)[0] and now_s - entry.written_s >= KEPT_S:
                self._port.delete(entry.name)

    def _write(self, text: bytes, entry: int) -> None:
        self._port.make_folder(SPARK_LOG)
        self._port.make_folder(self._staging)
        self._port.replace(f"{SPARK_LOG}/{entry_name(entry)}", text, through=f"{self._staging}/spark-{uuid.uuid4().hex}.json")


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
