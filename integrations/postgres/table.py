"""A PostgreSQL table that is kept as a collection is: each snapshot inserts, updates and deletes rows in one transaction.

What replicas write goes into the snapshots, as :mod:`rayad.integrations.staged_rows` says, with the epoch of each change. A snapshot may
have several changes of a key, and of several replicas if keys have moved: the one of the last epoch counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

import pyarrow as pa

from rayad.dataflow.sink import SinkWriter
from rayad.integrations.postgres.client import PostgresError, connect, quoted, rows_of, told
from rayad.integrations.postgres.sink import WHERE, PostgresSink
from rayad.integrations.staged_rows import EPOCH, THERE, ChangesWriter, checked_key, tables
from rayad.progress import ConfigError

STAGED = "rayad_staged"


class PostgresTable(PostgresSink):
    """Updates an existing table. The result is the number of keys that the last snapshot has changed.

    Args:
        uri: as of :class:`PostgresSink`.
        table: as there; it needs a primary key, or a unique constraint, on ``key``.
        key: columns that tell rows apart.
        schema: as there.
        wait_s: as there.
    """

    cannot_take_back: ClassVar[str] = "what they have replaced is gone: resume from the newest snapshot, or write to an empty table"

    def __init__(self, uri: str, table: str, *, key: str | Sequence[str], schema: pa.Schema, wait_s: float = 120.0) -> None:
        super().__init__(uri, table, schema=schema, wait_s=wait_s)
        self._key = checked_key(key, schema, WHERE)

    def check(self) -> None:
        """Raise ConfigError if the table lacks these columns, or nothing makes the key unique; create the table of commits."""
        super().check()
        with connect(self.uri, WHERE) as connection, connection.cursor() as cursor:
            try:
                cursor.execute(self._upsert(f"SELECT {self._columns()} FROM {quoted(self.table)} WHERE false"))
            except PostgresError as error:
                raise ConfigError(
                    f"{WHERE}: table {self.table!r} cannot be updated by {self._key}: {told(error)}; make it unique: ALTER TABLE "
                    f"{quoted(self.table)} ADD UNIQUE ({self._columns(self._key)})"
                ) from error

    def open(self, replica: int, parallelism: int) -> SinkWriter:
        return ChangesWriter(self.schema, WHERE)

    def put(self, connection: Any, staged: Iterable[pa.Table], snapshot: int) -> int:
        """Insert, update and delete rows, in a transaction that is under way; gives how many keys have changed."""
        keys, target = self._columns(self._key), quoted(self.table)
        newest = f"(SELECT DISTINCT ON ({keys}) * FROM {STAGED} ORDER BY {keys}, {EPOCH} DESC) AS newest"
        same = " AND ".join(f"{target}.{name} = newest.{name}" for name in self._quoted(self._key))
        with connection.cursor() as cursor:
            cursor.execute(
                f"CREATE TEMPORARY TABLE {STAGED} ON COMMIT DROP AS SELECT {self._columns()}, 0::bigint AS {EPOCH}, true AS {THERE} FROM "
                f"{target} LIMIT 0"
            )
            for table in staged:
                cursor.adbc_ingest(STAGED, table, mode="append", temporary=True)
            cursor.execute(f"DELETE FROM {target} USING {newest} WHERE NOT newest.{THERE} AND {same}")
            cursor.execute(self._upsert(f"SELECT {self._columns()} FROM {newest} WHERE {THERE}"))
        (count,) = rows_of(connection, f"SELECT count(*) AS n FROM {newest}").to_pylist()
        return int(count["n"])

    def rows_in(self, staged: Sequence[Any]) -> int:
        """How many keys have changed."""
        return len({tuple(row.values()) for table in tables(staged) for row in table.select(self._key).to_pylist()})

    def _upsert(self, rows: str) -> str:
        rest = [f"{name} = EXCLUDED.{name}" for name in self._quoted([name for name in self.schema.names if name not in self._key])]
        then = f"UPDATE SET {', '.join(rest)}" if rest else "NOTHING"
        return f"INSERT INTO {quoted(self.table)} ({self._columns()}) {rows} ON CONFLICT ({self._columns(self._key)}) DO {then}"

    def _columns(self, names: Sequence[str] | None = None) -> str:
        return ", ".join(self._quoted(self.schema.names if names is None else names))

    @staticmethod
    def _quoted(names: Sequence[str]) -> list[str]:
        return [quoted(name, is_column=True) for name in names]


__all__ = ["PostgresTable"]
