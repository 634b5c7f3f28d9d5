"""Runs one job in this process, one event at a time, in an order that follows from a seed.

What runs is what ships: workers and the progress worker on a bus (``processes.py``), the leaders of the job, its recoveries, its snapshots
and its changes of layout. What is the local runtime's own is the order: which frames arrive, which worker takes a turn and how long that
is, which part is written, which call reaches its actor. The same seed gives the same order. Seconds for intervals and timeouts come from a
clock that is given; workers have a virtual one.
"""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from rayad.actors.job import JobState
from rayad.actors.lead import job_leader as lead
from rayad.actors.lead import layouts, recovery_leader
from rayad.actors.lead.failure import Failure
from rayad.actors.lead.job_leader import JobLeader, drive
from rayad.actors.lead.snapshot_leader import ALL_OR_NONE
from rayad.actors.local import changing, coordinator
from rayad.actors.local.bus import LOOKS, VirtualClock
from rayad.actors.local.changing import LocalRescale
from rayad.actors.local.coordinator import LocalSnapshots
from rayad.actors.local.processes import POLLS, Processes
from rayad.actors.local.recovering import Build, LocalRecovery
from rayad.actors.plane.frames import Frame
from rayad.actors.plane.replica_id import ReplicaId, replicas_of
from rayad.actors.replica.places import Places
from rayad.actors.replica.report import Left
from rayad.actors.replica.user_errors import raise_located, restarts_of, sign_of
from rayad.actors.status.journal import Journal
from rayad.actors.store.job_store import JobStore, NothingWhole
from rayad.dataflow.config import RunConfig
from rayad.dataflow.logical_graph import NodeKind
from rayad.dataflow.plan import Plan
from rayad.progress import DataflowError, InternalError, RescaleRefused, say
from rayad.snapshots.store import StoreAwayError, Superseded

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
        self.plan = plan
        self.asked = layouts.asked_of(plan)
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
        self.snapshots: LocalSnapshots | None = None
        self.rescaling: LocalRescale | None = None
        self.journal = Journal(now_s)
        self.retired: list[tuple[str, Left]] = []
        """What replicas that have retired left."""
        self.receipts: dict[int, Any] | None = None
        """Of all sinks by id, once the results are published."""
        self.error: BaseException | None = None
        self.on_effect: Callable[[lead.Effect], None] = lambda effect: None
        """Called before each effect of the leader is carried out."""
        self.is_awaited = False
        """Whether the job may be over as soon as nothing is left to do; until then it is held."""
        keeps = store is not None or config.keeps_snapshots
        self.leader = JobLeader(plan, config, restarts_of(config.failures, random.Random(seed)), keeps_snapshots=keeps, places=places)
        self._recovering = LocalRecovery(self.processes, random.Random(f"recoveries {seed}"))
        self._store = store
        self._pause = pause
        self._errors: dict[Failure, BaseException] = {}  # those that may still be raised
        self._has_told_end = False
        self._turn = 0  # the last that a change of layout has used

    # -- what others look at -------------------------------------------------------------------------
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
        told = self.recovery.remembered
        self._errors = {failure: error for failure, error in self._errors.items() if failure in told}

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
        leader, under_way = self.recovery, self._recovering.under_way
        if leader.has_failed:
            return
        if not under_way:
            due_in_s = leader.due_in_s(self.now_s())
            if due_in_s is None or leader.waiting:
                error = InternalError(f"a recovery cannot go on: {leader.phase.value}: {sorted(leader.waiting)}")
                self.tell(self.failed(error, final=True))
            else:
                self._pause(due_in_s)
            return
        item = self._recovering.draw()
        if not isinstance(item, Build):
            self.tell(item)
            return
        try:
            self._recovering.build(item, self.plan)
        except Exception as error:
            self.tell(self.failed(error, item.name, item.incarnation))
        else:
            self._recovering.answer([recovery_leader.Listens(item.name, item.incarnation, item.name)])

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

    def is_final(self, error: BaseException) -> bool:
        """Whether to try again does not help."""
        return isinstance(error, (Superseded, NothingWhole)) or not isinstance(error, Exception)

    def fail(self, error: BaseException) -> None:
        """The job ends with this error, if it is not over."""
        self.tell(self.failed(error, final=True))

    def lose(self, stages: Collection[int] | None) -> None:
        """For tests: the processes that hold replicas of these vertices are lost (None: all), with everything in flight."""
        gone = [stage for stage in self.plan.stages if stages is not None and stage.id in stages]
        self.happen(recovery_leader.Lost(frozenset(self.processes.places.processes_of(replicas_of(gone))) if stages is not None else None))

    def _carry_out(self, effect: lead.Effect) -> Iterable[lead.Event] | None:
        """One effect; gives the answers that are there at once."""
        self.journal.on_effect(effect)
        self.on_effect(effect)
        match effect:
            case recovery_leader.StopChange():
                self._turn = self.rescaling.leader.turn if self.rescaling is not None else self._turn
                self.rescaling = None
            case recovery_leader.Survived():
                assert self.snapshots is not None
                self.snapshots.failures = self.recovery.failures
            case recovery_leader.Release(names):
                self._recovering.release(names, self.plan)
            case recovery_leader.ReadStore():
                return self._read_store(effect)
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
                if restart_s is not None and self.snapshots is not None:
                    self.snapshots.leader.on_restarted(restart_s)
            case lead.StopReading():
                self.processes.stop([stage.id for stage in self.plan.stages if stage.kind is NodeKind.SOURCE])
            case lead.TakeLastSnapshot():
                assert self.snapshots is not None  # each worker has said that it is finished
                return [recovery_leader.SnapshotPublished(is_last=True)] if self.snapshots.was_complete else self._published()
            case lead.Publish():
                return [self.publish()]
            case lead.StopAll(state):
                if self.rescaling is not None:
                    self.rescaling.job_is_over()
                self.processes.end(aborts=state is not JobState.COMPLETE)
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

    def _read_store(self, effect: recovery_leader.ReadStore) -> list[lead.Event]:
        """What to resume from, and its layout."""
        snapshots = self.snapshots
        void, all_because = 0, ""
        try:
            if snapshots is None and self.recovery.keeps_snapshots:
                store = self._store or JobStore(self.name, self.plan, self.config)
                snapshots = LocalSnapshots(
                    self.name, self.plan, self.processes, store, self.asked, now_s=lambda: self.now_s(), journal=self.journal
                )
                self.snapshots = self._recovering.snapshots = snapshots
                self.processes.store = store.store
            elif effect.region is not None and self.processes.progress.is_over:
                all_because = ALL_OR_NONE  # those that live on have been told that the job is complete
            elif snapshots is not None and effect.region is not None:
                void, all_because = snapshots.recover_upstream(effect.region)
            elif snapshots is not None:
                snapshots.recover()
        except StoreAwayError as error:
            return [recovery_leader.StoreAway(effect.incarnation, self._remember(error, "coordinator"))]
        if effect.region is None:
            self.plan = layouts.restored(self.plan, snapshots.manifest.notes if snapshots is not None else {}, self.asked)
            if snapshots is not None:
                snapshots.lay_out(self.plan)
            self.recovery.lay_out(self.plan)
        self._recovering.answer([recovery_leader.StoreRead(effect.incarnation, void, all_because)])
        return []

    def _published(self) -> list[lead.Event]:
        """The snapshots that have been published since this was asked."""
        if self.snapshots is None or not self.snapshots.published:
            return []
        published, self.snapshots.published = self.snapshots.published, []
        return [recovery_leader.SnapshotPublished(is_last=manifest.kind == "final") for manifest in published]

    # -- one step ------------------------------------------------------------------------------------
    def step(self) -> bool:
        """One event, drawn by the seed. Returns False when nothing can move. An error ends the job, or begins a recovery."""
        if self.leader.is_over:
            return False
        event: Any = None
        try:
            snapshots, change, processes = self.snapshots, self.rescaling, self.processes
            if snapshots is not None and self.steps % LOOKS_EVERY_STEPS == 0:
                snapshots.look_at_clock()
            has_moved = change is not None and change.advance()
            if processes.ready.items:
                event = processes.ready.draw(self.chance)
                self.perform(event)
                has_moved = True
            elif not has_moved:
                has_moved = processes.pass_time()
            if snapshots is not None and snapshots.published:
                for published in self._published():
                    self.tell(published)
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
        if kind in coordinator.EVENTS:
            assert self.snapshots is not None
            self.snapshots.perform(kind, what)
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
        assert self.snapshots is not None
        self.snapshots.hear(frames)

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
        was_complete = self.snapshots is not None and self.snapshots.was_complete
        if was_complete or all(worker.is_over for name, worker in self.processes.workers.items() if name not in joining):
            self._has_told_end = True
            self.happen(lead.AllEnded())
            self.raise_if_over()

    def publish(self) -> lead.ResultsPublished | lead.NotPublished:
        """Let all sinks publish."""
        try:
            self.receipts = self._publish_staged() if self.snapshots is None else self.snapshots.publish_finally()
        except Exception as error:
            return lead.NotPublished(self._remember(error, "coordinator"))
        return lead.ResultsPublished()

    def _publish_staged(self) -> dict[int, Any]:
        """Without snapshots everything is published once, at the end."""
        staged: dict[int, list[Any]] = {sink.id: [] for sink in self.plan.sinks}
        for left in (*(left for _, left in self.retired), *self._results().values()):
            for sink_id, part in left.staged.items():
                staged[sink_id].append(part)
        receipts = {}
        for sink in self.plan.sinks:
            try:
                receipts[sink.id] = sink.sink.publish(staged[sink.id])
            except Exception as error:
                raise_located(f"sink {sink.key!r} ({sink.where}) failed in publish", error)
        return receipts

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
        manifest = self.snapshots.manifest if self.snapshots is not None else None
        if manifest is not None and manifest.kind != "final":
            wanted = layouts.asked_anew(self.plan, manifest.notes, self.asked)
            change = self.start_rescale(wanted) if wanted else None
            if change is not None:
                change.is_unattended = True


__all__ = ["LocalRuntime"]
