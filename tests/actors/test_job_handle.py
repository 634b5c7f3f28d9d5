"""The handle of a job, as far as it needs no cluster."""

from __future__ import annotations

import threading
from typing import Any

import rayad as rd
from rayad.actors.driver.job_handle import RayJobHandle
from rayad.actors.job import JobInput, JobProgress, JobState
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
