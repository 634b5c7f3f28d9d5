"""The benchmarks' programs in the local runtime: their results are right before anybody measures how fast. Nothing here asserts on time."""

from __future__ import annotations

import importlib
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from benchmarks import barrier, columns, imports, ladders, latency, loop, on_demand, progress, rows, spill, startup
from benchmarks.__main__ import NAMES, PAGE, main, measure
from benchmarks.climbing import climb
from benchmarks.measurement import Measurement, WrongResult
from benchmarks.results_page import BEGIN, END
from tests.fresh_process import in_fresh_process

LOCAL: dict[str, Any] = {"runtime": "local"}


@pytest.mark.parametrize("name", NAMES)
def test_every_benchmark_says_what_it_is_and_has_two_sizes(name: str) -> None:
    module = importlib.import_module(f"benchmarks.{name}")
    assert module.TITLE
    assert module.__doc__
    assert isinstance(module.NEEDS_RAY, bool)
    assert type(module.FULL) is type(module.QUICK)
    assert module.FULL.repetitions >= 3


@pytest.mark.parametrize("replicas", [1, 2, 3])
def test_a_barrier_is_passed_by_all_before_the_next_by_any(replicas: int) -> None:
    done = barrier.run_once(50, replicas, **LOCAL)
    assert done.is_global
    assert done.replicas == replicas
    assert len(done.durations_us) == 50 - 25 - 1


@pytest.mark.parametrize("waits", [False, True])
@pytest.mark.parametrize(("replicas", "depth"), [(1, 1), (2, 1), (3, 2), (2, 3)])
def test_the_token_visits_all_replicas_in_turn(replicas: int, depth: int, waits: bool) -> None:
    done = loop.run_once(40, replicas, depth, waits=waits, **LOCAL)
    assert (done.rounds, done.trail) == (40, loop.trail_of(40, replicas))


@pytest.mark.parametrize("combined", [True, False])
def test_rows_give_what_plain_python_gives(combined: bool) -> None:
    totals, _ = rows.run_once(rows.QUICK, combined=combined, **LOCAL)
    assert totals == rows.plain(rows.QUICK)


@pytest.mark.parametrize("combined", [True, False])
def test_columns_give_what_pyarrow_gives(combined: bool) -> None:
    totals, _ = columns.run_once(columns.QUICK, combined=combined, **LOCAL)
    assert columns.digest(totals) == columns.digest(columns.plain(columns.QUICK, threads=False))


def test_every_grouping_of_the_kernels_gives_the_same_sums() -> None:
    out = measure("kernels", quick=True, repetitions=1, peers=())
    assert len(out.checks) == 3
    assert {series.unit for series in out.series} == {"ns/row"}


def test_the_budget_has_a_time_for_every_stage() -> None:
    out = measure("budget", quick=True, repetitions=1)
    stages, steps = out.tables
    assert len(stages.rows) == 6
    assert all(len(row) == len(stages.head) and row[-1] > 0 for row in stages.rows)
    assert len(steps.rows) == 6


def test_the_ladders_of_state_and_epochs_give_what_they_should() -> None:
    sizes = ladders.QUICK
    assert ladders.epoch_of_state(500, sizes, **LOCAL)[1] == ladders.results_of_state(500, sizes)
    assert ladders.epochs_s(20, 3, **LOCAL) > 0
    assert ladders.loop_epochs_s(20) > 0
    assert ladders.loops_s(3) > 0


def test_a_ladder_says_how_costs_grow() -> None:
    out = Measurement("ladder", "Ladder", {})
    costs = climb(out, "Squares", "size", (1, 2, 4, 8), "s", lambda size: 3.0 * size**2, repetitions=2, per="s/size", linear=True)
    assert costs == [3.0, 12.0, 48.0, 192.0]
    assert [series.name for series in out.series] == [f"Squares: {size} size" for size in (1, 2, 4, 8)]
    assert out.series[1].medians == [12.0, 12.0]
    (table,) = out.tables
    assert table.title.startswith("Squares (cost ~ size^2.00; ")
    assert table.rows[2] == [4, 48.0, 48.0, 48.0, 12.0]


def objects_of_columns() -> tuple[dict[str, object], Measurement]:
    out = Measurement("columns", "", {})
    return columns.measure_objects(columns.QUICK, out), out


