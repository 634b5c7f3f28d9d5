"""A change of layout whose new replica cannot be made is refused, and the reason says whose error it is."""

from __future__ import annotations

from typing import Any

import pytest

import rayad as rd

LIVES: list[str] = []


class Once(rd.Vertex):
    """Its first replica can be made; others fail with an error that says little."""

    def setup(self) -> None:
        if LIVES:
            raise KeyError("x")
        LIVES.append(self.name)

    def on_recv(self, edge: int, batch: Any, time: rd.Timestamp) -> None:
        self.send_by(0, batch, time)

    def give(self, groups: Any) -> dict[int, Any]:
        return {}

    def take(self, state: Any) -> None:
        """It keeps nothing."""


def test_the_reason_names_the_vertex_and_the_kind_of_error() -> None:
    LIVES.clear()
    flow = rd.Dataflow("refused")
    flow.input("rows").key_by(lambda n: n % 30).vertex(Once, name="mine").probe("seen").collect("out")
    job = flow.submit(runtime="local", parallelism=1)
    rows = job.input("rows")
    rows.send(list(range(100)))
    rows.advance_to(1)
    job.probe("seen").wait(0)
    with pytest.raises(rd.RescaleRefused, match=r"'mine'\[1\] .*failed in setup: KeyError: 'x'"):
        job.rescale("mine", 2)
    rows.close()
    assert len(job.wait()["out"]) == 100
