"""A PostgreSQL table as bounded input: ranges of a key are the parts, all read from one snapshot of the database.

The driver opens a transaction and exports its snapshot (``pg_export_snapshot``), which lasts as long as the job runs. Each replica reads in
a transaction of its own with the same snapshot. So all parts are of one moment, and a part that is read again after a failure has the same
rows.

A run that resumes after the driver's death has a new snapshot of the database. It is right only if the table has not changed: a
snapshot of the job records the rows of each part and a sum of hashes over all of them; where they differ the resume is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import pyarrow as pa

from rayad.dataflow.source import Source, SourcePart
from rayad.integrations.blocks import DEFAULT_BATCH_ROWS, TablePart, check_batch_rows, check_epoch_column, describe
from rayad.integrations.postgres.client import PostgresError, connect, quoted, rows_of, told
from rayad.progress import ConfigError, DataflowError, arguments

ROWS_PER_PART = 100_000
WHERE = "read_postgres"


class KeyRange(NamedTuple):
    """A part: the rows that a condition in SQL selects, as a snapshot of the database has them."""

    number: int
    condition: str
    snapshot: str


class PostgresSource(Source):
    """Reads a table in columns. ``numeric`` values are read as text with all their digits.

    Args:
        uri: ``postgresql://user:password@host:port/database``, or the words ``host=... user=...`` of libpq. It is sent to the replicas.
        table: its name, or ``schema.table`` if it is not on the search path.
        key: a column with an index that orders the rows; parts are ranges of it. Rows with a null key are in the first part.
        columns: which to read; None: all.
        epoch: an integer column with each row's epoch.
        rows_per_part: about how many rows a part has; a replica holds the part that it reads.
        batch_rows: the most rows of a batch.

    Raises ConfigError and DataflowError with the server's message.
    """

    where = WHERE

    def __init__(
        self,
        uri: str,
        table: str,
        *,
        key: str,
        columns: Sequence[str] | None = None,
        epoch: str | None = None,
        rows_per_part: int = ROWS_PER_PART,
        batch_rows: int = DEFAULT_BATCH_ROWS,
    ) -> None:
        self._uri = arguments.text(uri, f"{WHERE}: uri", error=ConfigError)
        self._table = quoted(arguments.text(table, f"{WHERE}: table", error=ConfigError))
        self._key = quoted(arguments.text(key, f"{WHERE}: key", error=ConfigError), is_column=True)
        self._rows_per_part = arguments.whole(rows_per_part, f"{WHERE}: rows_per_part", least=1, error=ConfigError)
        self._batch_rows = check_batch_rows(batch_rows, WHERE)
        self._epoch = epoch
        self.one_epoch = epoch is None
        self.interleave = epoch is not None
        self._holding: list[Any] = []  # connections whose transactions have exported a snapshot
        self._jobs = 0
        with connect(self._uri, WHERE) as connection:
            try:
                found = rows_of(connection, f"SELECT * FROM {self._table} LIMIT 0").schema
                rows_of(connection, f"SELECT {self._key} FROM {self._table} LIMIT 0")
            except PostgresError as error:
                raise ConfigError(f"{WHERE}: table {table!r} with key {key!r} cannot be read: {told(error)}") from error
        missing = [name for name in columns or () if name not in found.names]
        if missing:
            raise ConfigError(f"{WHERE}: table {table!r} has no columns {missing}: it has {found.names}")
        self.schema = pa.schema([found.field(name) for name in columns or found.names])
        check_epoch_column(self.schema, epoch, WHERE)
        self._columns = ", ".join(quoted(name, is_column=True) for name in self.schema.names)

    def __getstate__(self) -> dict[str, Any]:
        """Without the transactions, which are the driver's."""
        return {**self.__dict__, "_holding": [], "_jobs": 0}

    def list_parts(self) -> Sequence[KeyRange]:
        """Divide the table into ranges of the key, as of a database snapshot that is exported now."""
        connection = connect(self._uri, WHERE)
        try:
            with connection.cursor() as cursor:
                cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
                cursor.execute("SET LOCAL idle_in_transaction_session_timeout = 0")
            (snapshot,) = rows_of(connection, "SELECT pg_export_snapshot() AS id")["id"].to_pylist()
            bounds = rows_of(
                connection,
                f"SELECT DISTINCT k, quote_literal(k::text) AS bound FROM (SELECT {self._key} AS k, "
                f"row_number() OVER (ORDER BY {self._key}) AS n FROM {self._table} WHERE {self._key} IS NOT NULL) AS numbered "
                f"WHERE n > 1 AND n % {self._rows_per_part} = {1 % self._rows_per_part} ORDER BY k",
            )["bound"].to_pylist()
        except PostgresError as error:
            connection.close()
            raise DataflowError(f"{WHERE}: {self._table} cannot be read: {told(error)}") from error
        self._holding.append(connection)
        ends = [None, *bounds, None]
        return [KeyRange(n, self._between(low, high), snapshot) for n, (low, high) in enumerate(pairwise(ends))]

    def _between(self, low: str | None, high: str | None) -> str:
        key = self._key
        over = f"{key} >= {low}" if low is not None else "true"
        under = f"{key} < {high}" if high is not None else "true"
        return f"({over} AND {under})" + (f" OR {key} IS NULL" if low is None else "")

    def fingerprint(self, parts: Sequence[KeyRange]) -> dict[str, Any]:
        """Return the rows of each part and a sum of their hashes. Costs one more scan of the table, only for jobs that keep snapshots."""
        found = {}
        for part in parts:
            (row,) = self._ask(
                part,
                f"SELECT count(*) AS rows, coalesce(sum(hashtextextended(ROW({self._columns})::text, 0)), 0)::text AS hashes "
                f"FROM {self._table} WHERE {part.condition}",
            ).to_pylist()
            found[str(part.number)] = f"{row['rows']} rows, hashes {row['hashes']}, {part.condition}"
        return {"columns": describe(self.schema), "epoch": self._epoch, "parts": found}

    def job_started(self, job: Any, config: Any) -> None:
        """Keep the database snapshot while a job may read it."""
        self._jobs += 1

    def job_ended(self) -> None:
        """End the transactions after the last job."""
        self._jobs -= 1
        while not self._jobs and self._holding:
            self._holding.pop().close()

    def build_part(self, part: KeyRange, resume: int | None) -> SourcePart:
        """Open a range of the key; ``resume`` is the number of its rows already read."""
        where = f"{WHERE}: part {part.number} of {self._table}"
        order = f"ORDER BY {self._key}, ROW({self._columns})::text"
        query = f"SELECT {self._columns} FROM {self._table} WHERE {part.condition} {order}"
        return TablePart(lambda: self._ask(part, query), batch_rows=self._batch_rows, epoch=self._epoch, resume=resume, where=where)

    def _ask(self, part: KeyRange, query: str) -> pa.Table:
        """What a query gives in the snapshot of the database that a part belongs to."""
        with connect(self._uri, WHERE) as connection:
            try:
                with connection.cursor() as cursor:
                    cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
                    cursor.execute(f"SET TRANSACTION SNAPSHOT '{part.snapshot}'")
                return rows_of(connection, query)
            except PostgresError as error:
                raise DataflowError(
                    f"{WHERE}: part {part.number} of {self._table} cannot be read: {told(error)}. The driver holds the snapshot of the "
                    "database while the job runs: keep it alive, and let the server not end its transaction"
                ) from error


__all__ = ["KeyRange", "PostgresSource"]
