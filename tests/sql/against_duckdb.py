"""Queries run over tables that change, and what DuckDB answers for what is there after each epoch."""

from __future__ import annotations

import datetime as dt
import math
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cache
from typing import Any

import duckdb
import pyarrow as pa

import rayad as rd

Row = tuple[Any, ...]
Changes = list[list[tuple[Row, int]]]
"""By epoch: rows and their weights."""


@dataclass(frozen=True)
class Table:
    """A table that changes.

    Args:
        schema: of it.
        changes: by epoch.
    """

    schema: pa.Schema
    changes: Changes

    def after(self, epoch: int) -> list[Row]:
        """The rows that are there after an epoch."""
        there: Counter[Row] = Counter()
        for some in self.changes[: epoch + 1]:
            for row, weight in some:
                there[row] += weight
        return list(there.elements())

    def arrow(self) -> pa.Table:
        """All changes, with their epochs and weights."""
        rows = [
            {**dict(zip(self.schema.names, row, strict=True)), "epoch": epoch, "diff": weight}
            for epoch, some in enumerate(self.changes)
            for row, weight in some
        ]
        return pa.Table.from_pylist(rows, pa.schema([*self.schema, pa.field("epoch", pa.int64()), pa.field("diff", pa.int64())]))


def coming_and_going(schema: pa.Schema, rows: Sequence[Row], chance: random.Random, epochs: int = 4) -> Table:
    """Rows that come in several epochs, and some of which go; in the last epoch all that are left go."""
    left, there, changes = list(rows), [], []
    for epoch in range(epochs):
        some: list[tuple[Row, int]] = []
        share = len(left) if epoch == epochs - 2 else chance.randrange(len(left) + 1)
        for _ in range(share if epoch < epochs - 1 else 0):
            there.append(left.pop())
            some.append((there[-1], 1))
        gone = len(there) if epoch == epochs - 1 else chance.randrange(len(there) // 3 + 1) if epoch else 0
        chance.shuffle(there)
        some += [(there.pop(), -1) for _ in range(gone)]
        changes.append(some)
    return Table(schema, changes)


def given(query: str, tables: Mapping[str, Table], seed: int = 0, *, rows: bool = False) -> list[Counter[Row]]:
    """The result of a query after each epoch."""
    flow = rd.Dataflow("sql")
    collections = {}
    for name, table in tables.items():
        if rows:
            items = [[(dict(zip(table.schema.names, row, strict=True)), weight) for row, weight in some] for some in table.changes]
            collections[name] = rd.Collection(flow.from_epochs(items, batch_rows=5)).with_schema(table.schema)
        else:
            collections[name] = flow.from_arrow(table.arrow(), epoch="epoch", batch_rows=7).drop("epoch").as_collection(diff="diff")
    made = flow.sql(query, **collections)
    made.collect("out")
    assert made.schema is not None
    names = made.schema.names
    result = flow.run(runtime="local", seed=seed, parallelism=1 + seed % 3)["out"]
    return tables_of(result, names, max(len(table.changes) for table in tables.values()))


def tables_of(result: Any, names: Sequence[str], epochs: int) -> list[Counter[Row]]:
    """What is there after each epoch, out of changes."""
    table: Counter[Row] = Counter()
    out = []
    by_epoch: dict[int, list[Any]] = {}
    for time, change in result:
        by_epoch.setdefault(time.epoch, []).append(change)
    for epoch in range(epochs):
        for record, weight in by_epoch.pop(epoch, []):
            table[tuple(record[name] for name in names)] += weight
        assert min(table.values(), default=0) >= 0, table
        out.append(+table)
    assert not by_epoch, f"changes in epochs {sorted(by_epoch)}, which have no input"
    return out


@cache
def database() -> duckdb.DuckDBPyConnection:
    """Made once."""
    return duckdb.connect(config={"threads": 1, "default_null_order": "nulls_last_on_asc_first_on_desc"})


def asked(query: str, tables: Mapping[str, Table], epoch: int) -> list[Row]:
    """DuckDB's answer for what is there after an epoch."""
    base = database()
    for name, table in tables.items():
        rows = [dict(zip(table.schema.names, row, strict=True)) for row in table.after(epoch)]
        of_epoch = pa.Table.from_pylist(rows, table.schema)
        base.register("of_epoch", of_epoch)
        base.execute(f'create or replace table "{name}" as select * from of_epoch')
        base.unregister("of_epoch")
    return base.execute(query).fetchall()


def plain(value: Any) -> Any:
    """A value as it is compared: numbers of all types alike, floats to nine digits; a correlation that DuckDB has as NaN is null."""
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, (int, float, Decimal)):
        number = float(value)
        return float(f"{number:.9g}") + 0.0 if math.isfinite(number) else None
    if isinstance(value, dt.datetime):
        return value.replace(tzinfo=None)
    if isinstance(value, dt.date):
        return dt.datetime(value.year, value.month, value.day)
    return value


def same(got: Counter[Row], want: Sequence[Row]) -> bool:
    """Whether these are the same rows, each as often."""
    return Counter(
        {key: sum(w for row, w in got.items() if tuple(map(plain, row)) == key) for key in {tuple(map(plain, r)) for r in got}}
    ) == Counter(tuple(map(plain, row)) for row in want)


def verify(query: str, tables: Mapping[str, Table], seed: int = 0, *, rows: bool = False, duckdb_query: str | None = None) -> int:
    """Raise AssertionError unless the result is DuckDB's after each epoch. Gives the number of rows that were compared."""
    compared = 0
    for epoch, got in enumerate(given(query, tables, seed, rows=rows)):
        want = asked(duckdb_query or query, tables, epoch)
        compared += len(want)
        if not same(got, want):
            mine = Counter(tuple(map(plain, row)) for row in got.elements())
            theirs = Counter(tuple(map(plain, row)) for row in want)
            raise AssertionError(f"{query}, seed {seed}, epoch {epoch}: too many {mine - theirs}, missing {theirs - mine}")
    return compared


__all__ = ["Changes", "Row", "Table", "asked", "coming_and_going", "given", "same", "tables_of", "verify"]
