"""``explain_stuck`` of real jobs in the local runtime, stopped midway: the first line names what is planted in the program."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

import rayad as rd
from rayad.actors.job import Job


def idle_input() -> Job:
    flow = rd.Dataflow("idle")
    flow.input("clicks").key_by(lambda click: click).count(name="counts").collect("out")
    job = flow.submit(runtime="local")
    job.input("clicks").send([1, 2])
    job.input("clicks").advance_to(3)
    while job.step():
        pass
    return job  # type: ignore[no-any-return]


def endless_loop() -> Job:
    flow = rd.Dataflow("endless")
    numbers = flow.from_epochs([[1]])
    numbers.iterate(lambda inner: (inner.map(lambda number: number + 1, name="again"), inner.filter(lambda number: False))).collect("out")
    job = flow.submit(runtime="local")
    for _ in range(500):
        assert job.step()
    return job  # type: ignore[no-any-return]


def skewed_key() -> Job:
    flow = rd.Dataflow("skewed")
    same = flow.from_epochs([[("hot", n) for n in range(4000)] for _ in range(4)]).key_by(lambda pair: pair[0])
    same.stateful_map(lambda total, pair: (total + 1, total), 0, name="totals").single().collect("out")
    for seed in range(50):
        job = flow.submit(rd.RunConfig(batch_rows=50), runtime="local", parallelism={"totals": 4}, seed=seed)
        while job.step():
            if "got 100%" in job.explain_stuck().splitlines()[0]:
                return job  # type: ignore[no-any-return]
        job.cancel()
    raise AssertionError("in no run did anything wait for the hot key")


class Slow(rd.Sink, rd.SinkWriter):
    """Keeps nothing."""

    def open(self, replica: int, parallelism: int) -> rd.SinkWriter:
        return self

    def write(self, time: rd.Timestamp, batch: Any) -> None:
        pass

    def stage(self) -> Any:
        return None

    def publish(self, staged: Any) -> Any:
        return None


def slow_sink() -> Job:
    """A sink that has not had its turn while others had theirs: two batches and more are queued there."""
    flow = rd.Dataflow("slow")
    spread = flow.from_epochs([list(range(900)) for _ in range(9)]).single()
    spread.sink(Slow(), "table")
    job = flow.submit(rd.RunConfig(batch_rows=50), runtime="local", parallelism=2)
    while not re.search(r"'table' .* [2-9] batches queued", job.explain_stuck().splitlines()[0]):
        assert job.step()
    return job  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("plant", "sentence"),
    [
        (idle_input, r"The job waits for input 'clicks'\[0\], which is open in epoch 3 and has got nothing: send, advance or close it\."),
        (endless_loop, r"The job waits for 'loop'\[0\]: epoch 0 is in round \d+, and 1 batch came round the loop again\."),
        (
            skewed_key,
            r"The job waits for 'totals'\[\d\], which got 100% of the records of 4 replicas \(a skewed key\?\): \d+ batch(es)? queued.*",
        ),
        (slow_sink, r"The job waits for '[^']+'\[0\], which writes to sink 'table' more slowly than records come: [2-9] batches queued.*"),
    ],
)
def test_the_first_line_names_what_was_planted(plant: Callable[[], Any], sentence: str) -> None:
    told = plant().explain_stuck()
    assert re.fullmatch(sentence, told.splitlines()[0]), told
