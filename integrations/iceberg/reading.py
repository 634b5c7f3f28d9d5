"""Data files of an Iceberg table, read to be written anew: each row comes back as it is in the file.

``pyiceberg``'s own reader projects what it reads onto the table's schema, and makes empty lists and maps of those of structs that are null
(apache/iceberg-python#3833): readers may see that, but it must not be written back. So a file whose columns are those of the table is read
as Parquet. Others, of an earlier schema or with deleted rows, are read by ``pyiceberg``, unless the table has such columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.types as pat

from rayad.integrations.iceberg.catalog import library
from rayad.integrations.iceberg.types import ICEBERG
from rayad.progress import DataflowError


class TableFiles:
    """The files of one state of a table.

    Args:
        table: of ``pyiceberg``.
        kinds: its columns, in Iceberg's types of Arrow.
        where: for messages.
    """

    def __init__(self, table: Any, kinds: pa.Schema, where: str) -> None:
        self._table, self._kinds, self._where = table, kinds, where
        schema = table.schema()
        self._known = {number: (schema.find_column_name(number), schema.find_type(number)) for number in schema.field_ids}

    def read(self, task: Any, columns: Sequence[str] | None = None) -> pa.Table:
        """The rows of a file, with its deletes applied: these columns, or all of them."""
        names = list(columns) if columns is not None else self._kinds.names
        found = self._as_parquet(task, names) if not task.delete_files else None
        rows = ICEBERG.columns(found if found is not None else self._by_pyiceberg(task, names), self._where)
        kinds = pa.schema([self._kinds.field(name) for name in names])
        return pa.Table.from_arrays([_in(rows.column(field.name), field.type) for field in kinds], schema=kinds)

    def _as_parquet(self, task: Any, names: list[str]) -> pa.Table | None:
        """The rows of a file of the table's columns; None: it has others, or other types."""
        found = library(self._where)
        metadata = self._table.metadata
        if task.file.file_format != found.manifest.FileFormat.PARQUET:
            return None
        with self._table.io.new_input(task.file.file_path).open() as stream, pq.ParquetFile(stream) as file:
            theirs = found.io.pyarrow.pyarrow_to_schema(
                file.schema_arrow, metadata.name_mapping(), downcast_ns_timestamp_to_us=True, format_version=metadata.format_version
            )
            for number, (name, kind) in self._known.items():
                if number not in theirs.field_ids or theirs.find_column_name(number) != name:
                    return None
                if kind.is_primitive and theirs.find_type(number) != kind:
                    return None
            return file.read(names)

    def _by_pyiceberg(self, task: Any, names: list[str]) -> pa.Table:
        lossy = [name for name in names if _has_many_structs(self._kinds.field(name).type)]
        if lossy:
            raise DataflowError(
                f"{self._where}: the file {task.file.file_path!r} has to be written anew, and has deleted rows or an earlier schema: "
                f"pyiceberg reads it, and takes null in the column {lossy[0]!r}, {self._kinds.field(lossy[0]).type}, for an empty list; "
                "rewrite the table's files by another program, such as Spark's rewrite_data_files"
            )
        found, metadata = library(self._where), self._table.metadata
        schema = metadata.schema().select(*names)
        return found.io.pyarrow.ArrowScan(metadata, self._table.io, schema, found.expressions.AlwaysTrue()).to_table([task]).select(names)


def _in(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    """A column in the type of the table's: pyarrow may read UUIDs as bytes."""
    if column.type == kind:
        return column
    if isinstance(kind, pa.BaseExtensionType):
        return pa.chunked_array([pa.ExtensionArray.from_storage(kind, chunk) for chunk in column.chunks], kind)
    return column.cast(kind)


def _has_many_structs(kind: pa.DataType) -> bool:
    """Whether a type is, or has in it, a list or a map of structs."""
    values = [kind.field(i).type for i in range(kind.num_fields)]
    is_many = pat.is_list(kind) or pat.is_map(kind)
    return (is_many and any(pat.is_struct(value) for value in values)) or any(_has_many_structs(value) for value in values)


__all__ = ["TableFiles"]
