"""Kafka -> keyed -> Kafka on real Ray: the coordinator and a replica are killed meanwhile; readers see each record once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cluster.recovering import by_value, kill, surviving, until
from tests.integrations import kafka_steps
from tests.integrations.broker import Broker, broker
from tests.integrations.kafka_steps import messages, oracle, program
from tests.patience import PATIENCE_S

pytestmark = pytest.mark.cluster
COUNT = 600


@pytest.fixture(scope="module")
def kafka(ray_cluster: None) -> Iterator[Broker]:
    with by_value(kafka_steps), broker() as one:
        yield one


def test_kills_between_kafka_and_kafka(nothing_left: Callable[[], None], kafka: Broker, tmp_path: Path) -> None:
    start, end = kafka.topic(2), kafka.topic(2)
    kafka.send(start, messages(COUNT, 2))
    job = program(kafka.servers, start, end, pause_s=0.05).submit(surviving(tmp_path, failures=4), parallelism=1)
    seen = 0
    for kind in ("Coordinator", "VertexActor"):
        before = seen
        seen = until(lambda before=before: len(kafka.committed(end)) > before and len(kafka.committed(end)), "something more is committed")
        kill(kind, -1)
    result = job.wait(timeout_s=PATIENCE_S)
    assert seen < len(oracle(COUNT)), "both were killed before the end"
    assert result.statistics.failures == 2, "a replica, and the coordinator"
    assert job._coordinators_lost == 1
    assert sorted(kafka.committed(end)) == oracle(COUNT)


def test_partitions_that_are_added_are_read_also_after_a_kill(nothing_left: Callable[[], None], kafka: Broker, tmp_path: Path) -> None:
    """They are read from their first record, which came before they were found."""
    start, end = kafka.later(4, shown=2), kafka.topic(2)
    kafka.send(start, [(n % 2, 1000 + n, str(n)) for n in range(40)])
    job = kafka_steps.copying(kafka.servers, start, end, idle_s=0.3, discover_s=0.1).submit(surviving(tmp_path), parallelism=2)
    until(lambda: len(kafka.committed(end)) == 40, "what was there is copied")
    kafka.add(start, 4)
    kafka.send(start, [(n % 4, 1000 + n, str(n)) for n in range(40, 80)])
    until(lambda: len(kafka.committed(end)) == 80, "the new partitions are copied, too")
    kill("VertexActor", 0)
    kafka.send(start, [(n % 4, 1000 + n, str(n)) for n in range(80, 120)])
    until(lambda: len(kafka.committed(end)) == 120, "and those that came after a kill")
    job.cancel()
    assert sorted(map(int, kafka.committed(end))) == list(range(120))
