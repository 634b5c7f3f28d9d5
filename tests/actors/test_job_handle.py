"""The handle of a job, as far as it needs no cluster."""

from __future__ import annotations

import threading
from typing import Any

import pytest

import rayad as rd
from rayad.actors.coordinator.outcome import JobOutcome, Look
from rayad.actors.driver.coordinator_line import NoAnswer
from rayad.actors.driver.job_handle import BUSY_S, GLANCE_S, KNOCKING_S, RayJobHandle
from rayad.actors.inputs.job_input import JobInput
from rayad.actors.job import THE_COORDINATOR, JobProgress, JobState, JobStatistics, Silent
from rayad.actors.lead.failure import failure_of
from tests.patience import PATIENCE_S


class Handle(RayJobHandle):
    """Of a job whose inputs open only when all threads that want one have come."""

    def __init__(self, plan: Any, wanted: threading.Event) -> None:
        super().__init__("fed", plan, rd.RunConfig(), JobProgress(JobState.RUNNING, (), 0))
        self.wanted = wanted
        self.opened = 0

    def _open_input(self, name: str, stage: int) -> JobInput:
        self.opened += 1
        assert self.wanted.wait(PATIENCE_S)
        return object()  # type: ignore[return-value]  # nothing is asked of it here


Handle.__abstractmethods__ = frozenset()


def test_threads_that_ask_for_an_input_at_the_same_time_get_the_same_one() -> None:
    flow = rd.Dataflow("fed")
    flow.input("numbers").collect("out")
    both, second = threading.Barrier(2), threading.Event()
    handle = Handle(flow.plan(), second)
    got: list[JobInput] = []

    def ask() -> None:
        if both.wait(PATIENCE_S) == 0:
            threading.Timer(0.05, second.set).start()  # the other one has asked by then, or asks later: both must do
        got.append(handle.input("numbers"))

    threads = [threading.Thread(target=ask) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert handle.opened == 1
    assert len(got) == 2
    assert got[0] is got[1]


class BusyLine:
    """To a coordinator that does not answer the first ``late`` calls; its heartbeat ``is_well`` or not."""

    def __init__(self, late: int, is_well: bool) -> None:
        self.late = late
        self.is_well = is_well
        self.asked: list[tuple[str, float]] = []

    def call(self, method: str, *args: Any, timeout_s: float) -> Any:
        self.asked.append((method, timeout_s))
        if len(self.asked) <= self.late:
            raise NoAnswer(method)
        return Look(JobState.STARTING)

    def silence(self, at_least_s: float, knocking_s: float = 0.0) -> Silent:
        assert (at_least_s, knocking_s) == (GLANCE_S, KNOCKING_S)
        return Silent(THE_COORDINATOR, "10.0.0.1", at_least_s, is_well=self.is_well)


@pytest.mark.parametrize(
    ("late", "is_well", "told", "calls"),
    [
        (1, True, "The job is being started.", 2),
        (2, True, "the coordinator on node 10.0.0.1 answers heartbeats, and has not told of the job within 5.9 s: it has much to do", 2),
        (
            1,
            False,
            "the coordinator on node 10.0.0.1 has not answered for 0.9 s: its process is stopped, or its node is gone; after 60 s it "
            "counts as dead",
            1,
        ),
    ],
)
def test_a_coordinator_that_is_well_and_busy_is_not_called_stopped(late: int, is_well: bool, told: str, calls: int) -> None:
    """Issue 25: during a recovery explain_stuck() said of a well coordinator that its process is stopped, or its node is gone."""
    flow = rd.Dataflow("fed")
    flow.input("numbers").collect("out")
    handle = Handle(flow.plan(), threading.Event())
    line: Any = BusyLine(late, is_well)
    handle._line = line
    assert handle.explain_stuck() == told
    assert line.asked == [("look", GLANCE_S), ("look", BUSY_S)][:calls]


def test_a_savepoint_of_a_failed_job_has_the_cause_that_wait_has() -> None:
    """Issue 25: it said that the job is failed, and not why."""
    flow = rd.Dataflow("fed")
    flow.input("numbers").collect("out")
    handle = Handle(flow.plan(), threading.Event())
    failure = failure_of("'out'[0]", rd.DataflowError("a record is wrong", located=True))
    line: Any = BusyLine(0, True)
    handle._line, handle._outcome = line, JobOutcome(JobState.FAILED, {}, JobStatistics(), failure)
    with pytest.raises(rd.SnapshotError) as caught:
        handle.savepoint()
    assert str(caught.value) == f"job 'fed' is failed: no savepoint can be taken; 'out'[0]: {failure.message}"
    with pytest.raises(rd.DataflowError) as waited:
        handle.wait()
    assert (type(caught.value.__cause__), str(caught.value.__cause__)) == (type(waited.value), str(waited.value))
    handle._outcome = JobOutcome(JobState.COMPLETE, {}, JobStatistics())
    with pytest.raises(rd.SnapshotError, match=r"^job 'fed' is complete: no savepoint can be taken$"):
        handle.savepoint()
    with pytest.raises(rd.ConfigError, match=r"savepoint\(timeout_s\)"):
        handle.savepoint(timeout_s=-1)
