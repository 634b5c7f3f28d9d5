"""A real PostgreSQL server dies within a commit: each row is in the table once when it is back, or the error says that it is not."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from adbc_driver_postgresql import dbapi

import rayad as rd
from rayad.integrations import PostgresSink
from rayad.integrations.postgres import sink as sink_module
from tests.integrations.postgres_server import Server, postgres_server
from tests.patience import PATIENCE_S

SCHEMA = pa.schema([("n", pa.int64())])


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with postgres_server() as one:
        yield one


@pytest.fixture
def sink(server: Server) -> PostgresSink:
    with dbapi.connect(server.uri) as connection, connection.cursor() as cursor:
        cursor.execute("DROP TABLE IF EXISTS t")
        cursor.execute("CREATE TABLE t (n bigint)")
        connection.commit()
    made = PostgresSink(server.uri, "t", schema=SCHEMA, wait_s=PATIENCE_S)
    made.check()
    made.commit(2, staged(made, 1, 2))
    return made


def staged(sink: PostgresSink, *numbers: int) -> list[Any]:
    """Two values: two writers staged."""
    out = []
    for part in (numbers[:1], numbers[1:]):
        writer = sink.open(0, 1)
        writer.write(rd.Timestamp(0), [{"n": n} for n in part])
        out.append(writer.stage())
    return out


def rows(server: Server) -> list[int]:
    with dbapi.connect(server.uri) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT n FROM t ORDER BY n")
        return [n for (n,) in cursor.fetchall()]


class Connection:
    """A connection whose server dies before its first statement, before its commit, or after that, so that the answer is lost."""

    def __init__(self, real: Any, server: Server, when: str) -> None:
        self._real, self._server, self._when = real, server, when
        if when == "begun":
            server.crash()

    def __enter__(self) -> Connection:
        self._real.__enter__()
        return self

    def __exit__(self, *error: object) -> Any:
        return self._real.__exit__(*error)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def commit(self) -> None:
        if self._when == "copied":
            self._server.crash()
        self._real.commit()
        self._server.crash()
        with self._real.cursor() as cursor:  # raises what a client sees whose server has died
            cursor.execute("SELECT 1")
        raise AssertionError("the server has died and answers")


def die_once(monkeypatch: pytest.MonkeyPatch, server: Server, when: str, *, comes_back: bool) -> list[int]:
    """The first connection's server dies; at the third attempt to connect it is back. Gives a list that grows with each attempt."""
    real, tries = sink_module.connect, list[int]()

    def connect(uri: str, where: str) -> Any:
        tries.append(len(tries))
        if len(tries) == 1:
            return Connection(real(uri, where), server, when)
        if len(tries) == 3 and comes_back:
            server.start()
        return real(uri, where)

    monkeypatch.setattr(sink_module, "connect", connect)
    return tries


@pytest.mark.parametrize("when", ["begun", "copied", "committed"])
def test_a_server_that_dies_in_a_commit_has_each_row_once_when_it_is_back(
    server: Server, sink: PostgresSink, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    tries = die_once(monkeypatch, server, when, comes_back=True)
    assert sink.commit(3, staged(sink, 3, 4, 5)) == 3
    assert len(tries) == 3
    assert sink.commit(4, staged(sink, 6)) == 1
    assert rows(server) == [1, 2, 3, 4, 5, 6]


def test_a_server_that_stays_away_is_an_error_in_time_and_the_commit_can_be_repeated(
    server: Server, sink: PostgresSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = staged(sink, 3, 4)
    with monkeypatch.context() as patched:
        die_once(patched, server, "copied", comes_back=False)
        sink._wait_s = 0.5
        with pytest.raises(rd.DataflowError, match=r"^write_postgres: snapshot 3 could not be committed to 't': .+"):
            sink.commit(3, values)
    server.start()
    assert rows(server) == [1, 2], "nothing of a transaction that did not end"
    assert sink.commit(3, values) == 2
    assert rows(server) == [1, 2, 3, 4]
