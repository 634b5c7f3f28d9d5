"""A Delta table as a sink that is written exactly once, by ``deltalake`` (``pip install rayad[delta]``); why so: docs/decisions/066.

Replicas write Parquet files into ``<table>/_staging/``, as for :mod:`rayad.integrations.file_output`. ``commit`` moves them beside the
others of the table, where nobody sees them, and adds them by one transaction of the table's log: that is the commit. Its metadata have
the number of the snapshot, and which snapshots are void because the job has resumed from an earlier one; the number is the version of the
job's *application transaction* too (``txn`` of Delta's protocol). So a commit that is repeated is recognised, one of a void snapshot is
refused, and two coordinators that commit at once are told so by the log. A roll-back removes the files of the void snapshots, whose
number is in their names, in the transaction of the commit that follows it.

Other programs may append meanwhile. What rewrites files (OPTIMIZE, DELETE, an overwrite) is refused only by a roll-back across it.
"""

from __future__ import annotations

import json
import os
import time as clock
import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Literal, NamedTuple
from urllib.parse import unquote

import pyarrow as pa
from pyarrow import fs

from rayad.dataflow.records.output_form import describe, schema_drift
from rayad.dataflow.sink import Sink, SinkWriter
from rayad.integrations.file_output.committed import STAGING, open_directory, replace_file, sync
from rayad.integrations.file_output.formats import FileFormat, ParquetFormat
from rayad.integrations.file_output.partitions import NULL, check_partition_by, check_types
from rayad.integrations.file_output.writer import FileWriter, StagedFile
from rayad.integrations.paths import check_schema
from rayad.integrations.spark.types import for_sparks_files
from rayad.progress import ConfigError, DataflowError, arguments

MODES = ("error", "append", "overwrite")
_KEY = "rayad"
_REWRITES = ("OPTIMIZE", "DELETE", "UPDATE", "MERGE", "RESTORE")
"""Operations of the log after which files of a snapshot may be in others."""


class PublishedTable(NamedTuple):
    """What ``result[name]`` is: the table, its version with the last commit (-1: there is no table, as nothing was written), and the id of
    the job, whose application transaction is ``rayad-<job>``."""

    path: str
    version: int
    job: str


class _Told(NamedTuple):
    """What the log says of a job: the newest snapshot that is committed, and the ranges of void ones."""

    shown: int
    void: tuple[tuple[int, int], ...]


def _library(where: str) -> Any:
    try:
        import deltalake
        import deltalake.exceptions
        import deltalake.transaction
    except ImportError as error:
        raise ConfigError(f"{where} needs the package deltalake: pip install 'rayad[delta]' ({error})") from error
    return deltalake


