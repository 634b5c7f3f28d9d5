"""SQLite's sqllogictest (public domain, https://www.sqlite.org/sqllogictest): each query of a file as a collection.

    python -m tests.sql.logictest FILE.test ... [--queries 1000]

The tables' rows come in two epochs and go in a third one. After the second each result must be what the file says; SQLite itself, from
Python's library, gives the rows, and must agree with the file, too. After the third it must be what the query gives for empty tables.
"""

from __future__ import annotations

import argparse
import hashlib
import re
import sqlite3
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

import rayad as rd
from tests.sql.against_duckdb import tables_of

TOGETHER = 25
"""So many queries are in one dataflow."""
_TYPES = {
    "INTEGER": pa.int64(),
    "INT": pa.int64(),
    "REAL": pa.float64(),
    "FLOAT": pa.float64(),
    "TEXT": pa.string(),
    "VARCHAR": pa.string(),
}


@dataclass(frozen=True)
class Query:
    """One query of a file.

    Args:
        sql: of it.
        types: a letter for each column: I, R or T.
        mode: how the values of the file are sorted.
        expected: its lines.
    """

    sql: str
    types: str
    mode: str
    expected: list[str]


@dataclass
class Counts:
    """What became of queries."""

    passed: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    failed: list[str] = field(default_factory=list)

    def told(self) -> str:
        """In a line."""
        return f"passed {self.passed}, refused {sum(self.refused.values())}, wrong {len(self.failed)}"


def records(text: str) -> Iterator[list[str]]:
    """The records of a file: lines up to an empty one."""
    for block in re.split(r"\n\s*\n", text):
        lines = [line for line in block.splitlines() if not line.startswith("#")]
        if any(line.startswith(("onlyif", "halt")) and "sqlite" not in line for line in lines):
            continue
        if any(line.startswith("skipif sqlite") for line in lines):
            continue
        lines = [line for line in lines if not line.startswith(("skipif", "onlyif", "hash-threshold"))]
        if lines:
            yield lines


def read(text: str) -> tuple[list[str], list[Query]]:
    """Statements, and the queries between and behind them: only those are read after which no statement comes."""
    statements: list[str] = []
    queries: list[Query] = []
    for kind, *lines in records(text):
        if kind.startswith("statement ok"):
            statements.append("\n".join(lines))
        elif kind.startswith("query"):
            parts = kind.split()
            at = lines.index("----") if "----" in lines else len(lines)
            queries.append(Query("\n".join(lines[:at]), parts[1], parts[2] if len(parts) > 2 else "nosort", lines[at + 1 :]))
    return statements, queries


def shown(value: Any, kind: str) -> str:
    """A value as files have it."""
    if value is None:
        return "NULL"
    if kind == "I":
        return str(int(value)) if not isinstance(value, str) else "0"
    if kind == "R":
        return f"{float(value):.3f}"
    return str(value) or "(empty)"


def as_expected(query: Query, rows: list[tuple[Any, ...]]) -> bool:
    """Whether rows are what the file says."""
    cells = [[shown(value, kind) for value, kind in zip(row, query.types, strict=True)] for row in rows]
    if query.mode == "rowsort":
        cells.sort()
    values = [value for row in cells for value in row]
    if query.mode == "valuesort":
        values.sort()
    hashed = re.match(r"(\d+) values hashing to (\w+)", query.expected[0]) if query.expected else None
    if hashed is None:
        return values == query.expected
    return len(values) == int(hashed[1]) and hashlib.md5("".join(f"{value}\n" for value in values).encode()).hexdigest() == hashed[2]


