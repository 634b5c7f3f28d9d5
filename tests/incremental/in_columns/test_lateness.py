"""What forgets by a lateness does in columns what it does in rows: results are the same, and as much is late and forgotten."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from rayad.incremental.event_time.ending import Forgetting
from rayad.incremental.event_time.telling import RECORDS, REFUSED, WINDOWS
from tests.incremental.disturbed import run_disturbed
from tests.incremental.event_time.test_lateness_of_joins import PROGRAMS, figures_of, history, on_time
from tests.incremental.in_columns.lateness import BUILDS, no_rows, programs
from tests.thorough import amount

COUNTED = (RECORDS, WINDOWS, REFUSED)


@pytest.mark.parametrize("name", BUILDS)
@pytest.mark.parametrize("seed", range(amount(each_run=1, soak=200)))
def test_what_is_on_time_gives_what_recomputation_gives(name: str, seed: int, tmp_path: Path) -> None:
    program, changes = programs("columns")[name], history(seed)
    with no_rows():
        job = run_disturbed(program, changes, seed, tmp_path)
    assert figures_of(job)[REFUSED] == on_time(changes, sides=PROGRAMS[name].sides)[1]


@pytest.mark.parametrize("name", BUILDS)
@pytest.mark.parametrize("seed", range(100, 100 + amount(each_run=1, soak=100)))
def test_rows_that_come_later_go_on_from_columns(name: str, seed: int, tmp_path: Path) -> None:
    program, changes = programs("rows later")[name], history(seed)
    job = run_disturbed(program, changes, seed, tmp_path)
    assert figures_of(job)[REFUSED] == on_time(changes, sides=PROGRAMS[name].sides)[1]


@pytest.mark.parametrize("name", BUILDS)
def test_as_much_is_forgotten_as_in_rows(name: str, tmp_path: Path) -> None:
    changes = history(3, epochs=30)
    found = [
        figures_of(run_disturbed(program, changes, 3, tmp_path / str(form), steps=0))
        for form, program in enumerate((PROGRAMS[name], programs("columns")[name], programs("rows later")[name]))
    ]
    assert [[one[what] for what in COUNTED] for one in found[1:]] == [[found[0][what] for what in COUNTED]] * 2
    assert found[0][RECORDS] + found[0][WINDOWS] > 10


@pytest.mark.parametrize("name", [name for name in ("interval, full",) if name in BUILDS])
def test_what_is_kept_does_not_grow_with_time(name: str, tmp_path: Path) -> None:
    kept = []
    for epochs in (60, 180):
        with no_rows():
            job = run_disturbed(programs("columns")[name], history(5, epochs), 5, tmp_path / str(epochs), steps=0)
        rows = Counter[str]()
        for core in job.cores.values():
            if isinstance(core.vertex, Forgetting):
                rows.update(core.vertex.figures())
        kept.append(sum(count for what, count in rows.items() if what.startswith("rows of")))
        assert rows[RECORDS] > epochs
    assert 0 < kept[1] <= 2 * kept[0], kept
