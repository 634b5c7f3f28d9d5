"""Jobs on Ray leave no thread of ours behind in the process that started them."""

from __future__ import annotations

import threading

import rayad as rd
from rayad.actors.process.threads import PREFIX
from tests.patience import PATIENCE_S


def ours() -> list[str]:
    return sorted(thread.name for thread in threading.enumerate() if thread.name.startswith(PREFIX))


def fed_by_two() -> rd.Dataflow:
    """One input whose epochs pass by the clock, and one that is sent to by hand: the driver has a thread for each."""
    flow = rd.Dataflow("fed")
    flow.input("words").union(flow.input("ticking", epoch_s=0.05)).key_by(str).count().collect("counts")
    return flow


def test_a_job_that_is_waited_for_leaves_none(ray_cluster: None) -> None:
    before = ours()
    job = fed_by_two().submit()
    words, ticking = job.input("words"), job.input("ticking")
    words.send(["a", "b"], timeout_s=PATIENCE_S)
    ticking.send(["a"])
    assert ours() == sorted([*before, "rayad-coordinator", "rayad-epochs", "rayad-inputs"])
    words.close()
    ticking.close()
    counts = dict(record for _, record in job.wait(timeout_s=PATIENCE_S)["counts"])
    assert counts == {"a": 2, "b": 1}
    assert ours() == before


def test_a_job_that_is_cancelled_leaves_none(ray_cluster: None) -> None:
    before = ours()
    job = fed_by_two().submit()
    job.input("ticking").send(["a"])
    job.cancel()
    assert ours() == before
