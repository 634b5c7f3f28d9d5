"""A few random programs in every test run; and a planted defect that they must find. ``make fuzz`` runs thousands."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from rayad.actors.replica.migration import Migration
from tests.fuzz.__main__ import main, summary
from tests.fuzz.grammar import OPERATORS, TYPES, Program, Step, flat, typed
from tests.fuzz.runs import Case, case_of, kinds_of, run, shrink
from tests.thorough import amount

SEEDS = amount(each_run=16, soak=30)
UNDISTURBED = 60


def test_random_programs_with_faults_give_what_the_model_says() -> None:
    outcomes = [run(case_of(seed)) for seed in range(SEEDS)]
    assert [f"seed {outcome.seed}: {outcome.violation}" for outcome in outcomes if outcome.violation] == []
    assert sum(outcome.crashes for outcome in outcomes) > 0
    assert sum(outcome.rescales for outcome in outcomes) > 0
    assert sum(outcome.resumes for outcome in outcomes) > 0
    figures = r"\d+ with crashes, \d+ rescales, \d+ resumes with other parallelism: 0 violations"
    assert re.fullmatch(rf"{SEEDS} runs, {figures}", summary(outcomes))


@pytest.mark.parametrize("exchange", [False, True], ids=["fused", "exchanged"])
def test_random_programs_give_what_the_model_says_fused_or_not(exchange: bool) -> None:
    """With any interleaving and any number of replicas, without faults."""
    drawn = [case_of(seed) for seed in range(1000, 1000 + UNDISTURBED)]
    cases = [replace(case, program=replace(case.program, exchange=exchange), events=()) for case in drawn]
    assert [f"seed {case.seed}: {outcome.violation}" for case in cases if (outcome := run(case)).violation] == []


def test_a_few_hundred_seeds_draw_every_operator_and_every_type() -> None:
    steps = [step for seed in range(300) for step in case_of(seed).program.steps]
    assert set(kinds_of(tuple(steps))) == set(OPERATORS) - {"same"}
    assert {step.type for step in steps} == set(TYPES)


def test_equal_seeds_draw_equal_cases() -> None:
    assert case_of(17) == case_of(17)
    assert case_of(17) != case_of(18)


def test_typed_values_stay_apart_and_equal_numbers_are_the_same() -> None:
    for kind in set(TYPES) - {"bool", "null"}:
        assert len({typed(kind)(number) for number in range(97)}) == 97
    assert flat((1, 2.0)) == flat((1.0, 2))
    assert flat((1, "a")) != flat((1, "b"))


MOVED = Case(
    3,
    Program((("rows", tuple((epoch, epoch + 1, epoch + 20) for epoch in range(12))), ("rows", ((),))), (Step("sum", (0,), 5),)),
    2,
    ((6, "rescale"), (5, "rescale"), (5, "rescale"), (5, "rescale")),
)


def test_a_record_that_is_lost_in_a_change_of_layout_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: what an old owner forwards to the new one lacks its first record."""
    seeds = [replace(MOVED, seed=seed) for seed in range(40)]
    assert all(not run(case).violation for case in seeds[:3])
    passed_on = Migration._pass_on

    def lossy(self: Migration, sibling: int, edge: int, time: Any, part: Any) -> None:
        passed_on(self, sibling, edge, time, part[1:] if isinstance(part, list) and len(part) > 1 else part[:0])

    monkeypatch.setattr(Migration, "_pass_on", lossy)
    violated = [case for case in seeds if run(case).violation]
    assert violated
    smaller, outcome = shrink(violated[0], tries_max=40)
    assert outcome.violation
    records = [sum(len(epoch) for _, epochs in case.program.sources for epoch in epochs) for case in (smaller, violated[0])]
    assert records[0] < records[1] or len(smaller.events) < len(violated[0].events)


TOLD_EARLY = Case(
    271,
    Program(
        (("live", ((42,), (9,), (58,))), ("live", ((71,), (), (), (), ()))),
        (Step("idle as-of join", (0, 1), 3, "null"),),
    ),
    1,
    ((3, "resume"),),
    0.9,
)


def test_a_replica_that_completes_epochs_while_state_is_on_its_way_to_it_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: as it was before. What the new replica makes of the epoch comes too late, and late records are in time."""
    assert not run(TOLD_EARLY).violation
    monkeypatch.setattr(Migration, "awaits_state", False)
    assert run(TOLD_EARLY).violation.startswith("AssertionError: stream s2: missing ['(1) 0'], too many ['(2) 0']")


def test_the_command_repeats_a_seed_and_ends_with_the_figures(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--only", "17"]) == 0
    assert capsys.readouterr().out.endswith("no violation\n")
    assert main(["--runs", "3", "--seed", "40", "--processes", "1"]) == 0
    assert capsys.readouterr().out.splitlines()[-1].startswith("3 runs, ")
