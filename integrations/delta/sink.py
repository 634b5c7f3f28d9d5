"""A Delta table as a sink that is written exactly once, by ``deltalake`` (``pip install rayad[delta]``); why so: docs/decisions/066.

What it shares with other formats, and how it works: :mod:`rayad.integrations.file_output.tables`. Here the commit is a transaction of
Delta's log. Its metadata have the number of the snapshot, and which snapshots are void; the number is the version of the job's
*application transaction* too (``txn`` of Delta's protocol). Two coordinators that commit at once are told so by the log.

Other programs may append meanwhile. What rewrites files (OPTIMIZE, DELETE, an overwrite) is refused only by a roll-back across it.
"""

from __future__ import annotations

import json
import os
import time as clock
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar, Literal
from urllib.parse import unquote

import pyarrow as pa
from pyarrow import fs

from rayad.integrations.file_output.committed import open_directory
from rayad.integrations.file_output.partitions import NULL, check_partition_by, check_types
from rayad.integrations.file_output.tables import PublishedTable, TableSink, Told, are_of, ranges, same_kind
from rayad.integrations.file_output.writer import StagedFile
from rayad.integrations.spark.types import for_sparks_files
from rayad.progress import ConfigError, DataflowError, say, without_secrets

_KEY = "rayad"
_REWRITES = ("OPTIMIZE", "DELETE", "UPDATE", "MERGE", "RESTORE")
"""Operations of the log after which files of a snapshot may be in others."""


def library_of(where: str) -> Any:
    """The package ``deltalake``. Raises ConfigError where it is not installed."""
    try:
        import deltalake
        import deltalake.exceptions
        import deltalake.transaction
    except ImportError as error:
        raise ConfigError(f"{where} needs the package deltalake: pip install 'rayad[delta]' ({error})") from error
    return deltalake


