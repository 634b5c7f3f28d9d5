"""A notification asked for with ``capability=None`` is not counted by the progress core, so nothing told its replica when it was due."""

from __future__ import annotations

from typing import Any

import pytest

import rayad as rd
from tests.actors.hosts import start_hosts

HEARD: list[tuple[int, rd.Timestamp]] = []


class Tidy(rd.Vertex):
    """Asks for a notification, and emits nothing."""

    def on_recv(self, edge: int, batch: Any, time: rd.Timestamp) -> None:
        self.notify_at(time, capability=None)

    def on_notify(self, time: rd.Timestamp) -> None:
        HEARD.append((self.replica, time))


def tidying() -> rd.Dataflow:
    flow = rd.Dataflow("tidy")
    flow.from_epochs([[1], [2], [3]]).vertex(Tidy)
    return flow


def test_it_is_delivered_on_the_local_runtime() -> None:
    for seed in range(5):
        HEARD.clear()
        tidying().run(runtime="local", seed=seed)
        assert [(0, rd.Timestamp(epoch)) for epoch in range(3)] == HEARD


def test_it_is_delivered_over_the_data_plane() -> None:
    HEARD.clear()
    start_hosts(tidying()).join()
    assert [(0, rd.Timestamp(epoch)) for epoch in range(3)] == HEARD


class WaitsForItself(rd.Vertex):
    """Keeps a capability of this round while it waits for a later round, which records sent by that capability could still reach."""

    def on_recv(self, edge: int, batch: Any, time: rd.Timestamp) -> None:
        self.notify_at(rd.Timestamp(time.epoch, (time.counters[0] + 2,)), capability=time)


def test_a_notification_that_would_wait_for_itself_is_refused() -> None:
    flow = rd.Dataflow("selfish")

    def body(rows: rd.Stream) -> tuple[rd.Stream, rd.Stream]:
        out = rows.vertex(WaitsForItself, name="selfish")
        return out, out

    flow.from_items([1]).iterate(body).collect("out")
    with pytest.raises(rd.DataflowError, match=r"so it would wait for itself for ever; use a capability at or beyond that time, or None"):
        flow.run(runtime="local")
