"""What a replica reports of itself, and how an incarnation of it ends early."""

from __future__ import annotations

from dataclasses import dataclass, field

from rayad.actors.process.activity import Activity
from rayad.autoscale.statistics import ReplicaReading


class Abandoned(ConnectionError):
    """This incarnation of a replica is over."""


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


@dataclass(frozen=True, slots=True)
class Pulse:
    """The answer to a heartbeat: by a thread other than the event loop's, so a busy function does not delay it."""

    activity: Activity | None = None
    node: str = ""
