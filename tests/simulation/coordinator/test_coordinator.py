"""Seeds under the coordinator that ships, whose processes die: results are the model's. A share of them; ``make soak`` runs thousands."""

from __future__ import annotations

from collections import Counter
from contextlib import ExitStack
from typing import Any

import pytest

from tests.simulation.coordinator.defects import DEFECTS_OF_COORDINATORS
from tests.simulation.coordinator.defects_of_scaling import DEFECTS_OF_SCALING
from tests.simulation.coordinator.draw import run_seed
from tests.simulation.coordinator.planted import bound, with_defect

SEEDS = 12
CAUGHT_BY: dict[str, int] = {}
"""Each with a seed that catches it."""


def seeds_of(first: int, count: int) -> Counter[str]:
    figures: Counter[str] = Counter()
    for seed in range(first, first + count):
        outcome = run_seed(seed)
        assert not outcome.violation, f"{outcome.again}: {outcome.program}: {outcome.violation}; {outcome.where}"
        figures.update(outcome.figures)
    return figures


def test_seeds_give_what_the_model_says() -> None:
    figures = seeds_of(400, SEEDS)
    assert min(figures["failures survived"], figures["snapshots"], figures["changes carried out"]) >= 3, figures


@pytest.mark.soak
def test_thousands_of_seeds_give_what_the_model_says() -> None:
    figures = seeds_of(1_000, 3_000)
    assert min(figures["failures survived"], figures["snapshots"], figures["savepoints taken"], figures["changes carried out"]) >= 500, (
        figures
    )


def test_a_seed_gives_the_same_run_again() -> None:
    for seed in (403, 408):
        assert run_seed(seed) == run_seed(seed)


def by_seed() -> dict[int, list[Any]]:
    """The defects that one seed catches: its run without a defect is needed once."""
    found: dict[int, list[Any]] = {}
    for name, seed in CAUGHT_BY.items():
        found.setdefault(seed, []).append(name)
    return found


@pytest.mark.parametrize("seed", by_seed())
def test_defects_are_caught(seed: int) -> None:
    without = run_seed(seed)
    assert not without.violation, "it is not there when the defect is not"
    missed = [name for name in by_seed()[seed] if not with_defect(name, seed, bound(without)).violation]
    assert not missed


def test_a_job_is_scaled_by_the_loop_of_its_autoscaler() -> None:
    figures: Counter[str] = Counter()
    for seed in (403, 414, 418):
        outcome = run_seed(seed, is_scaled=True)
        assert not outcome.violation, f"{outcome.again}, scaled: {outcome.violation}; {outcome.where}"
        figures.update(outcome.figures)
    assert min(figures["decisions"], figures["changes carried out"], figures["rounds"]) >= 3, figures


@pytest.mark.parametrize("name", DEFECTS_OF_SCALING)
def test_a_defect_of_the_autoscalers_loop_is_caught(name: str) -> None:
    with ExitStack() as stack:
        DEFECTS_OF_SCALING[name](stack)
        assert run_seed(418, 1000, is_scaled=True).violation
    assert not run_seed(418, 1000, is_scaled=True).violation, "it is not there when the defect is not"


def test_every_defect_has_a_seed() -> None:
    assert CAUGHT_BY.keys() == DEFECTS_OF_COORDINATORS.keys()
    assert len(CAUGHT_BY) >= 40
