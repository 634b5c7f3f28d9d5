"""Jobs found by name: from this process and from another driver, across the death of a coordinator, until their end."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import ray

import rayad as rd
from rayad.actors.driver.attached_job import NoSuchJob
from rayad.actors.inputs.job_input import JobInput
from rayad.actors.job import Job, JobState
from tests.cluster.conftest import job_processes
from tests.cluster.until import until
from tests.patience import PATIENCE_S

Check = Callable[[], None]


def counting(name: str) -> rd.Dataflow:
    """Counts the words of a live input."""
    flow = rd.Dataflow(name)
    flow.input("words").key_by(lambda w: w).count(name="counts").probe("counted").collect("counts")
    return flow


@contextmanager
def running(flow: rd.Dataflow, **options: Any) -> Iterator[tuple[Job, JobInput]]:
    """A job and its input; the job ends with the block."""
    job = flow.submit(parallelism=2, run=rd.RunConfig(**options))
    try:
        yield job, job.input("words")
    finally:
        job.cancel()


def test_another_handle_sees_saves_and_rescales_a_job_and_gets_its_results(nothing_left: Check, tmp_path: Path) -> None:
    with running(counting("found"), storage_path=str(tmp_path)) as (job, words):
        assert Path(job.savepoint()).is_relative_to(tmp_path)  # regression: while it started, it said that it kept no snapshots
        words.send(["a", "b", "a"])
        words.advance_to(1)
        other = rd.attach("found")
        assert rd.jobs() == {"found": JobState.RUNNING}
        assert other.probe("counted").wait(0, timeout_s=PATIENCE_S)
        assert other.state is JobState.RUNNING
        assert other.progress().stages[-1].name == job.progress().stages[-1].name
        assert Path(other.savepoint()).is_relative_to(tmp_path)
        lines, counts = other.status().vertices
        assert (lines.replicas[0].records_in, len(counts.replicas)) == (3, 2)
        assert counts.frontier == (rd.Timestamp(1),)
        assert all(one.answers and one.pid and one.busy_share is not None for one in (*lines.replicas, *counts.replicas))
        assert other.status().snapshot is not None
        other.rescale("counts", 3, timeout_s=PATIENCE_S)
        assert len(job.pids()["counts"]) == 3  # type: ignore[attr-defined]
        words.send(["a"])
        assert other.input("words") is words
        with pytest.raises(rd.DataflowError, match="has no probe 'none': it has"):
            other.probe("none")
        result = other.stop(timeout_s=PATIENCE_S)
        assert result["counts"] == job.wait(timeout_s=PATIENCE_S)["counts"]
        assert (rd.Timestamp(1), ("a", 3)) in result["counts"]
        assert other.state is job.state is JobState.COMPLETE
        assert job.journal() == other.journal()
        assert {"running", "snapshot", "layout", "stopping", "end"} <= {event.kind for event in job.journal()}
        assert len((tmp_path / "found" / "journal.jsonl").read_text().splitlines()) == len(job.journal())
    until(lambda: rd.jobs() == {}, "the name is free again")


def test_the_name_of_a_job_that_runs_is_refused_and_free_again_when_it_has_ended(nothing_left: Check) -> None:
    told = (
        r"^a job named 'twice' runs on this cluster already: rayad.attach\('twice'\) gives its handle; to start another one beside it, "
        r"give it a name of its own: RunConfig\(name=...\)$"
    )
    with running(counting("twice")):
        with pytest.raises(rd.DataflowError, match=told):
            counting("twice").submit()
        with running(counting("twice"), name="twice too"):
            assert list(rd.jobs()) == ["twice", "twice too"]
    for _ in range(3):  # at once, while Ray ends the previous one
        with running(counting("twice")):
            pass


def test_an_attached_handle_may_cancel_and_an_unknown_job_is_named(nothing_left: Check) -> None:
    with running(counting("cancelled")) as (job, _):
        rd.attach("cancelled").cancel()
        assert job.state is JobState.CANCELLED
        until(lambda: rd.jobs() == {}, "the name is free again")
        with pytest.raises(NoSuchJob, match=r"^no job named 'cancelled' runs on this cluster: no job does$"):
            rd.attach("cancelled")
    with running(counting("words of today")), pytest.raises(NoSuchJob, match="did you mean 'words of today'"):
        rd.attach("words of toda")


def test_an_attached_handle_outlives_a_coordinator(nothing_left: Check, tmp_path: Path) -> None:
    surviving = {"snapshots": rd.SnapshotConfig(interval_s=0.2), "failures": rd.FailureConfig(max_failures=3)}
    with running(counting("survives"), storage_path=str(tmp_path), **surviving) as (job, words):
        words.send(["a", "b"])
        words.advance_to(1)
        other = rd.attach("survives")
        assert other.probe("counted").wait(0, timeout_s=PATIENCE_S)
        other.configure(batch_rows=17)
        other.savepoint()
        (coordinator,) = job_processes(kind="Coordinator")
        until(lambda: _heard(job).get("batch_rows") == 17, "the owner has heard what was configured")
        coordinator.kill()
        words.send(["a"])
        words.close()
        assert (rd.Timestamp(1), ("a", 2)) in other.wait(timeout_s=PATIENCE_S)["counts"]
        assert job.wait(timeout_s=PATIENCE_S)["counts"] == other.result("counts")
        assert job._config.batch_rows == 17  # type: ignore[attr-defined]


def _heard(job: Any) -> dict[str, Any]:
    beat = job._line.beat
    return dict(beat.changes) if beat is not None else {}


DRIVER = """
import sys
import rayad as rd
flow = rd.Dataflow("of another")
flow.input("words").key_by(lambda w: w).count(name="counts").probe("counted").collect("counts")
job = flow.submit(parallelism=1)
words = job.input("words")
words.send(["a", "b"])
words.advance_to(1)
job.probe("counted").wait(0)
print("counted", flush=True)
sys.stdin.readline()
words.send(["a"])
words.close()
print(sorted(job.wait()["counts"]), flush=True)
sys.stdin.readline()
"""


@pytest.mark.parametrize("ends", [pytest.param("well", marks=pytest.mark.soak), "killed"])
def test_a_job_of_another_driver_is_found_and_ends_with_it(nothing_left: Check, ends: str) -> None:
    environment = {**os.environ, "RAY_ADDRESS": ray.get_runtime_context().gcs_address}
    command = [sys.executable, "-c", DRIVER]
    with subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as driver:
        assert driver.stdin is not None
        assert driver.stdout is not None
        assert driver.stdout.readline() == "counted\n"
        job = rd.attach("of another")
        assert job.probe("counted").complete(0)
        with pytest.raises(rd.DataflowError, match="takes records from the process that started the job only"):
            job.input("words")
        if ends == "well":
            driver.stdin.write("\n")
            driver.stdin.flush()
            assert sorted(job.wait(timeout_s=PATIENCE_S)["counts"])[-1] == (rd.Timestamp(1), ("a", 2))
            assert driver.stdout.readline().endswith("('a', 2))]\n")
        driver.kill()
        if ends == "killed":
            with pytest.raises(rd.RayadError, match=r"died|ended"):
                job.wait(timeout_s=PATIENCE_S)
            assert job.state is JobState.FAILED
    until(lambda: rd.jobs() == {}, "the job is gone")
