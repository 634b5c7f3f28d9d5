"""Seeds under the coordinator that ships, whose processes die: results are the model's. A share of them; ``make soak`` runs thousands."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import pytest

from tests.actors import test_progress_worker
from tests.simulation.caught_by import caught_by
from tests.simulation.coordinator.defects_of_scaling import DEFECTS_OF_SCALING
from tests.simulation.coordinator.draw import run_seed
from tests.simulation.coordinator.planted import DEFECTS, bound, with_defect
from tests.thorough import by_turns

SEEDS = 12
CAUGHT_BY = caught_by("coordinator")
"""Each with a seed that catches it. The last one is rare: a replica that lives on has to lack, at the failure, what was in flight to it
at the cut."""
IN_SCENARIOS = frozenset(
    (
        "a node is left with the next snapshot, whenever that is",
        "a node that drains is not left",
        "a barrier overtakes what was handed over before it",
        "a log keeps nothing of what was handed over",
        "control calls are answered before frames are taken",
        "new replicas run before all have rolled back",
        "newcomers that are refused stay",
        "the attempt of a region that failed goes on",
        "what combiners keep back is reported as consumed",
        "what waited for credit at the cut goes out after the first barrier",
        "workers wait for room for ever",
    )
)
"""Caught in :mod:`tests.simulation.coordinator.test_scenarios`."""
BY_TESTS_OF_A_CORE: dict[str, Callable[[], None]] = {
    "views go to newcomers that have not connected": test_progress_worker.test_a_newcomer_is_sent_no_view_before_the_counts_are_replaced,
    "what a survivor did with what is sent again counts at once": (
        test_progress_worker.test_what_a_survivor_did_with_what_a_newcomer_sent_again_counts_when_the_counts_are_replaced
    ),
}
"""Caught there."""


def seeds_of(first: int, count: int) -> Counter[str]:
    figures: Counter[str] = Counter()
    for seed in range(first, first + count):
        outcome = run_seed(seed)
        assert not outcome.violation, f"{outcome.again}: {outcome.program}: {outcome.violation}; {outcome.where}"
        figures.update(outcome.figures)
    return figures


def test_seeds_give_what_the_model_says() -> None:
    figures = seeds_of(412, SEEDS)
    assert min(figures["failures survived"], figures["snapshots"], figures["changes carried out"]) >= 3, figures


@pytest.mark.parametrize(
    ("seed", "is_scaled"),
    [
        pytest.param(422, True, id="a process that had died counted as an answer of its node, which was taken for one that answers"),
        pytest.param(1063, False, id="a process that Ray had put elsewhere answered for the node that was asked for"),
        pytest.param(1297, False, id="a job left a node while its last snapshot was published, and waited for another one for ever"),
        pytest.param(22528, False, id="a spare for a process that no longer had to leave its node held a processor"),
        pytest.param(31166, False, id="a heartbeat that said where a process is was not looked at, and its node not known to be silent"),
        pytest.param(20443, False, id="what was upstream of a failure began anew though the progress actor had ended, again and again"),
    ],
)
def test_seeds_that_have_found_something(seed: int, is_scaled: bool) -> None:
    outcome = run_seed(seed, is_scaled=is_scaled)
    assert not outcome.violation, outcome.where


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


@by_turns(3)
@pytest.mark.parametrize("seed", by_seed())
def test_defects_are_caught(seed: int) -> None:
    without = run_seed(seed)
    assert not without.violation, "it is not there when the defect is not"
    missed = [name for name in by_seed()[seed] if not with_defect(name, seed, bound(without)).violation]
    assert not missed


def test_a_job_is_scaled_by_the_loop_of_its_autoscaler() -> None:
    figures: Counter[str] = Counter()
    for seed in (416, 434, 438):
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


@pytest.mark.parametrize("name", BY_TESTS_OF_A_CORE)
def test_defects_are_caught_by_tests_of_a_core(name: str) -> None:
    BY_TESTS_OF_A_CORE[name]()
    with ExitStack() as stack:
        DEFECTS[name](stack)
        with pytest.raises(AssertionError):
            BY_TESTS_OF_A_CORE[name]()


def test_defects_have_seeds() -> None:
    assert CAUGHT_BY.keys() | IN_SCENARIOS | BY_TESTS_OF_A_CORE.keys() == DEFECTS.keys()
    assert len(CAUGHT_BY) >= 65
