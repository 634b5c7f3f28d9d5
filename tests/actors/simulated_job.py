"""A job for the autoscaler's shell: the simulated dataflow with the methods that the shell calls, in simulated time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from typing import Any

import rayad as rd
from rayad.actors.scaling.loop import Listener, ScalingLoop
from rayad.autoscale import Decision, JobSample, Policy, Record, ReplicaReading, ScalingGraph
from tests.autoscale.dataflow_simulation import SimulatedDataflow, Work

WORDS = ScalingGraph.of(["lines", "count"], [("lines", "count")], sources=["lines"])


class SimulatedJob:
    """``layout``, ``readings`` and ``rescale`` of a coordinator; new replicas come when ``arrive`` is called, or at once."""

    def __init__(self, rate: float = 400.0, graph: ScalingGraph = WORDS, layout: Mapping[str, int] | None = None) -> None:
        work = {"lines": Work(rate=10_000.0, arrivals=rate), "count": Work(rate=100.0)}
        self.dataflow = SimulatedDataflow(graph, work, {0: 1.0}, layout or {"lines": 1, "count": 1}, start_s=0.0)
        self.is_running = True
        self.refuses = ""
        self.asked: list[dict[str, int]] = []

    def layout(self) -> Mapping[str, int] | None:
        return dict(self.dataflow.layout) if self.is_running else None

    def readings(self) -> Sequence[ReplicaReading]:
        return self.dataflow.readings()

    def rescale(self, changes: Mapping[str, int], timeout_s: float, decided_for: Mapping[str, int]) -> str:
        self.asked.append(dict(changes))
        assert decided_for == self.layout()
        if self.refuses:
            raise rd.ConfigError(self.refuses)
        self.dataflow.rescale(changes)
        self.dataflow.step()
        return "done"

    def now_s(self) -> float:
        return self.dataflow.now_s

    def advance(self, seconds: float) -> None:
        until_s = self.dataflow.now_s + seconds
        while self.dataflow.now_s < until_s - 1e-9:
            self.dataflow.step()

    def rounds(self, loop: ScalingLoop, count: int, interval_s: float = 2.0) -> list[Decision | None]:
        out = []
        for _ in range(count):
            out.append(loop.round())
            self.advance(interval_s)
        return out


class Notes:
    """A listener that keeps what it is told."""

    def __init__(self) -> None:
        self.samples: list[tuple[JobSample, dict[str, int]]] = []
        self.records: list[Record] = []

    def on_sample(self, sample: JobSample, layout: Mapping[str, int]) -> None:
        self.samples.append((sample, dict(layout)))

    def on_record(self, record: Record) -> None:
        self.records.append(record)


class Later:
    """Runs a call when it is told to."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, Future[Any]]] = []

    def __call__(self, call: Any) -> Future[Any]:
        future: Future[Any] = Future()
        self.calls.append((call, future))
        return future

    def run(self) -> None:
        call, future = self.calls.pop(0)
        try:
            future.set_result(call())
        except Exception as error:
            future.set_exception(error)


def loop_of(job: SimulatedJob, policy: Policy, *listeners: Listener, **options: Any) -> ScalingLoop:
    """No windows and no warm-up, but for what the options say."""
    config = rd.ScalingConfig(policy=policy, window_s=options.pop("window_s", 0.0), warm_up_s=options.pop("warm_up_s", 0.0))
    return ScalingLoop(job, job.dataflow.graph, policy, config, job.now_s, listeners=listeners, **options)
