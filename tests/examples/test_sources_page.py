"""The page on sources and sinks: its programs run as printed, and no source or sink is missing."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from adbc_driver_postgresql import dbapi

import rayad as rd
from tests.checkout import ROOT
from tests.examples.snippets import Snippet, snippets_of
from tests.integrations.avro_schemas import decoded, encoded
from tests.integrations.broker import broker
from tests.integrations.postgres_server import postgres
from tests.integrations.registry_server import serving_registry

PAGE = "docs/sources_and_sinks.md"
SNIPPETS = {snippet.name: snippet for snippet in snippets_of(PAGE)}
WITH_A_SERVER = {"postgres", "kafka", "kafka-avro"}
"""These have a test of their own below, with the address of a server that it starts."""
ONLY_COMPILED = {
    "spark": "needs Spark on a Ray: tests/cluster/test_spark_source.py and test_spark_sink.py run the same calls",
    "ray-data": "needs a Ray: tests/cluster/test_replay.py",
    "bucket": "needs a bucket: tests/cluster/test_object_store.py",
}
ALONE = sorted(SNIPPETS.keys() - WITH_A_SERVER - ONLY_COMPILED.keys())


def test_each_program_has_a_name_of_its_own() -> None:
    assert len(SNIPPETS) == len(snippets_of(PAGE))
    assert WITH_A_SERVER | ONLY_COMPILED.keys() < SNIPPETS.keys()


@pytest.mark.parametrize("name", ALONE)
def test_a_program_prints_what_stands_below_it(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert SNIPPETS[name].run() == (SNIPPETS[name].printed or "")


@pytest.mark.parametrize("name", ONLY_COMPILED)
def test_a_program_that_needs_a_cluster_is_python(name: str) -> None:
    compile(SNIPPETS[name].code, PAGE, "exec")
    for test in re.findall(r"test_\w+\.py", ONLY_COMPILED[name]):
        assert (ROOT / "tests" / "cluster" / test).is_file(), test


def with_address(snippet: Snippet, printed: str, real: str) -> Snippet:
    assert printed in snippet.code, f"{snippet.page}: the program {snippet.name!r} has no address {printed}"
    return dataclasses.replace(snippet, code=snippet.code.replace(printed, real))


def test_postgres(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with postgres() as uri, dbapi.connect(uri) as connection, connection.cursor() as cursor:
        cursor.execute("CREATE TABLE orders (id bigint PRIMARY KEY, product text, price bigint)")
        cursor.execute("INSERT INTO orders VALUES (1, 'tea', 3), (2, 'tea', 4), (3, 'rice', 5)")
        cursor.execute("CREATE TABLE totals (product text, total bigint)")
        connection.commit()
        with_address(SNIPPETS["postgres"], "postgresql://user:password@localhost:5432/shop", uri).run()
        cursor.execute("SELECT product, total FROM totals ORDER BY product")
        assert cursor.fetchall() == [("rice", 5), ("tea", 7)]


def test_kafka(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with broker() as kafka:
        orders, counts = kafka.topic(), kafka.topic()
        kafka.send(orders, [(0, 1000, "tea"), (1, 1500, "rice"), (0, 2000, "tea")])
        program = with_address(SNIPPETS["kafka"], "localhost:9092", kafka.servers)
        for printed, real in (('"orders", stop', orders), ('"counts", key', counts)):
            program = with_address(program, printed, f'"{real}", {printed.split()[-1]}')
        program.run()
        assert sorted(kafka.committed(counts)) == [b"1", b"2"]


def test_kafka_with_avro(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    fields = [{"name": "customer", "type": "string"}, {"name": "amount", "type": "long"}]
    order = {"type": "record", "name": "Order", "fields": fields}
    with broker() as kafka, serving_registry() as registry:
        number = registry.add("orders-value", order)
        orders, totals = kafka.topic(), kafka.topic()
        sent = [("ann", 2), ("bob", 5), ("ann", 3)]
        kafka.send(
            orders, [(at % 2, 1000 + at, encoded(order, {"customer": who, "amount": n}, number)) for at, (who, n) in enumerate(sent)]
        )
        program = with_address(SNIPPETS["kafka-avro"], "localhost:9092", kafka.servers)
        for printed, real in (
            ("http://localhost:8081", registry.url),
            ('"orders", stop', f'"{orders}", stop'),
            ('"totals", key', f'"{totals}", key'),
        ):
            program = with_address(program, printed, real)
        program.run()
        read = json.loads(registry.schemas[1].schema)
        found = [decoded(value[5:], read) for value in kafka.committed(totals)]
        assert sorted(found, key=str) == [{"customer": "ann", "total": 5}, {"customer": "bob", "total": 5}]


def test_tables_hold_what_was_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    SNIPPETS["delta"].run()
    (path,) = Path("trips").glob("*.parquet")
    assert sorted(pq.read_table(path).to_pylist(), key=str) == [{"color": "blue", "km": 5}, {"color": "red", "km": 3}]


NO_PLACE = {"to_mermaid"}


@pytest.mark.parametrize(("kind", "prefixes"), [(rd.Dataflow, ("from_", "read_")), (rd.Stream, ("write_", "to_"))])
def test_each_source_and_sink_is_on_the_page(kind: type, prefixes: tuple[str, ...]) -> None:
    text = (ROOT / PAGE).read_text(encoding="utf-8")
    names = {name for name in vars(kind) if name.startswith(prefixes)} - NO_PLACE
    missing = sorted(name for name in names if not re.search(rf"\b{name}\b", text))
    assert not missing, f"{PAGE} lacks {missing}: give each a row"
