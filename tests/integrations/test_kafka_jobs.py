"""Kafka in whole jobs on the local runtime: event time with an idle partition, and partitions that are added while the job runs."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import rayad as rd
from tests.integrations.broker import Broker, broker
from tests.integrations.kafka_steps import copying
from tests.patience import PATIENCE_S

FAST = {"fetch.wait.max.ms": 5}


@pytest.fixture(scope="module")
def kafka() -> Iterator[Broker]:
    with broker() as one:
        yield one


def config(folder: Path, **options: Any) -> rd.RunConfig:
    return rd.RunConfig(storage_path=str(folder), snapshots=rd.SnapshotConfig(interval_s=None), **options)


def step_until(job: Any, condition: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline_s, job.explain_stuck()
        for _ in range(50):
            job.step()


def step_for(job: Any, seconds: float) -> None:
    end_s = time.monotonic() + seconds
    step_until(job, lambda: time.monotonic() > end_s)


class Windows:
    """Counts in event-time windows of one second, and the late records."""

    def __init__(self, kafka: Broker, topic: str, idle_s: float) -> None:
        self.counts: list[tuple[int, int]] = []
        self.late: list[Any] = []
        self.flow = rd.Dataflow("windows")
        read = self.flow.from_kafka(kafka.servers, topic, name="in", parts=2, idle_s=idle_s, options=FAST)
        events = read.map(lambda row: int(row["value"])).assign_timestamps(lambda event: event)
        counted = events.key_by(lambda event: 0).window(rd.windows.tumbling(1000)).count(name="counts")
        counted.inspect(lambda record: self.counts.append((record[1].start, record[2])))
        counted.late.inspect(self.late.append)

    def submit(self, folder: Path, **options: Any) -> Any:
        return self.flow.submit(config(folder, **options), runtime="local", seed=1, parallelism=2)


def events(partition: int, *at_ms: int) -> list[tuple[int, int, str]]:
    return [(partition, at, str(at)) for at in at_ms]


def test_windows_wait_for_the_partition_that_is_behind(kafka: Broker, tmp_path: Path) -> None:
    topic = kafka.topic(2)
    kafka.send(topic, events(0, 500, 1500, 2500))
    windows = Windows(kafka, topic, idle_s=1e6)
    job = windows.submit(tmp_path)
    step_for(job, 0.3)
    assert windows.counts == [], "the other partition may still give older ones"
    kafka.send(topic, events(1, 600, 3500))
    step_until(job, lambda: bool(windows.counts))
    step_for(job, 0.1)
    assert windows.counts == [(0, 2)]
    assert windows.late == []
    job.cancel()


def test_an_idle_partition_holds_no_window_back_and_its_later_records_are_late(kafka: Broker, tmp_path: Path) -> None:
    topic = kafka.topic(2)
    kafka.send(topic, events(0, 500, 1500, 2500))
    windows = Windows(kafka, topic, idle_s=0.1)
    job = windows.submit(tmp_path)
    step_until(job, lambda: len(windows.counts) == 2)
    assert sorted(windows.counts) == [(0, 1), (1000, 1)]
    kafka.send(topic, events(1, 700, 2600))
    step_until(job, lambda: bool(windows.late))
    assert [event for _, _, event in windows.late] == [700]
    step_for(job, 0.3)
    path = job.savepoint()
    job.cancel()

    again = Windows(kafka, topic, idle_s=0.1)
    job = again.submit(tmp_path, resume=path)
    kafka.send(topic, events(1, 800, 2700))
    step_until(job, lambda: bool(again.late))
    assert [event for _, _, event in again.late] == [800], "it is as late after a resume"
    kafka.send(topic, events(0, 6000))
    step_until(job, lambda: bool(again.counts))
    assert again.counts == [(2000, 3)], "2500 from before the resume, 2600 and 2700 from the partition that was idle"
    job.cancel()


def test_partitions_that_are_added_are_read_across_a_recovery_and_a_resume_with_more_replicas(kafka: Broker, tmp_path: Path) -> None:
    start, end = kafka.later(6, shown=2), kafka.topic(2)
    sent = 0

    def send(count: int, partitions: int) -> None:
        nonlocal sent
        kafka.send(start, [(n % partitions, 1000 + n, str(n)) for n in range(sent, sent + count)])
        sent += count

    def all_committed() -> bool:
        job.savepoint()
        return len(kafka.committed(end)) >= sent

    def submit(replicas: int) -> Any:
        flow = copying(kafka.servers, start, end, parts=4, idle_s=0.05, discover_s=0.02)
        return flow.submit(config(tmp_path, resume="latest"), runtime="local", seed=3, parallelism=replicas)

    send(10, 2)
    job = submit(1)
    step_until(job, all_committed)
    kafka.add(start, 4)
    send(12, 4)
    step_until(job, all_committed)
    send(12, 4)
    job.crash()
    kafka.add(start, 5)
    send(10, 5)
    step_until(job, all_committed)
    job.savepoint()
    job.cancel()
    kafka.add(start, 6)
    send(12, 6)
    job = submit(3)
    step_until(job, all_committed)
    assert sorted(map(int, kafka.committed(end))) == list(range(sent))
    job.cancel()
