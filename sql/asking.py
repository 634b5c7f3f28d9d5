"""``job.sql``: a query over tables that have been read; here DataFusion executes it, once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds

from rayad.dataflow.operators.state.tables import KEY, RECORDS
from rayad.dataflow.records.values import is_tuple
from rayad.progress import DataflowError, show
from rayad.sql.planning.planner import context, datafusion, told_by

_NO_QUERY = ("DDL not supported", "DML not supported", "Statement not supported")


def tables_of_query(query: str) -> list[str]:
    """The names of the tables that a query reads, without those that it makes itself (WITH). Raises DataflowError where it is no query."""
    package, asked = datafusion(), dict[str, None]()

    class Asked(package.catalog.SchemaProvider):  # type: ignore[misc, name-defined]
        """Is asked for each table before anything is planned."""

        def table_names(self) -> set[str]:
            return set()

        def table_exist(self, name: str) -> bool:
            return True

        def table(self, name: str) -> Any:
            asked[name] = None
            return package.catalog.Table(ds.dataset(pa.table({})))

    tried = context()
    catalog = tried.catalog()
    catalog.deregister_schema("public", cascade=True)
    catalog.register_schema("public", Asked())
    try:
        tried.sql_with_options(query, _options())
    except Exception as error:  # DataFusion raises Exception itself; that tables have no columns is no error of the query
        if not asked or told_by(error).startswith(_NO_QUERY):
            raise _refused(query, error) from error
    return list(asked)


def run_query(query: str, tables: Mapping[str, pa.Table]) -> pa.Table:
    """The rows of a query over tables as they were scanned. Raises DataflowError that says why it cannot be run."""
    running = context()
    try:
        for name, table in tables.items():
            rows = rows_of(table)
            running.register_record_batches(f'"{name}"', [rows.to_batches() or [pa.RecordBatch.from_pylist([], rows.schema)]])
        return running.sql_with_options(query, _options()).to_arrow_table()
    except Exception as error:
        raise _refused(query, error) from error


def rows_of(table: pa.Table) -> pa.Table:
    """A scanned table as one of SQL: the fields of keys and values that are records or dicts, or parts of tuples, are columns.

    Where records are counted each is there as often as it says. A column that is called as a field is left out.

    >>> counted = pa.table({"key": pa.array([{"a": 1}]), "count": [2]})
    >>> schema = pa.schema([counted.schema.field("key").with_metadata(RECORDS), counted.schema.field("count")])
    >>> rows_of(counted.cast(schema)).to_pydict()
    {'a': [1, 1]}
    >>> rows_of(pa.table({"key": ["x"], "value": pa.array([{"0": 1, "1": 2}])})).to_pydict()
    {'key': ['x'], 'value0': [1], 'value1': [2]}
    """
    if table.schema.names == [KEY, "count"] and RECORDS.items() <= (table.schema.field(KEY).metadata or {}).items():
        counts = table.column("count").to_numpy()
        table = table.select([KEY])
        if not (counts == 1).all():
            table = table.take(pa.array(np.repeat(np.arange(len(counts)), counts)))
    columns: dict[str, pa.ChunkedArray] = {}
    fields: dict[str, pa.ChunkedArray] = {}
    for field, column in zip(table.schema, table.columns, strict=True):
        if field.name in (KEY, "value") and pa.types.is_struct(field.type) and field.type.num_fields:
            before = field.name if is_tuple(field.type) else ""
            fields.update({f"{before}{child.name}": part for child, part in zip(field.type, column.flatten(), strict=True)})
        else:
            columns[field.name] = column
    return pa.table({**{name: column for name, column in columns.items() if name not in fields}, **fields})


def _options() -> Any:
    return datafusion().SQLOptions().with_allow_ddl(False).with_allow_dml(False).with_allow_statements(False)


def _refused(query: str, error: Exception) -> DataflowError:
    return DataflowError(f"job.sql({show(' '.join(query.split()), 200)}): {told_by(error)}")


__all__ = ["rows_of", "run_query", "tables_of_query"]
