"""Readings of the local runtime: items are exact, time is that of the workers' virtual clock."""

from __future__ import annotations

from pathlib import Path

import pytest

import rayad as rd
from rayad.actors.local.local_job import LocalJob
from rayad.actors.local.results import readings_of
from rayad.autoscale import DS2, ReplicaReading, sample_between
from tests.actors.simulated_job import Notes


def words(records: int = 400) -> rd.Dataflow:
    flow = rd.Dataflow("words")
    lines = flow.from_items([f"w{n % 7} w{n % 3}" for n in range(records)], batch_rows=4, name="lines").rebalance()
    lines.flat_map(str.split).key_by(lambda w: w).vertex(Count, name="count").collect("counts")
    return flow


class Count(rd.Vertex):
    def __init__(self) -> None:
        self.counts: dict[str, int] = {}

    def on_recv(self, edge: int, batch: list[str], time: rd.Timestamp) -> None:
        for word in batch:
            self.counts[word] = self.counts.get(word, 0) + 1
        self.send_by(0, batch, time)


def job_of(flow: rd.Dataflow, **config: object) -> LocalJob:
    scaling = rd.ScalingConfig(parallelism={"count": 2})
    job = flow.submit(rd.RunConfig(window_batches=2, **config), scaling, runtime="local", seed=3)  # type: ignore[arg-type]
    assert isinstance(job, LocalJob)
    return job


def by_vertex(job: LocalJob) -> dict[str, list[ReplicaReading]]:
    out: dict[str, list[ReplicaReading]] = {}
    for reading in readings_of(job.runtime):
        total = reading.now_s - reading.started_s
        assert reading.busy_s + reading.idle_s + reading.backpressured_s + reading.queued_s == pytest.approx(total)
        assert min(reading.busy_s, reading.idle_s, reading.backpressured_s) >= 0
        out.setdefault(reading.vertex, []).append(reading)
    return out


def test_items_by_edge_and_steps_by_activity() -> None:
    job = job_of(words(4000))
    queued = 0
    for _ in range(120):
        job.step()
        on_the_way = by_vertex(job)
        queued += sum(r.queue_items for r in on_the_way["rebalance"] + on_the_way["count"])
    assert queued > 0, "a turn may be over before all that has come is consumed"
    before = readings_of(job.runtime)
    for _ in range(200):
        job.step()
    sample = sample_between(before, readings_of(job.runtime))
    assert sample is not None
    assert sample.duration_s > 0
    assert sample.vertices["rebalance"].backpressured_share > 0, "its window is of two batches"
    job.wait()
    done = by_vertex(job)
    assert done["lines"][0].read[0] == 4000
    (edge,) = done["lines"][0].sent
    assert done["lines"][0].sent[edge][0] == done["rebalance"][0].received[edge][0] == 4000
    (edge,) = done["rebalance"][0].sent
    assert done["rebalance"][0].sent[edge][0] == sum(r.received[edge][0] for r in done["count"]) == 8000
    assert sum(r.written[0] for r in done["count"]) == 8000
    assert all(r.queue_items == 0 for replicas in done.values() for r in replicas)
    assert all(r.state_bytes > 0 for r in done["count"])


def test_items_counted_before_a_crash_are_not_counted_again(tmp_path: Path) -> None:
    job = job_of(words(4000), storage_path=str(tmp_path))
    for _ in range(300):
        job.step()
    job.savepoint()
    for _ in range(50):
        job.step()
    job.crash()
    assert by_vertex(job)["lines"][0].read == (0, 0)
    job.wait()
    read = by_vertex(job)["lines"][0].read[0]
    assert 0 < read < 4000, "the rest"


def test_readings_are_enough_for_a_policy() -> None:
    """The way from the local runtime's counters to a decision, by the workers' virtual clock, so what it says of rates is of no use."""
    from rayad.actors.scaling.loop import ScalingLoop, scaling_graph

    job = job_of(words(12_000))

    class Scaled:
        def layout(self) -> dict[str, int]:
            return {stage.name: stage.parallelism for stage in job.plan.stages}

        def readings(self) -> list[ReplicaReading]:
            return readings_of(job.runtime)

        def rescale(self, changes: dict[str, int], timeout_s: float, decided_for: dict[str, int]) -> object:
            return job.rescale(changes)

    config = rd.ScalingConfig(parallelism={"rebalance": (1, 4)}, window_s=0.0, warm_up_s=0.0)
    notes = Notes()
    graph = scaling_graph(job.plan, config, 4)
    loop = ScalingLoop(Scaled(), graph, DS2(), config, lambda: job.runtime.clock_s, listeners=[notes])
    for _ in range(8):
        for _ in range(100):
            job.step()
        loop.round()
    assert len(notes.samples) == 7
    told = loop.look()
    assert told.sample is not None
    assert told.sample.vertices["rebalance"].true_rate is not None
    assert told.layout == {stage.name: stage.parallelism for stage in job.plan.stages}
    result = job.wait()
    assert len(result["counts"]) == 24_000
