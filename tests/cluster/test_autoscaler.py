"""The autoscaler's actor on real Ray: it adds replicas to a job that needs them, says why, and leaves nothing behind."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
import ray

import rayad as rd
from benchmarks.ds2 import ByTheClock
from rayad.actors.autoscaler_actor import Autoscaler, RayScaledJob
from rayad.actors.scaling.files import read_lines
from rayad.actors.scaling.metrics import GAUGES, ScalingMetrics
from rayad.autoscale import DS2, DecisionOutcome, ReplicaReading, ScalingGraph
from tests.actors.simulated_job import SimulatedJob, loop_of
from tests.cluster.recovering import until
from tests.patience import PATIENCE_S

CONTROLLER = Path(__file__).parent.parent / "actors" / "controller.py"


def slowly(number: int) -> int:
    """Work that waits: more replicas do more of it, whatever the machine has."""
    time.sleep(0.02)
    return number


def replicas_of(job: Any, vertex: str) -> list[Any]:
    """The readings of a vertex' replicas."""
    scaled = RayScaledJob(job._coordinator)
    assert scaled.layout() is not None, "the job runs"
    return [reading for reading in scaled.readings() if reading.vertex == vertex]


def program(records: int) -> rd.Dataflow:
    flow = rd.Dataflow("waiting")
    flow.source(ByTheClock(100.0, records), name="numbers").rebalance().map(slowly).collect("out")
    return flow


@pytest.mark.usefixtures("own_actors")
def test_ds2_adds_the_replicas_that_a_job_needs(nothing_left: Callable[[], None], tmp_path: Path) -> None:
    """100 items a second come, a replica can do 50: two are too few to catch up, about four are enough."""
    scaling = rd.ScalingConfig(
        parallelism={"rebalance": (1, 4)}, report_interval_s=0.5, window_s=1.0, warm_up_s=0.5, journal=str(tmp_path / "scaling.jsonl")
    )
    job = program(1500).submit(rd.RunConfig(window_batches=8), scaling)
    while True:
        told = job.progress()
        assert told.state.value in ("starting", "running")
        if told.scaling is not None and told.scaling.changes:
            break
        time.sleep(0.2)
    record = told.scaling.decisions["rebalance"]
    assert record.outcome is DecisionOutcome.APPLIED
    assert "rebalance needs" in record.decision.reason
    saw = record.saw["rebalance"]
    assert saw.parallelism == 1
    assert saw.true_rate is not None
    assert saw.true_rate < 100.0, "it sleeps 20 ms for each; a batch counts when it begins"
    while not all(items for items, _ in (r.received.popitem()[1] for r in replicas_of(job, "rebalance"))):
        time.sleep(0.2)  # the new replicas get their share
    result = job.wait()
    assert sorted(record for _, record in result["out"]) == list(range(1500))
    assert result.statistics.scaling.layout["rebalance"] > 1
    kinds = {line["kind"] for line in read_lines(tmp_path / "scaling.jsonl")}
    assert kinds == {"begin", "sample", "decision"}
    json.dumps(result.statistics.scaling.as_json())


def test_workers_are_added_where_what_they_share_is_more_than_one_processor(nothing_left: Callable[[], None]) -> None:
    """25 items a second come; each of three steps takes 0.5 of a processor, so one worker can do 17."""
    flow = rd.Dataflow("sharing")
    stream = flow.source(ByTheClock(25.0, 500), name="numbers")
    names = ("rebalance", "rebalance-2", "rebalance-3")
    for _ in names:
        stream = stream.rebalance().map(slowly)
    stream.collect("out")
    ranges = dict.fromkeys(names, (1, 3))
    scaling = rd.ScalingConfig(placement="workers", parallelism=ranges, report_interval_s=0.5, window_s=2.0, warm_up_s=0.5)
    job = flow.submit(rd.RunConfig(window_batches=8), scaling)
    until(lambda: job.progress().scaling is not None and bool(job.progress().scaling.changes), "the autoscaler adds workers")
    told = job.progress().scaling
    decision = told.decisions["rebalance"].decision
    assert decision.reason.startswith("what shares workers needs "), decision.reason
    assert decision.figures["workers.load"] > 1.0
    assert dict(decision.changes) in (dict.fromkeys(names, 2), dict.fromkeys(names, 3))
    result = job.wait(timeout_s=PATIENCE_S)
    assert sorted(record for _, record in result["out"]) == list(range(500))


