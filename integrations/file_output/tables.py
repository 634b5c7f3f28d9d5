"""Tables of a format whose commits are transactions (Delta, Iceberg) as sinks that are written exactly once: what they share.

Replicas write Parquet files into ``<files>/_staging/``, as for :mod:`rayad.integrations.file_output`. ``commit(n)`` moves them beside the
others of the table, where nobody sees them, and adds them by one transaction of the format's library: that is the commit. With it the table
is told, for the job, that n is *shown*, and which snapshots are void because the job has resumed from an earlier one (:class:`Told`). So a
commit that is repeated is recognised, and one of a void snapshot is refused. A roll-back removes the files of the void snapshots, whose
number is in their names, in the transaction of the commit that follows it.

What a format has to answer: what the table says (:meth:`TableSink.told_by`), which files void snapshots have (:meth:`TableSink.files_of`),
and how a transaction is made (:meth:`TableSink.transact`). Two coordinators that commit at once are told so by the format's library;
:class:`Overtaken` says that this one may look at the table again, and decide again: a commit is a function of what the table says.
"""

from __future__ import annotations

import json
import os
import re
import uuid
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any, ClassVar, Literal, NamedTuple

import pyarrow as pa
from pyarrow import fs

from rayad.dataflow.records.output_form import describe, schema_drift
from rayad.dataflow.sink import Sink, SinkWriter
from rayad.integrations.file_output.committed import overlap
from rayad.integrations.file_output.formats import FileFormat, ParquetFormat, check_codec
from rayad.integrations.file_output.partitions import cut
from rayad.integrations.file_output.sink import clean_staging
from rayad.integrations.file_output.writer import STAGING, FileWriter, StagedFile
from rayad.integrations.paths import check_schema
from rayad.progress import ConfigError, DataflowError, arguments
from rayad.snapshots.port import Port

MODES = ("error", "append", "overwrite")
DECISIONS_MAX = 10
"""So many times a commit is decided again where others commit to the table at the same moment."""


class PublishedTable(NamedTuple):
    """The value of ``result[name]``: the table; its version after the last commit (of Iceberg the snapshot id; -1: nothing was written,
    so there is no table); and the id under which the table remembers what this job has committed."""

    path: str
    version: int
    job: str


class TableReceipt(NamedTuple):
    """What a commit gives: as :class:`PublishedTable`, and the run number of the coordinator."""

    path: str
    version: int
    job: str
    run: int


class Told(NamedTuple):
    """What a table says of a job: the newest snapshot that is committed, and the ranges of void ones."""

    shown: int
    void: tuple[tuple[int, int], ...]


class Overtaken(Exception):
    """A transaction was refused because others have committed meanwhile; nothing of it is in the table."""


