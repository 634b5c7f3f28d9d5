"""A catalog of Iceberg in a file, sinks into it by hand, and what two readers see in its tables."""

from __future__ import annotations

import os
import pickle
import uuid
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.catalog import load_catalog
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat, ManifestContent, ManifestWriterV2
from pyiceberg.typedef import Record

import rayad as rd
from rayad.integrations import IcebergSink

os.environ.setdefault("POLARS_ICEBERG_PLANNER", "pyiceberg")  # it warns of its absent one


def catalog_in(folder: Path, name: str = "here") -> dict[str, str]:
    """The properties of a catalog, with the namespace ``ns``."""
    folder.mkdir(parents=True, exist_ok=True)
    properties = {"name": name, "type": "sql", "uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"file://{folder}/warehouse"}
    load_catalog(**properties).create_namespace_if_not_exists("ns")
    return properties


def table_of(catalog: dict[str, str], name: str = "ns.t") -> Any:
    """The table as it is now; None: there is none."""
    opened = load_catalog(**catalog)
    return opened.load_table(name) if opened.table_exists(name) else None


def rows_of(catalog: dict[str, str], name: str = "ns.t") -> list[dict[str, Any]]:
    """What ``pyiceberg`` reads; an empty list where there is no table."""
    table = table_of(catalog, name)
    found: list[dict[str, Any]] = table.scan().to_arrow().to_pylist() if table is not None else []
    return found


def rows_by_polars(catalog: dict[str, str], name: str = "ns.t") -> list[dict[str, Any]]:
    """What the Parquet reader of Polars reads, of the files of the table's snapshot."""
    return pl.scan_iceberg(table_of(catalog, name), reader_override="native").collect().to_dicts()


def numbers(catalog: dict[str, str], name: str = "ns.t") -> list[int]:
    """The column ``a``, sorted."""
    return sorted(row["a"] for row in rows_of(catalog, name))


def staged_by(sink: IcebergSink, *values: int) -> list[Any]:
    """What a replica stages of these records, of the column ``a``."""
    writer = pickle.loads(pickle.dumps(sink)).open(0, 1)
    writer.write(rd.Timestamp(0), [{"a": value} for value in values])
    return [writer.stage()]


class _DeletesWriter(ManifestWriterV2):
    """A manifest of files of deletes, which ``pyiceberg`` reads and does not write."""

    def content(self) -> ManifestContent:
        return ManifestContent.DELETES


def delete_rows(catalog: dict[str, str], file: str, positions: list[int], name: str = "ns.t") -> None:
    """Delete rows of a data file by their positions, as Spark and Flink do."""
    table = table_of(catalog, name)
    path = f"{table.location()}/data/deletes-{uuid.uuid4().hex}.parquet"
    fields = [("file_path", pa.string(), 2147483546), ("pos", pa.int64(), 2147483545)]
    schema = pa.schema([pa.field(name, kind, nullable=False, metadata={"PARQUET:field_id": str(number)}) for name, kind, number in fields])
    local = path.removeprefix("file://")
    pq.write_table(pa.table([[file] * len(positions), positions], schema=schema), local)
    deletes = DataFile.from_args(
        content=DataFileContent.POSITION_DELETES,
        file_path=path,
        file_format=FileFormat.PARQUET,
        partition=Record(),
        record_count=len(positions),
        file_size_in_bytes=os.path.getsize(local),
    )
    deletes.spec_id = 0
    with table.transaction() as transaction, transaction.update_snapshot().fast_append() as snapshot:
        snapshot.new_manifest_writer = lambda spec: _DeletesWriter(
            spec, table.schema(), snapshot.new_manifest_output(), snapshot.snapshot_id, "deflate"
        )
        snapshot.append_data_file(deletes)


def resumed(sink: IcebergSink, catalog: dict[str, str]) -> IcebergSink:
    """The sink of another coordinator of the same job."""
    again = IcebergSink(sink.name, catalog=catalog, mode=sink.mode)
    again.adopt(sink.identity())
    return again
