"""Tables of PostgreSQL and topics of Kafka are as the collection is, with each snapshot, on real servers; failures strike meanwhile."""

from __future__ import annotations

import datetime as dt
import json
import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from adbc_driver_postgresql import dbapi
from confluent_kafka import Consumer, TopicPartition

import rayad as rd
from rayad.integrations import KafkaTable, PostgresTable
from rayad.testing import check_sink
from tests.incremental.programs import Shape, history
from tests.incremental.test_ends import counted, degrees_of, tables
from tests.integrations.broker import Broker, broker
from tests.integrations.postgres_server import postgres
from tests.snapshots import attempts
from tests.thorough import amount

SCHEMA = pa.schema([("node", pa.int64()), ("n", pa.int64())])
SEEDS = range(amount(each_run=3, soak=40))


@pytest.fixture(scope="module")
def uri() -> Iterator[str]:
    with postgres() as one:
        yield one


@pytest.fixture(scope="module")
def kafka() -> Iterator[Broker]:
    with broker() as one:
        yield one


def asked(uri: str, *statements: str) -> list[Any]:
    """Rows of the last one."""
    with dbapi.connect(uri) as connection, connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)
        rows = list(cursor.fetchall()) if statements[-1].startswith("SELECT") else []
        connection.commit()
        return rows


def created(uri: str, name: str, columns: str = "node bigint PRIMARY KEY, n bigint") -> str:
    """An empty table."""
    asked(uri, f"DROP TABLE IF EXISTS {name}", f"CREATE TABLE {name} ({columns})")
    return name


def in_topic(kafka: Broker, topic: str, partitions: int = 2) -> dict[bytes, bytes]:
    """What compaction leaves: the last value of each key, without those that are gone."""
    settings = {"bootstrap.servers": kafka.servers, "group.id": "test", "isolation.level": "read_committed", "enable.auto.commit": False}
    consumer = Consumer({**settings, "enable.partition.eof": True, "fetch.wait.max.ms": 5, "log_level": 0})
    consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
    table: dict[bytes, Any] = {}
    ended: set[int] = set()
    while len(ended) < partitions:
        for message in consumer.consume(1000, 0.05):
            if message.error() is None:
                table[message.key()] = message.value()
            else:
                ended.add(message.partition())
    consumer.close()
    return {key: value for key, value in table.items() if value is not None}


def run_with_failures(flow: rd.Dataflow, folder: Path, seed: int, seen: Any) -> Any:
    """Snapshots, failures and changes of layout between steps; ``seen()`` is called after each snapshot."""
    chance = random.Random(seed)
    failures = rd.FailureConfig(max_failures=100, delay_s=0.0, survive_errors=False)
    config = rd.RunConfig(storage_path=str(folder), failures=failures, snapshots=rd.SnapshotConfig(interval_s=None))
    job: Any = flow.submit(config, runtime="local", seed=seed, parallelism=1 + seed % 3)
    for _ in range(400):
        if not job.step():
            break
        what = chance.random()
        if what < 0.01:
            job.crash()
        elif what < 0.03 and (job.rescaling is None or job.rescaling.is_done):
            job.start_rescale({"out.table": chance.randint(1, 3)})
        elif what < 0.05 and attempts.may_begin(job):
            job.savepoint()
            seen()
    return job.wait(timeout_s=100)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_table_of_postgresql_is_as_the_collection_is(uri: str, seed: int, tmp_path: Path) -> None:
    changes = history(Shape(6, 9, 12), seed)
    target = created(uri, "degrees")
    asked(uri, "INSERT INTO degrees VALUES (1000, 7), (3, -1)")
    flow = rd.Dataflow("degrees")
    rows = counted(rd.Collection(flow.from_epochs(changes, batch_rows=3)))
    updates = rows.updates("node", name="out.table", what="write_postgres")
    updates.sink(PostgresTable(uri, target, key="node", schema=SCHEMA, wait_s=5.0), "out")
    states = []
    run_with_failures(flow, tmp_path, seed, lambda: states.append(asked(uri, f"SELECT node, n FROM {target}")))
    expected = degrees_of(tables(changes)[-1]) | {1000: 7}
    found = dict(asked(uri, f"SELECT node, n FROM {target}"))
    if 3 not in degrees_of(sum(tables(changes), Counter())):
        expected[3] = -1
    assert found == expected
    every = [set(degrees_of(there).items()) for there in tables(changes)]
    for state in states:
        for node, n in state:
            assert node in (1000, 3) or any((node, n) in some for some in every)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_compacted_topic_is_as_the_collection_is(kafka: Broker, seed: int, tmp_path: Path) -> None:
    changes = history(Shape(6, 9, 12), seed)
    topic = kafka.topic(2)
    flow = rd.Dataflow("degrees")
    rows = counted(rd.Collection(flow.from_epochs(changes, batch_rows=3)))

    def key(row: Any) -> str:
        return str(row["node"])

    updates = rows.updates(key, name="out.table", what="write_kafka")
    updates.sink(KafkaTable(kafka.servers, topic, key=key, value=json.dumps), "out")
    run_with_failures(flow, tmp_path, seed, lambda: None)
    got = {int(key): json.loads(value)["n"] for key, value in in_topic(kafka, topic).items()}
    assert got == degrees_of(tables(changes)[-1])


def test_the_table_keeps_the_contract_of_sinks(uri: str) -> None:
    made: list[str] = []

    def make() -> PostgresTable:
        made.append(created(uri, f"contract_{len(made)}"))
        return PostgresTable(uri, made[-1], key="node", schema=SCHEMA, wait_s=5.0)

    def rows(_: Any) -> list[Any]:
        return [({"node": node, "n": n}, 1) for node, n in asked(uri, f"SELECT node, n FROM {made[-1]}")]

    check_sink(make, rows, histories=3, steps=6, takes_back=False, batch=lambda n: [({"node": 10 * n + k, "n": k}, 1) for k in range(3)])


