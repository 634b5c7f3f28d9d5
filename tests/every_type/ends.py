"""Every source and sink that needs neither Ray nor Spark, for records that are passed on unchanged. The others: tests/cluster/."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
from deltalake import DeltaTable

import rayad as rd
from rayad.integrations.spark.types import for_spark
from tests.every_type.arrays import as_told
from tests.integrations.iceberg_tables import catalog_in, table_of

Source = Callable[[rd.Dataflow, pa.RecordBatch, Path], rd.Stream]


class NoFile(Exception):
    """The file format cannot hold this type, so there is no file to read."""


def from_rows(flow: rd.Dataflow, batch: pa.RecordBatch, folder: Path) -> rd.Stream:
    """Python records."""
    return flow.from_items(as_told(batch.to_pylist()))


def from_batches(flow: rd.Dataflow, batch: pa.RecordBatch, folder: Path) -> rd.Stream:
    """Columnar batches, several."""
    return flow.from_epochs([batch.slice(0, 7), batch.slice(7)])


def from_arrow(flow: rd.Dataflow, batch: pa.RecordBatch, folder: Path) -> rd.Stream:
    """A table."""
    return flow.from_arrow(pa.Table.from_batches([batch]))


def from_parquet(flow: rd.Dataflow, batch: pa.RecordBatch, folder: Path) -> rd.Stream:
    """A Parquet file that pyarrow wrote."""
    try:
        pq.write_table(pa.Table.from_batches([batch]), folder / "in.parquet")
        if not pq.read_table(folder / "in.parquet").column("x").to_pylist() == batch.column("x").to_pylist():
            raise NoFile
    except pa.ArrowException as error:
        raise NoFile from error
    return flow.read_parquet(str(folder / "in.parquet"))


def from_csv(flow: rd.Dataflow, batch: pa.RecordBatch, folder: Path) -> rd.Stream:
    """A CSV file that pyarrow wrote, read with its schema; in CSV null and an empty string are the same."""
    if any(value in ("", b"") for value in batch.column("x").to_pylist()):
        raise NoFile
    options = pacsv.ConvertOptions(column_types=batch.schema, strings_can_be_null=True)
    try:
        pacsv.write_csv(pa.Table.from_batches([batch]), folder / "in.csv")
        if not pacsv.read_csv(folder / "in.csv", convert_options=options).column("x").equals(pa.chunked_array([batch.column("x")])):
            raise NoFile
    except pa.ArrowException as error:
        raise NoFile from error
    return flow.read_csv(str(folder / "in.csv"), schema=batch.schema)


def from_json(flow: rd.Dataflow, batch: pa.RecordBatch, folder: Path) -> rd.Stream:
    """A file of JSON lines, read with the schema."""
    try:
        lines = [json.dumps(row) for row in batch.to_pylist()]
        if [json.loads(line) for line in lines] != batch.to_pylist():
            raise NoFile
    except (TypeError, ValueError) as error:
        raise NoFile from error
    (folder / "in.jsonl").write_text("\n".join(lines), encoding="utf-8")
    return flow.read_json(str(folder / "in.jsonl"), schema=batch.schema)


SOURCES: dict[str, Source] = {
    "from_items": from_rows,
    "from_epochs": from_batches,
    "from_arrow": from_arrow,
    "read_parquet": from_parquet,
    "read_csv": from_csv,
    "read_json": from_json,
}


class Kept(rd.Sink):
    """A user's sink: it keeps the batches unchanged."""

    def open(self, replica: int, parallelism: int) -> rd.SinkWriter:
        return KeptWriter()

    def publish(self, staged: Sequence[Any]) -> list[Any]:
        return [record for part in staged for record in part]


class KeptWriter(rd.SinkWriter):
    """Of one replica."""

    def __init__(self) -> None:
        self.records: list[Any] = []

    def write(self, time: rd.Timestamp, batch: Any) -> None:
        self.records += rd.to_rows(batch)

    def stage(self) -> list[Any]:
        return self.records


def collected(stream: rd.Stream, folder: Path) -> Callable[[Any], list[Any]]:
    """``collect()``."""
    stream.collect("out")
    return lambda result: [record for _, record in result["out"]]


def collected_in_columns(stream: rd.Stream, folder: Path) -> Callable[[Any], Any]:
    """``collect(columnar=True)``."""
    stream.collect("out", columnar=True)
    return lambda result: result["out"]


def written(stream: rd.Stream, folder: Path) -> Callable[[Any], Any]:
    """``write_parquet``, read by pyarrow."""
    stream.write_parquet(str(folder / "out"))
    return lambda result: pq.read_table(folder / "out")


def kept(stream: rd.Stream, folder: Path) -> Callable[[Any], list[Any]]:
    """A user's sink."""
    stream.sink(Kept(), "out")
    return lambda result: list(result["out"])


def for_sparks_types(stream: rd.Stream, folder: Path) -> Callable[[Any], Any]:
    """The types that ``to_spark`` makes; with real Spark and Ray Data: tests/cluster/test_spark_sink.py."""
    stream.collect("out", columnar=True)
    return lambda result: for_spark(result["out"])


def written_to_delta(stream: rd.Stream, folder: Path) -> Callable[[Any], Any]:
    """``write_delta``, read by deltalake."""
    stream.write_delta(str(folder / "out"))
    return lambda result: DeltaTable(str(folder / "out")).to_pyarrow_table()


def written_to_iceberg(stream: rd.Stream, folder: Path) -> Callable[[Any], Any]:
    """``write_iceberg``, read by pyiceberg."""
    catalog = catalog_in(folder)
    stream.write_iceberg("ns.t", catalog=catalog)

    def read(result: Any) -> Any:
        table = table_of(catalog)
        return table.scan().to_arrow() if table is not None else []

    return read


SINKS: dict[str, Callable[[rd.Stream, Path], Callable[[Any], Any]]] = {
    "collect": collected,
    "collect(columnar=True)": collected_in_columns,
    "write_parquet": written,
    "write_delta": written_to_delta,
    "write_iceberg": written_to_iceberg,
    "sink": kept,
    "to_spark": for_sparks_types,
}
