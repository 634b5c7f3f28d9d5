"""What the autoscaler alone measures, as metrics of Ray (``rayad_*``); all else is in :mod:`rayad.actors.coordinator.metrics`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ray.util import metrics

from rayad.autoscale import DecisionOutcome, JobSample, Record

GAUGES = {
    "rayad_true_rate": ("true_rate", "items that it could consume a second if it never waited"),
    "rayad_queue_items": ("queue_items", "items that wait in the replica"),
}
"""By name: the figure of a `ReplicaSample`, and what it is. Tags: job, vertex, replica."""
COUNTERS = {
    "rayad_items_consumed": ("items_in", "items consumed"),
    "rayad_items_produced": ("items_out", "items produced, a broadcast counted once"),
    "rayad_bytes_consumed": ("bytes_in", "bytes consumed from other replicas"),
    "rayad_bytes_produced": ("bytes_out", "bytes produced for other replicas"),
}
"""By name: the figure of a `ReplicaSample` that is added, and what it is. Tags: job, vertex, replica."""


class ScalingMetrics:
    """A listener of the autoscaler that sets metrics of Ray."""

    def __init__(self, job: str) -> None:
        self._job = job
        tags = ("job", "vertex", "replica")
        self._gauges = {name: metrics.Gauge(name, text, tag_keys=tags) for name, (_, text) in GAUGES.items()}
        self._counters = {name: metrics.Counter(name, text, tag_keys=tags) for name, (_, text) in COUNTERS.items()}
        self._latency = metrics.Gauge(
            "rayad_latency_seconds", "from a batch's arrival to the end of its activation", tag_keys=("job", "vertex", "quantile")
        )
        self._decisions = metrics.Counter("rayad_scaling_decisions", "decisions that asked for a change", tag_keys=("job", "outcome"))
        self._known: set[tuple[str, str]] = set()

    def on_sample(self, sample: JobSample, layout: Mapping[str, int]) -> None:
        """Set the gauges to what was measured, add to the counters; gauges of replicas that are gone are 0."""
        present: set[tuple[str, str]] = set()
        for name, vertex in sample.vertices.items():
            for replica in vertex.replicas:
                present.add((name, str(replica.replica)))
                self._set(name, str(replica.replica), replica)
            for share in (0.5, 0.99):
                latency_s = vertex.latency_s(share)
                if latency_s is not None:
                    self._latency.set(latency_s, {"job": self._job, "vertex": name, "quantile": f"{share:g}"})
        for name, number in self._known - present:
            self._set(name, number, None)
        self._known = present

    def on_record(self, record: Record) -> None:
        """Count changes that were applied or refused."""
        if record.outcome in (DecisionOutcome.APPLIED, DecisionOutcome.REFUSED) and not record.got:
            self._decisions.inc(1.0, {"job": self._job, "outcome": record.outcome.value})

    def _set(self, vertex: str, number: str, replica: Any) -> None:
        tags = {"job": self._job, "vertex": vertex, "replica": number}
        for name, (figure, _) in GAUGES.items():
            value = getattr(replica, figure) if replica is not None else 0.0
            if value is not None:
                self._gauges[name].set(float(value), tags)
        for name, (figure, _) in COUNTERS.items():
            value = getattr(replica, figure) if replica is not None else 0
            if value > 0:
                self._counters[name].inc(float(value), tags)
