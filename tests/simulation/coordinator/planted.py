"""A seed with a planted defect, and which defects a seed catches."""

from __future__ import annotations

from contextlib import ExitStack

from tests.simulation.coordinator.defects import DEFECTS_OF_COORDINATORS
from tests.simulation.coordinator.defects_of_workers import DEFECTS_OF_WORKERS
from tests.simulation.coordinator.draw import Outcome, run_seed

DEFECTS = {**DEFECTS_OF_COORDINATORS, **DEFECTS_OF_WORKERS}


def bound(without: Outcome) -> int:
    """After so many events a run with a defect is stuck; ``without``: what the seed does without it."""
    return 2 * without.figures["steps"] + 600


def with_defect(name: str, seed: int, steps_max: int) -> Outcome:
    """The seed, with that defect."""
    with ExitStack() as stack:
        DEFECTS[name](stack)
        return run_seed(seed, steps_max)


def caught_by(seed: int) -> tuple[set[str], set[str]]:
    """The defects that a seed catches, and the others. A seed that fails without a defect catches none."""
    without = run_seed(seed)
    names = set(DEFECTS)
    found = set() if without.violation else {name for name in names if with_defect(name, seed, bound(without)).violation}
    return found, names - found


__all__ = ["DEFECTS", "bound", "caught_by", "with_defect"]
