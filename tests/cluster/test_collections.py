"""Collections on real Ray: fed live, with a loop inside a loop; a process is killed and the layout changes between moments."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal

import pytest

import rayad as rd
from tests.cluster.recovering import by_value, kill, surviving
from tests.cluster.until import until
from tests.incremental.disturbed import Together
from tests.incremental.laws import on_ray
from tests.incremental.programs import PROGRAMS, history
from tests.patience import PATIENCE_S

pytestmark = pytest.mark.cluster
Check = Callable[[], None]
Draw = Callable[[random.Random], on_ray.Fed]


@pytest.fixture(scope="module", autouse=True)
def _send_tests_by_value(ray_cluster: None) -> Iterator[None]:
    with by_value(*on_ray.SENT, sys.modules[__name__]):
        yield


@pytest.mark.soak
@pytest.mark.parametrize("draw", [on_ray.of_loops, on_ray.of_late])
@pytest.mark.parametrize("seed", range(12))
def test_random_programs_are_right_whatever_happens_meanwhile(nothing_left: Check, seed: int, draw: Draw) -> None:
    """``python -m tests.incremental.laws --ray --runs 200``, and ``--only late``, are the same for longer."""
    on_ray.disturbed_on_ray(seed, draw)
    nothing_left()


@pytest.mark.parametrize(
    ("name", "placement", "replicas", "moved", "epochs_together"),
    [("reach", "vertices", 1, "distinct-2", 3), ("components", "workers", 2, "min", 1), ("again", "workers", 1, "upserts", 1)],
)
def test_tables_are_right_after_each_epoch_whatever_happens_meanwhile(
    nothing_left: Check, tmp_path: Path, name: str, placement: str, replicas: int, moved: str, epochs_together: int
) -> None:
    program = next(program for program in PROGRAMS if program.name == name)
    changes = history(program.shape, 3)
    flow = rd.Dataflow(name, epochs_together=epochs_together)
    program.build(flow.collection("edges")).changes().probe("seen").collect("out")
    scaling = rd.ScalingConfig(parallelism=replicas, placement=placement)  # type: ignore[arg-type]
    job = flow.submit(surviving(tmp_path), scaling)
    edges = job.collection("edges")
    for epoch, some in enumerate(changes):
        edges.insert([record for record, weight in some if weight > 0])
        edges.remove([record for record, weight in some if weight < 0])
        edges.advance_to(epoch + 1)
        if epoch == 3:
            kill("WorkerActor" if placement == "workers" else "VertexActor", -1)
        if epoch == 5:
            job.rescale(moved, 3 - replicas, timeout_s=PATIENCE_S)
        assert job.probe("seen").wait(epoch, timeout_s=PATIENCE_S)
    edges.close()
    result = job.wait(timeout_s=PATIENCE_S)
    Together(program, epochs_together).verify(changes, result["out"])
    assert (result.statistics.failures, job.status().failures, job.progress().failures) == (1, 1, 1)
    nothing_left()


EPOCHS, AHEAD = 40, 3


@pytest.mark.parametrize("placement", ["vertices", "workers"])
def test_a_fast_source_waits_for_a_slow_input(nothing_left: Check, placement: Literal["vertices", "workers"]) -> None:
    flow = rd.Dataflow("beside")
    fast = flow.from_epochs([[epoch] for epoch in range(EPOCHS)]).as_collection()
    fast.concat(flow.collection("slow")).distinct().changes().probe("seen").collect("out")
    scaling = rd.ScalingConfig(parallelism=2, placement=placement)
    job = flow.submit(rd.RunConfig(epochs_ahead=AHEAD), scaling)
    slow = job.collection("slow")
    begun = f"{AHEAD + 1} epochs begun, of which none is complete behind it"
    until(lambda: begun in str(job.explain_stuck()), "the source has not come to wait")
    slow.insert([EPOCHS])
    for epoch in range(10, EPOCHS, 10):
        slow.advance_to(epoch)
        assert job.probe("seen").wait(epoch - 1, timeout_s=PATIENCE_S)
    slow.close()
    result = job.wait(timeout_s=PATIENCE_S)
    assert sorted(record for _, (record, _) in result["out"]) == list(range(EPOCHS + 1))
    nothing_left()


def test_one_program_feeds_one_input_after_the_other(nothing_left: Check) -> None:
    """More epochs than may be ahead, and more frames than may be in flight."""
    flow = rd.Dataflow("in turn")
    flow.collection("first").keyed().join(flow.collection("second").keyed()).changes().collect("out")
    job = flow.submit(rd.RunConfig(epochs_ahead=AHEAD, window_batches=2))
    for name in ("first", "second"):
        with job.collection(name) as fed:
            for epoch in range(EPOCHS):
                fed.insert([(epoch, name)])
                fed.advance_to(epoch + 1)
    assert len(job.wait(timeout_s=PATIENCE_S)["out"]) == EPOCHS
    nothing_left()
