"""The difference of two readings: frozen samples per replica, vertex and edge, the input of policies.

The *true* rate is items per busy second (DS2, section 3.2): what a replica could do if it never waited. The
*observed* rate is items per second. Their quotient is the share of time in which it was busy.

A vertex's true rate for each replica is pooled: all items over all busy seconds. DS2 adds up the replicas' own rates. Where replicas are
alike the two agree; where one has seen ten records its own rate is noise, and pooling weighs it by these ten.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rayad.autoscale.statistics import LatencyHistogram, ReplicaReading, quantile_s
from rayad.progress import ProtocolError

ROUNDING_S = 1e-6
BUSY_LEAST_S = 1e-9
"""Less busy time than this counts as none: a rate over it would be a rounding error."""


@dataclass(frozen=True, slots=True)
class ReplicaSample:
    """One replica in one window. Shares of time add up to one; counts are of the window, queues of its end (``_before``: of its start)."""

    vertex: str
    replica: int
    since_s: float
    until_s: float
    busy_share: float
    idle_share: float
    backpressured_share: float
    items_in: int
    bytes_in: int
    items_out: int
    bytes_out: int
    queue_items: int = 0
    queue_bytes: int = 0
    queue_items_before: int = 0
    backlog_items: int | None = None
    backlog_items_before: int | None = None
    frontier_lag_s: float | None = None
    state_bytes: int = 0
    sent: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    received: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    latencies: Mapping[int, int] = field(default_factory=dict)
    queued_share: float = 0.0
    """Waited for its turn in a worker that it shares."""

    @property
    def duration_s(self) -> float:
        """Length of the window, seconds."""
        return self.until_s - self.since_s

    @property
    def busy_s(self) -> float:
        """Busy seconds of the window."""
        return self.busy_share * self.duration_s

    @property
    def observed_rate(self) -> float:
        """Items consumed a second."""
        return self.items_in / self.duration_s if self.duration_s > 0 else 0.0

    @property
    def true_rate(self) -> float | None:
        """Items consumed a busy second; None where it consumed nothing or was not busy."""
        return _quotient(self.items_in, self.busy_s)

    @property
    def true_output_rate(self) -> float | None:
        """Items produced a busy second; None where it was not busy."""
        return self.items_out / self.busy_s if self.busy_s > BUSY_LEAST_S else None


@dataclass(frozen=True, slots=True)
class VertexSample:
    """All replicas of one vertex in one window. Rates are items a second; a source consumes what it reads.

    >>> def replica(number, items_in, busy_share):
    ...     return ReplicaSample("count", number, 0.0, 2.0, busy_share, 1 - busy_share, 0.0, items_in, 0, 3 * items_in, 0)
    >>> sample = VertexSample("count", (replica(0, 100, 0.5), replica(1, 50, 0.25)))
    >>> sample.observed_rate, sample.true_rate_per_replica, sample.true_rate, sample.true_output_rate, sample.busy_share
    (75.0, 100.0, 200.0, 600.0, 0.375)
    """

    name: str
    replicas: tuple[ReplicaSample, ...]

    @property
    def parallelism(self) -> int:
        """How many replicas there are."""
        return len(self.replicas)

    @property
    def items_in(self) -> int:
        """Items consumed in the window, each copy of a broadcast by itself."""
        return sum(r.items_in for r in self.replicas)

    @property
    def items_out(self) -> int:
        """Items produced in the window, a broadcast counted once."""
        return sum(r.items_out for r in self.replicas)

    @property
    def busy_s(self) -> float:
        """Busy seconds of all replicas together."""
        return sum(r.busy_s for r in self.replicas)

    @property
    def observed_rate(self) -> float:
        """Items consumed a second, by all replicas together."""
        return sum(r.observed_rate for r in self.replicas)

    @property
    def observed_output_rate(self) -> float:
        """Items produced a second, by all replicas together."""
        return sum(r.items_out / r.duration_s for r in self.replicas if r.duration_s > 0)

    @property
    def true_rate_per_replica(self) -> float | None:
        """What one replica can consume, items a busy second; None where nothing was measured."""
        return _quotient(self.items_in, self.busy_s)

    @property
    def true_rate(self) -> float | None:
        """What all replicas can consume: DS2's aggregated true processing rate."""
        one = self.true_rate_per_replica
        return None if one is None else one * self.parallelism

    @property
    def true_output_rate(self) -> float | None:
        """What all replicas can produce: DS2's aggregated true output rate."""
        return self.items_out / self.busy_s * self.parallelism if self.busy_s > BUSY_LEAST_S else None

    @property
    def busy_share(self) -> float:
        """Mean over the replicas, 0 to 1."""
        return _mean(r.busy_share for r in self.replicas)

    @property
    def idle_share(self) -> float:
        """Mean over the replicas, 0 to 1."""
        return _mean(r.idle_share for r in self.replicas)

    @property
    def backpressured_share(self) -> float:
        """Mean over the replicas, 0 to 1."""
        return _mean(r.backpressured_share for r in self.replicas)

    @property
    def queued_share(self) -> float:
        """Mean over the replicas, 0 to 1: they waited for the others of their workers."""
        return _mean(r.queued_share for r in self.replicas)

    @property
    def imbalance(self) -> float:
        """The busiest replica's share over the mean: 1 where all are alike, the parallelism where one does everything."""
        mean = self.busy_share
        return max(r.busy_share for r in self.replicas) / mean if mean > 0 else 1.0

    @property
    def unhindered_rate(self) -> float | None:
        """Items per second of the time in which nothing kept it from work, neither back-pressure nor the others of its worker:
        ``items / (busy + idle)``; None if something always did.

        For a source this is its rate without that: all that it can read if it never waits for input (DS2's true output rate), and
        what arrives if it does.
        """
        free_s = sum((r.busy_share + r.idle_share) * r.duration_s for r in self.replicas)
        return self.items_in / free_s * self.parallelism if free_s > BUSY_LEAST_S else None

    @property
    def queue_items(self) -> int:
        """Items that waited in input queues at the end of the window."""
        return sum(r.queue_items for r in self.replicas)

    @property
    def backlog_items(self) -> int | None:
        """Items known to wait outside a source at the end; None if a replica does not know."""
        known = [r.backlog_items for r in self.replicas if r.backlog_items is not None]
        return sum(known) if len(known) == len(self.replicas) else None

    @property
    def backlog_growth_per_s(self) -> float | None:
        """How fast the backlog outside a source grew (negative: shrank), items a second; None if it is not known at both ends."""
        growth = 0.0
        for r in self.replicas:
            if r.backlog_items is None or r.backlog_items_before is None or r.duration_s <= 0:
                return None
            growth += (r.backlog_items - r.backlog_items_before) / r.duration_s
        return growth

    @property
    def frontier_lag_s(self) -> float | None:
        """The longest lag of its replicas; None if none has one."""
        return max((r.frontier_lag_s for r in self.replicas if r.frontier_lag_s is not None), default=None)

    @property
    def state_bytes(self) -> int:
        """State of all replicas, bytes."""
        return sum(r.state_bytes for r in self.replicas)

    def latency_s(self, share: float) -> float | None:
        """A quantile (0 to 1) of the latencies of the window, over all replicas; None if none was measured."""
        counts = [0] * LatencyHistogram.BUCKETS
        for r in self.replicas:
            for index, count in r.latencies.items():
                counts[index] += count
        return quantile_s(counts, share)

    def as_json(self) -> dict[str, Any]:
        """The figures of the vertex, and those of its replicas, as plain numbers (None where not measured)."""
        names = (
            "parallelism", "items_in", "items_out", "observed_rate", "observed_output_rate", "true_rate", "true_output_rate", "busy_share",
            "idle_share", "backpressured_share", "imbalance", "queue_items", "backlog_items", "frontier_lag_s", "state_bytes",
        )  # fmt: skip
        figures: dict[str, Any] = {name: getattr(self, name) for name in names}
        figures |= {"latency_p50_s": self.latency_s(0.5), "latency_p99_s": self.latency_s(0.99)}
        figures["bytes_in"] = sum(r.bytes_in for r in self.replicas)
        figures["bytes_out"] = sum(r.bytes_out for r in self.replicas)
        replica_names = (
            "replica", "items_in", "bytes_in", "items_out", "bytes_out", "busy_share", "idle_share", "backpressured_share", "observed_rate",
            "true_rate", "true_output_rate", "queue_items", "queue_bytes", "backlog_items", "frontier_lag_s", "state_bytes",
        )  # fmt: skip
        return {**figures, "replicas": [{name: getattr(r, name) for name in replica_names} for r in self.replicas]}


