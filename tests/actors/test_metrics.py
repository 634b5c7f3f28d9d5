"""A job's metrics: what is set and added for a status; the Grafana dashboard names no others."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rayad.actors.coordinator import metrics
from rayad.actors.coordinator.metrics import COUNTERS, OF_JOBS, OF_REPLICAS, OF_VERTICES, JobMetrics
from rayad.actors.job import JobState, JobStatus
from rayad.actors.scaling import metrics as of_scaling
from rayad.actors.status.job_status import ReplicaStatus, SnapshotStatus, VertexStatus
from rayad.actors.status.snapshots_late import SnapshotsLate
from rayad.dataflow.operators.bad_records import SetAside

DASHBOARD = Path(__file__).parents[2] / "docs" / "grafana" / "rayad.json"


class Told:
    """A gauge or counter that keeps what it is told."""

    def __init__(self, name: str, text: str, tag_keys: tuple[str, ...]) -> None:
        self.values: dict[tuple[str, ...], float] = {}
        self.tags = tag_keys

    def set(self, value: float, tags: dict[str, str]) -> None:
        self.values[tuple(tags[key] for key in self.tags)] = value

    def inc(self, value: float, tags: dict[str, str]) -> None:
        at = tuple(tags[key] for key in self.tags)
        self.values[at] = self.values.get(at, 0.0) + value


def test_gauges_are_of_the_newest_status_and_counters_of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    made: dict[str, Told] = {}

    def make(name: str, text: str, tag_keys: tuple[str, ...]) -> Told:
        return made.setdefault(name, Told(name, text, tag_keys))

    monkeypatch.setattr(metrics.metrics, "Gauge", make)
    monkeypatch.setattr(metrics.metrics, "Counter", make)
    shown = JobMetrics("words")
    replicas = (ReplicaStatus(0, records_in=100, rate_in=10.0, busy_share=0.5), ReplicaStatus(1, records_in=50))
    snapshot = SnapshotStatus(3, "snapshot", 1.5, 0.5, 2000, 10)
    status = JobStatus("words", JobState.RUNNING, vertices=(VertexStatus("counts", replicas=replicas, lag_epochs=2),), snapshot=snapshot)
    shown.show(status)
    shown.show(status)  # nothing new
    fewer = VertexStatus("counts", replicas=(replace(replicas[0], records_in=130),))
    bad = SetAside("parse", "app.py:7", 3, "ValueError: no number")
    shown.show(replace(status, vertices=(fewer,), failures=2, set_aside=(bad,)))
    anew = VertexStatus("counts", replicas=(replace(replicas[0], records_in=20),))  # a recovery: it counts again
    shown.show(replace(status, vertices=(anew,), failures=2, set_aside=(replace(bad, count=1),)))

    def values(name: str) -> dict[tuple[str, ...], float]:
        return made[name].values

    assert values("rayad_records_consumed") == {("words", "counts", "0"): 150.0, ("words", "counts", "1"): 50.0}
    assert values("rayad_busy_share") == {("words", "counts", "0"): 0.5, ("words", "counts", "1"): 0.0}  # the second is gone
    assert values("rayad_lag_epochs") == {("words", "counts"): 2.0}
    assert values("rayad_replicas") == {("words", "counts"): 1.0}
    assert (values("rayad_failures"), values("rayad_snapshots")) == ({("words",): 2.0}, {("words",): 1.0})
    assert values("rayad_records_set_aside") == {("words", "parse"): 4.0}
    assert values("rayad_snapshot_bytes") == {("words",): 2000}


def test_failures_that_earlier_coordinators_have_counted_are_not_counted_again(monkeypatch: pytest.MonkeyPatch) -> None:
    made: dict[str, Told] = {}

    def make(name: str, text: str, tag_keys: tuple[str, ...]) -> Told:
        return made.setdefault(name, Told(name, text, tag_keys))

    monkeypatch.setattr(metrics.metrics, "Gauge", make)
    monkeypatch.setattr(metrics.metrics, "Counter", make)
    shown = JobMetrics("words", succeeds=True)
    shown.show(JobStatus("words", JobState.STARTING, failures=1))  # what the one before has survived is not known yet
    assert made["rayad_failures"].values == {}
    late = SnapshotsLate(3, why="the disk is full")
    for failures in (4, 4, 6):
        shown.show(JobStatus("words", JobState.RUNNING, failures=failures, snapshots_late=late))
    assert made["rayad_failures"].values == {("words",): 3.0}  # the death of the one before, and two more
    assert made["rayad_snapshots_given_up"].values == {("words",): 3}
    shown.show(JobStatus("words", JobState.RUNNING, failures=6))
    assert made["rayad_snapshots_given_up"].values == {("words",): 0}


def test_every_metric_of_the_dashboard_exists() -> None:
    board: Any = json.loads(DASHBOARD.read_text())
    shown = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    named = {name for expression in shown for name in re.findall(r"ray_(rayad_\w+)", expression)}
    there = {*OF_REPLICAS, *OF_VERTICES, *OF_JOBS, *(f"{name}_total" for name in COUNTERS)}
    assert len(named) >= 16
    assert named <= there


def test_no_metric_is_set_by_two_processes() -> None:
    mine = {*OF_REPLICAS, *OF_VERTICES, *OF_JOBS, *COUNTERS}
    assert not mine & {*of_scaling.GAUGES, *of_scaling.COUNTERS}
