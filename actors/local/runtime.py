"""Runs one job in this process, one event at a time, in an order that follows from a seed.

What runs is what ships: workers and the progress worker on a bus (``processes.py``), the leaders of the job, its recoveries, its snapshots
and its changes of layout. What is the local runtime's own is the order: which frames arrive, which worker takes a turn and how long that
is, which part is written, which call reaches its actor. The same seed gives the same order. Seconds for intervals and timeouts come from a
clock that is given; workers have a virtual one.
"""

from __future__ import annotations

import datetime as dt
import random
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from rayad.actors.coordinator.stored.snapshots import CoordinatorSnapshots
from rayad.actors.coordinator.stored.stored_job import StoredJob
from rayad.actors.job import JobState
from rayad.actors.lead import job_leader as lead
from rayad.actors.lead import recovery_leader
from rayad.actors.lead.failure import Failure
from rayad.actors.lead.job_leader import JobLeader, drive
from rayad.actors.local import changing
from rayad.actors.local.bus import LOOKS, VirtualClock
from rayad.actors.local.changing import LocalRescale
from rayad.actors.local.coordinator import POLL, STORE, CoordinatorEnd, LocalKeptJob
from rayad.actors.local.processes import POLLS, Processes
from rayad.actors.local.recovering import Build, LocalRecovery
from rayad.actors.plane.frames import Frame
from rayad.actors.plane.protocol import COORDINATOR
from rayad.actors.plane.replica_id import ReplicaId, replicas_of
from rayad.actors.replica.places import Places
from rayad.actors.replica.report import Left
from rayad.actors.replica.user_errors import raise_located, restarts_of, sign_of
from rayad.actors.status.journal import Journal
from rayad.actors.store.job_store import JobStore, NothingWhole
from rayad.dataflow.config import RunConfig
from rayad.dataflow.logical_graph import NodeKind
from rayad.dataflow.plan import Plan
from rayad.progress import DataflowError, InternalError, RayadError, RescaleRefused, say
from rayad.snapshots.manifest import Manifest
from rayad.snapshots.store import Superseded

ERRORS_MOST = 16
"""So many errors are kept before those that nobody may raise any more are forgotten."""
LOOKS_EVERY_STEPS = 4
"""How often the clock is looked at for snapshots."""


