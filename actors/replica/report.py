"""What a replica reports of itself, and how an incarnation of it ends early."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from rayad.actors.process.activity import Activity
from rayad.actors.replica.recent import Recent
from rayad.autoscale.statistics import ReplicaReading
from rayad.dataflow.operators.bad_records import SetAside
from rayad.progress import Timestamp
from rayad.snapshots.attempts import ReplicaName


class Abandoned(ConnectionError):
    """This incarnation of a replica is over."""


@dataclass(frozen=True, slots=True)
class Waits:
    """What waits at a replica, and for whom, as values for a diagnosis."""

    queued: int = 0
    """Batches that have arrived and are not consumed."""
    looped: int = 0
    """Batches that came round a loop."""
    notifications: tuple[Timestamp, ...] = ()
    no_credit: tuple[tuple[ReplicaName, int], ...] = ()
    """To whom batches wait for credit, and how many."""
    lost: tuple[tuple[str, float], ...] = ()
    """Whose connection is lost and not replaced, and for how many seconds."""
    input_epoch: int | None = None
    """Of a live input that is open."""
    input_idle_s: float | None = None
    """Seconds since its last frame; None: not known."""
    aligning: int | None = None
    """The snapshot whose barriers have come on some channels and not on all."""
    aligning_s: float = 0.0
    missing: tuple[ReplicaName, ...] = ()
    """Whose barrier has not come."""
    spilled_bytes: int = 0
    """On disk now."""
    spill_free_bytes: int | None = None
    """Free on that disk; None: not known, or nothing is spilled."""
    spill_directory: str = ""


@dataclass(slots=True)
class ReplicaReport:
    """What a replica did, in the end and on the way."""

    name: str
    replica: int
    pid: int = 0
    """The id of the process in which it runs."""
    batches_in: int = 0
    records_in: int = 0
    batches_out: int = 0
    spilled_batches: int = 0
    spill_memory_bytes_peak: int = 0
    held_up_s: float = 0.0
    first_record_s: float | None = None
    """Seconds since the epoch when the first record was handled."""
    waiting: list[str] = field(default_factory=list)
    activity: Activity | None = None
    """What the event loop is busy with, when it did not answer itself."""
    node: str = ""
    """Address of the node that it runs on."""
    reading: ReplicaReading | None = None
    """What it has counted, where that was asked for."""
    sinks: tuple[str, ...] = ()
    """That it writes to."""
    set_aside: tuple[SetAside, ...] = ()
    """By operators with ``on_error="skip"``, since the replica started."""
    waits: Waits = field(default_factory=Waits)
    amounts_read: tuple[float, float] = (0.0, 0.0)
    """Of a source: how much has been read, and how much there is, in its own unit; (0, 0) where that is not known."""
    title: str = ""
    """What the user calls the vertex, where that is not its name."""
    figures: Mapping[str, int] = field(default_factory=dict)
    """What its vertex counts, by name."""


@dataclass(frozen=True, slots=True)
class Left:
    """What a replica gives at its end.

    Args:
        report: what it did.
        staged: what its sink writers have staged, by sink id; of a replica that has retired by number where snapshots are kept.
        recent: by sink that tells its updates: the last records written.
    """

    report: ReplicaReport
    staged: dict[Any, Any]
    recent: Mapping[str, Recent] = field(default_factory=dict)


class Kept(NamedTuple):
    """What a replica gives at its end that may be large: it travels in one piece, apart from the reports."""

    staged: dict[Any, Any]
    recent: Mapping[str, Recent]


def told(left: Mapping[str, Left]) -> tuple[dict[str, ReplicaReport], dict[str, Kept]]:
    """What the replicas of a process have left, by name, as the two results of its work."""
    return {name: one.report for name, one in left.items()}, {name: Kept(one.staged, one.recent) for name, one in left.items()}


@dataclass(frozen=True, slots=True)
class Pulse:
    """The answer to a heartbeat: by a thread other than the event loop's, so a busy function does not delay it."""

    activity: Activity | None = None
    node: str = ""
    node_id: str = ""
    """Ray's, of the node."""
