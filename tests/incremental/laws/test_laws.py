"""Random programs with loops in loops are right, whatever happens and in whatever epochs; wrong rules are found."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.incremental.laws.runs import disturbed, first_found, quick
from tests.incremental.wrong_rules import WRONG_RULES
from tests.thorough import amount, examples

QUICK = 40
"""Seeds that find each wrong rule, and none where there is none."""


@pytest.mark.thorough
def test_random_programs_are_right_after_each_epoch() -> None:
    for seed in range(amount(each_run=QUICK, soak=2000)):
        quick(seed)


@examples(each_run=4, soak=500)
@given(seed=st.integers(0, 1 << 30))
def test_random_programs_are_right_whatever_happens_and_in_whatever_epochs(seed: int) -> None:
    """Kills, restores and changes of layout between any two moments; two cuts of one history end in the same table.
    ``python -m tests.incremental.laws --runs 10000`` is the same for longer."""
    disturbed(seed)


@pytest.mark.parametrize("rule", WRONG_RULES)
def test_random_programs_find_each_wrong_rule(rule: str) -> None:
    assert first_found(WRONG_RULES[rule], range(QUICK)) is not None
