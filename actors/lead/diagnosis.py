"""Why a job does not move: facts in, findings out, the one that the frontier waits for first. Pure; both runtimes use it.

The facts are what several parties know at one moment: the progress tracker (which pointstamps are active, and where), the coordinator (who
starts, who is silent, which snapshots failed) and each replica (what its event loop is in, what waits there and for whom). Any of them may
be missing: a silent replica is known by what it told last.

A finding is never "somebody waits for me": a replica that waits for credit is followed to the one that does not grant it, a barrier that
has not come to the one that has not sent it (Flink finds a back-pressured task's cause downstream in the same way). The order is: faults,
then work that takes long, then work that never ends, then snapshots, and last an input that nobody sends to: it holds the frontier of every
job that is up to date, so it is the answer only when there is no other.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from rayad.actors.process.activity import Activity
from rayad.actors.replica.report import ReplicaReport
from rayad.dataflow.plan import Plan
from rayad.progress import JobTracker, LocationKind, Timestamp
from rayad.snapshots.attempts import ReplicaName

LONG_S = 1.0
"""A call that takes longer counts as blocked, not as slow."""
FREE_BYTES_MIN = 64 << 20
"""A disk to which batches are spilled counts as full when less than this is free."""
SKEW_MIN = 2.0
"""A replica with so many times its fair share of the records is skewed."""
STAMPS_MAX = 64
"""So many of the earliest pointstamps are looked at."""


class Cause(enum.Enum):
    """What holds a job up, in the order in which they are told."""

    TAKING_OVER = "a coordinator takes the place of another one"
    PLACEMENT = "waiting for placement"
    NODE_GONE = "the node is gone"
    STOPPED = "the process is stopped"
    CONNECTION = "the connection is lost"
    SPILL_FULL = "the spill disk is full"
    BLOCKED = "a function does not return"
    SINK = "a sink is slow"
    SKEW = "a key is skewed"
    SLOW = "a vertex is slow"
    STORE_AWAY = "the store is away"
    ALIGNING = "a snapshot is aligning"
    LOOP = "a loop goes on"
    IDLE_INPUT = "an input is idle"


_ORDER = {cause: number for number, cause in enumerate(Cause)}


@dataclass(frozen=True, slots=True)
class Stamp:
    """An active pointstamp, by vertex."""

    vertex: str
    time: Timestamp
    count: int = 1


@dataclass(frozen=True, slots=True)
class Missing:
    """A replica, or the progress actor, that does not answer at all.

    ``peers``: how many others of the job are on its node; ``alive``: how many of these answer.
    """

    who: str
    replica: ReplicaName | None
    node: str
    for_s: float
    peers: int = 0
    alive: int = 0


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known of a job at one moment."""

    replicas: Mapping[ReplicaName, ReplicaReport] = field(default_factory=dict)
    """What each told last."""
    stamps: tuple[Stamp, ...] = ()
    """The earliest active pointstamps, in a linear extension of their order."""
    missing: tuple[Missing, ...] = ()
    taking_over: str = ""
    """What a coordinator that takes the place of another one waits for before it begins, in words."""
    starting: str = ""
    """Who is waited for to start, and what is free, in words."""
    snapshots_given_up: int = 0
    """Since the last one that succeeded."""
    why_given_up: str = ""
    snapshots_wait: str = ""
    """What takes long of them, in words."""
    coordinator: Activity | None = None
    """The call of a sink, in the coordinator, that takes long."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that a job waits for. What is not known is None or ""."""

    cause: Cause
    sentence: str
    vertex: str = ""
    replica: int | None = None
    node: str = ""
    time: Timestamp | None = None
    since_s: float | None = None
    """For how many seconds."""

    @property
    def round(self) -> tuple[int, ...]:
        """The counters of the enclosing loops, outermost first."""
        return self.time.counters if self.time is not None else ()

    def __str__(self) -> str:
        return self.sentence


