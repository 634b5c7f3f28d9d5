"""What source and sink of PostgreSQL share: connections of ``adbc-driver-postgresql``, its errors, quoted names."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from rayad.progress import ConfigError, DataflowError, say, without_secrets

CONNECT_S = 10
"""How long a server may take to answer, unless the address says otherwise (``?connect_timeout=``)."""
try:
    from adbc_driver_manager import Error as PostgresError
except ImportError:  # then connect() says so

    class PostgresError(Exception):  # type: ignore[no-redef]
        """Never raised."""


def connect(uri: str, where: str) -> Any:
    """A connection, in a transaction. Raises DataflowError with what the server says."""
    try:
        from adbc_driver_postgresql import dbapi
    except ImportError as error:
        raise ConfigError(f"{where} needs the package adbc-driver-postgresql: pip install 'rayad[postgres]' ({error})") from error
    before = " " if "://" not in uri else "&" if "?" in uri else "?"
    timed = uri if "connect_timeout" in uri else f"{uri}{before}connect_timeout={CONNECT_S}"
    try:
        return dbapi.connect(timed)
    except PostgresError as error:
        raise DataflowError(f"{where}: no connection to the database: {told(error, uri)}") from without_secrets(error, uri)


def rows_of(connection: Any, query: str) -> pa.Table:
    """What a query gives; types that Arrow lacks (``numeric``) as text, and without metadata."""
    with connection.cursor() as cursor:
        cursor.execute(query)
        table: pa.Table = cursor.fetch_arrow_table()
    columns = [
        pa.chunked_array([chunk.storage for chunk in column.chunks], column.type.storage_type)
        if isinstance(column.type, pa.BaseExtensionType)
        else column
        for column in table.columns
    ]
    return pa.table(columns, names=table.column_names)


def quoted(name: str, *, is_column: bool = False) -> str:
    """A name as SQL has it; of a table ``schema.table``.

    >>> quoted("public.Orders"), quoted('a.b"c', is_column=True)
    ('"public"."Orders"', '"a.b""c"')
    """
    parts = [name] if is_column else name.split(".")
    return ".".join('"' + part.replace('"', '""') + '"' for part in parts)


def told(error: BaseException, *given: str) -> str:
    """The text of an error, in one line, without the secrets in what the library was ``given``."""
    return " ".join(say(error, *given).split())


__all__ = ["PostgresError", "connect", "quoted", "rows_of", "told"]
