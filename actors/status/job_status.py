"""One model of what is seen of a job: the tables, the page and the metrics all show a :class:`JobStatus`, and nothing else.

Values are plain (numbers, text, tuples), so that a status can be sent, kept and written as JSON (:meth:`JobStatus.as_json`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from enum import Enum
from typing import Any

from rayad.actors.lead.job_leader import JobState
from rayad.actors.status.silent import Silent
from rayad.actors.status.snapshots_late import SnapshotsLate
from rayad.dataflow.operators.bad_records import SetAside
from rayad.progress import Timestamp


@dataclass(frozen=True, slots=True)
class ReplicaStatus:
    """One replica of a vertex. Rates and shares are means over :attr:`JobStatus.window_s`; None: not measured yet."""

    replica: int
    node: str = ""
    """Address of the node that it runs on."""
    pid: int = 0
    records_in: int = 0
    """Consumed since it started."""
    rate_in: float | None = None
    """Records consumed a second; of a source, read."""
    rate_out: float | None = None
    """Records produced a second; what goes to sinks does not count, a broadcast counts once."""
    busy_share: float | None = None
    idle_share: float | None = None
    backpressured_share: float | None = None
    """Shares of its time: at work, without input, with input and no credit to send. With ``queued_share`` they add up to 1."""
    backlog_batches: int = 0
    backlog_bytes: int = 0
    """What has arrived and is not consumed. Bytes: those in memory."""
    backlog_outside: int | None = None
    """Of a source: records that it knows to be waiting outside."""
    state_bytes: int = 0
    """Of its last snapshot; before one, an estimate."""
    amounts_read: tuple[float, float] = (0.0, 0.0)
    """Of a source: how much has been read, and how much there is, in its own unit (bytes, rows, parts); (0, 0) where that is not known."""
    answers: bool = True
    """False: these figures are what it told last."""
    queued_share: float | None = None
    """The share of its time in which others of its worker ran."""


@dataclass(frozen=True, slots=True)
class VertexStatus:
    """One vertex, with what is fused to it."""

    name: str
    where: str = ""
    """The user's line that made it."""
    is_start: bool = False
    """Whether it is a source or a live input."""
    replicas: tuple[ReplicaStatus, ...] = ()
    frontier: tuple[Timestamp, ...] | None = None
    """The minimal times that can still arrive; of a source, that it can still send. Empty: none can. None: not known."""
    pending: tuple[Timestamp, ...] = ()
    """The minimal times of notifications that wait."""
    lag_epochs: int | None = None
    """How many epochs its frontier (and what waits) is behind the slowest source; of a source: behind the fastest. None: it has ended."""
    lag_s: float | None = None
    """How long ago the slowest source left the epoch that is open here; 0 while it has not. None: it has ended, or that is not known."""
    steps: tuple[str, ...] = ()
    """The operators that are fused to it, by the user's names, in order; the keys of its sinks begin with ``=> ``."""
    title: str = ""
    """What a drawing calls it: its name; of an exchange, which has a name of ours, its loop, or the first of its steps."""
    figures: Mapping[str, int] = field(default_factory=dict)
    """What the vertex counts, by name, of all replicas together: of a vertex of collections how much it keeps."""

    tables: tuple[str, ...] = ()
    """What of it can be read while it runs, ``job.table(name, state=...)``: the names of states, "" where none has to be said."""

    @property
    def parallelism(self) -> int:
        """How many replicas there are."""
        return len(self.replicas)

    @property
    def rate_in(self) -> float | None:
        """Of all replicas together."""
        return _sum(one.rate_in for one in self.replicas)

    @property
    def rate_out(self) -> float | None:
        """Of all replicas together."""
        return _sum(one.rate_out for one in self.replicas)

    @property
    def busy_share(self) -> float | None:
        """Mean of the replicas."""
        return _mean(one.busy_share for one in self.replicas)

    @property
    def idle_share(self) -> float | None:
        """Mean of the replicas."""
        return _mean(one.idle_share for one in self.replicas)

    @property
    def backpressured_share(self) -> float | None:
        """Mean of the replicas."""
        return _mean(one.backpressured_share for one in self.replicas)

    @property
    def queued_share(self) -> float | None:
        """Mean of the replicas."""
        return _mean(one.queued_share for one in self.replicas)

    @property
    def backlog_batches(self) -> int:
        """Of all replicas together."""
        return sum(one.backlog_batches for one in self.replicas)

    @property
    def backlog_bytes(self) -> int:
        """Backlog of all replicas together, bytes."""
        return sum(one.backlog_bytes for one in self.replicas)

    @property
    def state_bytes(self) -> int:
        """Of all replicas together."""
        return sum(one.state_bytes for one in self.replicas)

    @property
    def pruned(self) -> int:
        """How many windows of collections are over and forgotten (``lateness=``)."""
        return self.figures.get("windows pruned", 0)

    @property
    def records_pruned(self) -> int:
        """How many records joins by time and sessions of collections have forgotten (``lateness=``)."""
        return self.figures.get("records pruned", 0)

    @property
    def refused(self) -> int:
        """How many changes of collections came later than ``lateness=`` allows, and were not applied."""
        return self.figures.get("changes refused", 0)

    @property
    def share_read(self) -> float | None:
        """Of a source: the share of its input that has been read, from 0 to 1; None: not known, or it has no end.

        >>> VertexStatus("lines", replicas=(ReplicaStatus(0, amounts_read=(30, 100)), ReplicaStatus(1, amounts_read=(100, 100)))).share_read
        0.65
        """
        read, size = (sum(one.amounts_read[i] for one in self.replicas) for i in (0, 1))
        return min(1.0, read / size) if read > 0 and size > 0 else None

    @property
    def skew(self) -> float | None:
        """The highest rate of a replica over the mean: 1 where all are alike, the number of replicas where one does everything.

        >>> VertexStatus("count", replicas=(ReplicaStatus(0, rate_in=300.0), ReplicaStatus(1, rate_in=100.0))).skew
        1.5
        """
        mean = _mean(one.rate_in for one in self.replicas)
        return max(one.rate_in for one in self.replicas if one.rate_in is not None) / mean if mean else None


