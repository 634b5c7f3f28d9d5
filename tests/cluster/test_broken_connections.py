"""Unknown is not dead: connections to a coordinator and to a keeper break, and the job goes on with the same ones. A coordinator that is
taken over has ended before its successor begins, and one that another run has deposed ends by itself."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
import ray

import rayad as rd
from rayad.actors.inputs.job_input import JobInput
from rayad.actors.job import JobState
from rayad.snapshots.resume_point import begin_run
from rayad.snapshots.store import SnapshotStore
from tests.cluster import connections
from tests.cluster.conftest import job_processes
from tests.cluster.recovering import by_value
from tests.cluster.test_hangs import HeldSink
from tests.cluster.until import until
from tests.patience import PATIENCE_S

Check = Callable[[], None]
SURVIVES = {"snapshots": rd.SnapshotConfig(interval_s=0.3), "failures": rd.FailureConfig(max_failures=5, survive_errors=False, delay_s=0.1)}
HEARTBEAT_S = 8.0


@pytest.fixture(autouse=True, scope="module")
def _possible() -> None:
    reason = connections.why_not()
    if reason:
        pytest.skip(f"connections of other processes cannot be broken here: {reason}")


def counting(name: str) -> rd.Dataflow:
    """Counts the words of a live input."""
    flow = rd.Dataflow(name)
    flow.input("words").key_by(lambda w: w).count(name="counts").probe("counted").collect("counts")
    return flow


@contextmanager
def running(flow: rd.Dataflow, **options: Any) -> Iterator[tuple[Any, JobInput]]:
    """A job that has counted an "a" and a "b" in epoch 0, and its input; the job ends with the block."""
    job: Any = flow.submit(parallelism=2, run=rd.RunConfig(**options))
    try:
        words = job.input("words")
        words.send(["a", "b"])
        words.advance_to(1)
        assert job.probe("counted").wait(0, timeout_s=PATIENCE_S)
        yield job, words
    finally:
        job.cancel()


def coordinators() -> list[int]:
    """The processes of coordinators."""
    return sorted(process.pid for process in job_processes(kind="ray::Coordinator"))


def totals(result: Any) -> dict[str, int]:
    """The last total of each word."""
    return dict(record for _, record in sorted(result["counts"]))


def break_and_notice(job: Any, pid: int) -> None:
    """Break this process' connections to a coordinator, and wait until the line to it has another reference to the outcome."""
    before = job._line.outcome
    assert connections.break_between(os.getpid(), pid) > 0
    until(lambda: job._line.outcome not in (None, before), "the outcome is asked for again")


@pytest.mark.parametrize("is_stored", [True, pytest.param(False, marks=pytest.mark.soak)])
def test_a_broken_connection_of_the_driver_does_not_replace_its_coordinator(nothing_left: Check, tmp_path: Path, is_stored: bool) -> None:
    """Issue 25: Ray's ActorUnavailableError was taken for death. A second coordinator began beside the first, which nobody ended; without a
    store the job failed."""
    options = {"storage_path": str(tmp_path), **SURVIVES} if is_stored else {}
    with running(counting("broken"), **options) as (job, words):
        (before,) = coordinators()
        for again in range(1, 4):
            break_and_notice(job, before)
            assert coordinators() == [before]
            words.send(["a"])
            words.advance_to(1 + again)
            assert job.probe("counted").wait(again, timeout_s=PATIENCE_S)
            assert rd.jobs() == {"broken": JobState.RUNNING}
            assert rd.attach("broken").progress().state is job.state is JobState.RUNNING
        words.close()
        result = job.wait(timeout_s=PATIENCE_S)
        assert totals(result) == {"a": 4, "b": 1}
        assert result.statistics.failures == 0


def test_a_job_begins_once_though_connections_break_while_it_starts(nothing_left: Check) -> None:
    """Whether the long call has come, the driver cannot know."""
    job: Any = counting("starting").submit(parallelism=2)
    try:
        (before,) = until(coordinators, "its process is there")
        for _ in range(8):
            connections.break_between(os.getpid(), before)
            time.sleep(0.1)
        words = job.input("words")
        words.send(["a"])
        words.close()
        assert totals(job.wait(timeout_s=PATIENCE_S)) == {"a": 1}
        assert [event.kind for event in job.journal()].count("running") == 1
    finally:
        job.cancel()


