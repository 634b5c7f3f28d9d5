"""Who leads the life of a job: it starts, runs, is stopped or cancelled, takes its last snapshot, publishes, and ends. Pure.

    STARTING -> RUNNING -> COMPLETE | FAILED | CANCELLED

Both runtimes drive it. Starts and recoveries are led by :class:`RecoveryLeader`, whose events and effects pass through; snapshots by
:class:`SnapshotLeader`, which the shells tell what is asked for here.

    AllEnded ──> TakeLastSnapshot ──> SnapshotPublished(is_last) ──> Publish ──> ResultsPublished ──> StopAll, End
    whoever fails or leaves after SnapshotPublished(is_last) ──> Publish
    Cancel, NotPublished, a failure that is not survived ──> StopAll, AbortSinks, End
"""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeAlias

from rayad.actors.lead import recovery_leader as recovery
from rayad.actors.lead.failure import Failure
from rayad.actors.lead.recovery_leader import AllReported, Failed, GaveUp, Lost, Move, RecoveryLeader, Running, SnapshotPublished, Tick
from rayad.actors.replica.places import Places
from rayad.dataflow.config import RunConfig
from rayad.dataflow.plan import Plan
from rayad.progress import InternalError
from rayad.snapshots.restarts import Restarts

LAST_PARTS_S = 60.0
"""After all replicas have ended: how long their parts of the last snapshot may be on their way."""


class JobState(enum.Enum):
    """Where a job is in its life; only RUNNING follows STARTING and only one of the last three ends it."""

    STARTING = "starting"
    RUNNING = "running"
    COMPLETE = "complete"
    FAILED = "failed"
    CANCELLED = "cancelled"


# -- what has happened, besides what recoveries are told of -------------------------------------------
@dataclass(frozen=True, slots=True)
class Stop:
    """Somebody wants the job to end with what it has: sources read no more, live inputs close."""


@dataclass(frozen=True, slots=True)
class Cancel:
    """Somebody wants the job to end without results."""


@dataclass(frozen=True, slots=True)
class AllEnded:
    """All actors have finished their work."""


@dataclass(frozen=True, slots=True)
class FoundComplete:
    """The run that is resumed had completed: its last snapshot serves as this run's."""


@dataclass(frozen=True, slots=True)
class ResultsPublished:
    """All sinks have published."""


@dataclass(frozen=True, slots=True)
class NotPublished:
    """A sink could not publish."""

    failure: Failure


Event: TypeAlias = recovery.Event | Stop | Cancel | AllEnded | FoundComplete | ResultsPublished | NotPublished


# -- what is to be done, besides what a recovery needs ------------------------------------------------
@dataclass(frozen=True, slots=True)
class StopReading:
    """Sources read no more, live inputs close."""


@dataclass(frozen=True, slots=True)
class TakeLastSnapshot:
    """All is done: the last snapshot begins, if it has not; answer ``SnapshotPublished(is_last=True)``."""


@dataclass(frozen=True, slots=True)
class Publish:
    """Let all sinks publish what the last snapshot names, or else what was staged; answer :class:`ResultsPublished` or
    :class:`NotPublished`."""

    from_snapshot: bool


@dataclass(frozen=True, slots=True)
class StopAll:
    """The job is over, in this state: whoever waits for it is told, a change of layout is stopped, and everybody is ended."""

    state: JobState


@dataclass(frozen=True, slots=True)
class AbortSinks:
    """The sinks clean up: nothing resumes from what they have."""


@dataclass(frozen=True, slots=True)
class End:
    """The last effect. ``why`` says why a failure that could have been survived ends the job."""

    state: JobState
    failure: Failure | None = None
    why: str = ""


Effect: TypeAlias = recovery.Effect | StopReading | TakeLastSnapshot | Publish | StopAll | AbortSinks | End


