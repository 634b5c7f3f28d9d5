"""What forgets by a lateness does in columns what it does in rows: results are the same, and as much is late and forgotten."""

from __future__ import annotations

import random
from collections import Counter
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import rayad as rd
from rayad.actors.local.local_job import LocalJob
from rayad.incremental.event_time.telling import RECORDS, REFUSED, WINDOWS
from rayad.incremental.records import as_record
from tests.incremental.disturbed import figures_of, run_disturbed
from tests.incremental.event_time import test_lateness as in_windows
from tests.incremental.event_time.test_lateness_of_joins import PROGRAMS, history, on_time
from tests.incremental.in_columns.event_times import TIMES, changes_of, stream_of
from tests.incremental.in_columns.lateness import BUILDS, no_rows, programs
from tests.incremental.laws.runs import end_of
from tests.incremental.programs import History
from tests.thorough import IN_SOAK, amount

COUNTED = (RECORDS, WINDOWS, REFUSED)
FEW = ("nearest, near", "interval, full", "sessions")
"""In each run; the others in ``make soak``."""
MORE = (*FEW, "backward, near and earlier", "forward", "interval, semi", "interval of earlier ones")
"""The same where they are cheap."""


@pytest.mark.parametrize("name", BUILDS if IN_SOAK else MORE)
@pytest.mark.parametrize("seed", range(amount(each_run=1, soak=200)))
def test_what_is_on_time_gives_what_recomputation_gives(name: str, seed: int, tmp_path: Path) -> None:
    program, changes = programs("columns")[name], history(seed)
    with no_rows():
        job = run_disturbed(program, changes, seed, tmp_path)
    assert figures_of(job)[REFUSED] == on_time(changes, sides=PROGRAMS[name].sides)[1]


@pytest.mark.parametrize("name", BUILDS if IN_SOAK else FEW)
@pytest.mark.parametrize("seed", range(100, 100 + amount(each_run=1, soak=100)))
def test_rows_that_come_later_go_on_from_columns(name: str, seed: int, tmp_path: Path) -> None:
    program, changes = programs("rows later")[name], history(seed)
    job = run_disturbed(program, changes, seed, tmp_path)
    assert figures_of(job)[REFUSED] == on_time(changes, sides=PROGRAMS[name].sides)[1]


@pytest.mark.parametrize("name", BUILDS if IN_SOAK else FEW)
def test_as_much_is_forgotten_as_in_rows(name: str, tmp_path: Path) -> None:
    changes = history(3, epochs=18)
    found = [
        figures_of(run_disturbed(program, changes, 3, tmp_path / str(form), steps=0))
        for form, program in enumerate((PROGRAMS[name], programs("columns")[name], programs("rows later")[name]))
    ]
    assert [[one[what] for what in COUNTED] for one in found[1:]] == [[found[0][what] for what in COUNTED]] * 2
    assert found[0][RECORDS] + found[0][WINDOWS] > 10


class OfSales:
    """Sums of tumbling windows, by hand in rows: see there."""

    def flow(self, changes: History) -> rd.Dataflow:
        flow = rd.Dataflow("sales")
        rows = [dict(zip(("epoch", *SALE, "n"), (epoch, *sale, n), strict=True)) for epoch, some in enumerate(changes) for sale, n in some]
        sales = flow.from_arrow(pa.Table.from_pylist(rows), epoch="epoch", batch_rows=3).select(*SALE, "n").as_collection(diff="n")
        windows = sales.key_by("shop").window(rd.windows.tumbling(in_windows.SIZE), "at", lateness=in_windows.LATENESS)
        windows.sum("much").collect("out")
        return flow

    def verify(self, changes: History, collected: Any) -> None:
        assert end_of(collected) == in_windows.expected(changes)[0]


SALE = ("shop", "at", "much")


@pytest.mark.parametrize("seed", range(amount(each_run=3, soak=300)))
def test_windows_that_are_over_stay_whatever_comes_and_whatever_happens(seed: int, tmp_path: Path) -> None:
    changes = in_windows.history(seed)
    with no_rows():
        figures = figures_of(run_disturbed(OfSales(), changes, seed, tmp_path))
    assert (figures[WINDOWS], figures[REFUSED]) == in_windows.expected(changes)[1:]


OF_FLOATS = {"float", "tenths"}
"""Of these there are columns of some."""
SOME = ("ints in tenths", "datetime with a time zone", "date", "tenths")
"""In each run."""
LATENESS: dict[str, Any] = {"float": 8, "tenths": 0.8, "ints in tenths": 1.5}
"""Where it is another than eight units."""


def _build(times: str, left: rd.KeyedCollection, right: rd.KeyedCollection) -> None:
    unit = TIMES[times][2]
    lateness, whole = LATENESS.get(times, 8 * unit), 1 if isinstance(unit, float) else unit
    size = round(3 * unit, 6) if isinstance(unit, float) else 3 * unit
    left.window(rd.windows.tumbling(size), "at", lateness=lateness).sum("v").collect("tumbling")
    left.window(rd.windows.sliding(4 * whole, 3 * whole), "at", lateness=lateness).max("v").collect("sliding")
    left.join_asof(right, "at", lateness=lateness, direction="forward").collect("forward")
    if times not in OF_FLOATS:
        left.join_interval(right, rd.windows.between(-whole, 2 * whole), "at", how="full", lateness=lateness).collect("interval")
        left.join_asof(right, "at", lateness=lateness, tolerance=3 * whole).collect("asof")
        left.window(rd.windows.session(2 * whole), "at", lateness=lateness).count().collect("sessions")


@pytest.mark.parametrize("times", TIMES if IN_SOAK else SOME)
def test_event_times_of_all_types_are_late_as_in_rows(times: str) -> None:
    type_of, time_of, _ = TIMES[times]
    for seed in range(amount(each_run=1, soak=40)):
        chance = random.Random(seed)
        sides = changes_of(chance, time_of), changes_of(chance, time_of)
        found = []
        for form in ("rows", "columns"):
            flow = rd.Dataflow(form)
            left, right = (
                stream_of(flow, some, type_of, in_columns=form == "columns", name=name).as_collection(diff="n").key_by("k")
                for some, name in zip(sides, ("left", "right"), strict=True)
            )
            _build(times, left, right)
            with nullcontext() if form == "rows" else no_rows():
                job = flow.submit(runtime="local", seed=seed, parallelism=1 + seed % 2)
                result = job.wait()
            assert isinstance(job, LocalJob)
            totals: Counter[Any] = Counter()
            for name in result:
                for time, (record, weight) in result[name]:
                    totals[name, time.epoch, as_record(record)] += weight
            figures = figures_of(job)
            found.append(({one: n for one, n in totals.items() if n}, [figures[what] for what in COUNTED]))
        assert found[0] == found[1], f"seed {seed}"
        assert min(found[0][1]) > 0
