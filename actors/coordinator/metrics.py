"""A job's status as metrics of Ray (``rayad_*``; Prometheus shows them as ``ray_rayad_*``): set by the coordinator, every few seconds."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable

from ray.util import metrics

from rayad.actors.lead.job_leader import JobState
from rayad.actors.process.threads import OwnedThread
from rayad.actors.status.job_status import JobStatus, ReplicaStatus, VertexStatus

_log = logging.getLogger(__name__)
EVERY_S = 5.0
STOP_S = 0.5
"""How long the end of a job waits for a look that is under way."""
"""Seconds between two looks: Ray exports its metrics every ten."""

OF_REPLICAS = {
    "rayad_busy_share": ("busy_share", "share of time in which the replica worked, 0 to 1"),
    "rayad_idle_share": ("idle_share", "share of time in which it waited for input"),
    "rayad_backpressured_share": ("backpressured_share", "share of time in which it waited for its receivers"),
    "rayad_queued_share": ("queued_share", "share of time in which others of its worker ran"),
    "rayad_records_in_per_second": ("rate_in", "records consumed a second"),
    "rayad_records_out_per_second": ("rate_out", "records produced a second, a broadcast counted once"),
    "rayad_backlog_batches": ("backlog_batches", "batches that have arrived and are not consumed"),
    "rayad_backlog_bytes": ("backlog_bytes", "their bytes in memory"),
    "rayad_state_bytes": ("state_bytes", "size of its state, about"),
}
"""Gauges by name: the field of a `ReplicaStatus`, and what it is. Tags: job, vertex, replica."""
OF_VERTICES = {
    "rayad_replicas": ("parallelism", "replicas of the vertex"),
    "rayad_lag_epochs": ("lag_epochs", "epochs that the frontier is behind the slowest source"),
    "rayad_lag_seconds": ("lag_s", "seconds since the slowest source left the epoch that is open here"),
    "rayad_windows_pruned": ("pruned", "windows of collections that are over and forgotten"),
    "rayad_records_pruned": ("records_pruned", "records of collections that joins by time and sessions have forgotten"),
    "rayad_changes_refused": ("refused", "changes of collections that came too late and were not applied"),
    "rayad_skew": ("skew", "highest rate of a replica over the mean"),
}
"""Gauges by name: the field of a `VertexStatus`, and what it is. Tags: job, vertex."""
OF_JOBS = {
    "rayad_silent": "parts of the job that do not answer, or are in a long function",
    "rayad_snapshot_age_seconds": "since the newest snapshot",
    "rayad_snapshots_given_up": "attempts in a row that were given up since the newest snapshot",
    "rayad_snapshot_seconds": "how long the newest snapshot took",
    "rayad_snapshot_bytes": "size of the newest snapshot",
}
"""Gauges by name, and what they are. Tag: job."""
COUNTERS = {
    "rayad_records_consumed": ("records consumed", ("job", "vertex", "replica")),
    "rayad_records_set_aside": ("records on which operators with on_error='skip' failed", ("job", "operator")),
    "rayad_failures": ("failures that the job has survived", ("job",)),
    "rayad_snapshots": ("snapshots seen by the metrics' clock", ("job",)),
}
"""By name: what it is, and its tags."""


class JobMetrics:
    """The metrics of one job. Gauges of replicas and vertices that are gone are set to 0.

    Args:
        job: its name.
        succeeds: whether coordinators before this one have counted failures in their processes.
    """

    def __init__(self, job: str, *, succeeds: bool = False) -> None:
        self._job = job
        replicas, vertices = ("job", "vertex", "replica"), ("job", "vertex")
        self._gauges = {name: metrics.Gauge(name, text, tag_keys=replicas) for name, (_, text) in OF_REPLICAS.items()}
        self._gauges |= {name: metrics.Gauge(name, text, tag_keys=vertices) for name, (_, text) in OF_VERTICES.items()}
        self._gauges |= {name: metrics.Gauge(name, text, tag_keys=("job",)) for name, text in OF_JOBS.items()}
        self._counters = {name: metrics.Counter(name, text, tag_keys=tags) for name, (text, tags) in COUNTERS.items()}
        self._records: dict[tuple[str, int], int] = {}
        self._set_aside: dict[str, int] = {}
        self._failures = None if succeeds else 0
        self._snapshot: int | None = None

    def show(self, status: JobStatus) -> None:
        """Set the gauges to this status, and add to the counters what is new in it."""
        there = {(vertex.name, replica.replica): replica for vertex in status.vertices for replica in vertex.replicas}
        for vertex in status.vertices:
            self._set(OF_VERTICES, vertex, {"job": self._job, "vertex": vertex.name})
        for (name, number), replica in there.items():
            tags = {"job": self._job, "vertex": name, "replica": str(number)}
            self._set(OF_REPLICAS, replica, tags)
            before = self._records.get((name, number), 0)
            self._add("rayad_records_consumed", replica.records_in - (before if replica.records_in >= before else 0), tags)
        for name, number in self._records.keys() - there.keys():
            self._set(OF_REPLICAS, None, {"job": self._job, "vertex": name, "replica": str(number)})
        self._records = {at: replica.records_in for at, replica in there.items()}
        self._show_job(status)

    def _show_job(self, status: JobStatus) -> None:
        tags = {"job": self._job}
        for one in status.set_aside:
            before = self._set_aside.get(one.operator, 0)
            self._add("rayad_records_set_aside", one.count - (before if one.count >= before else 0), {**tags, "operator": one.operator})
            self._set_aside[one.operator] = one.count
        self._gauges["rayad_silent"].set(len(status.silent), tags)
        if self._failures is None and status.state is JobState.RUNNING:
            self._failures = status.failures - 1  # the death of the coordinator before this one is left to count
        if self._failures is not None:
            self._add("rayad_failures", status.failures - self._failures, tags)
            self._failures = status.failures
        late = status.snapshots_late
        self._gauges["rayad_snapshots_given_up"].set(late.given_up if late is not None else 0, tags)
        newest = status.snapshot
        if newest is not None:
            self._gauges["rayad_snapshot_age_seconds"].set(newest.age_s or 0.0, tags)
            self._gauges["rayad_snapshot_seconds"].set(newest.took_s, tags)
            self._gauges["rayad_snapshot_bytes"].set(newest.total_bytes, tags)
            self._add("rayad_snapshots", int(newest.number != self._snapshot), tags)
            self._snapshot = newest.number

    def _set(self, gauges: dict[str, tuple[str, str]], one: VertexStatus | ReplicaStatus | None, tags: dict[str, str]) -> None:
        for name, (field, _) in gauges.items():
            value = getattr(one, field) if one is not None else 0.0
            if value is not None:
                self._gauges[name].set(float(value), tags)

    def _add(self, name: str, more: int, tags: dict[str, str]) -> None:
        if more > 0:
            self._counters[name].inc(float(more), tags)


class Watch:
    """Shows the status of a job to all who look on, every few seconds, in a thread, until it is stopped."""

    def __init__(self, status: Callable[[], JobStatus], show: Iterable[Callable[[JobStatus], None]], every_s: float = EVERY_S) -> None:
        self._status = status
        self._show = tuple(show)
        self._every_s = every_s
        self._stopped = threading.Event()
        self._thread = OwnedThread("watch", self._run, stop=self._stopped.set)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """No further look begins; waits a moment for one that is under way, as the job's outcome waits for this."""
        self._thread.close(STOP_S)

    def _run(self) -> None:
        while not self._stopped.wait(self._every_s):
            try:
                status = self._status()
                for show in self._show:
                    show(status)
            except Exception:  # to see less of a job is no reason to end it
                _log.debug("a look at the job failed", exc_info=True)
