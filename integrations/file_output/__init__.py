"""Folders of files as sinks that are written exactly once, with each snapshot: Parquet, CSV, lines of JSON.

``sink.py`` commits, ``writer.py`` stages, ``committed.py`` is the manifest between them and readers; what differs between formats is a
value of ``formats.py``, and ``parquet.py`` and ``text_sinks.py`` are what users call. ``partitions.py``: values in the names of
directories; ``spark_log.py``: the log by which Spark reads the output as a stream; ``text_types.py``: which types text holds exactly.
``tables.py``: what sinks into tables whose commits are transactions share (Delta, Iceberg); ``collection_tables.py``: those that are kept
as a collection is.
"""

from rayad.integrations.file_output.committed import PublishedFiles, committed_files, read_committed
from rayad.integrations.file_output.parquet import ParquetSink
from rayad.integrations.file_output.text_sinks import CsvSink, JsonSink

__all__ = ["CsvSink", "JsonSink", "ParquetSink", "PublishedFiles", "committed_files", "read_committed"]
