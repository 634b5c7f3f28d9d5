"""Small Parquet files of an output joined to larger ones, as a step of the commit that follows them.

A job that takes a snapshot a second leaves thousands of small files, and a manifest that each commit writes again. With ``compact=True`` a
commit also joins files that earlier snapshots committed: those of one directory, each small, in tiers as a log-structured merge tree has
them: :data:`JOIN_FILES` files of one commit become a file of so many, that many of these become one again, up to :data:`SMALL_BYTES`. So a
record is written again as often as there are tiers, and a commit joins at most :data:`GROUPS_MAX` groups.

**Any snapshot may still be resumed from.** The rows of a joined file are in order of their snapshots, and its footer says how many rows
each snapshot has. A roll-back into the middle of a joined file *cuts* it: the rows of snapshots that stay are written to another file,
which replaces it in the same step of the manifest that makes the others void. That an older commit may be repeated stays true, too: a
file that the manifest does not list is there if a joined file of its directory reaches from before its snapshot to behind it, since
snapshots are committed in order, each as a whole.

The joined file is in place before the manifest names it, and what it replaces is deleted after that. A crash between leaves files of the
job that the manifest does not list; the sweep of the next commit removes them, as all such files.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from rayad.integrations.file_output.formats import ParquetFormat
from rayad.integrations.file_output.manifests import CommittedFile
from rayad.progress import DataflowError
from rayad.snapshots.port import Port

JOIN_FILES = 10
"""So many files of a tier are joined."""
SMALL_BYTES = 4 << 20
"""Files of this size or more are left alone."""
JOIN_BYTES_MAX = 32 << 20
"""What is joined at once has at most so many bytes together: it is in memory, decompressed."""
GROUPS_MAX = 16
"""So many joins are done in one commit; the others wait for later ones."""
_KEY = "rayad.snapshots"


class Rows(NamedTuple):
    """A run of rows in a file that came from one snapshot."""

    snapshot: int
    rows: int


def tier(joined: int) -> int:
    """How often the records of a file of so many commits have been joined.

    >>> tier(1), tier(JOIN_FILES - 1), tier(JOIN_FILES), tier(JOIN_FILES**2)
    (0, 0, 1, 2)
    """
    level = 0
    while joined >= JOIN_FILES:
        joined //= JOIN_FILES
        level += 1
    return level


def may_be_joined(file: CommittedFile, job: str) -> bool:
    """Whether a file of a job is one that is joined at all, now or later."""
    return file.job == job and file.snapshot > 0 and file.size_bytes < SMALL_BYTES and file.name.endswith(".parquet")


def groups_to_join(files: Iterable[CommittedFile], job: str, newest: int) -> list[list[CommittedFile]]:
    """Which files of a job are joined now: each group to one file, of snapshots before ``newest``."""
    tiers: dict[tuple[str, int], list[CommittedFile]] = defaultdict(list)
    for file in files:
        if may_be_joined(file, job) and file.snapshot < newest:
            tiers[file.name.rpartition("/")[0], tier(file.joined)].append(file)
    groups = [_that_fit(sorted(some, key=lambda file: (file.snapshot, file.name))) for some in tiers.values()]
    full = [group for group in groups if len(group) >= JOIN_FILES]
    return sorted(full, key=lambda group: (-len(group), group[0].name))[:GROUPS_MAX]


def _that_fit(files: list[CommittedFile]) -> list[CommittedFile]:
    total, group = 0, list[CommittedFile]()
    for file in files:
        total += file.size_bytes
        if total > JOIN_BYTES_MAX:
            break
        group.append(file)
    return group


class Joiner:
    """Writes joined and cut files of one output."""

    def __init__(self, kind: ParquetFormat, port: Port) -> None:
        self._format, self._port = kind, port

    def join(self, group: list[CommittedFile], staged: str, name: str) -> CommittedFile:
        """One file with the rows of a group, in order of their snapshots; it is written to ``staged``."""
        pieces: list[tuple[int, int, pa.Table]] = []
        for number, file in enumerate(group):
            table, its = self._read(file)
            at = 0
            for snapshot, rows in its:
                pieces.append((snapshot, number, table.slice(at, rows)))
                at += rows
        pieces.sort(key=lambda piece: piece[:2])
        parts = list[Rows]()
        for snapshot, _, table in pieces:
            so_far = parts.pop().rows if parts and parts[-1].snapshot == snapshot else 0
            parts.append(Rows(snapshot, so_far + table.num_rows))
        whole = pa.concat_tables([table for *_, table in pieces])
        return self._write(whole, parts, sum(file.joined for file in group), group[0], staged, name)

    def cut(self, file: CommittedFile, below: int, staged: str, name: str) -> CommittedFile:
        """A joined file with the rows of the snapshots ``< below`` alone; there are some."""
        table, parts = self._read(file)
        stay = [part for part in parts if part.snapshot < below]
        joined = max(1, file.joined * len(stay) // len(parts))
        return self._write(table.slice(0, sum(part.rows for part in stay)), stay, joined, file, staged, name)

    def _read(self, file: CommittedFile) -> tuple[pa.Table, list[Rows]]:
        """A file's rows, and of which snapshots they are."""
        path = self._port.path(file.name)
        with self._port.filesystem.open_input_file(path) as stream:
            found = pq.ParquetFile(stream)
            table = found.read(use_threads=False)
            told = (found.metadata.metadata or {}).get(_KEY.encode())
        parts = [Rows(*part) for part in json.loads(told)] if told is not None else [Rows(file.snapshot, table.num_rows)]
        if sum(part.rows for part in parts) != table.num_rows or table.num_rows != file.rows:
            raise DataflowError(
                f"write_parquet: {path!r} has {table.num_rows} rows, the manifest says {file.rows}, its footer "
                f"{sum(part.rows for part in parts)}: it was changed by another program; take it away from there, or write elsewhere"
            )
        return table.replace_schema_metadata(None), parts

    def _write(self, table: pa.Table, parts: list[Rows], joined: int, like: CommittedFile, staged: str, name: str) -> CommittedFile:
        self._port.make_folder(staged.rpartition("/")[0])
        with self._port.writing(staged) as stream:
            with pq.ParquetWriter(stream, table.schema, compression=self._format.compression) as writer:
                writer.write_table(table, row_group_size=self._format.chunk_rows)
                writer.add_key_value_metadata({_KEY: json.dumps(parts)})
        made = self._port.file(staged)
        size = made.size if made is not None else -1
        return CommittedFile(name, table.num_rows, size, like.job, parts[-1].snapshot, first=parts[0].snapshot, joined=joined)


__all__ = ["JOIN_FILES", "Joiner", "Rows", "groups_to_join", "may_be_joined", "tier"]