def test_the_topic_keeps_the_contract_of_sinks(kafka: Broker) -> None:
    made: list[str] = []

    def make() -> KafkaTable:
        made.append(kafka.topic(2))
        return KafkaTable(kafka.servers, made[-1], key=lambda row: row, value=lambda row: row)

    def rows(_: Any) -> list[Any]:
        return [(value.decode(), 1) for value in in_topic(kafka, made[-1]).values()]

    check_sink(make, rows, histories=4, steps=8, takes_back=False, batch=lambda n: [(f"{n}-{k}", 1) for k in range(3)])


def test_one_transaction_has_one_change_of_a_key(uri: str, kafka: Broker) -> None:
    """A snapshot may have many epochs; the last one counts, whichever replica wrote it."""
    history = [[(("a", 1), 1), (("b", 1), 1)], [(("a", 1), -1), (("a", 2), 1)], [(("b", 1), -1)]]
    topic, target = kafka.topic(1), created(uri, "last", "k text PRIMARY KEY, v bigint")
    flow = rd.Dataflow("last")
    rows = rd.Collection(flow.from_epochs(history)).map(lambda pair: {"k": pair[0], "v": pair[1]})
    rows.write_postgres(uri, target, key=["k"], schema=pa.schema([("k", pa.string()), ("v", pa.int64())]), name="table")
    rows.write_kafka(kafka.servers, topic, key="k", value=lambda row: str(row["v"]), name="topic")
    result = flow.run(runtime="local")
    assert asked(uri, f"SELECT k, v FROM {target}") == [("a", 2)]
    assert (result["table"], result["topic"]) == (2, 2)
    assert sorted(kafka.committed(topic, 1), key=str) == sorted([b"2", None], key=str)
    late, early = ({"k": "a", "v": v} for v in (9, 8))
    for sink in (PostgresTable(uri, target, key="k", schema=pa.schema([("k", pa.string()), ("v", pa.int64())])),):
        sink.check()
        staged = []
        for epoch, row in ((5, late), (4, early)):
            writer = sink.open(0, 2)
            writer.write(rd.Timestamp(epoch), [(row, 1)])
            staged.append(writer.stage())
        assert (sink.commit(1, staged), sink.commit(1, staged)) == (1, 1)
        assert asked(uri, f"SELECT k, v FROM {target}") == [("a", 9)]


def test_values_of_all_types_and_nulls_are_updated(uri: str) -> None:
    target = created(
        uri, "typed", "id integer, of text, x double precision, ok boolean, day date, at timestamp, raw bytea, UNIQUE (id, of)"
    )
    kinds = [("id", pa.int32()), ("of", pa.string()), ("x", pa.float64()), ("ok", pa.bool_()), ("day", pa.date32())]
    schema = pa.schema([*kinds, ("at", pa.timestamp("us")), ("raw", pa.binary())])
    full = {"id": 1, "of": "a", "x": 0.5, "ok": True, "day": dt.date(2026, 1, 2), "at": dt.datetime(2026, 1, 2, 3, 4, 5), "raw": b"\x00"}
    null = {**dict.fromkeys(full), "id": 1, "of": "a"}
    other = {**full, "id": 2}
    flow = rd.Dataflow("typed")
    rows = rd.Collection(flow.from_epochs([[(full, 1), (other, 1)], [(full, -1), (null, 1)]]))
    rows.write_postgres(uri, target, key=("id", "of"), schema=schema)
    flow.run(runtime="local", parallelism=2)
    got = asked(uri, f"SELECT * FROM {target} ORDER BY id")
    assert [tuple(row) for row in got] == [tuple(null.values()), tuple(other.values())]


def test_a_table_without_a_unique_key_is_refused_with_what_to_do(uri: str) -> None:
    target = created(uri, "loose", "node bigint, n bigint")
    with pytest.raises(
        rd.ConfigError, match=r"table 'loose' cannot be updated by \['node'\]: .*ALTER TABLE \"loose\" ADD UNIQUE \(\"node\"\)"
    ):
        PostgresTable(uri, target, key="node", schema=SCHEMA).check()
    with pytest.raises(rd.ConfigError, match=r"key is \['no'\], and the schema has the columns \['node', 'n'\]"):
        PostgresTable(uri, target, key="no", schema=SCHEMA)
    flow = rd.Dataflow("bare")
    flow.from_items([1]).as_collection().write_postgres(uri, created(uri, "bare"), key="node", schema=SCHEMA)
    with pytest.raises(Exception, match="not subscriptable"):
        flow.run(runtime="local")


def test_a_job_that_resumes_from_an_older_snapshot_is_refused(uri: str) -> None:
    target = created(uri, "older")
    sink = PostgresTable(uri, target, key="node", schema=SCHEMA)
    sink.check()
    sink.commit(5, [])
    with pytest.raises(
        rd.ConfigError, match="'older' has the rows of snapshot 5, and what they have replaced is gone: resume from the newest"
    ):
        sink.roll_back(3, 7)


def test_a_value_of_none_would_delete_its_key_and_is_refused(kafka: Broker) -> None:
    flow = rd.Dataflow("none")
    flow.from_items([("a", None)]).as_collection().write_kafka(kafka.servers, kafka.topic(1), key=lambda p: p[0], value=lambda p: p[1])
    with pytest.raises(
        rd.DataflowError, match=r"the value of \('a', None\) is None: in a compacted topic a message without a value deletes"
    ):
        flow.run(runtime="local")
