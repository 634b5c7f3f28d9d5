"""The benchmark of the MPR applications: what it measures is there, and every version of the dataflow gives the loop's bytes."""

from __future__ import annotations

import json
from dataclasses import asdict, replace

import pytest

from benchmarks import inputs, mpr
from benchmarks.machine import in_process
from benchmarks.measurement import Measurement

SIZES = replace(mpr.QUICK, workers=(1, 2), actor_pools=True, waiting_workers=(1, 3))


@pytest.fixture(autouse=True)
def _scratch(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, made = tmp_path_factory.getbasetemp() / "mpr", inputs.made
    monkeypatch.setattr(inputs, "made", lambda name, make: made(name, make, folder))


@pytest.mark.parametrize("name", mpr.PROGRAMS)
def test_the_dataflow_gives_what_the_loop_gives(name: str) -> None:
    loop = mpr.run_version(name, SIZES, "sequential", 1)
    assert mpr.run_version(name, SIZES, "local", 3).digest == loop.digest
    assert loop.seconds > 0


@pytest.mark.parametrize("name", [mpr.MANDELBROT, mpr.LANES])
def test_waiting_changes_nothing_but_the_time(name: str) -> None:
    digests = {mpr.run_version(name, SIZES, runtime, 2, waits=True).digest for runtime in ("sequential", "local")}
    assert len(digests) == 1


def test_the_loop_runs_in_a_process_of_its_own() -> None:
    told = in_process("mpr", mpr.PRIMES, json.dumps(asdict(SIZES)), nice=15)
    assert told["md5"] == mpr.run_version(mpr.PRIMES, SIZES, "sequential", 1).digest


@pytest.mark.parametrize("name", mpr.PROGRAMS)
@pytest.mark.parametrize("workers", [(1, 2), (2,), (1,)])
def test_ratios_are_of_what_is_measured(name: str, workers: tuple[int, ...]) -> None:
    sizes = replace(SIZES, workers=workers, actor_pools=len(workers) > 1)
    names = [system.name for system in mpr.systems(name, sizes)]
    assert len(set(names)) == len(names)
    assert {series for ratio in mpr.ratios(name, sizes) for series in (ratio.over, ratio.under)} <= set(names)


def test_the_curve_of_waiting_work_has_a_point_for_each_number_of_replicas(monkeypatch: pytest.MonkeyPatch) -> None:
    local = mpr.run_version

    def run_here(name: str, sizes: mpr.Sizes, runtime: str, workers: int, waits: bool = False, chunk: int = 1) -> mpr.Outcome:
        return local(name, sizes, "local", workers, waits, chunk)

    monkeypatch.setattr(mpr, "run_version", run_here)
    monkeypatch.setattr("benchmarks.machine.SETTLE_MOST_S", 0.0)
    out = Measurement("mpr", "", {})
    out.charts.append(mpr.Chart("waiting", "", "", ""))
    mpr.measure_waiting(mpr.MANDELBROT, SIZES, out)
    (panel,) = out.charts[0].panels
    assert [(line.name, line.xs) for line in panel.lines] == [("dataflow", [1.0, 3.0]), ("pool", [1.0, 3.0])]
    assert all(rate > 0 for line in panel.lines for rate in line.ys)
    assert [ratio.aim for ratio in out.ratios] == ["at most 1.02", "near 3"]
