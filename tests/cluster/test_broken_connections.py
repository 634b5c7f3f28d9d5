"""Unknown is not dead: a connection to a coordinator breaks, and the job goes on with the same one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import rayad as rd
from rayad.actors.job import JobInput, JobState
from tests.cluster import connections
from tests.cluster.conftest import job_processes
from tests.cluster.until import until
from tests.patience import PATIENCE_S

Check = Callable[[], None]
SURVIVES = {"snapshots": rd.SnapshotConfig(interval_s=0.3), "failures": rd.FailureConfig(max_failures=5, delay_s=0.1)}


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
    """A job that runs, and its input; the job ends with the block."""
    job = flow.submit(parallelism=2, run=rd.RunConfig(**options))
    try:
        until(lambda: job.state is JobState.RUNNING, "the job runs")
        yield job, job.input("words")
    finally:
        job.cancel()


def coordinators() -> list[int]:
    """The processes of coordinators."""
    return sorted(process.pid for process in job_processes(kind="ray::Coordinator"))


def totals(result: Any) -> dict[str, int]:
    """The last total of each word."""
    return dict(record for _, record in sorted(result["counts"]))


def is_lost(job: Any) -> bool:
    """Whether the driver has noticed that its reference to the outcome is lost, and has another one."""
    return bool(job._line.outcome is not None and job._line.outcome != job.first)


@pytest.mark.parametrize("stored", [True, False])
def test_a_broken_connection_of_the_driver_does_not_replace_its_coordinator(nothing_left: Check, tmp_path: Path, stored: bool) -> None:
    """Issue 25: Ray's ActorUnavailableError was taken for death. A second coordinator began beside the first, which nobody ended; without a
    store the job failed."""
    options = {"storage_path": str(tmp_path), **SURVIVES} if stored else {}
    with running(counting("broken"), **options) as (job, words):
        words.send(["a", "b"])
        words.advance_to(1)
        assert job.probe("counted").wait(0, timeout_s=PATIENCE_S)
        (before,) = coordinators()
        for again in range(3):
            first = job._line.outcome
            assert connections.break_between(_own(), before) > 0
            until(lambda first=first: job._line.outcome not in (None, first), "the outcome is asked for again")
            assert coordinators() == [before]
            words.send(["a"])
            words.advance_to(2 + again)
            assert job.probe("counted").wait(1 + again, timeout_s=PATIENCE_S)
            assert rd.jobs() == {"broken": JobState.RUNNING}
            assert job.state is JobState.RUNNING
            assert rd.attach("broken").progress().state is JobState.RUNNING
        words.close()
        result = job.wait(timeout_s=PATIENCE_S)
        assert totals(result) == {"a": 4, "b": 1}
        assert result.statistics.failures == 0
        assert coordinators() in ([before], [])


def _own() -> int:
    import os

    return os.getpid()
