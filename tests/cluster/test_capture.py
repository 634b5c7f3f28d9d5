"""Change data capture on real Ray: a database's log as JSON or Avro in Kafka, a view by SQL, queries of it while a replica is killed."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import rayad as rd
from tests.cluster.recovering import kill, surviving, until
from tests.integrations.avro_schemas import encoded
from tests.integrations.broker import Broker, broker
from tests.integrations.registry_server import serving_registry
from tests.patience import PATIENCE_S

pytestmark = pytest.mark.cluster
ORDER = pa.struct([("id", pa.int64()), ("customer", pa.string()), ("sum", pa.int64())])
ENVELOPE = pa.schema([("op", pa.string()), ("before", ORDER), ("after", ORDER), ("ts_ms", pa.int64())])
QUERY = "select customer, count(*) as n, sum(sum) as total from orders group by customer"
Message = tuple[int, int, bytes | None]


@pytest.fixture(scope="module")
def kafka(ray_cluster: None) -> Iterator[Broker]:
    with broker() as one:
        yield one


def as_json(said: Any) -> bytes:
    return json.dumps(said).encode()


class Database:
    """A table of orders, and the messages that tell of its changes: of a key all are in one partition. ``write``: makes one of a dict."""

    def __init__(self, write: Callable[[Any], bytes] = as_json) -> None:
        self.write = write
        self.rows: dict[int, dict[str, Any]] = {}
        self._chance = random.Random(11)
        self._at = 0

    def changes(self, count: int) -> list[Message]:
        """So many changes; a deletion has a tombstone behind it."""
        out: list[Message] = []
        for _ in range(count):
            self._at += 1
            key, chance = self._chance.randrange(200), self._chance
            before, after = self.rows.get(key), {"id": key, "customer": f"c{chance.randrange(7)}", "sum": chance.randrange(100)}
            is_deleted = before is not None and chance.random() < 0.3
            said = {"op": "d" if is_deleted else "u" if before else "c", "before": before, "after": None if is_deleted else after}
            out.append((key % 2, 1000 + self._at, self.write({**said, "ts_ms": self._at, "source": {"lsn": self._at}})))
            if is_deleted:
                del self.rows[key]
                out.append((key % 2, 1000 + self._at, None))
            else:
                self.rows[key] = after
        return out

    def view(self) -> dict[str, tuple[int, int]]:
        """What the query gives."""
        out: dict[str, tuple[int, int]] = {}
        for row in self.rows.values():
            count, total = out.get(row["customer"], (0, 0))
            out[row["customer"]] = count + 1, total + row["sum"]
        return out


def captured(servers: str, topic: str, registry: str | None = None) -> rd.Dataflow:
    flow = rd.Dataflow("captured")
    sent = flow.from_kafka(servers, topic, epoch_s=0.05, idle_s=0.3)
    messages = (
        sent.parse_json("value", ENVELOPE) if registry is None else sent.parse_avro("value", registry=registry, subject=f"{topic}-value")
    )
    orders = messages.select("value").unnest("value").as_collection(key="id", order="ts_ms", envelope="debezium", name="orders")
    flow.sql(QUERY, orders=orders).arrange_by("customer", name="by_customer")
    return flow


def test_a_view_of_a_log_is_queried_while_replicas_die(nothing_left: Callable[[], None], kafka: Broker, tmp_path: Path) -> None:
    database, topic = Database(), kafka.topic(2)
    kafka.send(topic, database.changes(400))
    job = captured(kafka.servers, topic).submit(surviving(tmp_path, failures=4), parallelism=2)

    def view() -> dict[str, tuple[int, int]]:
        found = job.sql("select customer, n, total from by_customer", timeout_s=PATIENCE_S).to_pylist()
        return {row["customer"]: (row["n"], row["total"]) for row in found}

    until(lambda: view() == database.view(), "the view is that of what was there")
    for at in range(2):
        kill("VertexActor", at)
        kafka.send(topic, database.changes(200))
        until(lambda: view() == database.view(), "and of what came after a kill")
    (found,) = job.sql("select count(*) as orders, sum(sum) as total from orders", timeout_s=PATIENCE_S).to_pylist()
    assert found == {"orders": len(database.rows), "total": sum(row["sum"] for row in database.rows.values())}
    job.cancel()


def envelope_of(*more: Any) -> dict[str, Any]:
    """The schema of Avro that Debezium's envelopes have, and ``more`` fields of a row."""
    fields = [{"name": "id", "type": "int"}, {"name": "customer", "type": "string"}, {"name": "sum", "type": "long"}, *more]
    row = {"type": "record", "name": "Value", "fields": fields}
    source = {"type": "record", "name": "Source", "namespace": "io.debezium", "fields": [{"name": "lsn", "type": ["null", "long"]}]}
    return {
        "type": "record",
        "name": "Envelope",
        "namespace": "server.public.orders",
        "fields": [
            {"name": "before", "type": ["null", row], "default": None},
            {"name": "after", "type": ["null", "Value"], "default": None},
            {"name": "source", "type": source},
            {"name": "op", "type": "string"},
            {"name": "ts_ms", "type": ["null", "long"], "default": None},
        ],
    }


def test_so_it_is_with_avro_whose_schema_changes(nothing_left: Callable[[], None], kafka: Broker, tmp_path: Path) -> None:
    """A replica that is killed is replaced by one in a new process, which fetches the schemas of ids again."""
    topic = kafka.topic(2)
    first = envelope_of()
    second = envelope_of({"name": "note", "type": ["null", "string"], "default": None})
    with serving_registry() as registry:
        number = registry.add(f"{topic}-value", first)
        database = Database(lambda said: encoded(first, said, number))
        kafka.send(topic, database.changes(400))
        job = captured(kafka.servers, topic, registry.url).submit(surviving(tmp_path, failures=4), parallelism=2)

        def view() -> dict[str, tuple[int, int]]:
            found = job.sql("select customer, n, total from by_customer", timeout_s=PATIENCE_S).to_pylist()
            return {row["customer"]: (row["n"], row["total"]) for row in found}

        until(lambda: view() == database.view(), "the view is that of what was there")
        another = registry.add(f"{topic}-value", second)
        assert another != number
        database.write = lambda said: encoded(second, said, another)
        kafka.send(topic, database.changes(200))
        until(lambda: view() == database.view(), "and of messages with a new schema")
        asked = len(registry.asked)
        kill("VertexActor", 0)
        kafka.send(topic, database.changes(200))
        until(lambda: view() == database.view(), "and of what came after a kill")
        assert len(registry.asked) > asked, "another process asks for itself"
        job.cancel()
