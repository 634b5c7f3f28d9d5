"""Bugs planted in the production cores are caught by the simulation: some on every test run, all of them by ``make soak``."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial

import pytest

from rayad.actors.lead.change_protocol import Phase
from tests.actors import test_change_leader, test_passed_on
from tests.programs.catalog import PROGRAMS
from tests.simulation.caught_by import caught_by
from tests.simulation.defects import DEFECTS, TICKS_WITH_A_DEFECT, first_violation, planted
from tests.simulation.defects_of_asking import DEFECTS_OF_ASKING
from tests.simulation.defects_of_changes import DEFECTS_OF_CHANGES
from tests.simulation.defects_of_channels import DEFECTS_OF_CHANNELS, IN_CHANGES
from tests.simulation.defects_of_recoveries import DEFECTS_OF_RECOVERIES
from tests.simulation.harness import run
from tests.thorough import by_turns

QUICK = (
    "one acknowledgement is enough",
    "the barrier goes before partials in combiners",
    "batches that wait at the sender are forgotten",
    "sinks commit before the manifest",
    "parts are acknowledged before they are written",
    "recovery takes the snapshots of any run",
)
QUICK_OF_CHANGES = (
    "a split is not counted",
    "rights are not moved with state",
    "an old owner processes records that leave",
    "an old owner keeps a copy",
    "staged output of a retiring replica is lost",
    "the layout is not in the manifest",
    "a step does not wait for one replica",
    "answers of earlier turns count",
    "all commit before the last step is settled",
    "new replicas count before they have started",
)
OF_RECOVERIES = caught_by("recoveries")
"""Each with a seed that catches it; the others need failures of single stages: see ``test_upstream.py``."""
OF_ASKING = caught_by("asking")
"""Each with a seed that catches it."""
FOUND_BY_THE_LEADERS_TESTS: dict[str, Callable[[], None]] = {
    "a job that is over counts as held": test_change_leader.test_a_job_that_is_over_is_not_changed,
    "a call that was withdrawn counts as done": partial(
        test_change_leader.test_a_replica_that_withdraws_the_question_is_named_with_its_activation, Phase.DIVISIBLE
    ),
    "costs of steps are not asked for": test_change_leader.test_replicas_are_added_from_the_question_to_the_report,
}
"""Defects that simulated runs do not show: larger steps give the same results, and a job is seldom asked to wait when it is just over."""
FOUND_BY_A_WORKERS_TEST: dict[str, Callable[[], None]] = {
    "what was restored is passed on behind what has arrived": test_passed_on.test_what_was_restored_is_passed_on_before_what_has_arrived,
}
"""A defect in changes of layout that no seed shows: few replicas have both when a step comes, and few programs depend on that order."""
OF_CHANNELS = caught_by("channels")
"""Each with a seed that catches it."""
RARE = {"copies of broadcast batches are not forwarded": "datetimes-columns-naive"}
"""A defect that few programs would notice, and one that does: watermarks are broadcast to windows that move."""
LATE = {
    "batches that wait at the sender are forgotten": 75,
    "the barrier goes before partials in combiners": 45,
    "a step does not wait for one replica": 46,
}
"""The first seed that is tried, where those before it catch nothing: few have batches there, or partials, when a
snapshot comes."""
RUNS = 80
RUNS_OF_ALL = 300
CAUGHT_SHARE = 0.95


def seeds_of(name: str, count: int) -> range:
    """The seeds with which a defect is looked for."""
    first = LATE.get(name, 0)
    return range(first, first + count)


def test_there_are_enough_defects() -> None:
    assert len(DEFECTS) >= 20
    assert len(DEFECTS_OF_CHANGES) >= 20
    assert len(DEFECTS_OF_CHANNELS) >= 20
    assert set(QUICK) <= DEFECTS.keys()
    assert OF_CHANNELS.keys() == DEFECTS_OF_CHANNELS.keys()
    assert set(QUICK_OF_CHANGES) <= DEFECTS_OF_CHANGES.keys()
    assert OF_ASKING.keys() | FOUND_BY_THE_LEADERS_TESTS.keys() == DEFECTS_OF_ASKING.keys()
    for defects in (DEFECTS, DEFECTS_OF_CHANGES, DEFECTS_OF_RECOVERIES, DEFECTS_OF_CHANNELS, DEFECTS_OF_ASKING):
        for plant in defects.values():
            with planted(plant):  # the code that it changes still exists
                pass


@pytest.mark.parametrize("name", QUICK)
def test_a_defect_is_caught(name: str) -> None:
    caught = first_violation(DEFECTS[name], seeds_of(name, RUNS))
    assert caught is not None
    assert not violation_without_defects(caught.seed), "it is not there when the defect is not"


@pytest.mark.parametrize("name", OF_RECOVERIES)
def test_a_defect_in_recoveries_is_caught(name: str) -> None:
    seed = OF_RECOVERIES[name]
    assert first_violation(DEFECTS_OF_RECOVERIES[name], range(seed, seed + 1)) is not None
    assert not violation_without_defects(seed), "without the defect there is no violation"


@by_turns(3)
@pytest.mark.parametrize("name", QUICK_OF_CHANGES)
def test_a_defect_in_changes_of_layout_is_caught(name: str) -> None:
    caught = first_violation(DEFECTS_OF_CHANGES[name], seeds_of(name, RUNS), rescales=True)
    assert caught is not None
    assert not violation_without_defects(caught.seed, rescales=True), "it is not there when the defect is not"


@by_turns(3)
@pytest.mark.parametrize("name", OF_ASKING)
def test_a_defect_in_what_actors_are_asked_is_caught(name: str) -> None:
    seed = OF_ASKING[name]
    assert first_violation(DEFECTS_OF_ASKING[name], range(seed, seed + 1), rescales=True) is not None
    assert not violation_without_defects(seed, rescales=True), "it is not there when the defect is not"


@cache
def violation_without_defects(seed: int, *, rescales: bool = False) -> str:
    """Of a run, with changes of layout or without."""
    return run(seed, rescales=rescales, ticks_max=TICKS_WITH_A_DEFECT).violation


@pytest.mark.parametrize("name", FOUND_BY_THE_LEADERS_TESTS)
def test_a_defect_in_what_actors_are_asked_is_found_by_the_leaders_own_tests(name: str) -> None:
    with planted(DEFECTS_OF_ASKING[name]), pytest.raises(AssertionError):
        FOUND_BY_THE_LEADERS_TESTS[name]()


@pytest.mark.parametrize("name", FOUND_BY_A_WORKERS_TEST)
def test_a_defect_in_changes_of_layout_is_found_by_a_test_of_a_worker(name: str) -> None:
    with planted(DEFECTS_OF_CHANGES[name]), pytest.raises(AssertionError):
        FOUND_BY_A_WORKERS_TEST[name]()


@by_turns(3)
@pytest.mark.parametrize("name", OF_CHANNELS)
def test_a_defect_in_flow_control_is_caught(name: str) -> None:
    seed, rescales = OF_CHANNELS[name], name in IN_CHANGES
    assert first_violation(DEFECTS_OF_CHANNELS[name], range(seed, seed + 1), rescales=rescales) is not None
    assert not violation_without_defects(seed, rescales=rescales), "it is not there when the defect is not"


@pytest.mark.soak
@pytest.mark.timeout(3000)
def test_nearly_all_defects_are_caught() -> None:
    missed = [name for name in DEFECTS if first_violation(DEFECTS[name], range(RUNS_OF_ALL)) is None]
    assert len(missed) <= (1 - CAUGHT_SHARE) * len(DEFECTS), missed


@pytest.mark.soak
@pytest.mark.timeout(3000)
def test_all_defects_in_changes_of_layout_are_caught() -> None:
    programs = {program.name: program for program in PROGRAMS}
    missed = [
        name
        for name, plant in DEFECTS_OF_CHANGES.items()
        if name not in FOUND_BY_A_WORKERS_TEST
        and first_violation(plant, seeds_of(name, RUNS_OF_ALL), rescales=True, program=programs.get(RARE.get(name, ""))) is None
    ]
    assert not missed