class DeltaSink(Sink):
    """Appends records to a Delta table, a transaction for each snapshot; ``result`` gives :class:`PublishedTable`.

    ``table``: a local directory, a URI, or a ``deltalake.DeltaTable``. ``mode``, where there is a table: ``"error"``, ``"append"``, or
    ``"overwrite"`` (the first commit replaces its rows; its columns stay). ``schema``: columns and types; without it those of the table,
    and of a new one those of the records (as of ``write_parquet``). ``partition_by``: columns by which a new table is partitioned.
    ``epoch_column``: a column of this name with the epoch of each row. ``storage_options``: for ``deltalake``, ``filesystem`` for
    ``pyarrow``, where the URI does not say it all.

    Types are those of Spark and Delta: unsigned integers become wider ones, times of zones those of UTC; nanoseconds have to be whole
    microseconds; durations and times of day are refused. The files of commits that were rolled back stay until the table is vacuumed.
    """

    commits = True
    where: ClassVar[str] = "write_delta"
    partition_by_epoch = False

    def __init__(
        self,
        table: str | os.PathLike[str] | Any,
        *,
        mode: Literal["error", "append", "overwrite"] = "error",
        schema: pa.Schema | None = None,
        partition_by: str | Sequence[str] = (),
        epoch_column: str | None = None,
        compression: str | None = "zstd",
        row_group_rows: int = 131_072,
        storage_options: Mapping[str, str] | None = None,
        filesystem: fs.FileSystem | None = None,
    ) -> None:
        where = self.where
        library = _library(where)
        arguments.choice(mode, f"{where}: mode", *MODES, error=ConfigError)
        check_schema(schema, where)
        row_group_rows = arguments.whole(row_group_rows, f"{where}: row_group_rows", least=1, error=ConfigError)
        if epoch_column is not None:
            arguments.text(epoch_column, f"{where}: epoch_column", error=ConfigError, more=", the name of a column, or None")
        uri = table.table_uri if isinstance(table, library.DeltaTable) else table
        inside = uri.partition("://")[2] if filesystem is not None and isinstance(uri, str) and "://" in uri else uri
        self.filesystem, self.path = open_directory(inside, filesystem, where)
        self._uri = os.fspath(uri) if "://" in os.fspath(uri) else self.path
        self._options = dict(storage_options) if storage_options is not None else None
        self.format: FileFormat = ParquetFormat(row_group_rows, compression)
        self.mode = mode
        self.job = uuid.uuid4().hex[:12]
        self.epoch_column = epoch_column
        self.partition_by = check_partition_by(partition_by, where)
        self.schema = schema
        self._handle: Any = None
        self._void: tuple[int, int] | None = None  # snapshots that the next commit rolls back, first and last
        self._take_over()
        if self.schema is not None:
            check_types(self.schema, self.partition_by, where)
            self._delta_schema(self._with_epoch(self.schema))

    def __getstate__(self) -> dict[str, Any]:
        """A handle of a table stays in its process."""
        return {**self.__dict__, "_handle": None}

    def _take_over(self) -> None:
        """Columns and partitions of a table that is there."""
        table = self._table()
        if table is None:
            return
        found = tuple(table.metadata().partition_columns)
        if self.partition_by and self.partition_by != found:
            raise ConfigError(f"{self.where}: the table {self.path!r} is partitioned by {list(found)}, not by {list(self.partition_by)}")
        self.partition_by = found
        if self.schema is None:
            self.schema = self._without_epoch(table)
        else:
            self._check_columns(self._delta_schema(self._with_epoch(self.schema)), pa.schema(table.schema()))

    # -- what a writer asks ----------------------------------------------------------------------------
    def staging(self) -> str:
        """Where the files are that no commit has moved yet; Delta passes over names that start with an underscore."""
        return f"{self.path}/{STAGING}"

    def stored(self, table: pa.Table) -> pa.Table:
        """A table in the types of Delta, which are Spark's."""
        return for_sparks_files(table, self.where, "leave the column out")

    def open(self, replica: int, parallelism: int) -> SinkWriter:
        """The writer of one replica."""
        table = self._table() if self.schema is None else None
        return FileWriter(self, replica, self._without_epoch(table) if table is not None else None)

    def _without_epoch(self, table: Any) -> pa.Schema:
        """The columns of the records in a table."""
        return pa.schema([field for field in pa.schema(table.schema()) if field.name != self.epoch_column])

    # -- before writing --------------------------------------------------------------------------------
    def check(self) -> None:
        """Refuse a table that is there, unless it is to be written to."""
        table = self._table()
        if table is not None and self.mode == "error" and table.transaction_version(self._app) is None:
            raise ConfigError(
                f"{self.where}: there is a table at {self.path!r} and mode='error'; give mode='append' or mode='overwrite', or another "
                "directory; to continue a job that was interrupted, resume it"
            )

    def identity(self) -> str:
        """The job's id, which is in the names of its files and in the log."""
        return self.job

    def adopt(self, identity: str) -> None:
        """Continue the output of another run."""
        if not identity.isalnum():
            raise ConfigError(f"{self.where}: {identity!r} is no id of a job")
        self.job = identity

    # -- the table ---------------------------------------------------------------------------------------
    @property
    def _app(self) -> str:
        return f"rayad-{self.job}"

    def _table(self) -> Any:
        """The table as it is now; None: there is none."""
        library = _library(self.where)
        try:
            if self._handle is None:
                if not library.DeltaTable.is_deltatable(self._uri, self._options):
                    return None
                self._handle = library.DeltaTable(self._uri, storage_options=self._options)
            else:
                self._handle.update_incremental()
        except (library.exceptions.DeltaError, OSError) as error:
            self._handle = None
            raise DataflowError(f"{self.where}: the table at {self.path!r} cannot be read: {error}") from error
        return self._handle

    def _delta_schema(self, schema: pa.Schema) -> pa.Schema:
        """The columns of a table for records of ``schema``. Raises DataflowError where Delta has no type."""
        kinds = for_sparks_files(schema.empty_table(), self.where, "leave the column out").schema
        for field in kinds:
            try:
                back = pa.schema(_library(self.where).Schema.from_arrow(pa.schema([field]))).field(0).type
            except Exception as error:  # of deltalake, which has no class for it
                raise self._no_type(schema.field(field.name), str(error).split("\n", 1)[0]) from error
            if not _same_kind(back, field.type):
                raise self._no_type(schema.field(field.name), f"it would become {back}")
        return kinds

    def _no_type(self, field: pa.Field, why: str) -> DataflowError:
        return DataflowError(f"{self.where}: column {field.name!r} is {field.type}, for which Delta has none ({why}); cast it first")

    def _with_epoch(self, schema: pa.Schema) -> pa.Schema:
        if self.epoch_column is None or self.epoch_column in schema.names:
            return schema
        return schema.append(pa.field(self.epoch_column, pa.int64()))

    def _check_columns(self, ours: pa.Schema, theirs: pa.Schema) -> None:
        other = {field.name: field.type for field in theirs}
        if set(other) != set(ours.names) or any(not _same_kind(other[field.name], field.type) for field in ours):
            raise ConfigError(
                f"{self.where}: the table {self.path!r} has the columns {describe(theirs)}, the records {describe(ours)}: they have to "
                "be the same; convert the records with map() or cast, or write to another table"
            )

    def _told(self, table: Any) -> _Told | None:
        """What the log says of this job; None: it has committed nothing yet."""
        if table is None:
            return self._read_note()
        number = table.transaction_version(self._app)
        if number is None:
            return self._read_note()
        for entry in _newest_first(table):
            told = _of_job(entry, self.job)
            if told is not None:
                return told
        return _Told(number, ())  # that part of the log has been cleaned up

    # -- committing --------------------------------------------------------------------------------------
    def publish(self, staged: Sequence[Any]) -> PublishedTable:
        """Commit all output of a job that takes no snapshots."""
        return self.commit(0, staged)

    def roll_back(self, last: int, first_new: int) -> None:
        """Make these snapshots void: the next commit removes what they committed, in the same transaction."""
        self._void = (last + 1, first_new - 1) if first_new > last + 1 else None

    def commit(self, snapshot: int, staged: Sequence[Any]) -> PublishedTable:
        """Add the staged files to the table in one transaction; repeatable.

        DataflowError when a staged file is gone, when the columns are not those of the table, when the snapshot is void, or another program
        has rewritten what is to be rolled back.
        """
        files = [file for group in staged for file in (group or ())]
        table = self._table()
        if table is not None and table.transaction_version(self._app) is None:
            self.check()
        told = self._told(table)
        shown, void = told if told is not None else _Told(-1, ())
        for low, high in void:
            if low <= snapshot <= high:
                raise DataflowError(
                    f"{self.where}: snapshot {snapshot} cannot be committed to {self.path!r}: the job resumed from snapshot {low - 1} "
                    f"meanwhile, and what snapshots {low} to {high} committed was removed; resume from {low - 1}, or from one after {high}"
                )
        new_void = self._void if self._void is not None and self._void not in void else None
        fresh = files if snapshot > shown else []
        removed = self._files_of(table, new_void) if new_void is not None and shown >= new_void[0] else []
        replaces = table is not None and told is None and self.mode == "overwrite"
        if fresh or removed or replaces or new_void is not None:
            after = _Told(snapshot if fresh else min(shown, snapshot), (*void, *([new_void] if new_void else [])))
            self._transact(table, self._moved(fresh, snapshot), removed, after, fresh, replaces=replaces)
        self._void = None
        table = self._table()
        return PublishedTable(self.path, table.version() if table is not None else -1, self.job)

    def _transact(
        self, table: Any, moved: Sequence[StagedFile], removed: Sequence[str], after: _Told, fresh: Sequence[StagedFile], *, replaces: bool
    ) -> None:
        library = _library(self.where)
        if table is None and not fresh:
            self._write_note(after)  # there is no log yet that could say so
            return
        kinds = self._columns_of(table, fresh)
        schema = library.Schema.from_arrow(kinds)
        told = {_KEY: json.dumps({"job": self.job, "shown": after.shown, "void": after.void})}
        now_ms = int(1000 * clock.time())
        transactions = [library.Transaction(self._app, max(after.shown, 0), now_ms)]
        properties = library.CommitProperties(custom_metadata=told, app_transactions=transactions)
        adds = [self._add_action(file) for file in moved]
        try:
            if table is None:
                library.transaction.create_table_with_add_actions(
                    self._uri, schema, adds, mode="error", partition_by=list(self.partition_by) or None, storage_options=self._options,
                    commit_properties=properties,
                )  # fmt: skip
                return
            actions = [*adds, *(library.transaction.RemoveAction(path, data_change=True, deletion_timestamp=now_ms) for path in removed)]
            table.create_write_transaction(
                actions, "overwrite" if replaces else "append", schema, partition_by=list(self.partition_by) or None,
                commit_properties=properties,
            )  # fmt: skip
        except (library.exceptions.DeltaError, ValueError, OSError) as error:
            self._handle = None
            raise DataflowError(f"{self.where}: the commit of snapshot {after.shown} to {self.path!r} failed: {error}") from error

    def _columns_of(self, table: Any, files: Sequence[StagedFile]) -> pa.Schema:
        """The columns of the table; those of the files have to be the same."""
        for file in files[1:]:
            drift = schema_drift(f"the output of {file.name!r}", files[0].schema, file.schema, "give schema= to the sink")
            if drift is not None:
                raise DataflowError(f"{self.where}: replicas gave different columns: {drift}") from drift
        ours = self._delta_schema(files[0].schema) if files else None
        if table is None:
            assert ours is not None
            return ours
        theirs = pa.schema(table.schema())
        if ours is not None:
            self._check_columns(ours, theirs)
        return theirs

    def _moved(self, files: Sequence[StagedFile], snapshot: int) -> list[StagedFile]:
        """Move the files beside those of the table; each then has the snapshot's number in its name."""
        out: list[StagedFile] = []
        for file in files:
            folder, own = os.path.split(file.staged)
            if not os.path.normpath(folder).startswith(f"{self.staging()}/{self.job}-"):
                raise ConfigError(f"{self.where}: refused the staged file {file.staged!r}: it is not this job's")
            name = own.replace(f"part-{self.job}-", f"part-{self.job}-{snapshot:012d}-", 1)
            target = f"{self.path}/{name}"
            if self.filesystem.get_file_info(file.staged).type == fs.FileType.File:
                self.filesystem.move(file.staged, target)
            elif self.filesystem.get_file_info(target).type != fs.FileType.File:
                raise DataflowError(
                    f"{self.where}: cannot commit {name!r}: its staged file {file.staged!r} is gone and {target!r} is missing; was the "
                    "directory cleaned while the job ran? Is it seen by all nodes?"
                )
            out.append(StagedFile(name, file.name, file.rows, file.size_bytes, file.schema))
        if out:
            sync(self.filesystem, self.path)
        return out

    def _add_action(self, file: StagedFile) -> Any:
        values: dict[str, str | None] = {}
        for part in file.name.split("/")[:-1]:
            column, _, value = part.partition("=")
            values[unquote(column)] = None if value == NULL else unquote(value)
        stats = json.dumps({"numRecords": file.rows})
        return _library(self.where).transaction.AddAction(file.staged, file.size_bytes, values, int(1000 * clock.time()), True, stats)

    def _files_of(self, table: Any, void: tuple[int, int]) -> list[str]:
        """The files of void snapshots."""
        for entry in _newest_first(table):
            told = _of_job(entry, self.job)
            if told is not None and told.shown < void[0]:
                break
            operation = str(entry.get("operation", ""))
            overwrites = operation == "WRITE" and entry.get("operationParameters", {}).get("mode") == "Overwrite"
            if told is None and (operation in _REWRITES or overwrites):
                raise DataflowError(
                    f"{self.where}: snapshots {void[0]} to {void[1]} cannot be taken back from {self.path!r}: version {entry['version']} "
                    f"of the table rewrote its files meanwhile ({operation}); resume from the newest snapshot, or restore the table to the "
                    "version before that"
                )
        mine = f"part-{self.job}-"
        paths = [os.path.basename(path) for path in pa.table(table.get_add_actions()).column("path").to_pylist()]
        numbered = [(int(path[len(mine) :].split("-")[0]), path) for path in paths if path.startswith(mine)]
        return [path for number, path in numbered if void[0] <= number <= void[1]]

    # -- a note, as long as there is no table ------------------------------------------------------------
    def _note(self) -> str:
        return f"{self.staging()}/{self.job}-void.json"

    def _read_note(self) -> _Told | None:
        if self.filesystem.get_file_info(self._note()).type != fs.FileType.File:
            return None
        with self.filesystem.open_input_stream(self._note()) as stream:
            return _Told(-1, tuple((low, high) for low, high in json.loads(stream.read())))

    def _write_note(self, told: _Told) -> None:
        replace_file(self.filesystem, self._note(), json.dumps(told.void).encode(), through=f"{self.staging()}/{self.job}-note")

    # -- the end -----------------------------------------------------------------------------------------
    def abort(self) -> None:
        """Remove what this job staged; nothing that is committed."""
        self._clean(self.job)

    def _clean(self, job: str) -> None:
        try:
            found = self.filesystem.get_file_info(fs.FileSelector(self.staging(), allow_not_found=True))
            mine = [info for info in found if info.base_name.startswith(f"{job}-")]
            for info in mine:
                if info.type == fs.FileType.Directory:
                    self.filesystem.delete_dir(info.path)
                else:
                    self.filesystem.delete_file(info.path)
            if found and len(mine) == len(found):
                self.filesystem.delete_dir(self.staging())
        except OSError:
            pass  # nothing is lost: nobody reads staged files

    def result(self, receipt: PublishedTable) -> PublishedTable:
        """The job is over: also remove the staged files of dead replicas."""
        self._clean(receipt.job)
        return receipt


