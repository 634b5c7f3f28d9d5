"""Tables that are kept as a collection is, a transaction for each snapshot: what they share, of whatever format.

What replicas write goes into the snapshots, with the epoch of each change (:mod:`rayad.integrations.staged_rows`). At the commit the last
change of each key is applied, in one transaction of the format, which tells what the sink that appends tells: the number of the snapshot,
and which are void. So a commit that is repeated is recognised. What a commit has replaced may be in no file of the table any more: a job
resumes from its newest snapshot only, and what it makes void thereby is told at once, by a transaction without files. Of two commits that
meet one is let through; the other one looks at the table again.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from rayad.dataflow.sink import SinkWriter
from rayad.integrations.file_output.tables import TableReceipt, TableSink, Told
from rayad.integrations.staged_rows import EPOCH, THERE, ChangesWriter, checked_key, tables
from rayad.integrations.type_systems import stored
from rayad.progress import ConfigError, DataflowError


class CollectionTable(TableSink):
    """Updates a table, one transaction for each snapshot; a format says how."""

    columns: pa.Schema
    """Of the records."""
    key: list[str]
    """The columns that tell rows apart."""

    # -- what a format says ------------------------------------------------------------------------------
    @abstractmethod
    def make(self) -> None:
        """Make the table, unless there is one by now."""

    @abstractmethod
    def merge(self, table: Any, changes: pa.Table, after: Told) -> None:
        """Change the table in one transaction, and tell ``after``.

        ``changes`` has one row of each key that has changed, in the types of the format, with the column THERE: the row as it is now, or
        false, and the key is gone. Raises :class:`rayad.integrations.file_output.tables.Overtaken` where that may be tried again, else
        DataflowError.
        """

    @abstractmethod
    def tell(self, table: Any, after: Told) -> None:
        """Tell ``after`` by a transaction that changes no row. Raises as :meth:`merge`."""

    # -- what they share ---------------------------------------------------------------------------------
    def keep_by(self, key: str | Sequence[str]) -> None:
        """Take the key, for the columns that are known by now. Raises ConfigError."""
        if self.schema is None:
            raise ConfigError(f"{self.where}: there is no table at {self.name!r} yet: give schema=, a pyarrow.Schema with its columns")
        self.columns = self.schema
        self.key = checked_key(key, self.schema, self.where)

    def check(self) -> None:
        """Make the table if there is none."""
        if self.table() is None:
            self.make()

    def open(self, replica: int, parallelism: int) -> SinkWriter:
        return ChangesWriter(self.columns, self.where)

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
                f"{self.where}: the job resumes from snapshot {void[0] - 1}, but {self.name!r} has the rows of snapshot {told.shown}, and "
                "what they have replaced is gone: resume from the newest snapshot, or write to an empty table"
            )
        if void not in told.void:
            self.tell(table, Told(told.shown, (*told.void, void)))

    def commit(self, snapshot: int, staged: Sequence[Any]) -> TableReceipt:
        """Apply the staged changes to the table; repeatable. Raises DataflowError if the snapshot is void."""
        self.decided(lambda: self._merge(snapshot, staged), f"the commit of snapshot {snapshot}")
        return TableReceipt(self.name, self.version_of(self.table()), self.job, self.run)

    def _merge(self, snapshot: int, staged: Sequence[Any]) -> None:
        table, told = self._seen()
        self.refuse_void(snapshot, told.void)
        changes = newest(list(tables(staged)), self.key) if snapshot > told.shown else None
        if changes is None:
            return
        self.check_columns(self.kinds(self.columns), self.columns_of(table))
        rows = self.stored(changes.drop_columns([EPOCH, THERE])).append_column(THERE, changes.column(THERE))
        self.merge(table, rows, Told(snapshot, told.void))

    def _seen(self) -> tuple[Any, Told]:
        table = self.table()
        if table is None:
            raise DataflowError(f"{self.where}: the table at {self.name!r} is gone; write to another place, or make it again")
        return table, self.told_by(table) if self.knows(table) else Told(-1, ())


def newest(staged: list[pa.Table], key: Sequence[str]) -> pa.Table | None:
    """Of each key the change of the last epoch; None: there is none."""
    if not staged:
        return None
    every = pa.concat_tables(staged).sort_by(EPOCH)
    rows = comparable(every.select(key)).append_column(THERE, pa.array(range(len(every)), pa.int64()))
    return every.take(rows.group_by(list(key)).aggregate([(THERE, "max")]).column(f"{THERE}_max"))


def comparable(columns: pa.Table) -> pa.Table:
    """Columns as pyarrow can group and join by them: without extension types, such as UUIDs, and with one form of zero."""
    return pa.table([_comparable(column) for column in columns.columns], names=columns.schema.names)


def _comparable(column: pa.ChunkedArray) -> pa.ChunkedArray:
    plain = pa.chunked_array([stored(chunk) for chunk in column.chunks], _storage(column.type))
    return pc.add(plain, pa.scalar(0.0, plain.type)) if pa.types.is_floating(plain.type) else plain


def _storage(kind: pa.DataType) -> pa.DataType:
    return kind.storage_type if isinstance(kind, pa.BaseExtensionType) else kind


__all__ = ["CollectionTable", "comparable", "newest"]
