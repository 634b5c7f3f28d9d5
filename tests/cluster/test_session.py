"""Processes that stay when a job is complete: what the next job finds, and when they go."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import ray

import rayad as rd
from rayad.actors.cluster import log_files, names
from rayad.actors.job import JobState
from rayad.actors.warm.sets import OF_THIS_PROCESS
from tests.cluster.conftest import job_processes
from tests.cluster.recovering import Paced, by_value, kill, surviving, until, wait_for_snapshots
from tests.patience import PATIENCE_S
from tests.programs import model

pytestmark = pytest.mark.cluster
Check = Callable[[], None]
WORDS = ["to be", "or not to be"]
COUNTED = {"to": 2, "be": 2, "or": 1, "not": 1}


@pytest.fixture(scope="module", autouse=True)
def _send_tests_by_value(ray_cluster: None) -> Iterator[None]:
    with by_value(model, sys.modules[__name__]):
        yield


@pytest.fixture
def two(nothing_left: Check) -> Iterator[rd.actors.warm.session.Session]:
    """A session of two workers; no process stays when it is closed."""
    with rd.session(workers=2) as session:
        yield session
    nothing_left()


def words(name: str = "words") -> rd.Dataflow:
    flow = rd.Dataflow(name)
    flow.from_items(WORDS, name="lines").flat_map(str.split).key_by(lambda word: word).count(name="counts").collect("out")
    return flow


def counted(result: Any) -> dict[str, int]:
    return {word: count for _, (word, count) in result["out"]}


def pids(kind: str = "") -> set[int]:
    return {process.pid for process in job_processes(kind=kind)}


def ticking(name: str, until_there: Path | None = None) -> rd.Dataflow:
    flow = rd.Dataflow(name)
    ticks = flow.source(Paced([[f"k{epoch % 7}"] for epoch in range(100)], parts=2, until=until_there), name="ticks")
    ticks.key_by(lambda key: key).count(name="counts").latest().collect("out")
    return flow


def of_ticks(result: Any) -> dict[str, int]:
    return dict(record for _, record in result["out"])


TICKED = {f"k{at}": 100 // 7 + (at < 100 % 7) for at in range(7)}


def test_the_second_job_runs_in_the_processes_of_the_first_whatever_its_flow_and_name(two: Any) -> None:
    assert counted(words("first").run()) == COUNTED
    there = pids()
    assert len(there) == 4
    flow = rd.Dataflow("second")
    flow.from_items(range(100), name="numbers").map(lambda n: n * n).collect("squares")
    assert sorted(record for _, record in flow.run()["squares"]) == [n * n for n in range(100)]
    assert counted(words("first").run(parallelism=1)) == COUNTED
    assert pids() == there
    assert repr(two) == "Session(workers=2, open)"


def test_while_a_job_runs_it_has_its_name_and_afterwards_nobody_has(two: Any, tmp_path: Path) -> None:
    name = "named in a session"  # of no other test's job on this Ray: its table tells of those that have ended, too
    words("before").run()
    job = ticking(name, tmp_path / "go").submit()
    try:
        until(lambda: job.state is JobState.RUNNING, "running")
        assert rd.jobs() == {name: JobState.RUNNING}
        written = [one.what for one in log_files.processes_of(name)]
        assert sorted(written) == ["Coordinator", "ProgressActor", "WorkerActor", "WorkerActor"]
        with pytest.raises(rd.DataflowError, match=rf"a job named '{name}' runs on this cluster already"):
            words(name).submit()
        attached = rd.attach(name)
    finally:
        (tmp_path / "go").touch()
    assert of_ticks(job.wait(timeout_s=PATIENCE_S)) == TICKED
    assert of_ticks(attached.wait(timeout_s=PATIENCE_S)) == TICKED
    assert rd.jobs() == {}
    assert not names.known()


def test_a_late_call_of_a_jobs_handle_does_not_reach_the_next_job(two: Any, tmp_path: Path) -> None:
    job = ticking("earlier", tmp_path / "go").submit()
    until(lambda: job.state is JobState.RUNNING, "running")
    (late,) = names.find("earlier").values()
    (tmp_path / "go").touch()
    job.wait(timeout_s=PATIENCE_S)
    second = ticking("later", tmp_path / "again").submit()
    until(lambda: second.state is JobState.RUNNING, "running")
    with pytest.raises(ray.exceptions.RayTaskError, match=r"the job has ended: its coordinator runs another one"):
        ray.get(late.cancel.remote(), timeout=PATIENCE_S)
    (tmp_path / "again").touch()
    assert of_ticks(second.wait(timeout_s=PATIENCE_S)) == TICKED


def test_two_jobs_at_the_same_time_share_no_process(two: Any, tmp_path: Path) -> None:
    words("before").run()
    jobs = [ticking(name, tmp_path / "go").submit() for name in ("one", "other")]
    until(lambda: all(job.state is JobState.RUNNING for job in jobs), "both run")
    mine = [{pid for those in job.pids().values() for pid in those} for job in jobs]
    assert len(mine[0]) == len(mine[1]) == 2
    assert not mine[0] & mine[1]
    (tmp_path / "go").touch()
    for job in jobs:
        assert of_ticks(job.wait(timeout_s=PATIENCE_S)) == TICKED
    until(lambda: len(pids()) == 4, "one set is enough for a session")


def test_snapshots_and_a_change_of_layout_in_a_warm_job(two: Any, tmp_path: Path) -> None:
    words("before").run()
    there = pids("WorkerActor")
    for number in range(2):
        go = tmp_path / f"go{number}"
        job = ticking(f"saved{number}", go).submit(surviving(tmp_path))
        wait_for_snapshots(tmp_path, f"saved{number}", 2)
        job.rescale("counts", 1)
        job.rescale("counts", 3)  # starts a third worker, which stays for the second job
        go.touch()
        assert of_ticks(job.wait(timeout_s=PATIENCE_S)) == TICKED
    assert there < pids("WorkerActor")
    assert len(pids("WorkerActor")) == 3


@pytest.mark.parametrize("how", ["fails", "is cancelled"])
def test_the_processes_of_a_job_that_was_not_complete_are_not_used_again(two: Any, how: str, tmp_path: Path) -> None:
    words("before").run()
    there = pids()
    if how == "fails":
        flow = rd.Dataflow("failing")
        flow.from_items(range(10)).map(lambda n: 1 // (n - 5), name="divide").collect("out")
        with pytest.raises(rd.DataflowError, match=r"'divide'\[0\].*ZeroDivisionError"):
            flow.run()
    else:
        job = ticking("cancelled", tmp_path / "never").submit()
        until(lambda: job.state is JobState.RUNNING, "running")
        job.cancel()
    assert counted(words("after").run()) == COUNTED
    assert not there & pids()


@pytest.mark.parametrize(
    "kind", ["WorkerActor", *(pytest.param(kind, marks=pytest.mark.soak) for kind in ("ProgressActor", "Coordinator"))]
)
def test_a_process_that_dies_or_is_stopped_between_two_jobs_is_replaced(two: Any, kind: str) -> None:
    for strike in (signal.SIGKILL, signal.SIGSTOP):
        words("before").run()
        before = pids(kind)
        (victim, *_) = before
        os.kill(victim, strike)
        if strike == signal.SIGKILL:
            until(lambda: not psutil.pid_exists(victim) or psutil.Process(victim).status() == psutil.STATUS_ZOMBIE, "gone")  # noqa: B023
        assert counted(words("after").run()) == COUNTED
        until(lambda: victim not in pids(), "the one that was struck is gone")  # noqa: B023
        assert before - {victim} <= pids(kind) or kind == "Coordinator"


@pytest.mark.parametrize("kind", ["WorkerActor", pytest.param("Coordinator", marks=pytest.mark.soak)])
def test_a_process_that_dies_in_a_warm_job_is_survived_and_none_is_used_again(two: Any, kind: str, tmp_path: Path) -> None:
    words("before").run()
    there = pids()
    job = ticking("struck", tmp_path / "go").submit(surviving(tmp_path))
    wait_for_snapshots(tmp_path, "struck", 1)
    kill(kind, -1)
    wait_for_snapshots(tmp_path, "struck", 2)
    (tmp_path / "go").touch()
    assert of_ticks(job.wait(timeout_s=PATIENCE_S)) == TICKED
    assert counted(words("after").run()) == COUNTED
    assert not there & pids()


def test_a_job_with_resources_of_its_own_or_of_another_kind_gets_processes_for_what_is_missing(two: Any) -> None:
    words("before").run()
    there = pids("WorkerActor")
    flow = rd.Dataflow("asks")
    flow.from_items(range(8)).map(lambda n: n + 1, num_cpus=0.5, name="asks").collect("out")
    assert sorted(record for _, record in flow.run()["out"]) == list(range(1, 9))
    assert there <= pids("WorkerActor") or not pids("WorkerActor"), "those of another kind than any that was asked for have ended"
    assert len(pids("VertexActor")) == 1
    words("alike").run()
    until(lambda: not pids("VertexActor"), "what holds processors that nobody asks for ends")


def test_what_stays_of_the_job_before_is_what_modules_keep(two: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def note(word: str) -> list[Any]:
        import json

        before = getattr(json, "_noted", 0)
        json._noted = before + 1  # type: ignore[attr-defined]
        globals()["_noted"] = globals().get("_noted", 0) + 1
        return [before, globals()["_noted"]]

    told = []
    for number in range(2):
        flow = rd.Dataflow(f"notes{number}")
        flow.from_items(["once"]).map(note).collect("out")
        told += [record for _, record in flow.run(parallelism=1)["out"]]
    assert told == [[0, 1], [1, 1]], "a variable of a module stays; one of the program, which travels with it, does not"


def test_a_module_whose_file_has_changed_is_imported_anew(two: Any, tmp_path: Path) -> None:
    module = tmp_path / "told_by_file.py"

    def ask(folder: str) -> Any:
        if folder not in sys.path:
            sys.path.insert(0, folder)
        import told_by_file  # type: ignore[import-not-found]

        return told_by_file.WHAT

    told = []
    for what in ("one", "one", "another"):
        if not module.exists() or what not in module.read_text():
            module.write_text(f"WHAT = {what!r}\n")
            later_s = time.time() + 5.0 * (what == "another")
            os.utime(module, (later_s, later_s) if what == "another" else (1.0, 1.0))
        flow = rd.Dataflow("asks")
        flow.from_items([str(tmp_path)]).map(ask).collect("out")
        told += [record for _, record in flow.run(parallelism=1)["out"]]
    assert told == ["one", "one", "another"]


def test_processes_stay_for_as_long_as_the_configuration_says_and_no_longer(nothing_left: Check) -> None:
    warm = rd.RunConfig(keep_warm_s=2.0)
    assert counted(words().run(warm, parallelism=2)) == COUNTED
    there = pids()
    assert counted(words("second").run(warm, parallelism=2)) == COUNTED
    assert there == pids()
    nothing_left()
    assert len(OF_THIS_PROCESS) == 0
    assert counted(words().run(parallelism=1)) == COUNTED
    nothing_left()


def test_a_session_that_is_closed_while_a_job_runs_ends_with_it(nothing_left: Check, tmp_path: Path) -> None:
    session = rd.session()
    job = ticking("last", tmp_path / "go").submit()
    until(lambda: job.state is JobState.RUNNING, "running")
    session.close()
    session.close()
    assert repr(session) == "Session(workers=1, closed)"
    (tmp_path / "go").touch()
    assert of_ticks(job.wait(timeout_s=PATIENCE_S)) == TICKED
    nothing_left()


def test_jobs_of_two_threads_take_turns_with_the_session(two: Any) -> None:
    told: dict[int, dict[str, int]] = {}

    def run(number: int) -> None:
        for turn in range(3):
            told[10 * number + turn] = counted(words(f"thread{number}").run())

    threads = [threading.Thread(target=run, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert told == dict.fromkeys([0, 1, 2, 10, 11, 12], COUNTED)


def test_none_is_left_when_the_driver_dies(nothing_left: Check) -> None:
    program = textwrap.dedent(
        """
        import os, sys, time
        import rayad as rd
        session = rd.session(workers=2)
        flow = rd.Dataflow("dies")
        flow.from_items(range(10)).map(lambda n: n).collect("out")
        flow.run()
        print("ready", flush=True)
        time.sleep(600)
        """
    )
    environment = {**os.environ, "RAY_ADDRESS": ray.get_runtime_context().gcs_address}
    driver = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, env=environment)
    try:
        assert driver.stdout is not None
        assert driver.stdout.readline() == "ready\n"
        until(lambda: len(pids()) == 4, "all four are up")
        driver.kill()
        driver.wait(PATIENCE_S)
    finally:
        driver.kill()
    nothing_left()
    assert rd.jobs() == {}


def test_a_detached_job_cannot_stay_warm() -> None:
    with pytest.raises(rd.ConfigError, match=r"submit\(detached=True\): RunConfig\(keep_warm_s=5\)"):
        words().submit(rd.RunConfig(keep_warm_s=5.0), detached=True)