class File:
    """A file, and its tables in SQLite."""

    def __init__(self, text: str) -> None:
        self.statements, self.queries = read(text)
        self.base, self.empty = sqlite3.connect(":memory:"), sqlite3.connect(":memory:")
        for statement in self.statements:
            self.base.execute(statement)
            if re.match(r"\s*create\s+table", statement, re.IGNORECASE):
                self.empty.execute(statement)
        names = [name for (name,) in self.base.execute("select name from sqlite_master where type = 'table'")]
        self.tables = {name: self._table(name) for name in names}

    def _table(self, name: str) -> tuple[pa.Schema, list[tuple[Any, ...]]]:
        columns = self.base.execute(f"pragma table_info({name})").fetchall()
        schema = pa.schema([(column[1], _TYPES[column[2].partition("(")[0].upper()]) for column in columns])
        return schema, self.base.execute(f"select * from {name}").fetchall()

    def flow(self) -> tuple[rd.Dataflow, dict[str, rd.Collection]]:
        """A dataflow with the tables."""
        flow = rd.Dataflow("logictest")
        made = {}
        for name, (schema, rows) in self.tables.items():
            half = len(rows) // 2
            changes = [(row, 0 if at < half else 1, 1) for at, row in enumerate(rows)] + [(row, 2, -1) for row in reversed(rows)]
            table = pa.Table.from_pylist(
                [{**dict(zip(schema.names, row, strict=True)), "epoch_": epoch, "diff_": weight} for row, epoch, weight in changes],
                pa.schema([*schema, pa.field("epoch_", pa.int64()), pa.field("diff_", pa.int64())]),
            )
            made[name] = flow.from_arrow(table, epoch="epoch_").drop("epoch_").as_collection(diff="diff_")
        return flow, made

    def results(self, queries: list[Query], counts: Counts) -> dict[int, list[Counter[Any]]]:
        """The table of each query after each epoch, by its number; those that are refused are counted."""
        flow, tables = self.flow()
        names = {}
        for at, query in enumerate(queries):
            used = {name: table for name, table in tables.items() if re.search(rf"\b{name}\b", query.sql)}
            try:
                made = flow.sql(query.sql, **used)
            except rd.DataflowError as error:
                counts.refused[reason(str(error))] += 1
                continue
            made.collect(f"q{at}")
            assert made.schema is not None
            names[at] = made.schema.names
        result = flow.run(runtime="local") if names else {}
        return {at: tables_of(result[f"q{at}"], columns, 3) for at, columns in names.items()}

    def run(self, queries: list[Query], counts: Counts) -> None:
        """Compare some queries."""
        try:
            found = self.results(queries, counts)
        except rd.DataflowError as error:
            if len(queries) == 1:
                counts.failed.append(f"{queries[0].sql}: {error}")
                return
            for query in queries:
                alone = Counts()
                self.run([query], alone)
                counts.passed += alone.passed
                counts.failed += alone.failed
            return
        for at, tables in found.items():
            query = queries[at]
            want, of_nothing = self.base.execute(query.sql).fetchall(), self.empty.execute(query.sql).fetchall()
            if not as_expected(query, want):
                counts.refused["SQLite of this Python gives something else than the file"] += 1
            elif cells(tables[1], query.types) == cells(Counter(want), query.types) and cells(tables[2], query.types) == cells(
                Counter(of_nothing), query.types
            ):
                counts.passed += 1
            else:
                counts.failed.append(f"{query.sql}: {dict(tables[1])} and {dict(tables[2])}, not {want[:5]} and {of_nothing[:5]}")


def cells(table: Counter[Any], types: str) -> Counter[Any]:
    """Rows as files have them."""
    out: Counter[Any] = Counter()
    for row, often in table.items():
        out[tuple(shown(value, kind) for value, kind in zip(row, types, strict=True))] += often
    return out


def reason(error: str) -> str:
    """Why a query was refused, without its own words."""
    text = error.partition("'): ")[2] or error.partition('"): ')[2] or error
    return re.sub(r"'[^']*'|\"[^\"]*\"|\d+", "_", text)[:90]


def main() -> None:
    """See the top."""
    parser = argparse.ArgumentParser()
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--queries", type=int, default=None, help="so many of each file, evenly spread")
    asked = parser.parse_args()
    total = Counts()
    for path in asked.files:
        counts, file = Counts(), File(path.read_text())
        some = file.queries
        if asked.queries is not None and len(some) > asked.queries:
            some = [some[at * len(some) // asked.queries] for at in range(asked.queries)]
        for start in range(0, len(some), TOGETHER):
            file.run(some[start : start + TOGETHER], counts)
        print(f"{path.name}: {len(some)} queries: {counts.told()}", flush=True)
        for why, often in counts.refused.most_common(5):
            print(f"  {often} refused: {why}")
        for one in counts.failed[:5]:
            print(f"  wrong: {one[:600]}")
        total.passed += counts.passed
        total.refused += counts.refused
        total.failed += counts.failed
    print(f"all: {total.told()}")


if __name__ == "__main__":
    main()
