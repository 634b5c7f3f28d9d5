"""The coordinator alone, without Ray: replicas that have ended before their last parts were looked at."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

import rayad as rd
from rayad.actors.coordinator import supervisor as module
from rayad.actors.coordinator.long_calls import LongCalls
from rayad.actors.coordinator.supervisor import Supervisor


class Keeper:
    """Finds the last part at its third look; or never."""

    def __init__(self, looks: float) -> None:
        self.looks = looks
        self.final: Any = None

    def poll(self, timeout_s: float) -> bool:
        self.looks -= 1
        self.final = "the last snapshot" if self.looks <= 0 else None
        return self.final is not None


def ended(looks: float) -> Any:
    """A coordinator's thread whose replicas have all ended."""
    job: Any = SimpleNamespace(plan=SimpleNamespace(sinks=[]), crew=SimpleNamespace(find_stuck=lambda names: None))
    job.calls, job.keeper, job.cancelled = LongCalls(), Keeper(looks), threading.Event()
    one: Any = object.__new__(Supervisor)
    one._job, one._rescaler = job, SimpleNamespace(failure=None, newcomers=set(), leaving={})
    return one


def test_replicas_may_end_before_their_last_parts_are_looked_at() -> None:
    """Found on a loaded machine: the job failed with an AssertionError while it published, with all its work done."""
    one = ended(looks=3)
    assert one._supervise() == ([], {}, {})
    assert one._job.keeper.final == "the last snapshot"


def test_last_parts_that_never_come_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LAST_PARTS_S", 0.01)
    one = ended(looks=float("inf"))
    with pytest.raises(rd.SnapshotError, match="parts of the last snapshot are missing"):
        one._supervise()
