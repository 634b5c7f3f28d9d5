"""Iceberg tables that are kept as a collection is: sinks by hand, what they stage, and what is in the table."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

import rayad as rd
from rayad.integrations import IcebergSink, IcebergTable
from tests.integrations.iceberg_tables import rows_of

SCHEMA = pa.schema([("node", pa.int64()), ("n", pa.int64())])


def degrees(catalog: dict[str, str]) -> dict[int, int]:
    rows = rows_of(catalog)
    assert len(rows) == len({row["node"] for row in rows})
    return {row["node"]: row["n"] for row in rows}


def made(catalog: dict[str, str], schema: pa.Schema = SCHEMA, key: Any = "node", **options: Any) -> IcebergTable:
    sink = IcebergTable("ns.t", key=key, schema=schema, catalog=catalog, **options)
    sink.check()
    return sink


def added(catalog: dict[str, str], rows: dict[int, int]) -> None:
    """Rows of somebody else. ``pyiceberg`` itself writes no buckets without a package in Rust."""
    sink = IcebergSink("ns.t", catalog=catalog, mode="append")
    writer = sink.open(0, 1)
    writer.write(rd.Timestamp(0), [{"node": node, "n": n} for node, n in rows.items()])
    sink.commit(1, [writer.stage()])


def twin_of(sink: IcebergTable, catalog: dict[str, str]) -> IcebergTable:
    """The sink of another coordinator of the same job."""
    twin = IcebergTable("ns.t", key=sink.key, catalog=catalog)
    twin.adopt(sink.identity())
    return twin


def changed(sink: IcebergTable, *changes: tuple[int, int, int], epoch: int = 0) -> list[Any]:
    """What a replica stages: (node, n, weight)."""
    writer = sink.open(0, 1)
    writer.write(rd.Timestamp(epoch), [({"node": node, "n": n}, weight) for node, n, weight in changes])
    return [writer.stage()]