def test_an_outcome_is_not_lost_with_the_connection_on_which_it_comes(nothing_left: Check) -> None:
    with running(counting("ending")) as (job, words):
        (before,) = coordinators()
        words.send(["a"])
        words.close()
        while job._outcome is None:  # again and again, while the job ends
            connections.break_between(os.getpid(), before)
            time.sleep(0.2)
        assert totals(job.wait(timeout_s=PATIENCE_S)) == {"a": 2, "b": 1}


ATTACHED = """
import sys, threading, time
import rayad as rd
job = rd.attach("watched")
results = []
waiting = threading.Thread(target=lambda: results.append(job.wait(timeout_s=float(sys.argv[1]))))
waiting.start()
print("attached", flush=True)
sys.stdin.readline()
print(job.state.value, job.progress().stages[-1].name, flush=True)
while (before := job._line.outcome) is None:
    time.sleep(0.1)
print("has a reference", flush=True)
sys.stdin.readline()
while job._line.outcome in (None, before):
    time.sleep(0.1)
print("has another one", flush=True)
waiting.join()
print(sorted(results[0]["counts"])[-1], flush=True)
"""


def test_a_handle_in_another_process_outlives_its_broken_connections(nothing_left: Check) -> None:
    """To the coordinator, and to the owner, without which Ray says of the outcome that its owner has died."""
    environment = {**os.environ, "RAY_ADDRESS": ray.get_runtime_context().gcs_address}
    command = [sys.executable, "-c", ATTACHED, str(PATIENCE_S)]
    with running(counting("watched")) as (job, words):
        (coordinator,) = coordinators()
        with subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
            assert other.stdin is not None
            assert other.stdout is not None
            try:
                assert other.stdout.readline() == "attached\n"
                for pid in (coordinator, os.getpid()):
                    assert connections.break_between(other.pid, pid) > 0
                other.stdin.write("\n")
                other.stdin.flush()
                assert other.stdout.readline() == "running counts\n"
                words.send(["a"])
                assert other.stdout.readline() == "has a reference\n"
                break_and_notice(job, coordinator)  # the reference that the other one waits for is lost with this
                other.stdin.write("\n")
                other.stdin.flush()
                assert other.stdout.readline() == "has another one\n"  # else the job may end before it has asked
                words.close()
                assert totals(job.wait(timeout_s=PATIENCE_S)) == {"a": 2, "b": 1}
                assert other.stdout.readline() == "(Timestamp(1), ('a', 2))\n"
            finally:
                other.kill()


def test_broken_connections_of_a_keeper_and_to_it_replace_nobody_and_lose_nothing(nothing_left: Check, tmp_path: Path) -> None:
    """Issue 25, of the kind: a keeper is a driver, and handles reach it as they reach a coordinator."""
    job = counting("kept").submit(rd.RunConfig(storage_path=str(tmp_path), **SURVIVES), parallelism=2, detached=True)
    try:
        words = job.input("words")
        words.send(["a"])
        (keeper,), (coordinator,) = (job_processes(kind="ray::Keeper"), coordinators())
        for _ in range(3):
            assert connections.break_between(keeper.pid, coordinator) > 0
            assert connections.break_between(os.getpid(), keeper.pid) > 0
            words.send(["a", "b"])
            assert rd.jobs() == {"kept": JobState.RUNNING}
            assert job.state is JobState.RUNNING
        assert [process.pid for process in job_processes(kind="ray::Keeper")] == [keeper.pid]
        assert coordinators() == [coordinator]
        result = job.stop(timeout_s=PATIENCE_S)
        assert totals(result) == {"a": 4, "b": 3}
        assert result.statistics.failures == 0
    finally:
        job.cancel()
    until(lambda: rd.jobs() == {}, "the keeper has ended")


def is_there(pid: int) -> bool:
    """Whether a process lives, or is stopped."""
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE


def runs_in(store: SnapshotStore) -> set[str]:
    """The runs whose manifests are in a store."""
    return {manifest.run for _, manifest, _ in store.newest_first() if manifest is not None}


