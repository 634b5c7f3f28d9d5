"""Who leads the snapshots of a job: when an attempt begins, what follows when its parts arrive, when it is given up. Pure.

Both runtimes drive it. What has happened comes in as an event, with the time; what is to be done goes out as effects, in their order. The
Ray runtime carries an effect out at once, and those that need the store or a sink in a thread of their own; in the local runtime each
becomes events of its own, whose order the seed draws. Source: asynchronous barrier snapshots (Carbone et al.,
2015); docs/design/snapshots.md.

    Tick ──> Begin ──> PartWritten ... ──> Publish ──> Published ──> Commit ──> Committed
                  └──> PartFailed, expired ──> GiveUp
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from rayad.actors.lead.saved_inputs import SavedEpochs, SavedInputs
from rayad.dataflow.config import SnapshotConfig
from rayad.snapshots.attempts import TAKEN_MAX, Ack, PartReport, ReplicaName, SnapshotAttempts, SnapshotStatistics
from rayad.snapshots.barrier import Barrier
from rayad.snapshots.manifest import Manifest, StagedPart

WANTED_AGAIN_S = 1.0
"""When an attempt was given up, so long after its beginning the next one begins for who waits for a snapshot."""


# -- what has happened -------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed, while all replicas run and are connected."""


@dataclass(frozen=True, slots=True)
class PartWritten:
    """A replica has written its part."""

    report: PartReport


@dataclass(frozen=True, slots=True)
class PartFailed:
    """A replica could not give its part of an attempt."""

    number: int
    why: str


@dataclass(frozen=True, slots=True)
class Published:
    """The manifest of this attempt is in the store. If the attempt has been given up meanwhile, that changes nothing here: the next one
    finds its number taken."""

    number: int
    manifest: Manifest


@dataclass(frozen=True, slots=True)
class NotPublished:
    """The store did not take it."""

    number: int
    why: str


@dataclass(frozen=True, slots=True)
class Committed:
    """The sinks have published what a manifest names; ``is_retained``: older snapshots are forgotten, which a store may put off."""

    manifest: Manifest
    is_retained: bool = True


@dataclass(frozen=True, slots=True)
class Finished:
    """A replica has nothing left to do, so the job is complete: it lacks its last snapshot."""


@dataclass(frozen=True, slots=True)
class SavepointWanted:
    """Somebody waits for a savepoint, which is a snapshot that stays; ``ticket`` tells who."""

    ticket: int


@dataclass(frozen=True, slots=True)
class ChangeWanted:
    """A change of layout is to begin, during which there may be no snapshot: none begins from now on, see
    :attr:`SnapshotLeader.may_change`."""


@dataclass(frozen=True, slots=True)
class ChangeOver:
    """The change is over, or was given up."""


@dataclass(frozen=True, slots=True)
class Hastened:
    """Somebody waits for the next snapshot: it is due at once."""


@dataclass(frozen=True, slots=True)
class SnapshotWanted:
    """Somebody waits until a snapshot holds an epoch of a live input, which has consumed all of it."""

    name: str
    epoch: int


@dataclass(frozen=True, slots=True)
class RegionFailed:
    """Some replicas have failed; the others live on."""


@dataclass(frozen=True, slots=True)
class Ended:
    """The job is over: whoever still waits gets an answer."""

    why: str


Event: TypeAlias = (
    Tick
    | PartWritten
    | PartFailed
    | Published
    | NotPublished
    | Committed
    | Finished
    | SavepointWanted
    | ChangeWanted
    | ChangeOver
    | Hastened
    | SnapshotWanted
    | RegionFailed
    | Ended
)


# -- what is to be done ------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class Begin:
    """Tell these replicas to begin an attempt."""

    barrier: Barrier
    replicas: Sequence[ReplicaName]


@dataclass(frozen=True, slots=True)
class GiveUp:
    """Tell these replicas that an attempt is given up."""

    number: int
    why: str
    replicas: Sequence[ReplicaName]


@dataclass(frozen=True, slots=True)
class Publish:
    """All parts are there: write the manifest; answer :class:`Published` or :class:`NotPublished`."""

    number: int


@dataclass(frozen=True, slots=True)
class Commit:
    """Let the sinks publish what a manifest names, and forget older snapshots; answer :class:`Committed`."""

    manifest: Manifest


@dataclass(frozen=True, slots=True)
class SavepointTaken:
    """Tell who asked that the savepoint is there."""

    ticket: int
    number: int


@dataclass(frozen=True, slots=True)
class SavepointRefused:
    """Tell who asked why there is no savepoint."""

    ticket: int
    why: str


@dataclass(frozen=True, slots=True)
class Fail:
    """The incarnation fails with a SnapshotError; the job's leader decides whether the job survives that."""

    why: str


