"""Bugs planted in the production cores are caught by the simulation: some on every test run, all of them by ``make soak``."""

from __future__ import annotations

import pytest

from tests.simulation.defects import DEFECTS, first_violation, planted
from tests.simulation.harness import run

QUICK = (
    "one acknowledgement is enough",
    "the barrier goes before what combiners hold",
    "what waits at the sender is forgotten",
    "sinks commit before the manifest",
    "parts are acknowledged before they are written",
    "recovery takes the snapshots of any run",
)
RUNS = 60
RUNS_OF_ALL = 300
CAUGHT_SHARE = 0.95


def test_there_are_enough_defects() -> None:
    assert len(DEFECTS) >= 20
    assert set(QUICK) <= DEFECTS.keys()
    for name in DEFECTS:
        with planted(name):  # there still is what it changes
            pass


@pytest.mark.parametrize("name", QUICK)
def test_a_defect_is_caught(name: str) -> None:
    caught = first_violation(name, range(RUNS))
    assert caught is not None
    assert not run(caught.seed).violation, "it is not there when the defect is not"


@pytest.mark.soak
@pytest.mark.timeout(3000)
def test_nearly_all_defects_are_caught() -> None:
    missed = [name for name in DEFECTS if first_violation(name, range(RUNS_OF_ALL)) is None]
    assert len(missed) <= (1 - CAUGHT_SHARE) * len(DEFECTS), missed
