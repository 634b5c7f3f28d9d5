"""A Delta table that is kept as a collection is: each snapshot inserts, updates and deletes rows by one merge.

What it shares with other formats: :mod:`rayad.integrations.file_output.collection_tables`. Here a commit is a merge by ``deltalake``, a
transaction of Delta's log; one that changes nothing is told by a transaction without files.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyarrow import fs

from rayad.integrations.delta.sink import DeltaSink, library_of
from rayad.integrations.file_output.collection_tables import CollectionTable
from rayad.integrations.file_output.tables import Overtaken, Told
from rayad.integrations.staged_rows import THERE
from rayad.progress import DataflowError, say, without_secrets


class DeltaTable(CollectionTable, DeltaSink):
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
        self.keep_by(key)

    def make(self) -> None:
        """See there."""
        library = library_of(self.where)
        columns = library.Schema.from_arrow(self.kinds(self.columns))

        def create() -> None:
            library.DeltaTable.create(
                self.uri, columns, mode="ignore", partition_by=list(self.partition_by) or None, storage_options=self.storage_options
            )

        self._transact(create, "the table could not be made", others_may=True)

    def merge(self, table: Any, changes: pa.Table, after: Told) -> None:
        """See there."""
        columns = {_quoted(name): f"source.{_quoted(name)}" for name in self.columns.names}
        there = f"source.{_quoted(THERE)}"
        same = " AND ".join(f"target.{_quoted(name)} = source.{_quoted(name)}" for name in self.key)
        properties = self.telling(after)

        def act() -> Any:
            merger = table.merge(changes, same, source_alias="source", target_alias="target", commit_properties=properties)
            merger = merger.when_matched_delete(predicate=f"NOT {there}").when_matched_update(columns, predicate=there)
            return merger.when_not_matched_insert(columns, predicate=there).execute()

        done = self._transact(act, f"the commit of snapshot {after.shown} failed")
        if not any(done[f"num_target_rows_{what}"] for what in ("inserted", "updated", "deleted")):
            self.tell(table, after)  # a merge that changes nothing is not in the log

    def tell(self, table: Any, after: Told) -> None:
        """See there."""
        columns = library_of(self.where).Schema.from_arrow(self.columns_of(table))
        partitions, properties = list(self.partition_by) or None, self.telling(after)
        self._transact(
            lambda: table.create_write_transaction([], "append", columns, partition_by=partitions, commit_properties=properties),
            f"snapshot {after.shown} could not be told",
        )

    def _transact(self, act: Callable[[], Any], what: str, *, others_may: bool = False) -> Any:
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


def _quoted(name: str) -> str:
    """A column in a predicate."""
    return '"' + name.replace('"', '""') + '"'


__all__ = ["DeltaTable"]