def stamps_of(tracker: JobTracker, plan: Plan) -> tuple[Stamp, ...]:
    """The earliest active pointstamps, by vertex."""
    graph, names = plan.progress, {stage.id: stage.name for stage in plan.stages}
    active = sorted(tracker.active(), key=lambda one: (one[1].sort_key(), one[0]))[:STAMPS_MAX]
    out = []
    for location, time, count in active:
        place = graph.locations[location]
        if place.kind is not LocationKind.CHILD_INPUT:
            out.append(Stamp(names.get(place.owner) or graph.node_by_id[place.owner].name, time, count))
    return tuple(out)


def diagnose(facts: Facts) -> tuple[Finding, ...]:
    """What the job waits for: the first is what its frontier waits for, () when nothing is known to wait."""
    found = [*_missing(facts), *_replicas(facts), *_aligning(facts), *_job(facts)]
    earliest: dict[str, int] = {}
    for number, stamp in enumerate(facts.stamps):
        earliest.setdefault(stamp.vertex, number)

    def rank(one: Finding) -> tuple[int, int, float, str, int]:
        holds = earliest.get(one.vertex, len(facts.stamps))
        return _ORDER[one.cause], holds, -(one.since_s or 0.0), one.vertex, one.replica or 0

    return tuple(sorted(found, key=rank))


def sentences(findings: Collection[Finding], state: str) -> str:
    """For people: what the frontier waits for in one sentence, then the others."""
    lines = [str(one) for one in findings]
    return "\n".join(["The job " + lines[0], *(f"also: it {line}" for line in lines[1:])]) if lines else f"The job {state}."


def _missing(facts: Facts) -> Iterable[Finding]:
    for one in facts.missing:
        where = f" on node {one.node}" if one.node else ""
        begin = f"waits for {one.who}{where}, {_doing(facts, one.replica)}which has not answered for {one.for_s:.1f} s: "
        is_gone = one.peers > 0 and one.alive == 0
        if is_gone:
            why, cause = f"nobody of the job answers on that node, {one.peers + 1} actors: it is gone, or cut off.", Cause.NODE_GONE
        elif one.alive:
            why, cause = f"its process is stopped: {_number(one.alive, 'other actor')} of the job on that node answer.", Cause.STOPPED
        else:
            why, cause = "its process is stopped, or its node is gone (nobody else of the job is on it).", Cause.STOPPED
        vertex, replica = one.replica or ("", None)
        yield Finding(cause, begin + why, vertex, replica, one.node, _time(facts, one.replica), one.for_s)


def _doing(facts: Facts, name: ReplicaName | None) -> str:
    """At which time a replica that does not answer holds something, as far as the tracker knows."""
    time = _time(facts, name)
    return f"at {_told(time)}, " if time is not None else ""


def _replicas(facts: Facts) -> Iterable[Finding]:
    silent = {one.replica for one in facts.missing}
    starved = _starved(facts)
    for name, report in facts.replicas.items():
        if name in silent:
            continue
        yield from _lost(facts, name, report)
        yield from _spilling(facts, name, report)
        working = _working(facts, name, report, starved.get(name, 0))
        if working is not None:
            yield working
        elif _goes_round(facts, name, report):
            yield _loop(facts, name, report)
        elif report.waits.input_epoch is not None and not report.waits.queued and not report.waits.no_credit:
            yield _idle(facts, name, report)


def _starved(facts: Facts) -> dict[ReplicaName, int]:
    """How many batches wait for a credit of each replica."""
    out: dict[ReplicaName, int] = {}
    for report in facts.replicas.values():
        for peer, batches in report.waits.no_credit:
            out[peer] = out.get(peer, 0) + batches
    return out


