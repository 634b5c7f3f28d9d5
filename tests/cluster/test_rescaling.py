"""Changes of layout on real Ray while the job runs: results are those of the model, in order per key, and nothing stays behind."""

from __future__ import annotations

import itertools
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import ray

import rayad as rd
from rayad.actors.job import Job, JobState
from tests.cluster import recovering
from tests.cluster.recovering import Paced, by_value, surviving, until, wait_for_snapshots
from tests.patience import PATIENCE_S
from tests.programs import model
from tests.thorough import amount

pytestmark = pytest.mark.cluster
Check = Callable[[], None]
ROWS = 60


def numbers_of(epoch: int) -> list[int]:
    return [(31 * epoch + 7 * i) % 97 for i in range(ROWS)]


class Endless(rd.Source):
    """An epoch every 4 ms, until the job is stopped."""

    blocks = False

    def list_parts(self) -> list[int]:
        return [0]

    def build_part(self, part: int, resume: int | None) -> rd.SourcePart:
        return EndlessPart(resume or 0)


class EndlessPart(rd.SourcePart):
    def __init__(self, at: int) -> None:
        self.at = at

    def next_batch(self) -> rd.SourceBatch | None:
        time.sleep(0.004)
        self.at += 1
        return rd.SourceBatch(self.at - 1, numbers_of(self.at - 1))

    def epoch_floor(self) -> int:
        return self.at

    def offset(self) -> int:
        return self.at


class Runs(rd.Vertex):
    """Numbers the records of each key: its output shows records that are lost, repeated or out of order within a key."""

    def __init__(self) -> None:
        self.seen: dict[int, int] = {}

    def on_recv(self, edge: int, batch: list[tuple[int, int]], time: rd.Timestamp) -> None:
        out = []
        for key, value in batch:
            self.seen[key] = self.seen.get(key, 0) + 1
            out.append((key, self.seen[key], value))
        self.send_by(0, out, time)

    def give(self, groups: frozenset[int]) -> Any:
        mine = [key for key in self.seen if rd.key_group(key, self.key_groups) in groups]
        return {key: self.seen.pop(key) for key in mine}

    def take(self, state: dict[int, int]) -> None:
        self.seen.update(state)


