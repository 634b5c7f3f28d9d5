"""A diagnosis of real hosts, joined by real sockets: what each replica and the progress host tell, while something planted goes on."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest

import rayad as rd
from rayad.actors.lead.diagnosis import Cause, Facts, Finding, diagnose
from rayad.actors.plane.protocol import PROGRESS
from tests.actors.hosts import Hosts, start_hosts
from tests.patience import PATIENCE_S

_OPEN = threading.Event()


def first_of(hosts: Hosts) -> Finding | None:
    """What a coordinator would say first now."""
    reports = [report for name, host in hosts.hosts.items() if name != PROGRESS for report in host.look().values()]
    stamps = hosts.hosts[PROGRESS].call("look", True)[3]
    found = diagnose(Facts({(report.name, report.replica): report for report in reports}, stamps))
    return found[0] if found else None


def hold(number: int) -> int:
    _OPEN.wait(PATIENCE_S)
    return number


class Held(rd.Sink, rd.SinkWriter):
    """Keeps nothing; ``write`` does not return while the gate is closed."""

    def open(self, replica: int, parallelism: int) -> rd.SinkWriter:
        return self

    def write(self, time: rd.Timestamp, batch: object) -> None:
        _OPEN.wait(PATIENCE_S)

    def stage(self) -> None:
        return None

    def publish(self, staged: object) -> None:
        return None


def blocked_function() -> rd.Dataflow:
    flow = rd.Dataflow("blocked")
    flow.from_epochs([[1]]).rebalance(name="work").map(hold, name="hold").collect("out")
    return flow


def blocked_sink() -> rd.Dataflow:
    flow = rd.Dataflow("sink")
    flow.from_epochs([[1]]).rebalance(name="work").map(abs, name="abs").sink(Held(), "held")
    return flow


@pytest.mark.parametrize(
    ("plant", "cause", "function"),
    [(blocked_function, Cause.BLOCKED, "in hold ("), (blocked_sink, Cause.SINK, "in write (")],
)
def test_a_call_that_does_not_return_is_named_with_its_function(plant: Callable[[], rd.Dataflow], cause: Cause, function: str) -> None:
    _OPEN.clear()
    hosts = start_hosts(plant())
    try:
        found: Finding | None = None
        deadline_s = time.monotonic() + PATIENCE_S
        while (found is None or found.cause is not cause or function not in found.sentence) and time.monotonic() < deadline_s:
            found = first_of(hosts)
        assert found is not None
        assert (found.cause, found.vertex, found.replica, found.time) == (cause, "work", 0, rd.Timestamp(0))
        assert function in found.sentence
        assert "test_diagnosis_hosts.py" in found.sentence
    finally:
        _OPEN.set()
    hosts.join()