def test_a_stopped_coordinator_has_ended_before_its_successor_claims_the_store(nothing_left: Check, tmp_path: Path) -> None:
    """Issue 25: Ray calls an actor dead as soon as it is killed; one that is stopped lives on for five seconds, in which it could wake up.
    Meanwhile the job is there for everybody who looks for it."""
    failures = rd.FailureConfig(max_failures=5, delay_s=0.1, heartbeat_timeout_s=HEARTBEAT_S)
    with running(counting("taken over"), storage_path=str(tmp_path), snapshots=SURVIVES["snapshots"], failures=failures) as (job, words):
        (before,) = coordinators()
        store = SnapshotStore(str(tmp_path / "taken over" / "snapshots"))
        first = runs_in(store)
        psutil.Process(before).suspend()
        token = job._tokens[-1]
        until(lambda: job._tokens[-1] != token, "another one has the name")
        explained, states = set(), set()
        while runs_in(store) <= first:
            states.add(rd.jobs().get("taken over", "no job"))
            explained.add(rd.attach("taken over").explain_stuck().partition("\n")[0])
        assert not is_there(before), "the successor has claimed the store while the one before it was there"
        assert "no job" not in states
        assert not any("its process is stopped" in one for one in explained), explained
        words.send(["a"])
        words.close()
        assert totals(job.wait(timeout_s=PATIENCE_S)) == {"a": 2, "b": 1}


def claim(store: SnapshotStore, job: str) -> None:
    """As another submission of the job, on another cluster."""
    newest = store.load(store.numbers()[-1])
    begin_run(store, "latest", job=job, graph=newest.graph, key_groups=newest.key_groups, run="of another cluster")


def test_a_coordinator_whose_store_another_run_has_claimed_ends_by_itself(nothing_left: Check, tmp_path: Path) -> None:
    """It saw that only when it published: with snapshots on demand, never."""
    failures = rd.FailureConfig(heartbeat_timeout_s=HEARTBEAT_S)
    with running(counting("deposed"), storage_path=str(tmp_path), failures=failures) as (job, _):
        store = SnapshotStore(str(tmp_path / "deposed" / "snapshots"))
        claim(store, "deposed")
        number = store.numbers()[-1]
        told = rf"^another run of job 'deposed' has claimed '{store.folder}' \(snapshot {number}\)"
        with pytest.raises(rd.SnapshotError, match=told):
            job.wait(timeout_s=PATIENCE_S)
        with pytest.raises(rd.SnapshotError, match=rf"job 'deposed' is failed: no savepoint can be taken; coordinator: .*{number}\)"):
            job.savepoint()
        assert runs_in(store) >= {"of another cluster"}


def test_a_deposed_coordinator_that_hangs_in_a_sink_ends_and_has_no_successor(nothing_left: Check, tmp_path: Path) -> None:
    held = tmp_path / "held"
    held.touch()
    flow = rd.Dataflow("hangs")
    flow.from_items([1, 2, 3]).sink(HeldSink(held), "kept")
    failures = rd.FailureConfig(max_failures=5, heartbeat_timeout_s=HEARTBEAT_S)
    with by_value(sys.modules[HeldSink.__module__]):
        job: Any = flow.submit(rd.RunConfig(storage_path=str(tmp_path / "jobs"), failures=failures))
        try:
            until(lambda: "publish of sink" in job.explain_stuck(), "the sink hangs")
            store = SnapshotStore(str(tmp_path / "jobs" / "hangs" / "snapshots"))
            claim(store, "hangs")
            with pytest.raises(rd.SnapshotError, match=r"^another run of job 'hangs' has claimed"):
                job.wait(timeout_s=PATIENCE_S)
            until(lambda: coordinators() == [], "the process has ended, although its thread hangs")
            assert store.load(store.numbers()[-1]).run == "of another cluster"
        finally:
            held.unlink()
            job.cancel()


def test_a_savepoint_that_is_late_says_what_holds_it_up(nothing_left: Check, tmp_path: Path) -> None:
    """Issue 25: savepoint() had no timeout of its own, and said nothing of what it waited for."""
    gate = tmp_path / "gate"

    def hold(word: str) -> str:
        while gate.exists():
            time.sleep(0.01)
        return word

    flow = rd.Dataflow("late")
    flow.input("words").map(hold, name="hold").key_by(lambda w: w).count(name="counts").probe("counted").collect("counts")
    with running(flow, storage_path=str(tmp_path / "jobs")) as (job, words):
        gate.touch()
        words.send(["a"])
        until(lambda: "hold" in job.explain_stuck(), "the function hangs")
        told = r"^the savepoint was not taken within [01](\.\d+)? s: \d of 3 parts are not written: of ('\w+'\[\d\](, )?)+$"
        with pytest.raises(rd.SnapshotError, match=told):
            job.savepoint(timeout_s=1.0)
        gate.unlink()
        assert Path(job.savepoint(timeout_s=PATIENCE_S)).is_relative_to(tmp_path)
