"""Every program of the catalog while replicas come and go, drawn from a seed: the results are those of the model all the same."""

from __future__ import annotations

import random
from functools import cache
from typing import Any

import pytest

import rayad as rd
from rayad.actors.replica.migration import may_move
from tests.programs.catalog import PROGRAMS as ALL
from tests.programs.program import Program
from tests.thorough import amount, by_turns

SEEDS = amount(each_run=2, soak=4)
PROGRAMS = [program for program in ALL if program.name != "sinks"]  # it looks at the numbers of writers, which have gaps then


class Disturbed:
    """A local job whose stages are given other numbers of replicas while it runs: as many changes as there are turns."""

    def __init__(self, job: Any, seed: int) -> None:
        self.job = job
        self.draw = random.Random(seed)
        self.changes = 0
        self.refused = ""

    def run(self, feed: Any) -> Any:
        feed(self.job)
        for _ in range(self.draw.randint(1, 4)):
            if not self.steps(self.draw.randint(0, 20)):
                break
            self.change()
        return self.job.wait(timeout_s=100)

    def steps(self, count: int) -> bool:
        return all(self.job.step() for _ in range(count))

    def change(self) -> None:
        job, plan = self.job, self.job.plan
        if job.rescaling is not None and not job.rescaling.is_done:
            return
        movable = [stage for stage in plan.stages if not may_move(stage, plan, job.cores[stage.id, 0].vertex)]
        chosen = [stage.name for stage in movable if self.draw.random() < 0.6]
        wanted = {name: self.draw.randint(1, 4) for name in chosen}
        if wanted and job.start_rescale(wanted, groups=self.draw.choice([7, 60, None])) is not None:
            self.changes += 1


@cache
def changes_of(name: str, seed: int) -> int:
    """Run a program; gives how many changes of layout there were."""
    program = next(program for program in PROGRAMS if program.name == name)
    options = dict(program.options)
    parallelism = program.parallelism if program.parallelism is not None else 1 + seed % 3
    job = program.flow().submit(runtime="local", seed=seed, parallelism=parallelism, **options)
    run = Disturbed(job, seed)
    program.verify(run.run(program.feed))
    job.check_invariants()
    return run.changes


@by_turns(3)
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
def test_results_are_those_of_the_model(program: Program) -> None:
    for seed in range(SEEDS):
        changes_of(program.name, seed)


def test_most_programs_are_rescaled() -> None:
    """The draw is not idle: of all programs, most see changes of layout."""
    seen = [program for program in PROGRAMS if any(changes_of(program.name, seed) for seed in range(2))]
    assert len(seen) > len(PROGRAMS) / 2


def test_windows_can_be_rescaled() -> None:
    flow = rd.Dataflow("windows")
    stream = flow.from_epochs([[(i, i % 5) for i in range(e * 10, e * 10 + 10)] for e in range(6)]).assign_timestamps(lambda r: r[0])
    stream.key_by(lambda r: r[1]).window(rd.windows.tumbling(7)).count(name="count").collect("windows")
    job = flow.submit(runtime="local", seed=3, parallelism=2)
    assert job.rescale("count", 3).after["count"] == 3
    again = flow.run(runtime="local", seed=4, parallelism=2)
    assert sorted(job.wait()["windows"]) == sorted(again["windows"])