class DeltaSink(TableSink):
    """Appends records to a Delta table, one transaction for each snapshot; ``result`` gives :class:`PublishedTable`.

    ``table``: a local directory, a URI, or a ``deltalake.DeltaTable``. ``mode``, if the table exists: ``"error"``, ``"append"``, or
    ``"overwrite"`` (the first commit replaces its rows; its columns stay). ``schema``: columns and types; default: those of the table, or
    of the records if it is new (as in ``write_parquet``). ``partition_by``: columns that partition a new table. ``epoch_column``: name of
    an added column with each row's epoch. ``storage_options`` for ``deltalake`` and ``filesystem`` for ``pyarrow``: needed if the URI does
    not say it all.

    Types are those of Spark and Delta: unsigned integers become wider ones, zoned times become UTC; nanoseconds must be whole microseconds;
    durations and times of day are refused. Files of commits that were rolled back stay until the table is vacuumed.
    """

    where: ClassVar[str] = "write_delta"

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
        library = library_of(self.where)
        super().__init__(mode, schema, epoch_column, compression, row_group_rows)
        uri = table.table_uri if isinstance(table, library.DeltaTable) else table
        inside = uri.partition("://")[2] if filesystem is not None and isinstance(uri, str) and "://" in uri else uri
        self.filesystem, self.path = open_directory(inside, filesystem, self.where)
        self.name = self.path
        self.uri = os.fspath(uri) if "://" in os.fspath(uri) else self.path
        self.storage_options = dict(storage_options) if storage_options is not None else None
        self.partition_by = check_partition_by(partition_by, self.where)
        self.handle: Any = None
        self._take_over()
        if self.schema is not None:
            check_types(self.schema, self.partition_by, self.where)
            self.kinds(self.with_epoch(self.schema))

    def __getstate__(self) -> dict[str, Any]:
        """A handle of a table stays in its process."""
        return {**self.__dict__, "handle": None}

    def _take_over(self) -> None:
        """Columns and partitions of a table that is there."""
        table = self.table()
        if table is None:
            return
        found = tuple(table.metadata().partition_columns)
        if self.partition_by and self.partition_by != found:
            raise ConfigError(f"{self.where}: the table {self.path!r} is partitioned by {list(found)}, not by {list(self.partition_by)}")
        self.partition_by = found
        if self.schema is None:
            self.schema = self.without_epoch(table)
        else:
            self.check_columns(self.kinds(self.with_epoch(self.schema)), self.columns_of(table))

    # -- the table ---------------------------------------------------------------------------------------
    @property
    def _app(self) -> str:
        return f"rayad-{self.job}"

    def table(self) -> Any:
        """Return the table as it is now, or None if there is none."""
        library = library_of(self.where)
        with self._reading():
            if self.handle is None:
                if not library.DeltaTable.is_deltatable(self.uri, self.storage_options):
                    return None
                self.handle = library.DeltaTable(self.uri, storage_options=self.storage_options)
            else:
                self.handle.update_incremental()
        return self.handle

    @contextmanager
    def _reading(self) -> Iterator[None]:
        """Whoever cannot read the table begins anew with it the next time: it may have been away, or another one."""
        try:
            yield
        except (library_of(self.where).exceptions.DeltaError, OSError) as error:
            self.handle = None
            given = self.uri, self.storage_options
            what = f"{self.where}: the table at {self.path!r} cannot be read"
            raise DataflowError(f"{what}: {say(error, *given)}") from without_secrets(error, *given)

    def kinds(self, schema: pa.Schema) -> pa.Schema:
        """Return the columns that a table for records of ``schema`` has. Raises DataflowError if Delta lacks a type."""
        kinds = for_sparks_files(schema.empty_table(), self.where, "leave the column out").schema
        for field in kinds:
            try:
                back = pa.schema(library_of(self.where).Schema.from_arrow(pa.schema([field]))).field(0).type
            except Exception as error:  # of deltalake, which has no class for it
                raise self._no_type(schema.field(field.name), str(error).split("\n", 1)[0]) from error
            if not same_kind(back, field.type):
                raise self._no_type(schema.field(field.name), f"it would become {back}")
        return kinds

    def _no_type(self, field: pa.Field, why: str) -> DataflowError:
        return DataflowError(f"{self.where}: column {field.name!r} is {field.type}, for which Delta has none ({why}); cast it first")

    def stored(self, table: pa.Table) -> pa.Table:
        """Convert a table to the types of Delta, which are Spark's."""
        return for_sparks_files(table, self.where, "leave the column out")

    def columns_of(self, table: Any) -> pa.Schema:
        """Return the table's columns, read from its log."""
        return pa.schema(table.schema())

    def version_of(self, table: Any) -> int:
        """Return the table's version number."""
        return int(table.version())

    # -- what the log says -------------------------------------------------------------------------------
    def knows(self, table: Any) -> bool:
        """Tell whether this job has committed, by the application transaction in the log."""
        with self._reading():
            return table.transaction_version(self._app) is not None

    def told_by(self, table: Any) -> Told:
        """Return what the metadata of the job's last commit say of it."""
        with self._reading():
            for entry in _newest_first(table):
                told = _of_job(entry, self.job)
                if told is not None:
                    return told
            return Told(table.transaction_version(self._app), ())  # that part of the log has been cleaned up

    def files_of(self, table: Any, void: tuple[int, int], earlier: Sequence[tuple[int, int]]) -> list[str]:
        """Find the files of void snapshots by their names. Refused if the log has an operation that rewrites files."""
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
        paths = [os.path.basename(path) for path in pa.table(table.get_add_actions()).column("path").to_pylist()]
        return [paths[at] for at in are_of(void, paths, self.job)]

    # -- committing --------------------------------------------------------------------------------------
    def transact(
        self, table: Any, moved: Sequence[StagedFile], removed: Sequence[Any], after: Told, kinds: pa.Schema, *, replaces: bool
    ) -> None:
        """Commit one transaction to the log. The library decides whether commits of others conflict."""
        library = library_of(self.where)
        schema = library.Schema.from_arrow(kinds)
        now_ms = int(1000 * clock.time())
        properties = self.telling(after)
        adds = [self._add_action(file) for file in moved]
        try:
            if table is None:
                library.transaction.create_table_with_add_actions(
                    self.uri, schema, adds, mode="error", partition_by=list(self.partition_by) or None,
                    storage_options=self.storage_options, commit_properties=properties,
                )  # fmt: skip
                return
            actions = [*adds, *(library.transaction.RemoveAction(path, data_change=True, deletion_timestamp=now_ms) for path in removed)]
            table.create_write_transaction(
                actions, "overwrite" if replaces else "append", schema, partition_by=list(self.partition_by) or None,
                commit_properties=properties,
            )  # fmt: skip
        except (library.exceptions.DeltaError, ValueError, OSError) as error:
            self.handle = None
            given = self.uri, self.storage_options
            what = f"{self.where}: the commit of snapshot {after.shown} to {self.path!r} failed"
            raise DataflowError(f"{what}: {say(error, *given)}") from without_secrets(error, *given)

    def telling(self, after: Told) -> Any:
        """The properties of a commit that tells what of the job is in the table."""
        library = library_of(self.where)
        told = {_KEY: json.dumps({"job": self.job, "shown": after.shown, "void": after.void})}
        transactions = [library.Transaction(self._app, max(after.shown, 0), int(1000 * clock.time()))]
        return library.CommitProperties(custom_metadata=told, app_transactions=transactions)

    def _add_action(self, file: StagedFile) -> Any:
        values: dict[str, str | None] = {}
        for part in file.name.split("/")[:-1]:
            column, _, value = part.partition("=")
            values[unquote(column)] = None if value == NULL else unquote(value)
        stats = json.dumps({"numRecords": file.rows})
        return library_of(self.where).transaction.AddAction(
            os.path.basename(file.staged), file.size_bytes, values, int(1000 * clock.time()), True, stats
        )


def _newest_first(table: Any) -> Iterator[dict[str, Any]]:
    """The entries of a table's history, read a few at a time."""
    given, limit = 0, 5
    while True:
        entries = table.history(limit)
        yield from entries[given:]
        if len(entries) < limit:
            return
        given, limit = len(entries), limit * 10


def _of_job(entry: Mapping[str, Any], job: str) -> Told | None:
    """What a commit of ours says in the log; None for one of somebody else."""
    try:
        plain = json.loads(entry[_KEY])
        if plain["job"] != job:
            return None
        return Told(plain["shown"], ranges(plain["void"]))
    except (KeyError, TypeError, ValueError):
        return None


__all__ = ["DeltaSink", "PublishedTable", "library_of"]
