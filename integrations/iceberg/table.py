"""An Iceberg table that is kept as a collection is: each snapshot inserts, updates and deletes rows by one snapshot of Iceberg.

What it shares with other formats: :mod:`rayad.integrations.file_output.collection_tables`. Here a commit is copy on write: the files that
have rows of changed keys (:mod:`rayad.integrations.iceberg.changes`) are written anew, without them and with the rows that have replaced
them, and one transaction removes the old files and adds the new ones. It depends on the rows that are there: as soon as anybody else
commits, it is decided again from the beginning. What was written for a commit that the catalog has refused is deleted.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import pyarrow as pa
from pyarrow import fs

from rayad.integrations.file_output.collection_tables import CollectionTable
from rayad.integrations.file_output.tables import Told
from rayad.integrations.file_output.writer import STAGING, FileWriter, StagedFile
from rayad.integrations.iceberg import partitions
from rayad.integrations.iceberg.catalog import Refusing, library
from rayad.integrations.iceberg.changes import Changes
from rayad.integrations.iceberg.sink import IcebergSink
from rayad.integrations.staged_rows import THERE
from rayad.progress import Timestamp
from rayad.snapshots.port import Port

FILE_BYTES = 128 << 20
"""A file is complete with so many bytes of rows, as Arrow has them in memory."""


class IcebergTable(CollectionTable, IcebergSink):
    """Updates an Iceberg table, one of its snapshots for each snapshot of the job; ``result`` gives
    :class:`rayad.integrations.file_output.tables.PublishedTable`.

    Args:
        table: as of :class:`IcebergSink`. It is made where there is none. Rows of others in it stay, unless they have a key that is
            written.
        key: columns that tell rows apart.
        catalog: as there.
        schema: the columns that are written; None: those of the table.
        partition_by: what partitions a new table, as there.
        location: as there.
        properties: as there.
        filesystem: as there.
    """

    begins_anew: ClassVar[bool] = True

    def __init__(
        self,
        table: str,
        *,
        key: str | Sequence[str],
        catalog: str | Mapping[str, Any] = "default",
        schema: pa.Schema | None = None,
        partition_by: str | Sequence[str] = (),
        location: str | None = None,
        properties: Mapping[str, str] | None = None,
        filesystem: fs.FileSystem | None = None,
    ) -> None:
        super().__init__(
            table,
            catalog=catalog,
            mode="append",
            schema=schema,
            partition_by=partition_by,
            location=location,
            properties=properties,
            filesystem=filesystem,
        )
        self.keep_by(key)

    def make(self) -> None:
        """See there."""
        with self._reading():
            try:
                self._new(self.kinds(self.columns)).commit_transaction()
            except library(self.where).exceptions.TableAlreadyExistsError:
                pass  # somebody else has made it

    def merge(self, table: Any, changes: pa.Table, after: Told) -> None:
        """See there."""
        theirs = self.columns_of(table)
        target = copy.copy(self)
        target.schema, target.fields = theirs, partitions.fields_of_spec(table, self.where)
        removed: list[Any] = []
        self.port.make_folder(STAGING)
        writer = FileWriter(target, 0)
        told = f"{self.where}: the rows that change in the table {self.name!r} cannot be written anew"
        try:
            with Refusing(told, self._catalog_properties):
                files = self._written(writer, Changes(changes.select([*theirs.names, THERE]), self.key, table, self.where), removed)
        except BaseException:
            writer.abort()
            raise
        self.transact(table, self._moved(files, after.shown), removed, after, theirs, replaces=False)

    def _written(self, writer: FileWriter, changes: Changes, removed: list[Any]) -> list[StagedFile]:
        """Write the new files; ``removed`` gets those that they replace. What are small files becomes one of each partition, and a large
        one stays one of its own, so that the keys in it do not spread."""
        files: list[StagedFile] = []
        size = 0
        for kept in changes.kept():
            removed.append(kept.file)
            size += kept.rows.nbytes
            _write(writer, kept.rows)
            if size >= FILE_BYTES:
                files += writer.stage()
                size = 0
        _write(writer, changes.new())
        return [*files, *writer.stage()]

    def tell(self, table: Any, after: Told) -> None:
        """See there."""
        self.transact(table, [], [], after, self.columns_of(table), replaces=False)

    def on_refused(self, moved: Sequence[StagedFile]) -> None:
        """See there: the next decision writes files of its own."""
        for file in moved:
            port = Port(self.filesystem, self.path)
            port.delete(port.name_of(file.staged))


def _write(writer: FileWriter, rows: pa.Table) -> None:
    for batch in rows.to_batches():
        writer.write(Timestamp(0), batch)


__all__ = ["IcebergTable"]
