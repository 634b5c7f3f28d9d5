"""The files that Spark 3.5 reads in a folder with ``_spark_metadata/``, by Spark's rules but without Spark.

After ``CompactibleFileStreamLog`` (``compactInterval``, ``getLatestBatchId``, ``getAllValidBatches``, ``deriveCompactInterval``),
``HDFSMetadataLog`` and ``MetadataLogFileIndex``; tests/cluster/test_spark_log.py compares with Spark itself.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

import pyarrow.parquet as pq

DEFAULT_INTERVAL = 10
FIELDS = ["path", "size", "isDir", "modificationTime", "blockReplication", "blockSize", "action"]


def _number(name: str) -> int | None:
    try:
        return int(name.removesuffix(".compact"))
    except ValueError:
        return None  # temporary files and the like are no entries


def _derived(last: int) -> int:
    if last + 1 <= DEFAULT_INTERVAL:
        return last + 1
    if (last + 1) // 2 > DEFAULT_INTERVAL:
        return next((n for n in range(DEFAULT_INTERVAL, (last + 1) // 2 + 1) if (last + 1) % n == 0), last + 1)
    return last + 1


def interval_of(names: list[str]) -> int:
    """The interval of compaction that a reader assumes."""
    compact = sorted((number for name in names if name.endswith(".compact") and (number := _number(name)) is not None), reverse=True)
    return compact[0] - compact[1] if len(compact) > 1 else _derived(compact[0]) if compact else DEFAULT_INTERVAL


def has_log(folder: Path) -> bool:
    """Whether Spark uses a log in this folder."""
    return (folder / "_spark_metadata").exists()


def listed(folder: Path) -> list[dict[str, Any]]:
    """Every file that the log lists; raises an error where Spark would."""
    log = folder / "_spark_metadata"
    names = [path.name for path in log.iterdir() if path.is_file() and _number(path.name) is not None]
    if not names:
        return []
    interval = interval_of(names)
    latest = max(number for name in names if (number := _number(name)) is not None)
    files: list[dict[str, Any]] = []
    for entry in range(max(0, (latest + 1) // interval * interval - 1), latest + 1):
        name = f"{entry}.compact" if (entry + 1) % interval == 0 else str(entry)
        assert (log / name).is_file(), f"{name} doesn't exist (latestId: {latest}, compactInterval: {interval})"
        version, *lines = (log / name).read_text().split("\n")
        assert version == "v1"
        files += [json.loads(line) for line in lines]
    assert all(list(file) == FIELDS for file in files)
    return files


def names_listed(folder: Path) -> list[str]:
    """Paths below the folder, in the order of their times, as a stream reads them."""
    found = []
    for file in sorted(listed(folder), key=lambda file: int(file["modificationTime"])):
        uri = urlparse(file["path"])
        assert uri.scheme == "file"
        found.append(str(Path(unquote(uri.path)).relative_to(folder)))
    return found


def rows_listed(folder: Path) -> list[dict[str, Any]]:
    """All rows that a batch query reads; checks that each file has the size in the log."""
    rows: list[dict[str, Any]] = []
    for file in listed(folder):
        path = Path(unquote(urlparse(file["path"]).path))
        assert path.stat().st_size == file["size"]
        rows += pq.ParquetFile(path).read().to_pylist()
    return rows
