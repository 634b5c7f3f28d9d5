"""A Delta table that is kept as a collection is: each snapshot inserts, updates and deletes rows by one merge.

What replicas write goes into the snapshots, with the epoch of each change (:mod:`rayad.integrations.staged_rows`). A merge is a transaction
of Delta's log, and tells there what the sink that appends tells: the number of the snapshot, and which are void. So a commit that is
repeated is recognised. What a merge has replaced is in no file of the table any more: a job resumes from its newest snapshot only, and what
it makes void thereby is told at once, by a transaction without files. The log lets one of two merges that meet through; the other one
looks at the table again.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyarrow import fs

from rayad.dataflow.sink import SinkWriter
from rayad.integrations.delta.sink import DeltaSink, library_of
from rayad.integrations.file_output.tables import Overtaken, TableReceipt, Told
from rayad.integrations.staged_rows import EPOCH, THERE, ChangesWriter, checked_key, tables
from rayad.progress import ConfigError, DataflowError, say, without_secrets


class DeltaTable(DeltaSink):
    """Updates a Delta table, one merge for each snapshot; ``result`` gives :class:`PublishedTable`.

    Args:
        table: as of :class:`DeltaSink`. It is made where there is none. Rows of others in it stay, unless they have a key that is written.
        key: columns that tell rows apart.
        schema: the columns that are written; None: those of the table.
        partition_by: columns that partition a new table.
        storage_options: as there.
        filesystem: as there.
    """

    def __init__(
        self,
        table: str | os.PathLike[str] | Any,
        *,
        key: str | Sequence[str],
        schema: pa.Schema | None = None,
        partition_by: str | Sequence[str] = (),
        storage_options: Mapping[str, str] | None = None,
        filesystem: fs.FileSystem | None = None,
    ) -> None:
        super().__init__(
            table, mode="append", schema=schema, partition_by=partition_by, storage_options=storage_options, filesystem=filesystem
        )
        if self.schema is None:
            raise ConfigError(f"{self.where}: there is no table at {self.path!r} yet: give schema=, a pyarrow.Schema with its columns")
        self._columns = self.schema
        self._key = checked_key(key, self.schema, self.where)

    def check(self) -> None:
        """Make the table if there is none."""
        if self.table() is None:
            self._transact(self._create, "the table could not be made", others_may=True)

    def _create(self) -> None:
        library = library_of(self.where)
        columns = library.Schema.from_arrow(self.kinds(self._columns))
        library.DeltaTable.create(
            self.uri, columns, mode="ignore", partition_by=list(self.partition_by) or None, storage_options=self.storage_options
        )

    def open(self, replica: int, parallelism: int) -> SinkWriter:
        return ChangesWriter(self._columns, self.where)

    def roll_back(self, last: int, first_new: int) -> None:
        """Make what came after a snapshot void. Refused where it is in the table."""
        if first_new <= last + 1:
            return
        void = last + 1, first_new - 1
        self.decided(lambda: self._void_now(void), f"what makes void what came after snapshot {last}, written")

    def _void_now(self, void: tuple[int, int]) -> None:
        table, told = self._seen()
        if told.shown >= void[0]:
            raise ConfigError(
                f"{self.where}: the job resumes from snapshot {void[0] - 1}, but {self.path!r} has the rows of snapshot {told.shown}, and "
                "what they have replaced is gone: resume from the newest snapshot, or write to an empty table"
            )
        if void not in told.void:
            self._tell(table, Told(told.shown, (*told.void, void)))

    def commit(self, snapshot: int, staged: Sequence[Any]) -> TableReceipt:
        """Merge the staged changes into the table; repeatable. Raises DataflowError if the snapshot is void."""
        self.decided(lambda: self._merge(snapshot, staged), f"the commit of snapshot {snapshot}")
        return TableReceipt(self.name, self.version_of(self.table()), self.job, self.run)

    def _merge(self, snapshot: int, staged: Sequence[Any]) -> None:
        table, told = self._seen()
        self.refuse_void(snapshot, told.void)
        changes = _newest(list(tables(staged)), self._key)
        if snapshot <= told.shown or changes is None:
            return
        self.check_columns(self.kinds(self._columns), self.columns_of(table))
        rows = self.stored(changes.drop_columns([EPOCH, THERE])).append_column(THERE, changes.column(THERE))
        after = Told(snapshot, told.void)
        columns = {_quoted(name): f"source.{_quoted(name)}" for name in self._columns.names}
        there = f"source.{_quoted(THERE)}"
        same = " AND ".join(f"target.{_quoted(name)} = source.{_quoted(name)}" for name in self._key)
        properties = self.telling(after)

        def merge() -> Any:
            merger = table.merge(rows, same, source_alias="source", target_alias="target", commit_properties=properties)
            merger = merger.when_matched_delete(predicate=f"NOT {there}").when_matched_update(columns, predicate=there)
            return merger.when_not_matched_insert(columns, predicate=there).execute()

        done = self._transact(merge, f"the commit of snapshot {snapshot} failed")
        if not any(done[f"num_target_rows_{what}"] for what in ("inserted", "updated", "deleted")):
            self._tell(table, after)  # a merge that changes nothing is not in the log

    def _tell(self, table: Any, after: Told) -> None:
        """A transaction without files."""
        columns = library_of(self.where).Schema.from_arrow(self.columns_of(table))
        partitions, properties = list(self.partition_by) or None, self.telling(after)
        self._transact(
            lambda: table.create_write_transaction([], "append", columns, partition_by=partitions, commit_properties=properties),
            f"snapshot {after.shown} could not be told",
        )

    def _seen(self) -> tuple[Any, Told]:
        table = self.table()
        if table is None:
            raise DataflowError(f"{self.where}: the table at {self.path!r} is gone; write to another place, or make it again")
        return table, self.told_by(table) if self.knows(table) else Told(-1, ())

    def _transact(self, act: Any, what: str, *, others_may: bool = False) -> Any:
        """One transaction. Raises Overtaken where others have committed meanwhile, else DataflowError."""
        errors = library_of(self.where).exceptions
        try:
            return act()
        except (errors.DeltaError, ValueError, OSError) as error:
            self.handle = None
            if isinstance(error, errors.CommitFailedError):
                if others_may and self.table() is not None:
                    return None
                raise Overtaken(say(error, self.uri, self.storage_options)) from None
            given = self.uri, self.storage_options
            raise DataflowError(f"{self.where}: {what} ({self.path!r}): {say(error, *given)}") from without_secrets(error, *given)


def _newest(staged: list[pa.Table], key: list[str]) -> pa.Table | None:
    """Of each key the change of the last epoch; None: there is none."""
    if not staged:
        return None
    every = pa.concat_tables(staged).sort_by(EPOCH)
    rows = every.select(key).append_column(THERE, pa.array(range(len(every)), pa.int64()))
    return every.take(rows.group_by(key).aggregate([(THERE, "max")]).column(f"{THERE}_max"))


def _quoted(name: str) -> str:
    """A column in a predicate."""
    return '"' + name.replace('"', '""') + '"'


__all__ = ["DeltaTable"]
