"""Every benchmark that needs Ray runs on Ray, with small sizes and without peers; its checks pass. Nothing here asserts on time."""

from __future__ import annotations

import importlib

import pytest

from benchmarks import machine
from benchmarks.__main__ import NAMES, measure
from benchmarks.measurement import Measurement
from benchmarks.side_by_side import NO_FIGURE

pytestmark = pytest.mark.cluster
ON_RAY = [name for name in NAMES if importlib.import_module(f"benchmarks.{name}").NEEDS_RAY]


FAST = {"barrier", "rows"}
"""Benchmarks of every test run. The others, also the job that is rescaled while it is measured (54 s): ``make soak``."""


@pytest.mark.parametrize("name", [pytest.param(name, marks=[] if name in FAST else [pytest.mark.soak]) for name in ON_RAY])
def test_a_benchmark_runs_and_its_results_are_equal(name: str, ray_cluster: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "SETTLE_MOST_S", 0.0)
    out = measure(name, quick=True, repetitions=1, peers=())
    assert out.benchmark == name
    assert [table.rows for table in out.tables if table.title == NO_FIGURE] == []
    assert out.checks
    assert all(sample > 0 for series in out.series for samples in series.repetitions for sample in samples)
    wanted = {1, 2} if name == "slow_sink" else {1}  # slow_sink cancels two jobs
    assert {len(series.repetitions) for series in out.series} == wanted
    assert Measurement.from_json(out.to_json()).markdown() == out.markdown()