def _lost(facts: Facts, name: ReplicaName, report: ReplicaReport) -> Iterable[Finding]:
    for peer, for_s in report.waits.lost:
        told = (
            f"waits for a connection of {_who(name, report)} with {peer}, which was lost {for_s:.1f} s ago: both ends live, and try again."
        )
        yield _finding(facts, Cause.CONNECTION, told, name, report, since_s=for_s)


def _spilling(facts: Facts, name: ReplicaName, report: ReplicaReport) -> Iterable[Finding]:
    held = report.waits
    if held.spilled_bytes and held.spill_free_bytes is not None and held.spill_free_bytes < FREE_BYTES_MIN:
        told = (
            f"waits for {_who(name, report)}, whose spill disk ({held.spill_directory}) is full: {_bytes(held.spilled_bytes)} of its "
            f"batches are there, {_bytes(held.spill_free_bytes)} are free."
        )
        yield _finding(facts, Cause.SPILL_FULL, told, name, report)


def _working(facts: Facts, name: ReplicaName, report: ReplicaReport, starved: int) -> Finding | None:
    """Work that takes long: one call of it, or a queue that others wait behind."""
    held, doing = report.waits, report.activity
    who, share = _who(name, report), _share(facts, name)
    if doing is not None and doing.for_s >= LONG_S:
        cause = Cause.SINK if doing.in_sink else Cause.BLOCKED
        what = f"a sink's {doing}" if doing.in_sink else f"{doing}"
        told = f"waits for {who}, which is in {what}."
        return _finding(facts, cause, told, name, report, doing.time, doing.for_s)
    if held.no_credit or not (held.queued or starved or doing):
        return None  # it waits for another one, or has nothing to do
    behind = f"{_number(held.queued, 'batch', 'batches')} queued there, {starved} more waiting for its credit"
    inside = f", now in {doing}" if doing is not None else ""
    time = doing.time if doing is not None else None
    if share is not None and (held.queued or starved):
        others = sum(1 for other in facts.replicas if other[0] == name[0])
        told = f"waits for {who}, which got {share:.0%} of the records of {others} replicas (a skewed key?): {behind}{inside}."
        return _finding(facts, Cause.SKEW, told, name, report, time)
    if report.sinks and (doing is None or doing.in_sink):
        sinks = ", ".join(map(repr, report.sinks))
        told = f"waits for {who}, which writes to sink {sinks} more slowly than records come: {behind}{inside}."
        return _finding(facts, Cause.SINK, told, name, report, time)
    return _finding(facts, Cause.SLOW, f"waits for {who}, which is at work: {behind}{inside}.", name, report, time)


def _share(facts: Facts, name: ReplicaName) -> float | None:
    """Of the records of its vertex, if that is far more than its fair one."""
    counts = {other: report.records_in for other, report in facts.replicas.items() if other[0] == name[0]}
    total = sum(counts.values())
    if len(counts) < 2 or not total:
        return None
    share = counts[name] / total
    return share if share >= min(0.9, SKEW_MIN / len(counts)) else None


def _goes_round(facts: Facts, name: ReplicaName, report: ReplicaReport) -> bool:
    time = _time(facts, name)
    return bool(report.waits.looped or (report.waits.notifications and time is not None and time.counters and max(time.counters)))


def _loop(facts: Facts, name: ReplicaName, report: ReplicaReport) -> Finding:
    time = _time(facts, name)
    at = f"epoch {time.epoch} is in round {_round(time)}" if time is not None and time.counters else "a loop goes on"
    told = f"waits for {_who(name, report)}: {at}, and {_number(report.waits.looped, 'batch', 'batches')} came round the loop again."
    return _finding(facts, Cause.LOOP, told, name, report)


def _idle(facts: Facts, name: ReplicaName, report: ReplicaReport) -> Finding:
    held = report.waits
    since = f" for {held.input_idle_s:.1f} s" if held.input_idle_s is not None else ""
    epoch = held.input_epoch or 0
    told = f"waits for input {_who(name, report)}, which is open in epoch {epoch} and has got nothing{since}: send, advance or close it."
    return _finding(facts, Cause.IDLE_INPUT, told, name, report, Timestamp(epoch), held.input_idle_s)