def test_metrics_reach_the_port_that_prometheus_scrapes(ray_cluster: None) -> None:
    job, metrics = SimulatedJob(), ScalingMetrics("measured")
    job.rounds(loop_of(job, DS2(), metrics), 6)
    port = ray.nodes()[0]["MetricsExportPort"]
    lines: list[str] = []
    while not any("rayad_scaling_decisions" in line for line in lines):  # Ray exports every few seconds
        time.sleep(0.5)
        with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
            lines = [line for line in answer.read().decode().splitlines() if 'job="measured"' in line]
    rates = [line for line in lines if line.startswith("ray_rayad_true_rate{") and 'vertex="count"' in line]
    assert [float(line.rsplit(" ", 1)[1]) > 0 for line in rates] == [True] * 4
    names = {line.split("{")[0] for line in lines}
    assert {f"ray_{name}" for name in GAUGES} <= names
    assert {"ray_rayad_items_consumed_total", "ray_rayad_items_produced_total"} <= names


@pytest.mark.soak
def test_a_controller_in_another_process_scales_a_job_by_files(nothing_left: Callable[[], None], tmp_path: Path) -> None:
    scaling = rd.ScalingConfig(mpr_folder=str(tmp_path), report_interval_s=0.4, warm_up_s=0.0, window_s=0.0)
    job = program(1500).submit(rd.RunConfig(window_batches=8), scaling)
    words = [sys.executable, str(CONTROLLER), str(tmp_path), "rebalance", "100", "60"]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as controller:
        assert controller.stdin is not None
        assert controller.stdout is not None
        while not job.progress().scaling.changes:
            controller.stdin.write("look\n")
            controller.stdin.flush()
            controller.stdout.readline()
            time.sleep(1.0)
        controller.communicate("\n" * 60)
    reason = job.progress().scaling.decisions["rebalance"].decision.reason
    assert reason.startswith("parameters.json says")
    result = job.wait()
    assert sorted(record for _, record in result["out"]) == list(range(1500))


def test_invalid_policies_are_refused_before_the_job_starts(ray_cluster: None) -> None:
    lock = threading.Lock()

    def locked(*_: Any) -> None:
        with lock:
            return

    for policy, message in (("ds3", "there is no policy 'ds3'"), (locked, "cannot be sent to the autoscaler's actor")):
        with pytest.raises(rd.ConfigError, match=message):
            program(1).submit(None, rd.ScalingConfig(policy=policy))


@ray.remote(num_cpus=0)
class SimulatedReplica:
    """An actor that holds one replica of the simulated job, and gives its readings."""

    def __init__(self, coordinator: Any, index: int) -> None:
        self._coordinator = coordinator
        self._index = index

    def readings(self) -> list[ReplicaReading]:
        return [ray.get(self._coordinator.a_reading.remote(self._index), timeout=PATIENCE_S)]


@ray.remote(num_cpus=0, max_concurrency=8)
class SimulatedCoordinator:
    """An actor with the two methods that the autoscaler calls, for a simulated dataflow that makes a step at each reading."""

    def __init__(self) -> None:
        self.job = SimulatedJob(rate=400.0)
        self.handles: list[Any] = []

    def begin(self, me: Any) -> None:
        self.handles = [SimulatedReplica.remote(me, i) for i in range(8)]  # type: ignore[attr-defined]

    def replicas(self) -> tuple[dict[str, int], dict[str, Any]]:
        self.job.advance(1.0)
        return dict(self.job.dataflow.layout), {f"v{i}": handle for i, handle in enumerate(self.handles[: len(self.job.readings())])}

    def a_reading(self, index: int) -> ReplicaReading:
        return self.job.readings()[index]

    def rescale(self, changes: dict[str, int], timeout_s: float, decided_for: dict[str, int]) -> str:
        if changes != {"count": 5}:
            raise rd.ConfigError(f"only five fit: {changes}")
        return self.job.rescale(changes, timeout_s, decided_for)


