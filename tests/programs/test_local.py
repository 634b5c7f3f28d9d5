"""Every program on the local runtime: under several seeds and with one, two and three replicas the results are those of the model."""

from __future__ import annotations

import pytest

from tests.programs.catalog import PROGRAMS
from tests.programs.program import Program
from tests.thorough import amount, by_turns


@by_turns(3)
@pytest.mark.parametrize("parallelism", [1, 2, 3])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
def test_results_are_those_of_the_model(program: Program, parallelism: int) -> None:
    for seed in range(amount(each_run=1, soak=4)):
        job = program.run(runtime="local", seed=seed, parallelism=parallelism)
        job.check_invariants()


def test_names_of_programs_are_unique() -> None:
    names = [program.name for program in PROGRAMS]
    assert sorted(names) == sorted(set(names))