def test_columns_make_no_object_per_row_and_the_control_does() -> None:
    found, out = in_fresh_process(objects_of_columns)
    assert list(found) == ["columns", "control: a function for each row"]
    assert len(out.checks) == 2
    assert len(out.tables[0].rows) == 4


def test_a_program_with_objects_per_row_would_be_found_out() -> None:
    few, many = columns.Objects(calls=100, blocks_peak=100), columns.Objects(calls=100, blocks_peak=100_000)
    with pytest.raises(WrongResult, match="neither calls nor objects grow"):
        columns.check_objects({"columns": (few, many)}, columns.QUICK, Measurement("columns", "", {}))


def test_the_growing_loop_counts_every_leaf() -> None:
    sizes = replace(spill.QUICK, rounds=3)
    done = spill.run_once(sizes, sizes.large_bytes, **LOCAL)
    assert (done.leaves, done.checksum) == spill.leaves_of(sizes)
    assert done.leaves == sizes.children**3


def test_every_replica_notes_its_first_record() -> None:
    assert startup.run_once(3, **LOCAL).replicas == 3


def test_every_record_of_the_latency_program_reaches_the_sink() -> None:
    sizes = replace(latency.QUICK, records=20, epochs=5, rate_per_s=100_000)
    done = latency.run_once(sizes, **LOCAL)
    assert done.numbers == list(range(25))
    assert len(done.complete_us) == 5
    assert len(done.made_us) == len(done.due_us) == 18
    assert all(0 < made <= due for made, due in zip(done.made_us, done.due_us, strict=True))
    inside = latency.run_inside(sizes, **LOCAL)
    assert inside.numbers == list(range(20))
    assert all(0 < made <= due for made, due in zip(inside.made_us, inside.due_us, strict=True))


def test_progress_runs_whole() -> None:
    out = measure("progress", quick=True)
    assert out.quick
    assert {len(series.repetitions) for series in out.series} == {progress.QUICK.repetitions}
    assert [row[2] for row in out.tables[0].rows] == [0] * len(progress.QUICK.depths)
    assert set(out.about) >= {"date", "python", "cpus", "nice", "ray", "pyarrow"}


def test_peers_run_in_a_process_of_their_own() -> None:
    told = importlib.import_module("benchmarks.machine").in_process("rows", '{"records": 100}', nice=15)
    assert told["digest"] == rows.digest(rows.plain(rows.Sizes(records=100)))


def test_the_command_line_lists_runs_and_refuses(tmp_path: Path) -> None:
    call = CliRunner().invoke
    listed = call(main, ["--list"])
    assert [line.split()[0] for line in listed.output.splitlines()] == list(NAMES)
    refused = call(main, ["bariers"])
    assert refused.exit_code == 2
    assert "there is no benchmark 'bariers'; there are barrier, loop," in refused.output
    ran = call(main, ["progress", "--quick", "--out", str(tmp_path)])
    assert ran.exit_code == 0, ran.output
    assert "| measured | unit |" in ran.output
    assert [path.name for path in tmp_path.iterdir()] == ["progress.json"]


def test_python_m_benchmarks_is_the_command() -> None:
    command = [sys.executable, "-m", "benchmarks", "--help"]
    done = subprocess.run(command, cwd=PAGE.parent.parent, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "--quick" in done.stdout


def test_the_page_has_its_marks_and_speaks_of_every_benchmark() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert BEGIN in page
    assert END in page
    assert [name for name in NAMES if f"`{name}`" not in page] == []


@pytest.mark.parametrize("mode", on_demand.MODES)
def test_every_item_of_uneven_work_is_done_once(mode: str) -> None:
    sizes = replace(on_demand.QUICK, scale=1e-6)
    for items_s in on_demand.workloads(sizes).values():
        done = on_demand.run_once(items_s, mode, sizes, **LOCAL)
        assert done.items == list(range(len(items_s)))
        assert done.makespan_s >= done.ideal_s * 0.5 / sizes.replicas


def test_a_program_that_runs_loads_more_than_one_that_is_written_and_that_more_than_the_import_alone() -> None:
    out = imports.run(imports.Sizes(repetitions=0))
    modules = dict(out.tables[0].rows)
    assert 0 < modules[imports.RAYAD] < modules["write a word count"] < modules[imports.RUN]
    assert {name for ratio in out.ratios for name in (ratio.over, ratio.under)} <= {series.name for series in out.series}