class JobLeader:
    """The life of one job.

    Args:
        plan, config, restarts, keeps_snapshots, places: see :class:`RecoveryLeader`.
    """

    def __init__(self, plan: Plan, config: RunConfig, restarts: Restarts, *, keeps_snapshots: bool, places: Places | None = None) -> None:
        self.recovery = RecoveryLeader(plan, config, restarts, keeps_snapshots=keeps_snapshots, places=places)
        self.state = JobState.STARTING
        self.is_stopping = False
        self._has_ended = False  # all actors have, in this incarnation
        self._has_last = False
        self._is_publishing = False
        self._last_parts_until_s = float("inf")

    # -- what others look at -------------------------------------------------------------------------
    @property
    def is_over(self) -> bool:
        """Whether nothing follows any more."""
        return self.state not in (JobState.STARTING, JobState.RUNNING)

    @property
    def is_publishing(self) -> bool:
        """Whether the results are being published: from then on nothing can be survived, and nothing taken back."""
        return self._is_publishing and not self.is_over

    def due_in_s(self, now_s: float) -> float | None:
        """Seconds until a Tick can do something; None: never by itself."""
        due_in_s = self.recovery.due_in_s(now_s)
        if self._last_parts_until_s == float("inf"):
            return due_in_s
        last_s = max(0.0, self._last_parts_until_s - now_s)
        return last_s if due_in_s is None else min(due_in_s, last_s)

    def check_invariants(self) -> None:
        """Raises InternalError when the state contradicts itself."""
        self.recovery.check_invariants()
        if self.is_over and self.recovery.phase is not recovery.Phase.OVER:
            raise InternalError(f"the job is {self.state.value}, and a recovery goes on")
        if self._is_publishing and self.recovery.keeps_snapshots and not self._has_last:
            raise InternalError("results are published before the last snapshot is")

    # -- events --------------------------------------------------------------------------------------
    def handle(self, event: Event, now_s: float) -> list[Effect]:
        """What follows."""
        effects: list[Effect] = []
        if self.is_over:
            return effects
        if self._is_publishing:
            match event:
                case ResultsPublished():
                    self._end(JobState.COMPLETE, None, "", effects)
                case NotPublished(failure) | Failed(name=None, failure=failure):
                    self._end(JobState.FAILED, failure, "", effects)
            return effects  # whatever else happens comes too late
        match event:
            case Cancel():
                during = "" if self.state is JobState.RUNNING else " while starting"
                self._end(JobState.CANCELLED, Failure("job", f"cancelled{during}", "", None, False), "", effects)
            case Stop():
                self.is_stopping = True
                if self.recovery.is_running:
                    effects.append(StopReading())
            case FoundComplete():
                self._has_last = True
                self._publish(effects)
            case ResultsPublished() | NotPublished():
                raise InternalError(f"nothing was to be published: {event}")
            case _:
                self._has_last |= isinstance(event, SnapshotPublished) and event.is_last
                if self._has_last and self._is_disturbed_by(event):
                    self._publish(effects)
                    return effects
                self._pass_on(AllReported() if isinstance(event, AllEnded) else event, now_s, effects)
                self._look_at_end(event, now_s, effects)
        return effects

    def _is_disturbed_by(self, event: Event) -> bool:
        """Whether actors fail or leave, or have done so. Once the last snapshot is there nobody is needed any more, and a recovery would
        wait for a last snapshot that never comes."""
        if isinstance(event, Failed) and event.is_final:
            return False  # the store is another coordinator's now
        return isinstance(event, (Failed, Lost, Move)) or self.recovery.has_failed or not self.recovery.is_running

    def _pass_on(self, event: recovery.Event, now_s: float, effects: list[Effect]) -> None:
        """Pass an event to the leader of recoveries, and add what follows from its effects for the job."""
        for effect in self.recovery.handle(event, now_s):
            if isinstance(effect, GaveUp):
                self._end(JobState.FAILED, effect.failure, effect.why, effects)
                continue
            effects.append(effect)
            if isinstance(effect, Running):
                self.state = JobState.RUNNING
                if self.is_stopping:
                    effects.append(StopReading())

    def _look_at_end(self, event: Event, now_s: float, effects: list[Effect]) -> None:
        """Whether all is done: nobody works, nobody has failed, and the last snapshot is published."""
        if self.is_over or not self.recovery.is_running:
            self._has_ended, self._last_parts_until_s = False, float("inf")
            return
        if self.recovery.has_failed:
            return
        if isinstance(event, AllEnded) and not self._has_ended:
            self._has_ended = True
            if self.recovery.keeps_snapshots and not self._has_last:
                self._last_parts_until_s = now_s + LAST_PARTS_S
                effects.append(TakeLastSnapshot())
        if self._has_ended and (self._has_last or not self.recovery.keeps_snapshots):
            self._publish(effects)
        elif isinstance(event, Tick) and now_s > self._last_parts_until_s:
            self._last_parts_until_s = float("inf")
            told = f"SnapshotError: all replicas have ended, and {LAST_PARTS_S:g} s later parts of the last snapshot are missing"
            failed = Failed(None, self.recovery.incarnation, Failure("coordinator", told, "", None, False))
            self._pass_on(failed, now_s, effects)
            self._pass_on(Tick(), now_s, effects)

    def _publish(self, effects: list[Effect]) -> None:
        self._is_publishing = True
        self._last_parts_until_s = float("inf")
        effects.append(Publish(self.recovery.keeps_snapshots))

    def _end(self, state: JobState, failure: Failure | None, why: str, effects: list[Effect]) -> None:
        self.state = state
        self.recovery.end()
        self._last_parts_until_s = float("inf")
        effects.append(StopAll(state))
        if state is not JobState.COMPLETE and not self.recovery.keeps_snapshots:  # else a snapshot may name what is staged
            effects.append(AbortSinks())
        effects.append(End(state, failure, why))


def drive(
    leader: JobLeader,
    event: Event,
    now_s: Callable[[], float],
    carry_out: Callable[[Effect], Iterable[Event] | None],
    failed: Callable[[Exception], Event],
) -> None:
    """Tell a leader what has happened, and do what follows, with the answers that are there at once; what every shell does.

    Args:
        carry_out: does what an effect says; gives the answers to it that are there at once.
        failed: the event that stands for an error of ``carry_out``. What was to follow that effect is left out, unless the job is over.
    """
    events = deque([event])
    while events:
        for effect in leader.handle(events.popleft(), now_s()):
            try:
                events.extend(carry_out(effect) or ())
            except Exception as error:
                events.append(failed(error))
                if not leader.is_over:
                    break
