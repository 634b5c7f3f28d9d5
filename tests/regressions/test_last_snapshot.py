"""The coordinator alone, without Ray: replicas that have ended before their last parts were looked at."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

import rayad as rd
from rayad.actors import coordinator as module
from rayad.actors.coordinator.long_calls import MutableLongCalls
from rayad.actors.coordinator_actor import Coordinator


class Keeper:
    """Finds the last part at its third look; or never."""

    def __init__(self, looks: float) -> None:
        self.looks = looks
        self.final: Any = None

    def poll(self, timeout_s: float) -> bool:
        self.looks -= 1
        self.final = "the last snapshot" if self.looks <= 0 else None
        return self.final is not None


def ended(looks: float) -> Coordinator:
    """A coordinator whose replicas have all ended."""
    one: Any = object.__new__(Coordinator)
    one.plan = SimpleNamespace(sinks=[])
    one.rescaler = SimpleNamespace(failure=None, newcomers=set(), leaving={})
    one._crew = SimpleNamespace(find_stuck=lambda names: None)
    one._runs, one._keeper, one._cancelled = MutableLongCalls(), Keeper(looks), threading.Event()
    return one  # type: ignore[no-any-return]


def test_replicas_may_end_before_their_last_parts_are_looked_at() -> None:
    """Found on a loaded machine: the job failed with an AssertionError while it published, with all its work done."""
    one: Any = ended(looks=3)
    assert one._supervise() == ([], {}, {})
    assert one._keeper.final == "the last snapshot"


def test_last_parts_that_never_come_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LAST_PARTS_S", 0.01)
    one: Any = ended(looks=float("inf"))
    with pytest.raises(rd.SnapshotError, match="parts of the last snapshot are missing"):
        one._supervise()
