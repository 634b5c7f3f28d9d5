"""Seeds on the workers that ship, with snapshots, crashes and changes of layout: results are the model's."""

from __future__ import annotations

from collections import Counter
from contextlib import ExitStack

import pytest

from tests.simulation.caught_by import caught_by
from tests.simulation.workers.defects import DEFECTS_OF_WORKERS
from tests.simulation.workers.draw import Outcome, run_seed
from tests.thorough import amount

SEEDS = amount(each_run=24, soak=60)
CAUGHT_BY = caught_by("workers")
"""Each with a seed that catches it."""
CAUGHT_WHEN_EAGER = caught_by("eager")
"""Those that need a snapshot as soon as all have come back, and a crash after it."""


def with_defect(name: str, seed: int, *, eager: bool = False) -> Outcome:
    with ExitStack() as stack:
        DEFECTS_OF_WORKERS[name](stack)
        return run_seed(seed, eager=eager)


def test_seeds_give_what_the_model_says() -> None:
    figures: Counter[str] = Counter()
    for seed in range(SEEDS):
        outcome = run_seed(seed)
        assert not outcome.violation, f"{outcome.again}: {outcome.program}: {outcome.violation}; {outcome.where}"
        figures.update(outcome.figures)
    assert min(figures["snapshots"], figures["crashes"], figures["savepoints"], figures["changes"]) >= 10, figures


def test_a_seed_gives_the_same_run_again() -> None:
    for seed in range(5):
        assert run_seed(seed) == run_seed(seed)


@pytest.mark.parametrize("name", CAUGHT_BY)
def test_a_defect_is_caught(name: str) -> None:
    assert with_defect(name, CAUGHT_BY[name]).violation
    assert not run_seed(CAUGHT_BY[name]).violation, "it is not there when the defect is not"


@pytest.mark.parametrize("name", CAUGHT_WHEN_EAGER)
def test_a_defect_of_the_first_moments_is_caught(name: str) -> None:
    seed = CAUGHT_WHEN_EAGER[name]
    assert with_defect(name, seed, eager=True).violation
    assert not run_seed(seed, eager=True).violation, "it is not there when the defect is not"


def test_every_defect_has_a_seed() -> None:
    assert CAUGHT_BY.keys() | CAUGHT_WHEN_EAGER.keys() == DEFECTS_OF_WORKERS.keys()