@dataclass(frozen=True, slots=True)
class SnapshotStatus:
    """The newest snapshot of a run."""

    number: int
    kind: str
    """"snapshot", "savepoint" or "final"."""
    age_s: float | None
    """Since it was published; None in the local runtime."""
    took_s: float
    total_bytes: int
    written_bytes: int
    """What was written for it; the rest is shared with those before."""


@dataclass(frozen=True, slots=True)
class EdgeStatus:
    """Batches of one vertex go to another one."""

    source: str
    target: str
    is_feedback: bool = False
    """Whether it closes a loop."""


@dataclass(frozen=True, slots=True)
class JobStatus:
    """What is known of a job at one moment."""

    name: str
    state: JobState
    at_s: float = 0.0
    """Seconds since 1970. In the local runtime, whose clock is its steps, steps."""
    window_s: float = 0.0
    """Rates and shares are means over so many seconds; 0: not measured yet."""
    vertices: tuple[VertexStatus, ...] = ()
    edges: tuple[EdgeStatus, ...] = ()
    active: int = 0
    """How many pointstamps are active."""
    failures: int = 0
    """How many have been survived."""
    snapshot: SnapshotStatus | None = None
    """The newest of this run; None: there is none."""
    snapshot_interval_s: float | None = None
    """Seconds between snapshots as they stand now; None: on demand only."""
    silent: tuple[Silent, ...] = ()
    """Who did not answer: the figures of these are what they told last."""
    events: int = 0
    """How many events the journal has had."""
    snapshots_late: SnapshotsLate | None = None
    """Snapshots that fail, take long or do not come; None: they come in time."""
    set_aside: tuple[SetAside, ...] = ()
    """By operator, of all its replicas, since they started: records on which it failed, with ``on_error="skip"``."""
    result_epoch: int | None = None
    """The newest epoch that is complete at every vertex. None: there is none yet, all inputs have ended, or that is not known."""
    result_age_s: float | None = None
    """How long ago the slowest source left that epoch: so old are the newest complete results. None: not known."""
    nodes: tuple[str, ...] = ()
    """What is unusual about the nodes, in words: which drain or do not answer, and which workers share processors for lack of room."""

    @property
    def layout(self) -> dict[str, int]:
        """Replicas by vertex."""
        return {vertex.name: len(vertex.replicas) for vertex in self.vertices}

    def as_json(self) -> dict[str, Any]:
        """Objects, lists, numbers and text; with what is computed of vertices. Times are text."""
        out: dict[str, Any] = _plain(self)
        for vertex, shown in zip(self.vertices, out["vertices"], strict=True):
            shown |= {name: getattr(vertex, name) for name in COMPUTED}
        return out


COMPUTED = (
    "rate_in", "rate_out", "busy_share", "idle_share", "backpressured_share", "queued_share", "backlog_batches", "backlog_bytes",
    "state_bytes", "skew", "share_read",
)  # fmt: skip
"""Figures of a vertex that follow from those of its replicas."""


def _plain(value: Any) -> Any:
    if isinstance(value, Timestamp):
        return str(value)
    if isinstance(value, Enum):
        return value.value
    if is_dataclass(value) and not isinstance(value, type):
        return {one.name: _plain(getattr(value, one.name)) for one in fields(value)}
    return [_plain(one) for one in value] if isinstance(value, tuple) else value


def _sum(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None