@dataclass(frozen=True, slots=True)
class Failing:
    """Attempts in a row that were given up: since when, how many, and why the last one was."""

    since_s: float
    attempts: int
    why: str


NAMED_MAX = 5
"""How many replicas are named whose parts are missing."""
ALL_OR_NONE = "the last snapshot has begun, which is of all replicas or of none"
NEWEST_DAMAGED = "the newest snapshot is damaged, and those that live on have what came after it"
NEWEST_UNTOLD = "the newest snapshot is of an attempt that was given up, and those that live on still have what they staged for it"
"""Why nobody may live on when some replicas have failed."""

Effect: TypeAlias = Begin | GiveUp | Publish | Commit | SavepointTaken | SavepointRefused | Fail


class SnapshotLeader:
    """The snapshots of one incarnation of a job, and what is kept from one incarnation to the next.

    Args:
        job: its name, for messages.
        config: intervals, timeouts, how many are kept.
        finally_published: sinks that publish once, at the end.
        replicas: who has to give a part; ``starts``: those of them without inputs, with which an attempt begins.
        begun: the manifest that the run resumes from; ``published``: number of the newest one in the store.
        now_s: the clock; only differences matter.
    """

    def __init__(
        self,
        job: str,
        config: SnapshotConfig,
        *,
        finally_published: Collection[str],
        replicas: Collection[ReplicaName],
        starts: Collection[ReplicaName],
        begun: Manifest,
        published: int,
        now_s: float,
    ) -> None:
        self.job = job
        self.config = config
        self.replicas = tuple(replicas)
        self.starts = tuple(starts)
        self.taken: deque[SnapshotStatistics] = deque(maxlen=TAKEN_MAX)
        """In all incarnations, the newest last."""
        self.final: Manifest | None = None
        """The last snapshot, when it is published."""
        self.committing: Manifest | None = None
        """What the sinks are publishing."""
        self.failing: Failing | None = None
        """The attempts that were given up since the last snapshot, in all incarnations; None: there are none."""
        self._finally = tuple(finally_published)
        self._saved = SavedInputs(begun, config.keep)
        self._wanted: dict[str, int] = {}
        self._waiting: deque[int] = deque()  # tickets of savepoints that have not begun
        self._savepoint: int | None = None
        self._began_s = now_s
        self._is_changing = False
        self._is_finished = False
        self.snapshots = self._bookkeeping(begun, published, 1, now_s)

    def _bookkeeping(self, begun: Manifest, published: int, first_attempt: int, now_s: float) -> SnapshotAttempts:
        return SnapshotAttempts(
            self.replicas,
            interval_s=self.config.interval_s,
            timeout_s=self.config.timeout_s,
            published=published,
            first_attempt=first_attempt,
            finally_published=self._finally,
            staged=begun.staged,
            now_s=now_s,
        )

    # -- what others look at -------------------------------------------------------------------------
    @property
    def newest(self) -> SnapshotStatistics | None:
        """Of the snapshot that was published last."""
        return self.taken[-1] if self.taken else None

    @property
    def is_idle(self) -> bool:
        """Whether no attempt is under way, and no sink is publishing."""
        return self.snapshots.pending is None and self.committing is None

    @property
    def is_ending(self) -> bool:
        """Whether the last snapshot has begun."""
        pending = self.snapshots.pending
        return self._is_finished or self.final is not None or (pending is not None and pending.final)

    @property
    def may_live_on(self) -> bool:
        """Whether some replicas may, when others have failed; see :data:`ALL_OR_NONE`."""
        return not self.is_ending

    @property
    def may_begin(self) -> bool:
        """Whether an attempt may begin: no other is under way, no change of layout waits or goes on, and the last one has not begun."""
        return self.is_idle and not self._is_changing and not self.is_ending

    @property
    def may_change(self) -> bool:
        """Whether a change of layout that was :class:`ChangeWanted` may begin: nothing is under way that it could meet."""
        return self._is_changing and self.is_idle and not self.is_ending

    def due_in_s(self, now_s: float) -> float | None:
        """Seconds until a :class:`Tick` can do something; None: never by itself."""
        due_in_s = self.snapshots.due_in_s(now_s)
        if not self.may_begin:
            return due_in_s if self.snapshots.pending is not None else None  # while sinks commit, or a change goes on, nothing begins
        if self._wanted:
            wanted_in_s = max(0.0, self._wanted_from_s - now_s)
            return wanted_in_s if due_in_s is None else min(due_in_s, wanted_in_s)
        return due_in_s

    @property
    def saved_inputs(self) -> dict[str, int]:
        """Frames of live inputs that need not be sent again, whichever of the kept snapshots is resumed from."""
        return self._saved.frames

    @property
    def saved_epochs(self) -> dict[str, SavedEpochs]:
        """By live input. From any thread."""
        return self._saved.epochs

    def saved(self, name: str) -> SavedEpochs:
        """Of a live input. From any thread."""
        return self.saved_epochs.get(name, SavedEpochs())

    # -- replicas come and go ------------------------------------------------------------------------
    def lay_out(self, replicas: Collection[ReplicaName], starts: Collection[ReplicaName]) -> None:
        """From the next attempt on these have to give a part."""
        self.replicas, self.starts = tuple(replicas), tuple(starts)
        if self.snapshots.pending is None:
            self.snapshots.lay_out(self.replicas)

    def leave_behind(self, staged: Collection[StagedPart]) -> None:
        """What the sink writers of a retired replica had staged goes into the next snapshot."""
        self.snapshots.leave_behind(staged)

    def begin_anew(self, manifest: Manifest, published: int, now_s: float) -> list[Effect]:
        """Everything of the incarnation is void; the next one resumes from ``manifest``. ``published``: the newest in the store."""
        effects: list[Effect] = []
        self.snapshots.on_time(now_s)
        self._refuse_savepoint("the job failed meanwhile; it resumes from its last snapshot: ask again", effects)
        attempts, estimator = self.snapshots.attempts, self.snapshots.estimator
        self.committing = None
        self._is_changing = self._is_finished = False
        self._saved.begin_anew(manifest)
        self._wanted.clear()  # who waits asks again: its frame comes again, unless the snapshot has it
        self.snapshots = self._bookkeeping(manifest, published, attempts + 1, now_s)
        self.snapshots.estimator = estimator
        return effects

    def on_restarted(self, restart_s: float) -> None:
        """The job is back at work after a failure."""
        self.snapshots.estimator.on_failure(restart_s)

    # -- events --------------------------------------------------------------------------------------
    def handle(self, event: Event, now_s: float) -> list[Effect]:
        """What follows."""
        effects: list[Effect] = []
        match event:
            case Tick():
                self._on_tick(now_s, effects)
            case PartWritten(report):
                if self.snapshots.on_report(report) is Ack.SUCCESS and self.snapshots.is_complete:
                    effects.append(Publish(report.number))  # not again, for a late part of an attempt that was given up
            case PartFailed(number, why) | NotPublished(number, why):
                self._give_up(number, why, now_s, effects)
            case Published(number, manifest):
                self._on_published(number, manifest, now_s, effects)
            case Committed(manifest, is_retained):
                self._on_committed(manifest, is_retained, now_s, effects)
            case Finished():
                self._is_finished = True
                self._begin_last(now_s, effects)
            case SavepointWanted(ticket):
                self._waiting.append(ticket)
            case ChangeWanted():
                self._is_changing = True
            case ChangeOver():
                self._is_changing = False
                self.snapshots.hasten()
            case Hastened():
                self.snapshots.hasten()
            case SnapshotWanted(name, epoch):
                if self.saved(name).newest <= epoch:
                    self._wanted[name] = max(epoch, self._wanted.get(name, 0))
            case RegionFailed():
                self.snapshots.on_time(now_s)
                pending = self.snapshots.pending
                if pending is not None and self.snapshots.on_failed(pending.number, "a replica failed"):
                    effects.append(GiveUp(pending.number, "a replica failed", self.replicas))
                    self._refuse_savepoint("a replica failed", effects)
                self.committing = None
            case Ended(why):
                self._refuse_savepoint(why, effects)
                effects.extend(SavepointRefused(ticket, why) for ticket in self._waiting)
                self._waiting.clear()
        return effects

    def _on_tick(self, now_s: float, effects: list[Effect]) -> None:
        snapshots = self.snapshots
        self.snapshots.on_time(now_s)
        if snapshots.expired(now_s):
            pending = snapshots.pending
            assert pending is not None
            why = f"it took longer than {snapshots.timeout_s} s; missing: {snapshots.told_missing}"
            self._give_up(pending.number, why, now_s, effects)
        if not self.may_begin:
            return
        if self._waiting:
            self._savepoint = self._waiting.popleft()
            self._begin("savepoint", now_s, effects)
        elif snapshots.due(now_s) or (self._wanted and now_s >= self._wanted_from_s):
            self._begin("snapshot", now_s, effects)

    def begin(self, now_s: float, *, kind: str = "snapshot", unaligned: bool | None = None) -> list[Effect]:
        """Begin an attempt now, whatever the clock says. Raises ProtocolError while one is pending."""
        effects: list[Effect] = []
        self._begin(kind, now_s, effects, unaligned=unaligned)
        return effects

    @property
    def _wanted_from_s(self) -> float:
        """A snapshot that somebody waits for begins at once, but not again and again where it cannot be taken."""
        return self._began_s + WANTED_AGAIN_S if self.snapshots.given_up_in_a_row else -math.inf

    def _begin(self, kind: str, now_s: float, effects: list[Effect], *, unaligned: bool | None = None) -> None:
        self._began_s = now_s
        if unaligned is None:
            unaligned = self.config.alignment_timeout_s == 0
        effects.append(Begin(self.snapshots.begin(now_s, kind=kind, unaligned=unaligned), self.starts))

    def _begin_last(self, now_s: float, effects: list[Effect]) -> None:
        """The last snapshot begins at all replicas at once: nothing is in flight any more. It waits for one that is being published."""
        pending = self.snapshots.pending
        is_last = self.final is not None or (pending is not None and pending.final)
        if is_last or self.committing is not None or self.snapshots.is_complete:
            return
        if pending is not None:
            self.snapshots.on_failed(pending.number, "the job is complete")
            self._refuse_savepoint("the job completed before", effects)
        effects.append(Begin(self.snapshots.begin(now_s, kind="final"), self.replicas))

    def _on_published(self, number: int, manifest: Manifest, now_s: float, effects: list[Effect]) -> None:
        pending = self.snapshots.pending
        if pending is None or pending.number != number:
            return
        self.failing = None
        self.taken.append(self.snapshots.on_published(now_s))
        self._saved.published(manifest)
        self._wanted = {name: epoch for name, epoch in self._wanted.items() if self.saved(name).newest <= epoch}
        if manifest.kind == "final":
            self.final = manifest  # its sinks publish when the job ends
            return
        self.committing = manifest
        effects.append(Commit(manifest))

    def _on_committed(self, manifest: Manifest, is_retained: bool, now_s: float, effects: list[Effect]) -> None:
        if self.committing is None or self.committing.number != manifest.number:
            return
        self.committing = None
        if is_retained:
            self._saved.retained(manifest)
        if manifest.kind == "savepoint" and self._savepoint is not None:
            effects.append(SavepointTaken(self._savepoint, manifest.number))
            self._savepoint = None
        if self._is_finished:
            self._begin_last(now_s, effects)

    def _give_up(self, number: int, why: str, now_s: float, effects: list[Effect]) -> None:
        pending = self.snapshots.pending
        if not self.snapshots.on_failed(number, why):
            return
        assert pending is not None
        self.failing = Failing(self.failing.since_s, self.failing.attempts + 1, why) if self.failing is not None else Failing(now_s, 1, why)
        effects.append(GiveUp(number, why, self.replicas))
        if pending.final:
            effects.append(Fail(f"the results of job {self.job!r} could not be stored: {why}"))
            return
        self._refuse_savepoint(why, effects)
        limit = self.config.failures_max
        if limit is not None and self.snapshots.given_up_in_a_row >= limit:
            effects.append(Fail(f"{limit} attempts at a snapshot in a row were given up, the last because {why}"))
        elif self._is_finished:
            self._begin_last(now_s, effects)

    def why_late(self) -> str:
        """What a snapshot that somebody waits for is held up by, as far as that is known. From any thread."""
        snapshots, missing = self.snapshots, self.snapshots.missing
        if self.committing is not None:
            told = f"the sinks commit snapshot {self.committing.number}"
        elif snapshots.pending is None:
            told = "its attempt has not begun"
        elif missing:
            named = ", ".join(f"{vertex!r}[{replica}]" for vertex, replica in missing[:NAMED_MAX])
            more = f" and {len(missing) - NAMED_MAX} more" if len(missing) > NAMED_MAX else ""
            told = f"{len(missing)} of {len(snapshots.replicas)} parts are not written: of {named}{more}"
        else:
            told = "all parts are written, and the store has not confirmed the snapshot"
        if not snapshots.given_up_in_a_row:
            return told
        return f"{told}; {snapshots.given_up_in_a_row} in a row were given up before, the last because {snapshots.why_given_up}"

    def _refuse_savepoint(self, why: str, effects: list[Effect]) -> None:
        if self._savepoint is not None:
            effects.append(SavepointRefused(self._savepoint, why))
            self._savepoint = None


__all__ = [
    "Begin",
    "ChangeOver",
    "ChangeWanted",
    "Commit",
    "Committed",
    "Effect",
    "Ended",
    "Event",
    "Fail",
    "Failing",
    "Finished",
    "GiveUp",
    "Hastened",
    "NotPublished",
    "PartFailed",
    "PartWritten",
    "Publish",
    "Published",
    "RegionFailed",
    "SavepointRefused",
    "SavepointTaken",
    "SavepointWanted",
    "SnapshotLeader",
    "SnapshotWanted",
    "Tick",
]