class TableSink(Sink):
    """Appends records to a table, a transaction for each snapshot; ``result`` gives :class:`PublishedTable`."""

    commits = True
    where: ClassVar[str]
    partition_by_epoch = False
    filesystem: fs.FileSystem
    path: str
    """The directory of the files of the table, on the file system."""
    name: str
    """The table, as messages and results have it."""
    partition_by: tuple[str, ...] = ()
    """Columns whose values are in the names of partitions and not in the files."""

    def __init__(
        self,
        mode: Literal["error", "append", "overwrite"],
        schema: pa.Schema | None,
        epoch_column: str | None,
        compression: str | None,
        row_group_rows: int,
    ) -> None:
        where = self.where
        arguments.choice(mode, f"{where}: mode", *MODES, error=ConfigError)
        check_schema(schema, where)
        check_codec(compression, where)
        row_group_rows = arguments.whole(row_group_rows, f"{where}: row_group_rows", least=1, error=ConfigError)
        if epoch_column is not None:
            arguments.text(epoch_column, f"{where}: epoch_column", error=ConfigError, more=", the name of a column, or None")
        self.format: FileFormat = ParquetFormat(row_group_rows, compression)
        self.mode = mode
        self.job = uuid.uuid4().hex[:12]
        self.epoch_column = epoch_column
        self.schema = schema
        self._void: tuple[int, int] | None = None  # snapshots that the next commit rolls back, first and last

    # -- what a format says ------------------------------------------------------------------------------
    @abstractmethod
    def table(self) -> Any:
        """Return the table as it is now, or None if there is none. Raises DataflowError if it cannot be read."""

    @abstractmethod
    def columns_of(self, table: Any) -> pa.Schema:
        """Return the columns of the table in Arrow types, as its files have them."""

    @abstractmethod
    def version_of(self, table: Any) -> int:
        """Return the version that :class:`PublishedTable` names."""

    @abstractmethod
    def knows(self, table: Any) -> bool:
        """Tell whether this job has committed to the table."""

    @abstractmethod
    def told_by(self, table: Any) -> Told:
        """Return what a table that knows this job says of it."""

    @abstractmethod
    def files_of(self, table: Any, void: tuple[int, int], earlier: Sequence[tuple[int, int]]) -> Sequence[Any]:
        """Return the files of void snapshots that are still in the table, for :meth:`transact`; those of ``earlier`` ranges were removed
        before. Raises DataflowError if their rows may be in other files by now."""

    @abstractmethod
    def transact(
        self, table: Any, moved: Sequence[StagedFile], removed: Sequence[Any], after: Told, kinds: pa.Schema, *, replaces: bool
    ) -> None:
        """Change the table in one transaction, or make it (``table`` is None): add and remove files, and tell ``after``. ``replaces``: all
        that is there. Raises :class:`Overtaken` where that may be tried again, else DataflowError."""

    @abstractmethod
    def kinds(self, schema: pa.Schema) -> pa.Schema:
        """The columns of a table for records of ``schema``. Raises DataflowError where the format has no type."""

    @abstractmethod
    def stored(self, table: pa.Table) -> pa.Table:
        """Convert records to the types of the format."""

    # -- what a writer asks ----------------------------------------------------------------------------
    def cut(self, records: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
        """The records of each partition, with a name for it, which is above the names of its files."""
        return cut(records, self.partition_by, self.where)

    @property
    def port(self) -> Port:
        """The directory of the files."""
        return Port(self.filesystem, self.path)

    def make_staging(self, name: str) -> None:
        """Make the directory of a writer; see :meth:`rayad.integrations.file_output.sink.FileSink.make_staging`."""
        self.port.make_folder(name, parents=not self.run)

    def open(self, replica: int, parallelism: int) -> SinkWriter:
        """The writer of one replica."""
        table = self.table() if self.schema is None else None
        return FileWriter(self, replica, self.without_epoch(table) if table is not None else None)

    def without_epoch(self, table: Any) -> pa.Schema:
        """The columns of the records in a table."""
        return pa.schema([field for field in self.columns_of(table) if field.name != self.epoch_column])

    def with_epoch(self, schema: pa.Schema) -> pa.Schema:
        """The columns of a table of such records."""
        if self.epoch_column is None or self.epoch_column in schema.names:
            return schema
        return schema.append(pa.field(self.epoch_column, pa.int64()))

    # -- before writing --------------------------------------------------------------------------------
    def is_same_place(self, other: Sink) -> bool:
        """Tell whether the other sink writes to this table, or to files around it, and not both append."""
        return overlap(self, other)

    def check(self) -> None:
        """Refuse an existing table, unless it is to be written to; otherwise create the directory of staged files."""
        self._check_mode(self.table())
        self.port.make_folder(STAGING)

    def _check_mode(self, table: Any) -> None:
        if table is not None and self.mode == "error" and not self.knows(table):
            raise ConfigError(
                f"{self.where}: there is a table at {self.name!r} and mode='error'; give mode='append' or mode='overwrite', or another "
                "place; to continue a job that was interrupted, resume it"
            )

    def identity(self) -> str:
        """The job's id, which is in the names of its files and in what the table says."""
        return self.job

    def adopt(self, identity: str) -> None:
        """Continue the output of another run."""
        if not identity.isalnum():
            raise ConfigError(f"{self.where}: {identity!r} is no id of a job")
        self.job = identity

    def check_columns(self, ours: pa.Schema, theirs: pa.Schema) -> None:
        """Refuse records of other columns than the table has."""
        other = {field.name: field.type for field in theirs}
        if set(other) != set(ours.names) or any(not same_kind(other[field.name], field.type) for field in ours):
            raise ConfigError(
                f"{self.where}: the table {self.name!r} has the columns {describe(theirs)}, the records {describe(ours)}: they have to "
                "be the same; convert the records with map() or cast, or write to another table"
            )

    # -- committing --------------------------------------------------------------------------------------
    def publish(self, staged: Sequence[Any]) -> TableReceipt:
        """Commit all output of a job that takes no snapshots."""
        return self.commit(0, staged)

    def roll_back(self, last: int, first_new: int) -> None:
        """Make these snapshots void: the next commit removes what they committed, in the same transaction."""
        self._void = (last + 1, first_new - 1) if first_new > last + 1 else None

    def commit(self, snapshot: int, staged: Sequence[Any]) -> TableReceipt:
        """Add the staged files to the table in one transaction; repeatable.

        DataflowError when a staged file is gone, when the columns are not those of the table, when the snapshot is void, or another program
        has rewritten what is to be rolled back.
        """
        files = [file for group in staged for file in (group or ())]
        self.decided(lambda: self._commit(snapshot, files), f"the commit of snapshot {snapshot}")
        self._void = None
        self.port.make_folder(STAGING, parents=not self.run)  # where the job was over, and goes on, it is gone
        table = self.table()
        return TableReceipt(self.name, self.version_of(table) if table is not None else -1, self.job, self.run)

    def decided(self, decide: Callable[[], None], what: str) -> None:
        """Call what looks at the table and changes it, again where others have changed it meanwhile. Raises DataflowError."""
        for _ in range(DECISIONS_MAX):
            try:
                decide()
                return
            except Overtaken as error:
                last = error
        raise DataflowError(
            f"{self.where}: {what} to {self.name!r} failed {DECISIONS_MAX} times, as others committed to the table at the same moments: "
            f"{last}"
        ) from last

    def refuse_void(self, snapshot: int, void: Sequence[tuple[int, int]]) -> None:
        """Raise DataflowError for a snapshot that was made void."""
        for low, high in void:
            if low <= snapshot <= high:
                raise DataflowError(
                    f"{self.where}: snapshot {snapshot} cannot be committed to {self.name!r}: the job resumed from snapshot {low - 1} "
                    f"meanwhile, and what snapshots {low} to {high} committed was removed; resume from {low - 1}, or from one after {high}"
                )

    def _commit(self, snapshot: int, files: Sequence[StagedFile]) -> None:
        table = self.table()
        self._check_mode(table)
        told = self.told_by(table) if table is not None and self.knows(table) else self._read_note()
        shown, void = told if told is not None else Told(-1, ())
        self.refuse_void(snapshot, void)
        new_void = self._void if self._void is not None and self._void not in void else None
        fresh = files if snapshot > shown else []
        removed = self.files_of(table, new_void, void) if table is not None and new_void is not None and shown >= new_void[0] else []
        replaces = table is not None and told is None and self.mode == "overwrite"
        if not (fresh or removed or replaces or new_void is not None):
            return
        if new_void is not None:
            void = (*(one for one in void if not new_void[0] <= one[0] <= one[1] <= new_void[1]), new_void)
        after = Told(snapshot if fresh else min(shown, snapshot), void)
        if table is None and not fresh:
            self._write_note(after)  # there is no table yet that could say so
            return
        self.transact(table, self._moved(fresh, snapshot), removed, after, self._columns_for(table, fresh), replaces=replaces)

    def _columns_for(self, table: Any, files: Sequence[StagedFile]) -> pa.Schema:
        """The columns of the table; those of the files have to be the same."""
        for file in files[1:]:
            drift = schema_drift(f"the output of {file.name!r}", files[0].schema, file.schema, "give schema= to the sink")
            if drift is not None:
                raise DataflowError(f"{self.where}: replicas gave different columns: {drift}") from drift
        ours = self.kinds(files[0].schema) if files else None
        if table is None:
            assert ours is not None
            return ours
        theirs = self.columns_of(table)
        if ours is not None:
            self.check_columns(ours, theirs)
        return theirs

    def _moved(self, files: Sequence[StagedFile], snapshot: int) -> list[StagedFile]:
        """Move the files out of staging; ``staged`` is then where each is, with the snapshot's number in its name."""
        out: list[StagedFile] = []
        for file in files:
            folder, own = os.path.split(os.path.normpath(file.staged) if "://" not in file.staged else file.staged)
            staging, writer = os.path.split(folder)
            home, last = os.path.split(staging)
            if last != STAGING or not writer.startswith(f"{self.job}-"):
                raise ConfigError(f"{self.where}: refused the staged file {file.staged!r}: it is not this job's")
            target = f"{home}/{own.replace(f'part-{self.job}-', numbered(self.job, snapshot), 1)}"
            port = Port(self.filesystem, home)
            if not _moved_now(port, port.name_of(file.staged), port.name_of(target)):
                raise DataflowError(
                    f"{self.where}: cannot commit {own!r}: its staged file {file.staged!r} is gone and {target!r} is missing; was the "
                    "directory cleaned while the job ran? Is it seen by all nodes?"
                )
            out.append(StagedFile(target, file.name, file.rows, file.size_bytes, file.schema))
        for home in {os.path.split(file.staged)[0] for file in out}:
            Port(self.filesystem, home).sync()
        return out

    # -- notes, as long as there is no table -------------------------------------------------------------
    def _notes(self) -> dict[int, str]:
        """By number, the names of the notes that say which snapshots are void; number 0 is one of an earlier version."""
        found = (entry.name for entry in self.port.entries(STAGING) if entry.is_file)
        named = {name: re.fullmatch(rf"{STAGING}/{self.job}-void(?:-(\d+))?\.json", name) for name in found}
        return {int(match[1] or 0): name for name, match in named.items() if match is not None}

    def _read_note(self) -> Told | None:
        notes = self._notes()
        return Told(-1, ranges(json.loads(self.port.read(notes[max(notes)])))) if notes else None

    def _write_note(self, told: Told) -> None:
        """The next note, of which each number is taken once. Raises Overtaken when another coordinator has taken it."""
        self.port.make_folder(STAGING, parents=not self.run)
        number = max(self._notes(), default=0) + 1
        text = json.dumps(told.void).encode()
        if not self.port.create(f"{STAGING}/{self.job}-void-{number:06d}.json", text):
            raise Overtaken("another coordinator of this job has noted what is void")

    # -- the end -----------------------------------------------------------------------------------------
    def abort(self) -> None:
        """Remove what this run staged; nothing that is committed."""
        clean_staging(self.port, self.job, self.run)

    def result(self, receipt: TableReceipt) -> PublishedTable:
        """The job is over: also remove the staged files of dead replicas."""
        clean_staging(self.port, receipt.job, receipt.run)
        return PublishedTable(receipt.path, receipt.version, receipt.job)


def _moved_now(port: Port, staged: str, target: str) -> bool:
    """Move a file out of staging, unless that has been done; whether it is there now."""
    if port.file(staged) is not None:
        with suppress(FileNotFoundError):  # another coordinator moves it at the same moment
            port.move(staged, target)
    return port.file(target) is not None


def numbered(job: str, snapshot: int) -> str:
    """How the names of the files begin that a snapshot of a job has committed."""
    return f"part-{job}-{snapshot:012d}-"


def snapshot_in(name: str, job: str) -> int | None:
    """The snapshot that committed a file of this name; None: it is not the job's.

    >>> snapshot_in(numbered("ab12", 7) + "00000-x.parquet", "ab12"), snapshot_in("part-0.parquet", "ab12")
    (7, None)
    """
    mine = f"part-{job}-"
    return int(name[len(mine) :].split("-")[0]) if name.startswith(mine) else None


def are_of(void: tuple[int, int], names: Sequence[str], job: str) -> list[int]:
    """Which of the files, by position, void snapshots of a job have committed.

    >>> are_of((2, 3), [numbered("ab12", n) + "x.parquet" for n in (1, 2, 3, 4)], "ab12")
    [1, 2]
    """
    numbers = [snapshot_in(name, job) for name in names]
    return [at for at, number in enumerate(numbers) if number is not None and void[0] <= number <= void[1]]


def ranges(plain: Any) -> tuple[tuple[int, int], ...]:
    """Ranges of void snapshots, from JSON."""
    return tuple((int(low), int(high)) for low, high in plain)


def same_kind(left: pa.DataType, right: pa.DataType) -> bool:
    """Whether two types of Arrow are one, but for the names of the items of lists and for what may be null."""
    if pa.types.is_list(left) and pa.types.is_list(right):
        return same_kind(left.value_type, right.value_type)
    if pa.types.is_struct(left) and pa.types.is_struct(right):
        fields = {field.name: field.type for field in right}
        return set(fields) == {field.name for field in left} and all(same_kind(field.type, fields[field.name]) for field in left)
    if pa.types.is_map(left) and pa.types.is_map(right):
        return same_kind(left.key_type, right.key_type) and same_kind(left.item_type, right.item_type)
    return bool(left == right)


__all__ = ["Overtaken", "PublishedTable", "TableSink", "Told", "are_of", "numbered", "ranges", "same_kind", "snapshot_in"]
