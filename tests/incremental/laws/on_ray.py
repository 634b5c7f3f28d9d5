"""The laws on real Ray: a random program over a random history that is fed live, while processes are killed and the layout changes.

Tables are compared with those from scratch after each epoch. What happens, and when, follows from the seed; between which two moments it
happens is up to the machine. ``python -m tests.incremental.laws --ray --runs 200``.
"""

from __future__ import annotations

import os
import random
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa

import rayad as rd
from rayad.actors.job import Job
from tests.cluster import recovering
from tests.cluster.until import until
from tests.incremental import field_programs as fields
from tests.incremental import programs as shapes
from tests.incremental.disturbed import Together, together_of
from tests.incremental.field_programs import Form
from tests.incremental.laws import inputs, operators, programs, runs
from tests.incremental.laws.late import forms
from tests.incremental.laws.late import programs as late_programs
from tests.incremental.laws.late import runs as late_runs
from tests.incremental.laws.late import times as late_times
from tests.incremental.laws.late.runs import Late, in_names, schema_of
from tests.incremental.programs import History, Kept
from tests.patience import PATIENCE_S
from tests.warm_workers import ray_of_tests

KILLS, RESCALES = 0.12, 0.25
"""The shares of epochs in which a process is killed, and in which a vertex gets another number of replicas."""
REPLICAS_MAX = 3
EDGES = pa.schema({"src": pa.int64(), "dst": pa.int64()})
SENT = (sys.modules[__name__], shapes, fields, operators, inputs, programs, runs, forms, late_programs, late_runs, late_times)
"""Modules of functions that programs call."""


@contextmanager
def cluster() -> Iterator[None]:
    """A Ray for runs, whose processes are there before jobs ask for them; the tests go to them by value."""
    os.environ["RAYAD_WARM_WORKERS"] = "1"
    with (
        ray_of_tests(num_cpus=4, include_dashboard=False, logging_level="ERROR", log_to_driver=False),
        recovering.by_value(*SENT),
    ):
        yield


@dataclass(frozen=True)
class Fed:
    """A random program that is fed live.

    Args:
        program: what it is built by, and its tables from scratch.
        changes: of its input, by epoch.
        given: as what some records are inserted.
        refused: how many changes of a history are late.
    """

    program: Kept | Late
    changes: History
    given: Callable[[list[Any]], Any] = list
    refused: Callable[[History], int] = lambda changes: 0


def of_loops(chance: random.Random) -> Fed:
    """A program of loops in loops, in rows, in columns or in both."""
    form, program = runs.drawn(chance)
    return Fed(runs.program_of(form, program), programs.history(chance), list if form == "rows" else partial(_in_fields, form))


def _in_fields(form: Form, edges: list[Any]) -> Any:
    """Edges as records with fields: in columns, or, where both are asked for, by their number."""
    rows = [{"src": a, "dst": b} for a, b in edges]
    return pa.RecordBatch.from_pylist(rows, EDGES) if form == "columns" or len(rows) % 2 else rows


def of_late(chance: random.Random) -> Fed:
    """A program of forms that forget, in rows or in columns."""
    times = chance.choice(late_times.KINDS)
    late = Late(late_programs.drawn(chance, times), chance.choice(("rows", "columns")), times)
    changes, schema = late_programs.history(chance, times), schema_of(times)
    fields = schema.remove(schema.get_field_index("diff"))

    def given(records: list[Any]) -> Any:
        rows = list(map(in_names, records))
        return rows if late.form == "rows" else pa.RecordBatch.from_pylist(rows, fields)

    return Fed(late, changes, given, late.refused)


def disturbed_on_ray(seed: int, draw: Callable[[random.Random], Fed] = of_loops) -> Counter[str]:
    """The run of a seed; gives what has happened. Raises AssertionError where a table is wrong."""
    chance = random.Random(seed)
    fed = draw(chance)
    placement, replicas = chance.choice(("workers", "vertices")), chance.randint(1, 2)
    together = together_of(seed)
    taken = Together(fed.program, together)
    refused = fed.refused(taken.merged(fed.changes))
    seen = Counter({"runs": 1, placement: 1, "epochs": len(fed.changes), f"{together} together": 1})
    flow = rd.Dataflow(f"laws-{seed}", epochs_together=together)
    fed.program.build(flow.collection("edges")).changes().probe("seen").collect("out")
    with TemporaryDirectory() as folder:
        scaling = rd.ScalingConfig(parallelism=replicas, placement=placement)  # type: ignore[arg-type]
        job = flow.submit(recovering.surviving(Path(folder), failures=None), scaling)
        try:
            edges, names = job.collection("edges"), list[str]()
            for epoch, some in enumerate(fed.changes):
                edges.insert(fed.given([record for record, weight in some if weight > 0]))
                edges.remove(fed.given([record for record, weight in some if weight < 0]))
                edges.advance_to(epoch + 1)
                if chance.random() < KILLS:
                    seen["kills"] += _killed(chance)
                if names and chance.random() < RESCALES:
                    seen += _rescaled(job, chance.choice(names), chance.randint(1, REPLICAS_MAX))
                assert job.probe("seen").wait(epoch, timeout_s=PATIENCE_S)
                names = names or [vertex.name for vertex in job.status().vertices]  # there are none before it has begun
            if together > 1:  # nothing comes before the last of them is over
                edges.advance_to(len(fed.changes) + together)
            if refused:
                until(lambda: _refused(job) == refused, f"{refused} changes are late")
                seen["refused changes"] += refused
            edges.close()
            taken.verify(fed.changes, job.wait(timeout_s=PATIENCE_S)["out"])
        except BaseException:
            job.cancel()
            raise
    return seen


def _killed(chance: random.Random) -> int:
    """Kill a process that has replicas, where there is one; gives how many."""
    there = [(kind, which) for kind in ("VertexActor", "WorkerActor") for which in range(len(recovering.actors(kind)))]
    if there:
        recovering.kill(*chance.choice(there))
    return len(there[:1])


def _refused(job: Job) -> int:
    return sum(vertex.refused for vertex in job.status().vertices)


def _rescaled(job: Job, name: str, replicas: int) -> Counter[str]:
    """Another number of replicas of a vertex; what may not move is refused, and the job goes on."""
    try:
        job.rescale(name, replicas, timeout_s=PATIENCE_S)
    except rd.RescaleRefused:
        return Counter({"refused rescales": 1})
    return Counter({"rescales": 1})


__all__ = ["SENT", "Fed", "cluster", "disturbed_on_ray", "of_late", "of_loops"]