class LocalRuntime:
    """Of one job. ``looks``: see :class:`VirtualClock`; ``polls``: see :data:`POLLS`.

    Args:
        name: of the job.
        plan, config: what runs.
        places: which process holds which replica.
        seed: of the order.
        store: of snapshots; None: as the configuration says.
        now_s: the clock for intervals and timeouts.
        pause: lets seconds pass by that clock.
        moment: what the vertices' clock says.
        check_records: whether batches that several functions see are watched for changes.
    """

    looks = LOOKS
    polls = POLLS

    def __init__(
        self,
        name: str,
        plan: Plan,
        config: RunConfig,
        places: Places,
        *,
        seed: int,
        store: JobStore | None = None,
        now_s: Callable[[], float],
        pause: Callable[[float], None],
        moment: Callable[[], dt.datetime],
        check_records: bool = True,
    ) -> None:
        self.name = name
        self.seed = seed
        self.now_s = now_s
        self.steps = 0
        self.chance = random.Random(seed)
        self.processes = Processes(
            plan,
            places,
            config,
            self.chance,
            clock=VirtualClock(self.chance, self.looks),
            check_records=check_records,
            moment=moment,
            hear=lambda frames: self._hear(frames),
            polls=self.polls,
        )
        kept: dict[str, Any] = {"now_s": lambda: self.now_s(), "failure_of": self._located}
        self.job = LocalKeptJob(plan, config, name, places, self.processes, **kept)
        """As its store sees it."""
        self.rescaling: LocalRescale | None = None
        self.recoveries = 0
        self.error: BaseException | None = None
        self.on_effect: Callable[[lead.Effect], None] = lambda effect: None
        """Called before each effect of the leader is carried out."""
        self.is_awaited = False
        """Whether the job may be over as soon as nothing is left to do; until then it is held."""
        keeps = store is not None or config.keeps_snapshots
        self.leader = JobLeader(plan, config, restarts_of(config.failures, random.Random(seed)), keeps_snapshots=keeps, places=places)
        self._published: deque[Manifest] = deque()  # since the leader of the job was told
        self._wanted: dict[str, int] = {}
        told: dict[str, Any] = {"published": self._published.append, "failed": self.failed, "wanted": self._wanted.update}
        self.stored = StoredJob(self.job, self.leader.recovery, store=store, **told)
        self._recovering = LocalRecovery(self.job, self.processes, random.Random(f"recoveries {seed}"))
        self._pause = pause
        self._errors: dict[Failure, BaseException] = {}  # those that may still be raised
        self._has_told_end = False
        self._publishes_from = False
        self._turn = 0  # the last that a change of layout has used

    # -- what others look at -------------------------------------------------------------------------
    @property
    def plan(self) -> Plan:
        """The dataflow, in the layout that it has."""
        return self.job.plan

    @plan.setter
    def plan(self, plan: Plan) -> None:
        self.job.plan = plan

    @property
    def snapshots(self) -> CoordinatorSnapshots | None:
        """Of the job, if it keeps any."""
        return self.job.snapshots

    @property
    def journal(self) -> Journal:
        """Of the job."""
        return self.job.journal

    @property
    def recovery(self) -> recovery_leader.RecoveryLeader:
        """The leader of starts and recoveries."""
        return self.leader.recovery

    @property
    def state(self) -> JobState:
        """Where the job is in its life."""
        return self.leader.state

    @property
    def config(self) -> RunConfig:
        """Of the run, as it is now."""
        return self.processes.config

    @property
    def is_done(self) -> bool:
        """Whether nothing is left to do in the dataflow."""
        return self.processes.progress.tracker.is_complete()

    @property
    def clock_s(self) -> float:
        """Seconds of the workers' virtual clock."""
        return self.processes.clock.now_s

    @property
    def is_moving(self) -> bool:
        """Whether a change of layout is under way that will end before the job does."""
        return self.rescaling is not None and self.rescaling.holds_job

    def raise_if_over(self) -> None:
        """Raise the error that ended the job."""
        if self.state is JobState.CANCELLED:
            raise DataflowError(f"job {self.name!r} was cancelled: it has no results")
        if self.error is not None:
            raise self.error

    # -- life: what the leader decides ---------------------------------------------------------------
    def tell(self, event: lead.Event) -> None:
        """Something has happened: do what follows."""
        drive(self.leader, event, self.now_s, self._carry_out, self.failed)
        self.leader.check_invariants()
        if len(self._errors) > ERRORS_MOST:
            told = self.recovery.remembered
            self._errors = {failure: error for failure, error in self._errors.items() if failure in told}
        self.job.look()

    def happen(self, event: lead.Event) -> None:
        """Tell the leader of an event, and run a start or recovery that follows to its end."""
        self.tell(event)
        leader = self.recovery
        while not self.leader.is_over and not self.leader.is_publishing and (leader.has_failed or not leader.is_running):
            self.step_recovery()
            self.tell(recovery_leader.AllReported())  # here one thing happens at a time, so all that could be reported has been
            self.tell(recovery_leader.Tick())

    def step_recovery(self) -> None:
        """Something is built, an answer arrives, or time passes."""
        leader = self.recovery
        if leader.has_failed or self._take_answers():
            return
        if not self._recovering.has_more:
            due_in_s = leader.due_in_s(self.now_s())
            if due_in_s is None or leader.waiting:
                error = InternalError(f"a recovery cannot go on: {leader.phase.value}: {sorted(leader.waiting)}")
                self.tell(self.failed(error, final=True))
            else:
                self._pause(due_in_s)
            return
        item = self._recovering.draw()
        if item is None:
            self.step_store()
            return
        if not isinstance(item, Build):
            self.tell(item)
            return
        try:
            self._recovering.build(item, self.plan)
        except Exception as error:
            self.tell(self.failed(error, item.name, item.incarnation))
        else:
            self._recovering.answer([recovery_leader.Listens(item.name, item.incarnation, item.name)])

    def step_store(self) -> None:
        """The next call of the store, or of a sink, and what follows on it."""
        self.job.step_store()
        self._take_answers()
        if self.snapshots is not None:
            self.job.trim_logs()
        self._poll()  # what has been answered may be what somebody waits for
        self.job.look()

    def _take_answers(self) -> bool:
        """Tell the leader what the store has answered; gives whether it has."""
        answers = list(self.stored.take())
        for event in answers:
            self.tell(event)
        return bool(answers)

    def failed(
        self, error: BaseException, name: str | None = None, incarnation: int | None = None, *, final: bool = False
    ) -> recovery_leader.Failed:
        """An error as an event; ``name``: of the process that it is of."""
        leader = self.recovery
        if self.leader.is_over and self.error is None:
            self.error = error  # of cleaning up
        if incarnation is None:
            incarnation = leader.incarnation if name is None else leader.incarnations.get(name, leader.incarnation)
        is_final = final or self.is_final(error)
        return recovery_leader.Failed(name, incarnation, self._remember(error, name or "coordinator"), is_final=is_final)

    def _remember(self, error: BaseException, who: str) -> Failure:
        """An error as a value; it can be raised as it is while the leader may still tell it."""
        failure = Failure(who, f"{type(error).__name__}: {say(error)}", "", None, False, sign_of(error), is_raised=True)
        self._errors[failure] = error
        return failure

    def _located(self, who: str, error: BaseException) -> Failure:
        """An error of the store or of a sink as a value, and as it is raised."""
        try:
            raise_located(who, error) if isinstance(error, Exception) and not isinstance(error, RayadError) else None
        except RayadError as located:
            error = located
        return self._remember(error, who)

    def is_final(self, error: BaseException) -> bool:
        """Whether to try again does not help."""
        return isinstance(error, (Superseded, NothingWhole)) or not isinstance(error, Exception)

    def fail(self, error: BaseException) -> None:
        """The job ends with this error, if it is not over."""
        self.tell(self.failed(error, final=True))

    def lose(self, stages: Collection[int] | None) -> None:
        """For tests: the processes that hold replicas of these vertices are lost (None: all), with everything in flight."""
        if stages is None:
            self.job.store_thread.forget()
        gone = [stage for stage in self.plan.stages if stages is not None and stage.id in stages]
        self.happen(recovery_leader.Lost(frozenset(self.processes.places.processes_of(replicas_of(gone))) if stages is not None else None))

    def _carry_out(self, effect: lead.Effect) -> Iterable[lead.Event] | None:
        """One effect; gives the answers that are there at once."""
        self.journal.on_effect(effect)
        self.on_effect(effect)
        match effect:
            case recovery_leader.StopChange():
                if self.rescaling is not None:
                    self._turn = self.rescaling.leader.turn
                    self.rescaling.job_is_over()
                self.rescaling = None
                if self.snapshots is not None:
                    self.snapshots.serve()  # what the change has posted is done, or void, before anything begins anew
            case recovery_leader.Survived():
                self.job.failures = self.recovery.failures
            case recovery_leader.Release(names):
                self._recovering.release(names, self.plan)
            case recovery_leader.ReadStore():
                return self.stored.read(effect)
            case recovery_leader.Switch():
                self._recovering.switch(effect)
            case recovery_leader.Listen():
                self._recovering.listen(effect, self.plan)
                if effect.is_of_all:
                    self._has_told_end = False
                    if not self.is_awaited:
                        self.processes.progress.hold()
            case recovery_leader.RollBack():
                self._recovering.roll_back(effect, self.plan)
            case recovery_leader.Run():
                self._recovering.run(effect, self.plan)
            case recovery_leader.Running(_, restart_s):
                if self.snapshots is not None:
                    if restart_s is not None:
                        self.recoveries += 1
                        self.snapshots.recovered(restart_s)
                    self.snapshots.go()
            case lead.StopReading():
                self.processes.stop([stage.id for stage in self.plan.stages if stage.kind is NodeKind.SOURCE])
            case lead.Publish(from_snapshot):
                self._publishes_from = from_snapshot
                self.publish()
            case lead.StopAll(state):
                if self.rescaling is not None:
                    self.rescaling.job_is_over()
                self.processes.end(aborts=state is not JobState.COMPLETE)
                if self.snapshots is not None:
                    self.snapshots.end(f"job {self.name!r} is {state.value}")
                    self.snapshots.close()
            case lead.AbortSinks():
                for sink in self.plan.sinks:
                    try:
                        sink.sink.abort()
                    except Exception:  # it must not raise; what ended the job matters more
                        continue
            case lead.End(JobState.FAILED, failure, why) if failure is not None:
                self.error = self._errors[failure]
                if why:
                    self.error.add_note(f"job {self.name!r}: {why}")
        return None  # what is left has nothing to do here: nobody is started in a process, or told in a log

    def _poll(self) -> None:
        """The coordinator looks at what it was told, and at the clock."""
        self.processes.ready.discard(POLL)
        if self.snapshots is not None and self.recovery.is_running:
            self.snapshots.poll(0.0)
            self.job.look()

    def _tell_published(self) -> None:
        """The leader learns of snapshots that have been published."""
        while self._published:
            self.tell(recovery_leader.SnapshotPublished(is_last=self._published.popleft().kind == "final"))

    # -- one step ------------------------------------------------------------------------------------
    def step(self) -> bool:
        """One event, drawn by the seed. Returns False when nothing can move. An error ends the job, or begins a recovery."""
        if self.leader.is_over:
            return False
        event: Any = None
        try:
            snapshots, change, processes = self.snapshots, self.rescaling, self.processes
            if snapshots is not None and self.steps % LOOKS_EVERY_STEPS == 0:
                self._poll()
            has_moved = change is not None and change.advance()
            if processes.ready.items:
                event = processes.ready.draw(self.chance)
                self.perform(event)
                has_moved = True
            elif not has_moved:
                has_moved = processes.pass_time()
            if self._published:
                self._tell_published()
                self.raise_if_over()
            if processes.progress.is_over:
                self._look_at_end()
        except Exception as error:
            self.happen(self.failed(error, self._whose(event)))
            self.raise_if_over()
            has_moved = True
        self.steps += has_moved
        return has_moved

    def perform(self, event: Any) -> None:
        """Do it."""
        kind, what = event
        if self.processes.perform(kind, what):
            return
        if event == STORE:
            self.step_store()
        elif event == POLL:
            self._poll()
        elif kind in changing.EVENTS:
            assert self.rescaling is not None
            self.rescaling.perform(kind, what)
        else:
            raise InternalError(f"nobody knows what {event} is")

    def _whose(self, event: Any) -> str | None:
        """The process that an event happens at; None: the coordinator or the progress worker, or nobody has to know."""
        if event is None or self.config.failures.recovery != "upstream":
            return None
        kind, what = event
        name = what[1] if kind == "deliver" else what if kind == "turn" else None
        return name if name in self.processes.workers else None

    def _hear(self, frames: list[Frame]) -> None:
        end = self.processes.bus.links[COORDINATOR]
        assert isinstance(end, CoordinatorEnd)
        end.take(frames)
        self._poll()

    # -- the end -------------------------------------------------------------------------------------
    def let_end(self) -> None:
        """Somebody waits for the results: the job may be over."""
        if not self.is_awaited:
            self.is_awaited = True
            self.processes.progress.release()
            self.processes.progress.look_whether_over()

    def hold(self) -> None:
        """Nobody waits any more: the job is held again, unless it is over."""
        if self.is_awaited and self.processes.progress.hold():
            self.is_awaited = False

    def _look_at_end(self) -> None:
        """All have been told that nothing is left to do: look whether all have ended."""
        if self._has_told_end or not self.recovery.is_running:
            return
        joining = self.rescaling.joining if self.rescaling is not None else ()
        if all(worker.is_over for name, worker in self.processes.workers.items() if name not in joining):
            self._has_told_end = True
            self.happen(lead.AllEnded())
            self.raise_if_over()

    def publish(self) -> None:
        """Let all sinks publish, unless they are about to."""
        if not self.job.store_thread.is_busy:
            left = (*(left for _, left in self.job.left), *self._results().values())
            self.stored.publish(self._publishes_from, [given.staged for given in left])

    def _results(self) -> dict[ReplicaId, Left]:
        """What the replicas have done and staged, in the order of the plan."""
        results = {at: left for worker in self.processes.workers.values() for at, left in worker.results().items()}
        return {at: results[at] for at in replicas_of(self.plan.stages) if at in results}

    # -- what is asked for ---------------------------------------------------------------------------
    def start_rescale(self, wanted: Mapping[str, int], **options: Any) -> LocalRescale | None:
        """Begin a change of layout as soon as no snapshot is under way. Returns None if the layout is already as wanted."""
        self.raise_if_over()
        if self.rescaling is not None and not self.rescaling.is_done:
            raise RescaleRefused("rescale(...): another change of layout is under way")
        before = self.rescaling
        turn = before.leader.turn if before is not None else self._turn
        change = LocalRescale(self, wanted, turn=turn, chance=self.chance, now_s=lambda: self.now_s(), before=before, **options)
        if change.refusal:
            raise RescaleRefused(change.refusal)
        if change.is_done:
            return None
        self.rescaling = change
        return change

    def lay_out_as_asked(self) -> None:
        """A job that resumes from a snapshot with other replicas than it was taken with changes to them at once."""
        change = self.start_rescale(self._wanted) if self._wanted and self.recovery.is_running else None
        if change is not None:
            change.is_unattended = True


__all__ = ["LocalRuntime"]
