"""Random programs with loops in loops are right, whatever happens and in whatever epochs; wrong rules are found."""

from __future__ import annotations

import random
from functools import partial
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rayad.incremental import moment_vertex
from tests.incremental.field_programs import Form
from tests.incremental.laws.programs import OF_COLUMNS, drawn, history
from tests.incremental.laws.runs import IN_FIELDS, UNDISTURBED, disturbed, first_found, program_of, quick
from tests.incremental.wrong_rules import OF_WHOLE_NUMBERS, WRONG_RULES
from tests.thorough import amount, by_turns, examples

QUICK = 40
"""Seeds that find each wrong rule, in columns twice as many, and none where there is none."""
RARE = {"joins of pairs only": 65}
"""The first seed that finds a wrong rule in columns, where there are many before it, which take long."""


@pytest.mark.thorough
def test_random_programs_are_right_after_each_epoch() -> None:
    for seed in range(amount(each_run=QUICK, soak=2000)):
        quick(seed)


def test_random_programs_in_columns_stay_columns() -> None:
    """Through all operators, and loops in loops."""
    with patch.object(moment_vertex, "_weights", lambda batches: pytest.fail(f"rows: {batches}")):
        for seed in range(12):
            chance = random.Random(seed)
            program, changes = program_of("columns", drawn(chance, OF_COLUMNS)), history(chance)
            program.verify(changes, program.flow(changes).run(runtime="local", parallelism=2)["out"])


def test_random_programs_of_queries_and_of_logs_are_right_after_each_epoch() -> None:
    for seed in range(amount(each_run=12, soak=1000)):
        chance = random.Random(seed)
        form: Form = chance.choice(IN_FIELDS)
        program, changes = program_of(form, drawn(chance, OF_COLUMNS), "sql" if seed % 2 else "a log"), history(chance)
        program.verify(changes, program.flow(changes).run(runtime="local", seed=seed, parallelism=1 + seed % 3)["out"])


@examples(each_run=4, soak=500)
@given(seed=st.integers(0, 1 << 30))
def test_random_programs_are_right_whatever_happens_and_in_whatever_epochs(seed: int) -> None:
    """Kills, restores and changes of layout between any two moments; two cuts of one history end in the same table.
    ``python -m tests.incremental.laws --runs 10000`` is the same for longer."""
    disturbed(seed)


@by_turns(3)
@pytest.mark.parametrize("rule", WRONG_RULES)
def test_random_programs_find_each_wrong_rule(rule: str) -> None:
    assert first_found(WRONG_RULES[rule], range(QUICK), partial(quick, form="rows"), UNDISTURBED) is not None


@by_turns(3)
@pytest.mark.parametrize("rule", OF_WHOLE_NUMBERS)
def test_random_programs_find_each_wrong_rule_of_columns(rule: str) -> None:
    seeds = range(RARE.get(rule, 0), 2 * QUICK)
    assert first_found(OF_WHOLE_NUMBERS[rule], seeds, partial(quick, form="columns"), UNDISTURBED) is not None
