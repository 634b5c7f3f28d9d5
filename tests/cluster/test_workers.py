"""Workers on real Ray: one replica of each vertex in a process. The guarantees are those of actors that hold one replica."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import rayad as rd
from rayad.actors.job import JobState
from tests.cluster import test_rescaling
from tests.cluster.recovering import Paced, actors, by_value, kill, surviving, until, wait_for_snapshots
from tests.cluster.test_rescaling import Collatz, collatz, require_runs, running, runs
from tests.patience import PATIENCE_S
from tests.programs import model

pytestmark = pytest.mark.cluster
Check = Callable[[], None]


@pytest.fixture(scope="module", autouse=True)
def _send_tests_by_value(ray_cluster: None) -> Iterator[None]:
    with by_value(model, sys.modules[__name__], test_rescaling):
        yield


def workers(parallelism: Any) -> rd.ScalingConfig:
    return rd.ScalingConfig(parallelism=parallelism, placement="workers")


def pids() -> set[int]:
    return {process.pid for process in actors("WorkerActor")}


def test_a_change_that_needs_no_new_process_starts_none(nothing_left: Check) -> None:
    job = running(runs("housed").submit(None, workers({"rebalance": 2})), "runs")
    before = pids()
    assert len(before) == 2
    up = job.rescale("runs", 2)
    assert up.moved_groups == 128
    assert {pid for mine in job.pids().values() for pid in mine} == before
    assert len(job.pids()["runs"]) == 2
    job.rescale("runs", 1)
    assert pids() == before
    four = job.rescale("runs", 4)
    assert four.after["runs"] == 4
    assert len(pids()) == 4
    job.rescale({"runs": 2, "rebalance": 1})
    job.rescale({"runs": 3, "rebalance": 2})
    job.rescale("rebalance", 1)
    result = job.stop(timeout_s=PATIENCE_S)
    require_runs(result)
    assert result.statistics.stages["runs"]["records_in"] == result.statistics.stages["ticks"]["records_in"], "those that retired count"
    nothing_left()


def test_auto_makes_as_many_workers_as_there_are_processors(nothing_left: Check) -> None:
    flow = rd.Dataflow("shared")
    words = flow.from_items(list("abcab"), parts=2, name="letters").key_by(lambda word: word)
    words.count(name="counts").as_records().key_by(lambda pair: pair[1]).count(name="again").probe("done").collect("out")
    flow.input("more").collect("more")
    job: Any = flow.submit(None, rd.ScalingConfig(parallelism=2, placement="auto"))
    more = job.input("more")
    assert job.probe("done").wait(0, timeout_s=PATIENCE_S)
    assert len(pids()) == 4, "seven replicas, and a Ray of four processors"
    assert {vertex: len(mine) for vertex, mine in job.pids().items() if vertex != "more"} == {"letters": 2, "counts": 2, "again": 2}
    more.close()
    assert sorted(job.wait(timeout_s=PATIENCE_S)["out"])[-1][1] == (2, 2)
    nothing_left()


def test_a_worker_that_dies_takes_a_replica_of_each_vertex_and_the_other_keeps_its_process(nothing_left: Check, tmp_path: Path) -> None:
    job = running(runs("killed-worker").submit(surviving(tmp_path), workers(2)), "runs")
    wait_for_snapshots(tmp_path, "killed-worker", 1)
    job.rescale("runs", 3)
    wait_for_snapshots(tmp_path, "killed-worker", 1)
    before = [process.pid for process in actors("WorkerActor")]
    killed = kill("WorkerActor", 1)
    wait_for_snapshots(tmp_path, "killed-worker", 2)
    assert set(before) - {killed} <= pids()
    assert job.progress().failures == 1
    assert len(job.pids()["runs"]) == 3
    require_runs(job.stop(timeout_s=PATIENCE_S))
    nothing_left()


def test_a_loop_whose_edges_stay_inside_and_cross(nothing_left: Check, tmp_path: Path) -> None:
    flow = rd.Dataflow("collatz-workers")
    epochs = [[27, 97, 871, epoch % 50 + 1] for epoch in range(300)]
    starts = flow.source(Paced(epochs, pause_s=0.02), name="ticks").map(lambda n: (n, n, 0), name="start")
    loop = flow.loop("rounds")
    back = loop.feedback()
    again, done = flow.vertex(Collatz, inputs=[loop.enter(starts).union(back).key_by(lambda r: r[0])], outputs=2, name="step")
    back.connect(again)
    loop.leave(done).collect("steps")
    job = running(flow.submit(surviving(tmp_path), workers({"step": 2})), "step")
    wait_for_snapshots(tmp_path, "collatz-workers", 1)
    kill("WorkerActor", 0)
    wait_for_snapshots(tmp_path, "collatz-workers", 1)
    job.rescale("step", 1)
    job.rescale("step", 2)
    kill("Coordinator", 0)
    found = [(stamp.epoch, start, steps) for stamp, (start, steps, _) in job.wait(PATIENCE_S)["steps"]]
    assert sorted(found) == sorted((epoch, n, collatz(n)) for epoch, numbers in enumerate(epochs) for n in numbers)
    nothing_left()


def test_two_live_inputs_of_one_worker(nothing_left: Check, tmp_path: Path) -> None:
    flow = rd.Dataflow("two-inputs")
    left, right = (flow.input(name).key_by(lambda pair: pair[0]) for name in ("left", "right"))
    left.join(right, name="both").collect("both")
    job = flow.submit(surviving(tmp_path), workers(1))
    until(lambda: job.status().state is JobState.RUNNING, "the job runs")
    assert len(pids()) == 1
    for epoch in range(40):
        for name in ("left", "right"):
            job.input(name).send([(epoch % 5, f"{name}{epoch}")])
            job.input(name).advance_to(epoch + 1)
        if epoch == 20:
            wait_for_snapshots(tmp_path, "two-inputs", 1)
            kill("WorkerActor")
    for name in ("left", "right"):
        job.input(name).close()
    found = sorted(record for _, record in job.wait(PATIENCE_S)["both"])
    pairs = [(a % 5, a, b) for a in range(40) for b in range(40) if a % 5 == b % 5]
    assert found == sorted((key, ((key, f"left{a}"), (key, f"right{b}"))) for key, a, b in pairs)
    nothing_left()


def test_vertices_of_their_own_beside_workers(nothing_left: Check) -> None:
    """By name, and always where a vertex asks for resources."""
    flow = rd.Dataflow("mixed")
    epochs = [["to be", "or not to be"], ["to"]] * 10
    words = flow.from_epochs(epochs, name="lines").flat_map(str.split)
    counts = words.key_by(lambda word: word).count(name="counts")
    counts.map_batches(lambda batch: batch, num_cpus=0.01, name="own").collect("out")
    placement = {"lines": "workers", "counts": "vertices"}
    job = flow.submit(None, rd.ScalingConfig(parallelism={"counts": 2}, placement=placement))
    until(lambda: bool(job.pids()) or job.status().state is JobState.COMPLETE, "the job runs")
    result = job.wait(PATIENCE_S)
    told = [word for epoch in epochs for line in epoch for word in line.split()]
    last = {word: count for _, (word, count) in sorted(result["out"])}
    assert last == {word: told.count(word) for word in told}
    alone = sum(stage["replicas"] for name, stage in result.statistics.stages.items() if name != "lines")
    assert result.statistics.actors == 2 + 1 + alone, "progress and coordinator, a worker for the lines, the others by themselves"
    assert alone >= 3
    nothing_left()


def test_what_a_function_raises_names_its_replica_and_a_busy_worker_says_which(ray_cluster: None) -> None:
    flow = rd.Dataflow("raises-in-a-worker")
    flow.from_items([1, 0], name="numbers").rebalance().map(lambda x: 1 // x, name="divide").collect("out")
    with pytest.raises(rd.DataflowError, match=r"'divide'\[0\].*on record 0: ZeroDivisionError"):
        flow.run(None, workers(1))

    def slow(number: int) -> int:
        time.sleep(3.0)
        return number

    flow = rd.Dataflow("slow-in-a-worker")
    keyed = flow.from_items([1, 2], name="numbers").key_by(lambda n: n)
    keyed.stateful_map(lambda n, record: (n, slow(record)), name="waits").collect("out")
    job = flow.submit(None, workers(1))
    until(lambda: "of 'waits'[0]" in job.explain_stuck(), "it is said who is busy")
    job.cancel()


@pytest.mark.parametrize("placement", ["vertex", 3, {"counts": "worker"}])
def test_what_is_no_placement_is_refused(placement: Any) -> None:
    with pytest.raises(rd.ConfigError, match=r"ScalingConfig.placement.*must be 'auto', 'vertices' or 'workers'"):
        rd.ScalingConfig(placement=placement)


def test_who_cannot_share_is_refused_before_anything_starts(ray_cluster: None) -> None:
    upstream = rd.RunConfig(failures=rd.FailureConfig(recovery="upstream"))
    with pytest.raises(rd.ConfigError, match="takes a replica of every vertex with it"):
        runs("no-sharing").submit(upstream, workers(1))
    with pytest.raises(rd.ConfigError, match=r"placement names 'counts': the vertices of 'unknown' are \['rebalance', 'runs', 'ticks'\]"):
        runs("unknown").submit(None, rd.ScalingConfig(placement={"counts": "workers"}))
