"""The laws on real Ray: a random program over a random history that is fed live, while processes are killed and the layout changes.

Tables are compared with those from scratch after each epoch. What happens, and when, follows from the seed; between which two moments it
happens is up to the machine. ``python -m tests.incremental.laws --ray --runs 200``.
"""

from __future__ import annotations

import os
import random
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import rayad as rd
from rayad.actors.job import Job
from tests.cluster import recovering
from tests.incremental import programs as shapes
from tests.incremental.laws import programs, runs
from tests.patience import PATIENCE_S
from tests.warm_workers import ray_of_tests

KILLS, RESCALES = 0.12, 0.25
"""The shares of epochs in which a process is killed, and in which a vertex gets another number of replicas."""
REPLICAS_MAX = 3


@contextmanager
def cluster() -> Iterator[None]:
    """A Ray for runs, whose processes are there before jobs ask for them; the tests go to them by value."""
    os.environ["RAYAD_WARM_WORKERS"] = "1"
    with (
        ray_of_tests(num_cpus=4, include_dashboard=False, logging_level="ERROR", log_to_driver=False),
        recovering.by_value(sys.modules[__name__], shapes, programs, runs),
    ):
        yield


def disturbed_on_ray(seed: int) -> Counter[str]:
    """The run of a seed; gives what has happened. Raises AssertionError where a table is wrong."""
    chance = random.Random(seed)
    kept, changes = runs.program_of(programs.drawn(chance)), programs.history(chance)
    placement, replicas = chance.choice(("workers", "vertices")), chance.randint(1, 2)
    seen = Counter({"runs": 1, placement: 1, "epochs": len(changes)})
    flow = rd.Dataflow(f"laws-{seed}")
    kept.build(flow.collection("edges")).changes().probe("seen").collect("out")
    with TemporaryDirectory() as folder:
        scaling = rd.ScalingConfig(parallelism=replicas, placement=placement)  # type: ignore[arg-type]
        job = flow.submit(recovering.surviving(Path(folder), failures=None), scaling)
        try:
            edges, names = job.collection("edges"), list[str]()
            for epoch, some in enumerate(changes):
                edges.insert([record for record, weight in some if weight > 0])
                edges.remove([record for record, weight in some if weight < 0])
                edges.advance_to(epoch + 1)
                if chance.random() < KILLS and (there := recovering.actors("VertexActor")):
                    recovering.kill("VertexActor", chance.randrange(len(there)))
                    seen["kills"] += 1
                if names and chance.random() < RESCALES:
                    seen += _rescaled(job, chance.choice(names), chance.randint(1, REPLICAS_MAX))
                assert job.probe("seen").wait(epoch, timeout_s=PATIENCE_S)
                names = names or [vertex.name for vertex in job.status().vertices]  # there are none before it has begun
            edges.close()
            kept.verify(changes, job.wait(timeout_s=PATIENCE_S)["out"])
        except BaseException:
            job.cancel()
            raise
    return seen


def _rescaled(job: Job, name: str, replicas: int) -> Counter[str]:
    """Another number of replicas of a vertex; what may not move is refused, and the job goes on."""
    try:
        job.rescale(name, replicas, timeout_s=PATIENCE_S)
    except rd.RescaleRefused:
        return Counter({"refused rescales": 1})
    return Counter({"rescales": 1})


__all__ = ["cluster", "disturbed_on_ray"]