class Collatz(rd.Vertex):
    """One step in each round, at the replica that owns the number."""

    def __init__(self) -> None:
        self.steps: dict[int, int] = {}

    def on_recv(self, edge: int, batch: list[tuple[int, int, int]], time: rd.Timestamp) -> None:
        again = []
        for start, number, steps in batch:
            self.steps[start] = self.steps.get(start, 0) + 1
            if number == 1:
                self.send_by(1, [(start, steps, self.steps[start])], time)
            else:
                again.append((start, number // 2 if number % 2 == 0 else 3 * number + 1, steps + 1))
        if again:
            self.send_by(0, again, time)

    def give(self, groups: frozenset[int]) -> Any:
        mine = [start for start in self.steps if rd.key_group(start, self.key_groups) in groups]
        return {start: self.steps.pop(start) for start in mine}

    def take(self, state: dict[int, int]) -> None:
        self.steps.update(state)


@pytest.fixture(scope="module", autouse=True)
def _send_tests_by_value(ray_cluster: None) -> Iterator[None]:
    with by_value(model, sys.modules[__name__]):
        yield


def runs(name: str) -> rd.Dataflow:
    flow = rd.Dataflow(name)
    pairs = flow.source(Endless(), name="ticks").map(lambda n: (n % 31, n), name="pair")
    numbered = flow.vertex(Runs, inputs=[pairs.key_by(lambda pair: pair[0])], name="runs")
    numbered.rebalance().map(lambda record: record, name="pass").collect("runs")
    return flow


def require_runs(result: Any) -> None:
    """Check that each key's records are numbered without a gap, in the source's order, and that no record is missing."""
    by_key: dict[int, list[tuple[int, int]]] = {}
    for _, (key, number, value) in result["runs"]:
        by_key.setdefault(key, []).append((number, value))
    epochs, left = divmod(sum(map(len, by_key.values())), ROWS)
    assert epochs
    assert not left
    wanted: dict[int, list[int]] = {}
    for value in (value for epoch in range(epochs) for value in numbers_of(epoch)):
        wanted.setdefault(value % 31, []).append(value)
    found = {key: sorted(entries) for key, entries in by_key.items()}
    assert {key: [number for number, _ in entries] for key, entries in found.items()} == {
        key: list(range(1, len(values) + 1)) for key, values in wanted.items()
    }
    assert {key: [value for _, value in entries] for key, entries in found.items()} == wanted


def running(job: Job, stage: str) -> Job:
    until(lambda: any(s.name == stage and s.records_in > 500 for s in job.progress().stages), f"{stage} is at work")
    return job


def test_up_and_down_under_load(nothing_left: Check) -> None:
    job = running(runs("updown").submit(parallelism=1), "runs")
    up = job.rescale("runs", 4)
    assert (up.before["runs"], up.after["runs"], up.moved_groups) == (1, 4, 192)
    assert len(job.pids()["runs"]) == 4
    two = job.rescale({"runs": 2, "rebalance": 3})
    assert two.after == {**up.after, "runs": 2, "rebalance": 3}
    job.rescale("rebalance", 2)
    job.rescale("rebalance", 1)  # regression: what the second replica of that number had written replaced what the first had
    assert [len(pids) for _, pids in sorted(job.pids().items())] == [1, 2, 1]
    result = job.stop(timeout_s=PATIENCE_S)
    require_runs(result)
    nothing_left()


@pytest.mark.soak
def test_a_vertex_inside_a_loop(nothing_left: Check) -> None:
    flow = rd.Dataflow("collatz")
    epochs = [[27, 97, 871, epoch % 50 + 1] for epoch in range(700)]
    starts = flow.source(Paced(epochs, pause_s=0.02), name="ticks").map(lambda n: (n, n, 0), name="start")
    loop = flow.loop("rounds")
    back = loop.feedback()
    again, done = flow.vertex(Collatz, inputs=[loop.enter(starts).union(back).key_by(lambda r: r[0])], outputs=2, name="step")
    back.connect(again)
    loop.leave(done).collect("steps")
    job = running(flow.submit(parallelism=1), "step")
    job.rescale("step", 3)
    job.rescale("step", 2)
    found = [(time.epoch, start, steps) for time, (start, steps, _) in job.wait(120)["steps"]]
    assert sorted(found) == sorted((epoch, n, collatz(n)) for epoch, numbers in enumerate(epochs) for n in numbers)
    nothing_left()


def collatz(number: int) -> int:
    steps = 0
    while number != 1:
        number, steps = (number // 2 if number % 2 == 0 else 3 * number + 1), steps + 1
    return steps


@pytest.mark.soak
def test_a_replica_killed_while_its_groups_move(nothing_left: Check, tmp_path: Path) -> None:
    """The job resumes from the last snapshot in its layout; then the change is done again."""
    job = running(runs("killed").submit(surviving(tmp_path), parallelism=1), "runs")
    wait_for_snapshots(tmp_path, "killed", 1)
    told: list[Any] = []
    asking = threading.Thread(target=lambda: told.append(job.rescale("runs", 3)))
    victim = job.pids()["runs"][0]
    asking.start()
    until(lambda: len(recovering.actors("VertexActor")) > 3, "newcomers are there")
    psutil.Process(victim).kill()
    asking.join(90)
    assert told[0].after["runs"] == 3
    assert len(job.pids()["runs"]) == 3
    result = job.stop(timeout_s=PATIENCE_S)
    require_runs(result)
    assert result.statistics.failures == 1
    nothing_left()


@pytest.mark.usefixtures("own_actors")
def test_a_job_cancelled_in_the_middle_of_a_change(nothing_left: Check) -> None:
    """The caller of the change gets an error, and nothing stays behind, new replicas included."""
    job = running(runs("cancelled").submit(parallelism=1), "runs")
    told: list[str] = []

    def ask() -> None:
        try:
            change_for_ever(job)
        except rd.RescaleRefused as refused:
            told.append(str(refused))

    asking = threading.Thread(target=ask)
    asking.start()
    until(lambda: len(recovering.actors("VertexActor")) > 3, "newcomers are there")
    job.cancel()
    asking.join(60)
    assert "cancelled" in told[0]
    nothing_left()


class Occupant:
    """Occupies a CPU as long as it lives."""


@pytest.mark.usefixtures("own_actors")
def test_replicas_that_cannot_be_placed(nothing_left: Check) -> None:
    """The old layout stays, and the error says so."""
    job = running(runs("full").submit(rd.RunConfig(cpus_per_replica=1.0), parallelism=1), "runs")
    with pytest.raises(rd.RescaleRefused, match=r"the layout stays .*'runs': 1.*together ask for .* CPU, .* the cluster has 4 CPU"):
        job.rescale("runs", 3, timeout_s=3.0)
    free = ray.available_resources().get("CPU", 0.0)  # Spark may use some
    other = ray.remote(num_cpus=free)(Occupant).remote()
    ray.get(other.__ray_ready__.remote(), timeout=PATIENCE_S)
    with pytest.raises(rd.RescaleRefused, match=r"the layout stays .*'runs': 1.*free resources now"):
        job.rescale("runs", 2, timeout_s=3.0)
    ray.kill(other)
    assert len(job.pids()["runs"]) == 1
    require_runs(job.stop(timeout_s=PATIENCE_S))
    nothing_left()


@pytest.mark.parametrize(
    ("wanted", "told"),
    [
        ({"run": 2}, r"there is no stage of that name; those that can be rescaled: \['rebalance', 'runs'\]"),
        ({"runs": 0}, "the number of replicas of 'runs' is 0: it must be an int of at least 1"),
        ({"runs": 257}, "there are 256 key-groups"),
        ({"ticks": 2}, "reads input: its parts stay with their replicas while the job runs"),
    ],
)
def test_invalid_changes_are_refused_by_name(ray_cluster: None, wanted: dict[str, int], told: str) -> None:
    job = runs("refusing").submit(parallelism=1, runtime="local")
    with pytest.raises(rd.RescaleRefused, match=told):
        job.rescale(wanted)
    job.cancel()


def test_replicas_that_come_before_any_record_speak_at_the_end_too(nothing_left: Check) -> None:
    """What came for key-groups that had moved without state was lost at the end."""
    flow = rd.Dataflow("speaks-at-the-end")
    flow.input("numbers").key_by(lambda n: n % 20).count(name="counts").latest(name="table").collect("table")
    job = flow.submit()
    until(lambda: job.status().state is JobState.RUNNING, "the job runs")
    job.rescale({"table": 3})
    numbers = job.input("numbers")
    for epoch in range(3):
        numbers.send(list(range(20)))
        numbers.advance_to(epoch + 1)
    numbers.close()
    assert sorted(record for _, record in job.wait(timeout_s=PATIENCE_S)["table"]) == [(n, 3) for n in range(20)]


def test_windows_change_while_it_runs(nothing_left: Check) -> None:
    job = running(runs("configured").submit(rd.RunConfig(window_batches=1), parallelism=1), "runs")
    job.configure(window_batches=32, batch_rows=100, combine_hold_s=0.0)
    job.rescale("runs", 2)
    before = {stage.name: 1 for stage in job.plan.stages}
    with pytest.raises(rd.RescaleRefused, match=r"decided for the layout .*'runs': 1.* which is .*'runs': 2"):
        # like an autoscaler that decided before the user's change
        ray.get(job._coordinator.rescale.remote({"runs": 3}, 60.0, before), timeout=PATIENCE_S)
    job.configure(window_batches=2)
    require_runs(job.stop(timeout_s=PATIENCE_S))
    with pytest.raises(rd.ConfigError, match="job 'configured' is complete"):
        job.configure(window_batches=1)
    nothing_left()


def change_for_ever(job: Job) -> None:
    for one, two in itertools.cycle([(1, 2), (2, 1)]):
        job.rescale({"runs": one, "rebalance": two})


@pytest.mark.thorough
@pytest.mark.parametrize("keeps", [pytest.param(False, marks=pytest.mark.soak), True], ids=["no store", "store"])
def test_a_job_that_completes_in_the_middle_of_a_change(nothing_left: Check, tmp_path: Path, keeps: bool) -> None:
    """The change is done or refused; in both cases the job completes with all its results."""
    config = surviving(tmp_path, failures=0) if keeps else rd.RunConfig()
    for number, epochs in enumerate((60, 200, 400)[: amount(1, 3)]):
        flow = rd.Dataflow(f"ending{number}")
        pairs = flow.source(Paced([numbers_of(e) for e in range(epochs)], pause_s=0.004), name="ticks").map(lambda n: (n % 31, n))
        flow.vertex(Runs, inputs=[pairs.key_by(lambda pair: pair[0])], name="runs").rebalance().map(lambda record: record).collect("runs")
        job = flow.submit(config, parallelism=1)
        with pytest.raises(rd.RescaleRefused, match="is complete"):
            change_for_ever(job)
        result = job.wait(60)
        assert len(result["runs"]) == ROWS * epochs
        require_runs(result)
    nothing_left()