def _same_kind(left: pa.DataType, right: pa.DataType) -> bool:
    """Whether two types of Arrow are one, but for the names of the items of lists and for what may be null."""
    if pa.types.is_list(left) and pa.types.is_list(right):
        return _same_kind(left.value_type, right.value_type)
    if pa.types.is_struct(left) and pa.types.is_struct(right):
        fields = {field.name: field.type for field in right}
        return set(fields) == {field.name for field in left} and all(_same_kind(field.type, fields[field.name]) for field in left)
    if pa.types.is_map(left) and pa.types.is_map(right):
        return _same_kind(left.key_type, right.key_type) and _same_kind(left.item_type, right.item_type)
    return bool(left == right)


def _newest_first(table: Any) -> Iterator[dict[str, Any]]:
    """The entries of a table's history, read a few at a time."""
    given, limit = 0, 5
    while True:
        entries = table.history(limit)
        yield from entries[given:]
        if len(entries) < limit:
            return
        given, limit = len(entries), limit * 10


def _of_job(entry: Mapping[str, Any], job: str) -> _Told | None:
    """What a commit of ours says in the log; None for one of somebody else."""
    try:
        plain = json.loads(entry[_KEY])
        if plain["job"] != job:
            return None
        return _Told(plain["shown"], tuple((low, high) for low, high in plain["void"]))
    except (KeyError, TypeError, ValueError):
        return None


__all__ = ["DeltaSink", "PublishedTable"]
