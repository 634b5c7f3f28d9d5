"""What a replica counts, and its readings: plain ints and floats, added to in place, cheap enough to be always on.

A replica is busy, idle, back-pressured or queued; :meth:`ReplicaCounters.turn_to` moves the clock's time to the activity that ends, so the
four add up to the time since the start by construction, however often the runtime switches. *Busy* is all work on records: decoding,
the user's code (also where that waits for a disk or another service: the replica can do nothing else meanwhile), notifications, encoding.
*Idle* is waiting for input. *Back-pressured* is having input and no credit to send. *Queued* is having input while another replica of the
same worker runs: neither the replica's own work nor a lack of input. This is DS2's useful time (Kalavri et al., OSDI 2018,
section 3.2), with the waiting time in its kinds, because they mean opposite things.

Readings are cumulative since the replica's start. Whoever reads keeps the one before and takes the difference (`samples`): readers do not
disturb each other, and a lost reading loses nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from rayad.progress import ProtocolError

BUSY, IDLE, BACKPRESSURED, QUEUED = 0, 1, 2, 3
"""Indices of what a replica's time goes into; plain ints, because they are switched for every batch."""


class LatencyHistogram:
    """Counts of latencies in buckets, four to each doubling from 4 microseconds up: a quantile is at most a quarter too high.

    >>> histogram = LatencyHistogram()
    >>> for latency_s in [0.001] * 99 + [0.5]:
    ...     histogram.add(latency_s)
    >>> round(quantile_s(histogram.counts, 0.5), 6), round(quantile_s(histogram.counts, 1.0), 6)
    (0.001024, 0.524288)
    """

    __slots__ = ("counts",)
    BUCKETS = 160

    def __init__(self) -> None:
        self.counts = [0] * self.BUCKETS

    def add(self, latency_s: float, times: int = 1) -> None:
        """Count ``times`` records (or batches) of this latency; a negative one, which comes of clocks that differ, counts as zero."""
        micros = int(latency_s * 1e6)
        if micros < 4:
            self.counts[max(micros, 0)] += times
            return
        octave = micros.bit_length() - 3
        index = 4 * octave + (micros >> octave)
        self.counts[min(index, self.BUCKETS - 1)] += times


