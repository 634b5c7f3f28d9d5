"""Where data comes from and goes to: files, Arrow tables, Ray Data, Spark.

Each source and sink is written against the contracts in ``rayad.dataflow.source`` and ``.sink``. Records are Arrow RecordBatches unless
a source says otherwise; rows are made of them only where a row function asks for them. Spark and RayDP are imported only when used.
"""

if __name__ != "rayad.integrations":  # pragma: no cover - a second copy would have its own classes
    raise ImportError(
        f"this package is rayad.integrations, but it was imported as {__name__!r}; "
        "install the project (pip install -e .) and import rayad.integrations"
    )

from typing import TYPE_CHECKING

from rayad._exports import on_demand

if TYPE_CHECKING:
    from rayad.integrations.arrow import ArrowSource, PandasSource, PolarsSource
    from rayad.integrations.async_calls import AsyncCalls
    from rayad.integrations.delta import DeltaSink, DeltaTable
    from rayad.integrations.file_output.committed import committed_files, read_committed
    from rayad.integrations.file_output.parquet import ParquetSink, PublishedFiles
    from rayad.integrations.file_output.text_sinks import CsvSink, JsonSink
    from rayad.integrations.files import CsvSource, JsonLinesSource
    from rayad.integrations.folder import FolderSource
    from rayad.integrations.iceberg import IcebergSink, IcebergTable
    from rayad.integrations.kafka import KafkaSink, KafkaSource, KafkaTable
    from rayad.integrations.lines import csv_lines, json_lines
    from rayad.integrations.parquet import ParquetSource
    from rayad.integrations.postgres import PostgresSink, PostgresSource, PostgresTable
    from rayad.integrations.ray_data import RayDatasetSink, RayDatasetSource
    from rayad.integrations.spark.frames import SparkSink, SparkSource
    from rayad.integrations.spark.java import JavaHome, find_java
    from rayad.integrations.spark.session import spark_session, stop_spark
    from rayad.integrations.spark.streaming import SparkStream
    from rayad.integrations.staged import ArrowSink
    from rayad.integrations.text import JsonRowsSource, TextSource

__all__ = [
    "ArrowSink",
    "ArrowSource",
    "AsyncCalls",
    "CsvSink",
    "CsvSource",
    "DeltaSink",
    "DeltaTable",
    "FolderSource",
    "IcebergSink",
    "IcebergTable",
    "JavaHome",
    "JsonLinesSource",
    "JsonRowsSource",
    "JsonSink",
    "KafkaSink",
    "KafkaSource",
    "KafkaTable",
    "PandasSource",
    "ParquetSink",
    "ParquetSource",
    "PolarsSource",
    "PostgresSink",
    "PostgresSource",
    "PostgresTable",
    "PublishedFiles",
    "RayDatasetSink",
    "RayDatasetSource",
    "SparkSink",
    "SparkSource",
    "SparkStream",
    "TextSource",
    "committed_files",
    "csv_lines",
    "find_java",
    "json_lines",
    "read_committed",
    "spark_session",
    "stop_spark",
]

__getattr__, __dir__ = on_demand(
    __name__,
    {
        "rayad.integrations.arrow": (
            "ArrowSource",
            "PandasSource",
            "PolarsSource",
        ),
        "rayad.integrations.async_calls": ("AsyncCalls",),
        "rayad.integrations.delta": (
            "DeltaSink",
            "DeltaTable",
        ),
        "rayad.integrations.file_output.committed": (
            "committed_files",
            "read_committed",
        ),
        "rayad.integrations.file_output.parquet": (
            "ParquetSink",
            "PublishedFiles",
        ),
        "rayad.integrations.file_output.text_sinks": (
            "CsvSink",
            "JsonSink",
        ),
        "rayad.integrations.files": (
            "CsvSource",
            "JsonLinesSource",
        ),
        "rayad.integrations.folder": ("FolderSource",),
        "rayad.integrations.iceberg": (
            "IcebergSink",
            "IcebergTable",
        ),
        "rayad.integrations.kafka": (
            "KafkaSink",
            "KafkaSource",
            "KafkaTable",
        ),
        "rayad.integrations.lines": (
            "csv_lines",
            "json_lines",
        ),
        "rayad.integrations.parquet": ("ParquetSource",),
        "rayad.integrations.postgres": (
            "PostgresSink",
            "PostgresSource",
            "PostgresTable",
        ),
        "rayad.integrations.ray_data": (
            "RayDatasetSink",
            "RayDatasetSource",
        ),
        "rayad.integrations.spark.frames": (
            "SparkSink",
            "SparkSource",
        ),
        "rayad.integrations.spark.java": (
            "JavaHome",
            "find_java",
        ),
        "rayad.integrations.spark.session": (
            "spark_session",
            "stop_spark",
        ),
        "rayad.integrations.spark.streaming": ("SparkStream",),
        "rayad.integrations.staged": ("ArrowSink",),
        "rayad.integrations.text": (
            "JsonRowsSource",
            "TextSource",
        ),
    },
)
