"""The source reads a table as of one moment, and the sink writes each row once, on a real server
(tests/integrations/postgres_server.py)."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from adbc_driver_postgresql import dbapi

import rayad as rd
from rayad.integrations import PostgresSink, PostgresSource
from rayad.testing import check_sink, check_source
from tests.integrations.postgres_server import postgres

ROWS = 25
SCHEMA = pa.schema([("n", pa.int64()), ("word", pa.string())])
_names = itertools.count()


class Database:
    """The database's address, and the calls that tests make."""

    def __init__(self, uri: str) -> None:
        self.uri = uri

    def do(self, *statements: str) -> None:
        with dbapi.connect(self.uri) as connection, connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)
            connection.commit()

    def rows(self, query: str) -> list[Any]:
        with dbapi.connect(self.uri) as connection, connection.cursor() as cursor:
            cursor.execute(query)
            return list(cursor.fetchall())

    def table(self, columns: str = "n bigint, word text", *then: str) -> str:
        """A new table, filled by statements in which T stands for its name."""
        name = f"t{next(_names)}"
        self.do(f"CREATE TABLE {name} ({columns})", *(re.sub(r"\bT\b", name, statement) for statement in then))
        return name

    def numbers(self) -> str:
        return self.table("n bigint, word text", f"INSERT INTO T SELECT g, 'w' || g FROM generate_series(1, {ROWS}) AS g")


@pytest.fixture(scope="module")
def db() -> Iterator[Database]:
    with postgres() as uri:
        yield Database(uri)


# -- source ----------------------------------------------------------------------------------------------------------


def test_the_source_keeps_the_contract(db: Database) -> None:
    table = db.numbers()
    expected = [{"n": n, "word": f"w{n}"} for n in range(1, ROWS + 1)]
    check_source(lambda: PostgresSource(db.uri, table, key="n", rows_per_part=13, batch_rows=9), records=expected, resumes=3)
    check_source(lambda: PostgresSource(db.uri, table, key="n", rows_per_part=13, epoch="n"), records=expected, resumes=2)


def test_parts_are_ranges_of_the_key_whatever_it_is(db: Database) -> None:
    """Keys that are text with quotes, frequent, or null; an empty table; numeric values keep all their digits."""
    table = db.table("k text, x numeric", "INSERT INTO T VALUES ('a''b', 0.10), (NULL, 1e30), ('c', NULL), ('c', 2), ('c', 1), ('d', 3)")
    source = PostgresSource(db.uri, table, key="k", rows_per_part=2)
    parts = source.list_parts()
    assert len(parts) == 3
    got = [row for part in parts for row in _read(source, part)]
    assert [(row["k"], row["x"]) for row in got[:2]] == [("a'b", "0.10"), (None, "1000000000000000000000000000000")]
    assert sorted((row["k"], str(row["x"])) for row in got[2:]) == [("c", "1"), ("c", "2"), ("c", "None"), ("d", "3")]
    empty = PostgresSource(db.uri, db.table(), key="n", columns=["word"])
    assert [_read(empty, part) for part in empty.list_parts()] == [[]]
    assert empty.schema.names == ["word"]


def _read(source: PostgresSource, part: Any) -> list[Any]:
    opened, rows = source.build_part(part, None), []
    while (given := opened.next_batch()) is not None:
        rows += given.batch.to_pylist()
    opened.close()
    return rows


def test_all_parts_show_the_table_at_one_moment(db: Database, tmp_path: Path) -> None:
    """Rows that others write while the job runs are not seen in any part, not even in one that is read again after a crash."""
    table = db.numbers()
    flow = rd.Dataflow("moment")
    flow.read_postgres(db.uri, table, key="n", rows_per_part=5, batch_rows=1).collect("out")
    job = flow.submit(rd.RunConfig(storage_path=str(tmp_path)), runtime="local", parallelism=2, seed=3)
    db.do(f"UPDATE {table} SET word = 'late'", f"INSERT INTO {table} VALUES (3, 'new'), (99, 'new')", f"DELETE FROM {table} WHERE n = 7")
    for _ in range(20):
        job.step()
    job.crash()
    assert sorted(row["n"] for _, row in job.wait()["out"]) == list(range(1, ROWS + 1))
    assert {row["word"] for _, row in job.wait()["out"]} == {f"w{n}" for n in range(1, ROWS + 1)}
    for _ in range(100):  # the server notices a moment later that a client has gone
        held = db.rows("SELECT count(*) FROM pg_stat_activity WHERE state LIKE 'idle in transaction%'")
        if held == [(0,)]:
            break
        db.rows("SELECT 1 FROM pg_sleep(0.1)")
    assert held == [(0,)], "the snapshot was released"


def test_a_run_that_resumes_needs_the_same_rows(db: Database, tmp_path: Path) -> None:
    table = db.numbers()

    def run(resume: str | None) -> int:
        flow = rd.Dataflow("again")
        flow.read_postgres(db.uri, table, key="n", rows_per_part=10, name="table").collect("out")
        return len(flow.run(rd.RunConfig(storage_path=str(tmp_path), resume=resume), runtime="local")["out"])

    assert run(None) == run("latest") == ROWS
    db.do(f"UPDATE {table} SET word = 'other' WHERE n = 12")
    with pytest.raises(
        rd.SnapshotError, match=r"the input of 'table' has changed: parts: '1' was '10 rows, hashes -?\d+, .*' and is '10 rows"
    ):
        run("latest")


