"""What a coordinator gives out: a plan cut to what one actor needs, and how a job ended."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Mapping
from typing import Any

from rayad.actors.job import JobState, JobStatistics, Silent
from rayad.actors.lead.diagnosis import Finding
from rayad.actors.lead.failure import Failure
from rayad.actors.replica.recent import Recent
from rayad.actors.replica.report import Kept, ReplicaReport
from rayad.actors.status.journal import JobEvent
from rayad.dataflow.config import RunConfig
from rayad.dataflow.plan import Plan, sinks_of
from rayad.progress import RayadError, Timestamp


@dataclasses.dataclass(frozen=True, slots=True)
class JobOutcome:
    """How a job ended."""

    state: JobState
    receipts: dict[int, Any]
    statistics: JobStatistics
    failure: Failure | None = None
    journal: tuple[JobEvent, ...] = ()
    recent: Mapping[str, Mapping[str, tuple[int, Recent]]] = dataclasses.field(default_factory=dict)
    """By sink that tells its updates, and replica: its incarnation, and its last records; for who reads them after the end."""
    stays: bool = False
    """The processes wait for another job."""


@dataclasses.dataclass
class WorkDone:
    """What actors gave when their work was done, by name."""

    reports: dict[str, ReplicaReport] = dataclasses.field(default_factory=dict)
    counts: dict[str, int] = dataclasses.field(default_factory=dict)
    kept: dict[str, Kept] = dataclasses.field(default_factory=dict)

    def forget(self, names: Collection[str]) -> None:
        """These replicas begin anew."""
        for name in names:
            self.reports.pop(name, None)
            self.kept.pop(name, None)

    def recent(self, incarnation_of: Callable[[str], int]) -> dict[str, dict[str, tuple[int, Recent]]]:
        """By sink that tells its updates, and replica: its incarnation, and the last records that it wrote."""
        out: dict[str, dict[str, tuple[int, Recent]]] = {}
        for name, kept in self.kept.items():
            for sink, recent in kept.recent.items():
                out.setdefault(sink, {})[name] = (incarnation_of(name), recent)
        return out


@dataclasses.dataclass(frozen=True, slots=True)
class Beat:
    """What a coordinator answers to a heartbeat: where its job is, and what has been asked of it that the one after it must know."""

    state: JobState
    is_cancelled: bool = False
    is_stopping: bool = False
    changes: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """Of the configuration, since the job began."""
    node: str = ""
    """The address of its node."""
    life: int = 0
    """How many coordinators the job has had, with this one, as far as it was told."""
    is_deposed: bool = False
    """Another run has claimed the store, and the long call does not end: its outcome is to be asked for anew."""


@dataclasses.dataclass(frozen=True, slots=True)
class About:
    """What a handle of a job stands on.

    ``plan`` is without code and data; ``outcome`` is the reference of the coordinator's long call, None until its owner has given it;
    ``runs`` are those of the job's coordinators so far, the newest last: a coordinator of the same name without them is another job's.
    """

    plan: Plan
    config: RunConfig
    outcome: Any
    runs: tuple[str, ...]


Blockers = list[tuple[str, Timestamp, list[tuple[str, Timestamp, int]]]]
"""For every pending notification: stage, time, and what could still result in it."""


@dataclasses.dataclass(frozen=True, slots=True)
class Starting:
    """What a start or a recovery waits for: the actors that are not up yet, out of how many, and for how long."""

    waiting: tuple[str, ...]
    count: int
    for_s: float = 0.0
    free: str = ""
    """Resources that are free now, in words."""

    def __str__(self) -> str:
        up = self.count - len(self.waiting)
        more = f" and {len(self.waiting) - NAMED_MAX} more" if len(self.waiting) > NAMED_MAX else ""
        names = ", ".join(self.waiting[:NAMED_MAX])
        return f"{up} of {self.count} actors have started, after {self.for_s:.1f} s; waiting for {names}{more}; free now: {self.free}"


NAMED_MAX = 5
"""How many of the actors that have not started are named."""


@dataclasses.dataclass(frozen=True, slots=True)
class Look:
    """What a coordinator knows of its job without waiting; of a silent actor, what it told last."""

    state: JobState
    reports: tuple[ReplicaReport, ...] = ()
    views: Mapping[int, Any] = dataclasses.field(default_factory=dict)
    active: int = 0
    blockers: Blockers = dataclasses.field(default_factory=list)
    silent: tuple[Silent, ...] = ()
    starting: Starting | None = None
    findings: tuple[Finding, ...] = ()
    """Why the job does not move, the first cause first; where it was asked for."""


def plan_for(plan: Plan, mine_only: Collection[int]) -> Plan:
    """The plan with only what some stages need: other stages' code and data stay away from their process."""
    stages = tuple(s if s.id in mine_only else dataclasses.replace(s, op=None, parts=(), steps=(), outputs=()) for s in plan.stages)
    mine = {sink for stage in mine_only for sink in sinks_of(plan.stage(stage).steps)}
    return dataclasses.replace(plan, stages=stages, sinks=tuple(s for s in plan.sinks if s.id in mine))


def plan_to_show(plan: Plan) -> Plan:
    """The plan as a handle needs it: names, layout and sinks, without what the stages do."""
    return dataclasses.replace(plan_for(plan, []), sinks=plan.sinks)


def stage_statistics(reports: list[ReplicaReport], began_s: float) -> dict[str, dict[str, int]]:
    """What the replicas of each stage did together."""
    stages: dict[str, dict[str, int]] = {}
    for report in reports:
        zeros = {"replicas": 0, "batches_in": 0, "records_in": 0, "batches_out": 0, "spilled_batches": 0}
        entry = stages.setdefault(report.name, zeros)
        entry["replicas"] += 1
        entry["batches_in"] += report.batches_in
        entry["records_in"] += report.records_in
        entry["batches_out"] += report.batches_out
        entry["spilled_batches"] += report.spilled_batches
        for name, value in (
            ("spill_memory_bytes_peak", report.spill_memory_bytes_peak),
            ("held_up_ms", round(1000 * report.held_up_s)),
            ("first_record_ms", round(1000 * (report.first_record_s - began_s)) if report.first_record_s else 0),
        ):
            entry[name] = max(entry.get(name, 0), value)
    return stages


def rebuild_error(job: str, failure: Failure) -> BaseException:
    """The exception that the driver raises for a failure."""
    original = failure.rebuild()
    if isinstance(original, RayadError):
        if failure.details:
            original.add_note(failure.details)
        return original
    error = RayadError(f"job {job!r} failed: {failure.who}: {failure.message}")
    if failure.details:
        error.add_note(failure.details)
    return error
