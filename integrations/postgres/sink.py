"""A PostgreSQL table as a sink: each snapshot is one transaction, so readers see each row once.

What replicas write goes into the snapshots. When a snapshot is complete the coordinator appends its rows in a transaction that also
writes the snapshot's number to the table ``rayad_commits``, in the row of this output. A repeated commit finds its number there and does
nothing. The same row says which number is the smallest valid one: a job that resumes raises it, and a coordinator that was taken for dead
is refused then. The row is locked first, so one of two coordinators comes after the other.
"""

from __future__ import annotations

import logging
import time as clock
import uuid
from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar

import pyarrow as pa

from rayad.dataflow.sink import Sink, SinkWriter
from rayad.integrations.postgres.client import PostgresError, connect, quoted, rows_of, told
from rayad.integrations.staged_rows import RowsWriter, tables
from rayad.progress import ConfigError, DataflowError, arguments

WHERE = "write_postgres"
COMMITS = "rayad_commits"
PAUSE_S = 0.1
_log = logging.getLogger("rayad.postgres")


class PostgresSink(Sink):
    """Appends records to an existing table. The result is the number of rows of the last snapshot.

    Args:
        uri: ``postgresql://user:password@host:port/database``, or the words ``host=... user=...`` of libpq. The user must be allowed to
            create ``rayad_commits``, unless it exists.
        table: its name, or ``schema.table`` if it is not on the search path.
        schema: the columns that are written, in exactly the types of the table (``int32`` is ``integer``, ``int64`` is ``bigint``).
        snapshot_column: a column of type ``text`` that records output and snapshot of each row. With it a job may resume from a snapshot
            older than the last committed one, and the later rows are deleted; without it that is refused.
        wait_s: how long a commit retries while the server is unreachable; then it fails, and the job restarts as FailureConfig says.
    """

    commits = True
    cannot_take_back: ClassVar[str] = (
        "nothing tells them from others: resume from the newest snapshot, or write with snapshot_column= from the beginning"
    )
    """Why rows of later snapshots stay where there is no ``snapshot_column``, and what to do."""

    def __init__(self, uri: str, table: str, *, schema: pa.Schema, snapshot_column: str | None = None, wait_s: float = 120.0) -> None:
        self.uri = arguments.text(uri, f"{WHERE}: uri", error=ConfigError)
        self.table = arguments.text(table, f"{WHERE}: table", error=ConfigError)
        if not isinstance(schema, pa.Schema):
            raise ConfigError(f"{WHERE}: schema is a {type(schema).__name__}: give a pyarrow.Schema with the columns to write")
        self.schema = schema
        self._column = snapshot_column
        self._wait_s = arguments.number(wait_s, f"{WHERE}: wait_s", zero=True, error=ConfigError)
        self._id = f"rayad-{uuid.uuid4().hex}"
        self._resumed_from: int | None = None

    def check(self) -> None:
        """Raise ConfigError if the table lacks these columns; create the table of commits."""
        names = [*self.schema.names, *([self._column] if self._column else [])]
        columns = ", ".join(quoted(name, is_column=True) for name in names)
        with connect(self.uri, WHERE) as connection:
            try:
                rows_of(connection, f"SELECT {columns} FROM {quoted(self.table)} LIMIT 0")
            except PostgresError as error:
                raise ConfigError(f"{WHERE}: table {self.table!r} cannot take the columns {names}: {told(error)}") from error
        with connect(self.uri, WHERE) as connection, connection.cursor() as cursor:
            lock = "DO $$ BEGIN PERFORM pg_advisory_xact_lock(hashtext('rayad_commits')); END $$"
            cursor.execute(lock)  # CREATE TABLE IF NOT EXISTS fails where two do it at once
            cursor.execute(
                f"CREATE TABLE IF NOT EXISTS {COMMITS} (output text PRIMARY KEY, snapshot bigint NOT NULL, first_valid bigint NOT NULL)"
            )
            connection.commit()

    def identity(self) -> str:
        return self._id

    def adopt(self, identity: str) -> None:
        self._id = identity

    def open(self, replica: int, parallelism: int) -> SinkWriter:
        return RowsWriter(self.schema, WHERE)

    def roll_back(self, last: int, first_new: int) -> None:
        """Record which snapshots are void and remove their rows. Refused if that is impossible."""

        def mark_void(connection: Any, committed: int, first_valid: int) -> None:
            if committed > last and self._column is None:
                raise ConfigError(
                    f"{WHERE}: the job resumes from snapshot {last}, but {self.table!r} has the rows of snapshot {committed}, and "
                    f"{self.cannot_take_back}"
                )
            with connection.cursor() as cursor:
                if committed > last and self._column is not None:
                    void = ", ".join(f"'{self._mark(number)}'" for number in range(last + 1, committed + 1))
                    column = quoted(self._column, is_column=True)
                    cursor.execute(f"DELETE FROM {quoted(self.table)} WHERE {column} IN ({void})")
            self._note(connection, min(committed, last), max(first_valid, first_new))

        self._persist(mark_void, f"what came after snapshot {last} could not be made void in {self.table!r}")
        self._resumed_from = last

    def commit(self, snapshot: int, staged: Sequence[Any]) -> int:
        """Append the staged records in one transaction. Raises DataflowError if the snapshot is void."""
        rows = 0

        def append(connection: Any, committed: int, first_valid: int) -> None:
            nonlocal rows
            rows = 0
            if snapshot <= committed:
                rows = self.rows_in(staged)
                return
            if snapshot < first_valid and snapshot != self._resumed_from:
                raise DataflowError(
                    f"{WHERE}: snapshot {snapshot} is void: the job has resumed from an earlier one meanwhile; this coordinator was taken "
                    "for dead and must end"
                )
            rows = self.put(connection, tables(staged), snapshot)
            self._note(connection, snapshot, first_valid)

        self._persist(append, f"snapshot {snapshot} could not be committed to {self.table!r}")
        return rows

    def put(self, connection: Any, staged: Iterable[pa.Table], snapshot: int) -> int:
        """Append the rows, in a transaction that is under way; gives how many."""
        *place, name = self.table.split(".")
        rows = 0
        for table in staged:
            rows += table.num_rows
            if self._column is not None:
                table = table.append_column(self._column, pa.array([self._mark(snapshot)] * len(table), pa.string()))
            with connection.cursor() as cursor:
                cursor.adbc_ingest(name, table, mode="append", db_schema_name=place[0] if place else None)
        return rows

    def rows_in(self, staged: Sequence[Any]) -> int:
        """How many rows what is staged comes to."""
        return sum(table.num_rows for table in tables(staged))

    def publish(self, staged: Sequence[Any]) -> int:
        """Write everything in one transaction, for a run that keeps no snapshots."""
        return self.commit(1, staged)

    def _mark(self, snapshot: int) -> str:
        return f"{self._id}/{snapshot}"

    def _note(self, connection: Any, snapshot: int, first_valid: int) -> None:
        with connection.cursor() as cursor:
            cursor.execute(f"UPDATE {COMMITS} SET snapshot = {snapshot}, first_valid = {first_valid} WHERE output = '{self._id}'")

    def _persist(self, act: Callable[[Any, int, int], None], what: str) -> None:
        """Call ``act`` in a transaction that has locked this output's row; repeat it while the server is away. Raises DataflowError."""
        deadline_s = clock.monotonic() + self._wait_s
        while True:
            try:
                with connect(self.uri, WHERE) as connection:
                    committed, first_valid = self._locked(connection)
                    act(connection, committed, first_valid)
                    connection.commit()
                return
            except PostgresError as error:
                is_away, why, cause = type(error).__name__ == "OperationalError", told(error), error
            except DataflowError as error:
                if not isinstance(error.__cause__, PostgresError):
                    raise
                is_away, why, cause = True, told(error), error  # no connection
            if not is_away or clock.monotonic() + PAUSE_S > deadline_s:
                raise DataflowError(f"{WHERE}: {what}: {why}") from cause
            _log.warning("%s: %s yet: %s; trying again", WHERE, what, why)
            clock.sleep(PAUSE_S)

    def _locked(self, connection: Any) -> tuple[int, int]:
        """The newest snapshot in the table and the smallest valid number; nobody else changes them before this transaction ends."""
        with connection.cursor() as cursor:
            cursor.execute(f"SET LOCAL lock_timeout = {max(1, int(1000 * self._wait_s))}")
            cursor.execute(f"INSERT INTO {COMMITS} VALUES ('{self._id}', 0, 0) ON CONFLICT (output) DO UPDATE SET output = EXCLUDED.output")
        (row,) = rows_of(connection, f"SELECT snapshot, first_valid FROM {COMMITS} WHERE output = '{self._id}'").to_pylist()
        return row["snapshot"], row["first_valid"]


__all__ = ["WHERE", "PostgresSink"]