@dataclass(frozen=True, slots=True)
class JobSample:
    """All vertices in one window; what a policy is given."""

    since_s: float
    until_s: float
    vertices: Mapping[str, VertexSample]

    @property
    def duration_s(self) -> float:
        """Length of the window, seconds."""
        return self.until_s - self.since_s

    def sent(self, vertex: str, edge: int) -> int:
        """Items that a vertex put on an edge; a broadcast counts once."""
        return sum(r.sent.get(edge, (0, 0))[0] for r in self.vertices[vertex].replicas)

    def received(self, vertex: str, edge: int) -> int:
        """Items that a vertex consumed from an edge; of a broadcast each replica's copy counts."""
        return sum(r.received.get(edge, (0, 0))[0] for r in self.vertices[vertex].replicas)

    def as_json(self) -> dict[str, Any]:
        """For `job.progress()`, files and controllers in other languages: plain dicts and numbers."""
        return {"since_s": self.since_s, "until_s": self.until_s, "vertices": {name: v.as_json() for name, v in self.vertices.items()}}


def sample_between(before: Iterable[ReplicaReading], after: Iterable[ReplicaReading]) -> JobSample | None:
    """The window between two rounds of readings; None if no reading in ``after`` is later than the same replica's reading in ``before``.

    A replica that is new in ``after`` counts from its start; so does one that replaced another of the same number (another ``started_s``).
    A replica that is gone is left out. Raises ProtocolError if a counter went down although the replica did not start anew.
    """
    earlier = {(r.vertex, r.replica): r for r in before}
    found: dict[str, list[ReplicaSample]] = {}
    for reading in sorted(after, key=lambda r: (r.vertex, r.replica)):
        old = earlier.get((reading.vertex, reading.replica))
        if old is None or old.started_s != reading.started_s:
            old = ReplicaReading(reading.vertex, reading.replica, reading.started_s, reading.started_s)
        if reading.now_s > old.now_s:
            found.setdefault(reading.vertex, []).append(_replica_sample(old, reading))
    if not found:
        return None
    samples = [s for replicas in found.values() for s in replicas]
    vertices = {name: VertexSample(name, tuple(replicas)) for name, replicas in found.items()}
    return JobSample(min(s.since_s for s in samples), max(s.until_s for s in samples), vertices)


