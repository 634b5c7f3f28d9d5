"""Seeds under the coordinator that ships, whose processes die: results are the model's. A share of them; ``make soak`` runs thousands."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import pytest

from tests.actors import test_progress_worker
from tests.simulation.coordinator.defects import DEFECTS_OF_COORDINATORS
from tests.simulation.coordinator.defects_of_scaling import DEFECTS_OF_SCALING
from tests.simulation.coordinator.draw import run_seed
from tests.simulation.coordinator.planted import bound, with_defect

SEEDS = 12
CAUGHT_BY: dict[str, int] = {
    "a call that has ended is waited for again": 400,
    "a process is told the addresses of before": 400,
    "actors of a job that is over live on": 400,
    "actors outlive their job": 400,
    "an answer of the store is lost while the job recovers": 400,
    "calls of those that are gone are waited for": 404,
    "nobody is told where the coordinator is": 400,
    "only the first answer of the store is served": 401,
    "replicas begin anew in the layout of the plan": 400,
    "the calls of the incarnation before stay": 404,
    "the last snapshot is not told": 400,
    "the layout of a change that is over is not the jobs": 404,
    "the layout of snapshots is the old one": 404,
    "what runs is released by nobody": 400,
    "what the retired had staged is in no snapshot": 404,
    "what the store has answered is lost": 400,
    "who died is not started anew": 400,
    "who does not leave its work is kept": 400,
    "who is retired lives on": 404,
    "a snapshot that waits for its sinks is never committed": 400,
    "snapshots begin before all are connected": 500,
    "the coordinator looks again and again while nothing may begin": 500,
    "the job runs before its snapshots may begin": 507,
    "who has failed is not said": 400,
    "newcomers have no incarnation": 404,
    "replicas are not told the incarnations of others": 405,
    "sinks publish nothing of what was staged": 423,
    "the processes of the old layout are started": 432,
    "who ends without an error is not looked at": 406,
    "a change goes on over a recovery": 416,
    "a death is taken for the end of the work": 406,
    "a recovery does not wait for a commit": 417,
    "replicas resume without their parts": 401,
    "nodes that drain and nodes that are silent get new processes": 413,
    "spares that take nobody's place live on": 457,
    "whoever waits for a savepoint at the end waits for ever": 443,
    "nobody notices who is silent": 451,
    "a change begins beside a snapshot": 440,
    "newcomers are not expected": 412,
    "the incarnation of a survivor is taken for the newest": 443,
    "processes are not told that their incarnation is over": 451,
    "a call of the store that is under way does not count": 496,
    "answers to heartbeats are not heard": 467,
    "after a failure the layout stays older": 474,
    "the layout is not that of the snapshot": 515,
    "the long call of the progress actor is not waited for": 54,
    "a node that is silent is not known to be": 492,
    "frames of replicas that begin anew are stale": 573,
    "what the retired leave is forgotten": 538,
    "an answer is taken for that of the turn before": 633,
    "those that live on roll back to nothing": 2631,
}
"""Each with a seed that catches it. The last one is rare: a replica that lives on has to lack, at the failure, what was in flight to it
at the cut."""
IN_SCENARIOS = frozenset(
    (
        "a node is left with the next snapshot, whenever that is",
        "a node that drains is not left",
        "control calls are answered before frames are taken",
        "new replicas run before all have rolled back",
        "newcomers that are refused stay",
        "the attempt of a region that failed goes on",
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
        DEFECTS_OF_COORDINATORS[name](stack)
        with pytest.raises(AssertionError):
            BY_TESTS_OF_A_CORE[name]()


def test_defects_have_seeds() -> None:
    assert CAUGHT_BY.keys() | IN_SCENARIOS | BY_TESTS_OF_A_CORE.keys() == DEFECTS_OF_COORDINATORS.keys()
    assert len(CAUGHT_BY) >= 50
