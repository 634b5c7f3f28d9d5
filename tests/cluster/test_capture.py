"""Change data capture on real Ray: a database's log as JSON in Kafka, a view by SQL, and queries of it while a replica is killed."""

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
from tests.integrations.broker import Broker, broker
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


class Database:
    """A table of orders, and the messages that tell of its changes: of a key all are in one partition."""

    def __init__(self) -> None:
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
            out.append((key % 2, 1000 + self._at, json.dumps({**said, "ts_ms": self._at, "source": {"lsn": self._at}}).encode()))
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


def captured(servers: str, topic: str) -> rd.Dataflow:
    flow = rd.Dataflow("captured")
    messages = flow.from_kafka(servers, topic, epoch_s=0.05, idle_s=0.3).parse_json("value", ENVELOPE)
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