def _replica_sample(old: ReplicaReading, new: ReplicaReading) -> ReplicaSample:
    clocks = ("busy_s", "idle_s", "backpressured_s", "queued_s")
    changes = [getattr(new, name) - getattr(old, name) for name in clocks]
    times = tuple(0.0 if -ROUNDING_S < change < 0.0 else change for change in changes)
    sent, received = _by_edge(old.sent, new.sent), _by_edge(old.received, new.received)
    read, written = _less(old.read, new.read), _less(old.written, new.written)
    taken, given = _total((read, *received.values())), _total((written, *sent.values()))
    latencies = {index: count - old.latencies.get(index, 0) for index, count in new.latencies.items()}
    if min(*times, *taken, *given, *latencies.values(), *(n for pair in sent.values() for n in pair)) < 0:
        raise ProtocolError(
            f"counters of {new.vertex!r}[{new.replica}] went down between {old.now_s} s and {new.now_s} s, and it did not start anew: "
            f"{old} then {new}"
        )
    total = sum(times) or 1.0
    busy, _, backpressured, queued = (time / total for time in times)
    return ReplicaSample(
        new.vertex, new.replica, old.now_s, new.now_s, busy, max(0.0, 1.0 - busy - backpressured - queued), backpressured, *taken, *given,
        new.queue_items, new.queue_bytes, old.queue_items, new.backlog_items, old.backlog_items, new.frontier_lag_s, new.state_bytes,
        sent, received, {index: count for index, count in latencies.items() if count}, queued,
    )  # fmt: skip


def _less(old: tuple[int, int], new: tuple[int, int]) -> tuple[int, int]:
    return new[0] - old[0], new[1] - old[1]


def _by_edge(old: Mapping[int, tuple[int, int]], new: Mapping[int, tuple[int, int]]) -> dict[int, tuple[int, int]]:
    return {edge: _less(old.get(edge, (0, 0)), pair) for edge, pair in new.items()}


def _total(pairs: Sequence[tuple[int, int]]) -> tuple[int, int]:
    return sum(items for items, _ in pairs), sum(size for _, size in pairs)


def _quotient(items: int, busy_s: float) -> float | None:
    return items / busy_s if items > 0 and busy_s > BUSY_LEAST_S else None


def _mean(values: Iterable[float]) -> float:
    found = list(values)
    return sum(found) / len(found) if found else 0.0
