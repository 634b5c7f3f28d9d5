"""PostgreSQL tables as sources and sinks, by ``adbc-driver-postgresql`` (``pip install rayad[postgres]``); why so: docs/decisions/054."""

from rayad.integrations.postgres.sink import PostgresSink
from rayad.integrations.postgres.source import PostgresSource
from rayad.integrations.postgres.table import PostgresTable

__all__ = ["PostgresSink", "PostgresSource", "PostgresTable"]