def _aligning(facts: Facts) -> Iterable[Finding]:
    """Replicas that have some barriers of a snapshot and not all, unless the sender is itself waiting for another one."""
    waiting = {name for name, report in facts.replicas.items() if report.waits.aligning is not None}
    for name, report in facts.replicas.items():
        held = report.waits
        late = [peer for peer in held.missing if peer not in waiting]
        if held.aligning is None or not late:
            continue
        named = ", ".join(f"{vertex!r}[{replica}]" for vertex, replica in late[:3])
        more = f" and {len(late) - 3} more" if len(late) > 3 else ""
        who = _who(name, report)
        told = f"waits for snapshot {held.aligning} at {who}: the barrier of {named}{more} has not come for {held.aligning_s:.1f} s."
        yield _finding(facts, Cause.ALIGNING, told, name, report, since_s=held.aligning_s)


def _job(facts: Facts) -> Iterable[Finding]:
    if facts.taking_over:
        told = f"waits for its coordinator, which takes the place of another one, and waits for {facts.taking_over}."
        yield Finding(Cause.TAKING_OVER, told)
    if facts.starting:
        yield Finding(Cause.PLACEMENT, f"waits for placement: {facts.starting}.")
    if facts.snapshots_given_up:
        times = _number(facts.snapshots_given_up, "snapshot")
        yield Finding(Cause.STORE_AWAY, f"waits for its store: {times} in a row failed, the last because {facts.why_given_up}.")
    is_known = facts.coordinator is not None or any(_holds_snapshots(facts, *one) for one in facts.replicas.items())
    if facts.snapshots_wait and not is_known:
        yield Finding(Cause.STORE_AWAY, f"waits for its store: {facts.snapshots_wait}.")
    if facts.coordinator is not None:
        told = f"waits for the coordinator, which is in {facts.coordinator}."
        yield Finding(Cause.SINK, told, time=facts.coordinator.time, since_s=facts.coordinator.for_s)


def _holds_snapshots(facts: Facts, name: ReplicaName, report: ReplicaReport) -> bool:
    """Whether a snapshot waits for this replica and not for its store: it aligns, or does not come to say that its part is written."""
    is_busy = report.activity is not None and report.activity.for_s >= LONG_S
    return report.waits.aligning is not None or (is_busy and f"{name[0]!r}[{name[1]}]" in facts.snapshots_wait)


def _finding(
    facts: Facts,
    cause: Cause,
    told: str,
    name: ReplicaName,
    report: ReplicaReport,
    time: Timestamp | None = None,
    since_s: float | None = None,
) -> Finding:
    time = time if time is not None else _time(facts, name)
    return Finding(cause, told, name[0], name[1], report.node, time, since_s)


def _time(facts: Facts, name: ReplicaName | None) -> Timestamp | None:
    """The earliest active time at a vertex; None where the tracker has none, or it is not known whose."""
    return next((stamp.time for stamp in facts.stamps if name is not None and stamp.vertex == name[0]), None)


def _who(name: ReplicaName, report: ReplicaReport) -> str:
    where = f" on node {report.node}" if report.node else ""
    return f"{(report.title or name[0])!r}[{name[1]}]{where}"


def _told(time: Timestamp) -> str:
    return f"{time}, round {_round(time)}" if time.counters else str(time)


def _round(time: Timestamp) -> str:
    return ".".join(map(str, time.counters))


def _number(count: int, one: str, many: str = "") -> str:
    return f"{count} {one if count == 1 else many or one + 's'}"


def _bytes(count: int) -> str:
    return f"{count / (1 << 20):.1f} MiB"


__all__ = ["Cause", "Facts", "Finding", "Missing", "Stamp", "diagnose", "sentences", "stamps_of"]