def quantile_s(counts: Sequence[int], share: float) -> float | None:
    """The upper edge, in seconds, of the bucket in which a share (0 to 1) of all latencies is reached; None if there are none."""
    total = sum(counts)
    if total == 0:
        return None
    reached = 0
    index = next(i for i, count in enumerate(counts) if count and (reached := reached + count) >= share * total - 1e-9 * total)
    if index < 4:
        return (index + 1) * 1e-6
    return ((index % 4 + 5) << (index // 4 - 1)) * 1e-6


@dataclass(frozen=True, slots=True)
class ReplicaReading:
    """The counters of one replica at one moment, cumulative since it started.

    ``received`` and ``sent`` are (items, bytes) by edge id; what is broadcast counts once in ``sent`` and in each receiver's ``received``.
    ``read`` is what a source took in from outside and ``written`` what went to sinks. Times are seconds on one clock per replica.
    ``queue_items`` and ``queue_bytes`` are what waits in the replica's input queues and spill; ``backlog_items`` what a source knows to be
    waiting outside, None where it cannot know. ``frontier_lag_s`` is how long the oldest incomplete time has been open.
    """

    vertex: str
    replica: int
    started_s: float
    now_s: float
    busy_s: float = 0.0
    idle_s: float = 0.0
    backpressured_s: float = 0.0
    received: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    sent: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    read: tuple[int, int] = (0, 0)
    written: tuple[int, int] = (0, 0)
    queue_items: int = 0
    queue_bytes: int = 0
    backlog_items: int | None = None
    frontier_lag_s: float | None = None
    state_bytes: int = 0
    latencies: Mapping[int, int] = field(default_factory=dict)
    """Latencies by bucket of :class:`LatencyHistogram`; empty buckets are left out."""
    queue_batches: int = 0
    """Batches that wait in the replica's input queues and spill."""
    queued_s: float = 0.0
    """Waited for its turn in its worker."""

    def as_json(self) -> dict[str, Any]:
        """Plain dicts, lists and numbers; :meth:`from_json` is its inverse.

        >>> reading = ReplicaReading("count", 0, 1.0, 2.0, sent={3: (10, 80)})
        >>> ReplicaReading.from_json(reading.as_json()) == reading
        True
        """
        return asdict(self) | {name: {str(k): v for k, v in getattr(self, name).items()} for name in ("received", "sent", "latencies")}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> ReplicaReading:
        """Raises ProtocolError where a name is unknown or missing."""
        known = {f.name for f in fields(cls)}
        if not set(value) <= known or not {"vertex", "replica", "started_s", "now_s"} <= set(value):
            raise ProtocolError(
                f"a reading has the fields {sorted(value)}: it may have {sorted(known)} and needs vertex, replica, started_s, now_s"
            )
        out = dict(value)
        for name in ("received", "sent"):
            out[name] = {int(k): (int(v[0]), int(v[1])) for k, v in value.get(name, {}).items()}
        out["latencies"] = {int(k): int(v) for k, v in value.get("latencies", {}).items()}
        for name in ("read", "written"):
            items, size = value.get(name, (0, 0))
            out[name] = (int(items), int(size))
        return cls(**out)


class ReplicaCounters:
    """The counters of one replica; the runtime adds to them in its event loop.

    The fields are public: for each batch the runtime adds in place (``counters.received_items[edge] += n``), without a call.

    Args:
        vertex, replica: whose they are.
        inputs, outputs: edge ids of the plan.
        now_s: the replica's clock, any that does not go back; it begins idle.

    >>> counters = ReplicaCounters("count", 0, inputs=[1], outputs=[2], now_s=10.0)
    >>> counters.turn_to(BUSY, 10.5)
    >>> counters.received_items[1] += 100; counters.sent_items[2] += 30
    >>> counters.turn_to(BACKPRESSURED, 11.5)
    >>> reading = counters.reading(12.0)
    >>> reading.idle_s, reading.busy_s, reading.backpressured_s, reading.received
    (0.5, 1.0, 0.5, {1: (100, 0)})
    """

    __slots__ = (
        "activity", "latency", "read_bytes", "read_items", "received_bytes", "received_items", "replica", "seconds", "sent_bytes",
        "sent_items", "since_s", "started_s", "vertex", "written_bytes", "written_items",
    )  # fmt: skip

    def __init__(self, vertex: str, replica: int, *, inputs: Iterable[int] = (), outputs: Iterable[int] = (), now_s: float) -> None:
        self.vertex = vertex
        self.replica = replica
        self.started_s = now_s
        self.since_s = now_s
        self.activity: int = IDLE
        self.seconds = [0.0, 0.0, 0.0, 0.0]
        self.received_items = dict.fromkeys(inputs, 0)
        self.received_bytes = dict.fromkeys(self.received_items, 0)
        self.sent_items = dict.fromkeys(outputs, 0)
        self.sent_bytes = dict.fromkeys(self.sent_items, 0)
        self.read_items = self.read_bytes = self.written_items = self.written_bytes = 0
        self.latency = LatencyHistogram()

    def turn_to(self, activity: int, now_s: float) -> None:
        """From now on the replica is BUSY, IDLE, BACKPRESSURED or QUEUED; a clock that went back counts as standing still."""
        if now_s > self.since_s:
            self.seconds[self.activity] += now_s - self.since_s
            self.since_s = now_s
        self.activity = activity

    def reading(
        self,
        now_s: float,
        *,
        queue_items: int = 0,
        queue_bytes: int = 0,
        queue_batches: int = 0,
        backlog_items: int | None = None,
        frontier_lag_s: float | None = None,
        state_bytes: int = 0,
    ) -> ReplicaReading:
        """The counts so far, with values that only the runtime knows at this moment.

        It changes nothing and may be taken in another thread. Read ``now_s`` before the call: a switch of activity in between is then later
        than ``now_s``, and the reading ends at the switch.
        """
        activity, since_s, seconds = self.activity, self.since_s, list(self.seconds)
        counted_s = self.started_s + sum(seconds)
        if counted_s > since_s + 1e-6:  # read in the middle of a switch
            since_s = counted_s
        if now_s > since_s:
            seconds[activity] += now_s - since_s
            since_s = now_s
        return ReplicaReading(
            self.vertex,
            self.replica,
            self.started_s,
            since_s,
            seconds[BUSY],
            seconds[IDLE],
            seconds[BACKPRESSURED],
            {edge: (items, self.received_bytes[edge]) for edge, items in self.received_items.items()},
            {edge: (items, self.sent_bytes[edge]) for edge, items in self.sent_items.items()},
            (self.read_items, self.read_bytes),
            (self.written_items, self.written_bytes),
            queue_items,
            queue_bytes,
            backlog_items,
            frontier_lag_s,
            state_bytes,
            {index: count for index, count in enumerate(self.latency.counts) if count},
            queue_batches,
            seconds[QUEUED],
        )

    def check_invariants(self) -> None:
        """The four activities add up to the time; nothing is negative. Raises ProtocolError."""
        total = self.since_s - self.started_s
        if abs(sum(self.seconds) - total) > 1e-6 * max(1.0, total) or min(self.seconds) < 0.0:
            told = f"busy, idle, back-pressured and queued {self.seconds} do not add up to {total} s"
            raise ProtocolError(f"{self.vertex!r}[{self.replica}]: {told}")
        counts = (*self.received_items.values(), *self.sent_items.values(), self.read_items, self.written_items)
        if min(counts) < 0:
            raise ProtocolError(f"{self.vertex!r}[{self.replica}] has a negative count: {counts}")
