"""How a worker begins."""

from __future__ import annotations

from typing import Any

import pytest

import rayad as rd
from rayad.actors.plane.plane import Plane
from tests.actors.hosts import start_hosts


def test_a_worker_begins_to_connect_before_it_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: it polled first, for as long as it waits between two attempts, at each start, recovery and change of layout."""
    done: dict[str, list[str]] = {}
    start_connect, poll = Plane.start_connect, Plane.poll

    def connecting(plane: Plane, *given: Any) -> None:
        done.setdefault(plane.name, []).append("connects")
        start_connect(plane, *given)

    def polling(plane: Plane, timeout_s: float | None = 0.0) -> Any:
        if timeout_s:
            done.setdefault(plane.name, []).append("waits")
        return poll(plane, timeout_s)

    monkeypatch.setattr(Plane, "start_connect", connecting)
    monkeypatch.setattr(Plane, "poll", polling)
    flow = rd.Dataflow("begins")
    flow.from_items(range(10)).key_by(lambda n: n % 3).count().collect("out")
    hosts = start_hosts(flow, 2)
    hosts.join()
    workers = {name: what for name, what in done.items() if "connects" in what}
    assert len(workers) == 3
    assert {what[0] for what in workers.values()} == {"connects"}
