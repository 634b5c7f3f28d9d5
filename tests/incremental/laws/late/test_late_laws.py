"""Random programs of what forgets give what the changes on time give, whatever happens and in whatever epochs; wrong rules are found."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rayad.incremental.event_time.limits import Limits
from tests.incremental.laws.late.programs import FromScratch, drawn, history
from tests.incremental.laws.late.runs import disturbed, quick
from tests.incremental.laws.late.times import times_of
from tests.incremental.laws.late.wrong_lateness import WRONG_LATENESS
from tests.incremental.laws.runs import first_found
from tests.thorough import IN_SOAK, amount, by_turns, examples

ENOUGH = 80
"""Seeds that find each wrong rule, and none where there is none."""
SOON = ("the side that is ahead counts", "the epoch itself counts", "what is at the limit is late")
"""Found by a few of them, and so in each run."""


def test_random_programs_are_right_after_each_epoch_and_forget_the_same_in_all_forms() -> None:
    for seed in range(amount(each_run=4, soak=1000)):
        quick(seed)


@examples(each_run=1, soak=300)
@given(seed=st.integers(0, 1 << 30))
def test_random_programs_are_right_whatever_happens_and_in_whatever_epochs(seed: int) -> None:
    """``python -m tests.incremental.laws --only late --runs 1000`` is the same for longer."""
    disturbed(seed)


@by_turns(3)
@pytest.mark.parametrize("rule", WRONG_LATENESS if IN_SOAK else SOON)
def test_random_programs_find_each_wrong_rule(rule: str) -> None:
    assert first_found(WRONG_LATENESS[rule], range(ENOUGH), quick) is not None


def test_the_histories_have_late_changes() -> None:
    refused = []
    for seed in range(60):
        chance, times = random.Random(seed), times_of(seed)
        program, law = drawn(chance, times), FromScratch(history(chance, times))
        law.tables(program)
        refused.append(law.refused)
    assert sum(some > 0 for some in refused) > 30


@pytest.mark.parametrize(
    "seed", [pytest.param(6605483, id="a group that had been told nothing had the limit of those that came from another replica")]
)
def test_seeds_that_have_found_something(seed: int) -> None:
    disturbed(seed)


def test_nothing_is_over_for_a_group_that_was_told_nothing() -> None:
    """Also where all others have the same limit."""
    nothing, keys = -(1 << 63), [10, 11, 12]
    assert Limits({11: 5}, keys).first_not_over(pa.int64()).tolist() == [nothing, 5, nothing]
    assert Limits(dict.fromkeys(keys, 5), keys).first_not_over(pa.int64()).tolist() == 5
    assert Limits({}, keys).first_not_over(pa.int64()).tolist() == nothing