def test_what_cannot_be_read_is_refused_when_the_program_is_written(db: Database) -> None:
    table = db.numbers()
    flow = rd.Dataflow("refused")
    for options, told in (
        ({"key": "no"}, r"read_postgres: table '\w+' with key 'no' cannot be read: .*column \"no\" does not exist"),
        ({"key": "n", "columns": ["no"]}, r"read_postgres: table '\w+' has no columns \['no'\]: it has \['n', 'word'\]"),
        ({"key": "n", "rows_per_part": 0}, r"read_postgres: rows_per_part"),
    ):
        with pytest.raises(rd.ConfigError, match=told):
            flow.read_postgres(db.uri, table, **options)
    with pytest.raises(rd.DataflowError, match=r"read_postgres: no connection to the database: .*(refused|Connection)"):
        flow.read_postgres("postgresql://rayad@127.0.0.1:1/postgres", table, key="n")


# -- sink ------------------------------------------------------------------------------------------------------------


def into(db: Database, table: str, **options: Any) -> PostgresSink:
    return PostgresSink(db.uri, table, **{"schema": SCHEMA, "wait_s": 5.0, **options})


def test_the_sink_keeps_the_contract_with_rows_that_can_be_taken_back(db: Database) -> None:
    columns = "n bigint, word text, of text"
    tables: list[str] = []

    def make() -> PostgresSink:
        tables.append(db.table(columns))
        return into(db, tables[-1], snapshot_column="of")

    def rows(_: Any) -> list[Any]:
        return [{"n": n, "word": word} for n, word in db.rows(f"SELECT n, word FROM {tables[-1]}")]

    check_sink(make, rows, histories=2, steps=6, batch=lambda n: [{"n": 10 * n + k, "word": str(k)} for k in range(3)])


def staged(sink: PostgresSink, *numbers: int) -> list[Any]:
    writer = sink.open(0, 1)
    writer.write(rd.Timestamp(0), [{"n": n, "word": str(n)} for n in numbers])
    return [writer.stage()]


def numbers_in(db: Database, table: str) -> list[int]:
    return [n for (n,) in db.rows(f"SELECT n FROM {table} ORDER BY n")]


def test_a_coordinator_that_was_taken_for_dead_is_refused(db: Database) -> None:
    table = db.table()
    old = into(db, table)
    old.check()
    assert [old.commit(2, staged(old, 1, 2)), old.commit(2, staged(old, 1, 2))] == [2, 2]
    new = into(db, table)
    new.adopt(old.identity())
    new.roll_back(2, 5)
    new.commit(2, staged(new, 1, 2))
    with pytest.raises(rd.DataflowError, match=r"^write_postgres: snapshot 3 is void: the job has resumed from an earlier one meanwhile"):
        old.commit(3, staged(old, 3))
    new.commit(5, staged(new, 4))
    with pytest.raises(rd.ConfigError, match=r"resumes from snapshot 2, but 't\d+' has the rows of snapshot 5, and nothing tells them"):
        new.roll_back(2, 7)
    assert numbers_in(db, table) == [1, 2, 4]


def test_a_transaction_that_fails_leaves_nothing(db: Database) -> None:
    table = db.table("n bigint CHECK (n < 10), word text")
    sink = into(db, table)
    sink.check()
    with pytest.raises(
        rd.DataflowError, match=r"^write_postgres: snapshot 2 could not be committed to 't\d+': .*violates check constraint"
    ):
        sink.commit(2, staged(sink, 1, 99))
    assert numbers_in(db, table) == []
    assert sink.commit(2, staged(sink, 1)) == 1
    assert numbers_in(db, table) == [1]


def test_values_that_do_not_fit_are_refused(db: Database) -> None:
    with pytest.raises(rd.ConfigError, match=r"^write_postgres: table 't\d+' cannot take the columns \['n', 'word'\]: .*does not exist"):
        into(db, db.table("n bigint")).check()
    table = db.table("n integer, word text")
    sink = into(db, table)
    sink.check()
    with pytest.raises(rd.DataflowError, match=r"^write_postgres: snapshot 2 could not be committed"):
        sink.commit(2, staged(sink, 1))
    assert numbers_in(db, table) == []
    with pytest.raises(rd.DataflowError, match=r"^write_postgres"):
        sink.open(0, 1).write(rd.Timestamp(0), [{"n": 1.5, "word": "x"}])


def test_a_job_that_crashes_again_and_again_writes_each_row_once(db: Database, tmp_path: Path) -> None:
    source, target = db.numbers(), db.table()
    flow = rd.Dataflow("copied")
    rows = flow.read_postgres(db.uri, source, key="n", rows_per_part=4, batch_rows=1, epoch="n")
    rows.write_postgres(db.uri, target, schema=SCHEMA)
    config = rd.RunConfig(storage_path=str(tmp_path), snapshots=rd.SnapshotConfig(interval_s=None))
    job = flow.submit(config, runtime="local", parallelism=2, seed=11)
    counts = []
    for turn in range(9):
        all(job.step() for _ in range(9 + turn))
        job.savepoint()
        counts.append(len(numbers_in(db, target)))
        job.crash()
    job.wait()
    assert numbers_in(db, target) == list(range(1, ROWS + 1))
    assert counts == sorted(counts)
    assert any(0 < count < ROWS for count in counts), "rows are there while the job runs"