def test_the_actor_asks_a_coordinator_that_is_an_actor(ray_cluster: None) -> None:
    coordinator = SimulatedCoordinator.remote()  # type: ignore[attr-defined]
    ray.get(coordinator.begin.remote(coordinator), timeout=PATIENCE_S)
    scaled = RayScaledJob(coordinator)
    assert scaled.layout() == {"lines": 1, "count": 1}
    while len(scaled.readings()) < 2:
        time.sleep(0.1)  # replicas that do not answer in time are left out
    with pytest.raises(rd.ConfigError, match="only five fit"):
        scaled.rescale({"count": 4}, 1.0, {"lines": 1, "count": 1})
    graph = ScalingGraph.of(["lines", "count"], [("lines", "count")], sources=["lines"])

    def five(samples: Any, state: Any, now_s: float) -> dict[str, int]:
        return {"count": 5}

    config = rd.ScalingConfig(policy=five, report_interval_s=0.05, warm_up_s=0.0, window_s=0.0)
    actor = ray.remote(num_cpus=0, max_concurrency=4)(Autoscaler).remote(
        coordinator, "simulated", graph, {"lines": 1, "count": 1}, config, None, False
    )
    running = actor.run.remote()
    while not ray.get(actor.look.remote(), timeout=PATIENCE_S).changes:
        time.sleep(0.05)
    told = ray.get(actor.finish.remote(), timeout=PATIENCE_S)
    ray.get(running, timeout=PATIENCE_S)
    assert told.layout == {"lines": 1, "count": 5}
    assert told.decisions["count"].outcome is DecisionOutcome.APPLIED
    for handle in (actor, coordinator):
        ray.kill(handle)


def test_a_job_continues_with_another_autoscaler_when_its_coordinator_dies(nothing_left: Callable[[], None], tmp_path: Path) -> None:
    run = rd.RunConfig(
        storage_path=str(tmp_path), snapshots=rd.SnapshotConfig(interval_s=0.5), failures=rd.FailureConfig(max_failures=2), window_batches=8
    )
    job = program(600).submit(run, rd.ScalingConfig(policy="observe", report_interval_s=0.2))

    def rounds() -> int:
        told = job.progress().scaling
        return told.latest.number if told is not None and told.latest is not None else -1

    while rounds() < 4:
        time.sleep(0.1)
    ray.kill(job._coordinator.actor)
    while job._coordinators_lost == 0 or rounds() < 8:
        time.sleep(0.1)
    result = job.wait()
    assert sorted(record for _, record in result["out"]) == list(range(600))
    lines = (tmp_path / "waiting" / "scaling.jsonl").read_text().splitlines()
    values = [json.loads(line) for line in lines]
    assert [value["kind"] for value in values].count("begin") == 2
    numbers = [value["number"] for value in values if value["kind"] == "decision"]
    assert numbers == list(range(len(numbers))), "the second one continues the journal of the first"
    assert result.statistics.scaling.latest.decision.reason == "only observed"


def test_its_interval_changes_while_it_runs(nothing_left: Callable[[], None]) -> None:
    job = program(300).submit(scaling=rd.ScalingConfig(policy="observe", report_interval_s=3600.0))
    with pytest.raises(rd.ConfigError, match=r"report_interval_s is 0\.0"):
        job.configure(report_interval_s=0.0)
    while (told := job.progress().scaling) is None or told.latest is None:
        time.sleep(0.05)
        assert job.progress().state.value in ("starting", "running")
        job.configure(report_interval_s=0.05, window_batches=4)
    assert len(job.wait()["out"]) == 300
