"""Collections give after each epoch what is computed from all records that are there."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.incremental.disturbed import run_disturbed
from tests.incremental.programs import PROGRAMS, Kept, history
from tests.thorough import amount, by_turns

EACH = pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)


@EACH
@pytest.mark.parametrize("seed", range(amount(each_run=4, soak=200)))
def test_tables_are_right_after_each_epoch(program: Kept, seed: int) -> None:
    changes = history(program.shape, seed)
    result = program.flow(changes).run(runtime="local", seed=seed, parallelism=1 + seed % 3)
    program.verify(changes, result["out"])


@by_turns(2)
@EACH
@pytest.mark.parametrize("seed", range(amount(each_run=4, soak=200)))
def test_neither_failures_nor_changes_of_layout_between_moments_change_tables(program: Kept, seed: int, tmp_path: Path) -> None:
    job = run_disturbed(program, history(program.shape, seed), seed, tmp_path)
    if program.name == "components":
        assert job.runtime.recoveries
        assert job.snapshots is not None
        assert job.snapshots.taken


def test_what_goes_round_is_consolidated_only_where_nothing_on_the_way_adds_it_up() -> None:
    found = {}
    for program in PROGRAMS:
        nodes = program.flow([[]]).graph.nodes
        found[program.name] = sum(node.name.startswith("consolidate") and node.scope > 0 for node in nodes)
    assert {"reach": 0, "both ways": 0, "components": 0, "walks": 1, "even": 1}.items() <= found.items()
