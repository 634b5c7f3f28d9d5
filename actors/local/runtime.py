"""Runs one job in this process, one event at a time, in an order that follows from a seed.

What runs is what ships: workers and the progress worker on a bus (``processes.py``), and the coordinator's own: the supervisor of the job's
life, its snapshots, its changes of layout, its crew (``actors.py``, ``coordinator.py``: what these stand on here). What is the local
runtime's own is the order: which frames arrive, which worker takes a turn and how long that is, which part is written, which call reaches
its actor. The same seed gives the same order. Seconds for intervals and timeouts come from a clock that is given; workers have a virtual
one.
"""

from __future__ import annotations

import datetime as dt
import math
import random
from collections import deque
from collections.abc import Callable, Collection, Mapping
from typing import Any

from rayad.actors.coordinator.rescaling import ConfigureWish, LayoutWish, Rescaler, Wish
from rayad.actors.coordinator.running_job import RunningJob
from rayad.actors.coordinator.stored.snapshots import CoordinatorSnapshots
from rayad.actors.coordinator.supervisor import Supervisor
from rayad.actors.coordinator.surroundings import CoordinatorSurroundings
from rayad.actors.job import JobState
from rayad.actors.lead import job_leader as lead
from rayad.actors.lead import recovery_leader
from rayad.actors.lead.job_leader import JobLeader
from rayad.actors.local import actors
from rayad.actors.local.actors import LocalActors, Ref
from rayad.actors.local.bus import LOOKS, VirtualClock
from rayad.actors.local.change import LocalRescale
from rayad.actors.local.coordinator import POLL, STORE, WISH, CoordinatorEnd, LocalClock, LocalEvent, NoLines, StoreEvents
from rayad.actors.local.processes import POLLS, Processes
from rayad.actors.local.raised import RaisedErrors
from rayad.actors.plane.frames import Frame
from rayad.actors.plane.protocol import COORDINATOR
from rayad.actors.plane.replica_id import replicas_of
from rayad.actors.replica.places import Places
from rayad.actors.status.journal import Journal
from rayad.actors.store.job_store import JobStore
from rayad.dataflow.config import RunConfig
from rayad.dataflow.plan import Plan
from rayad.progress import DataflowError, InternalError, RayadError, RescaleRefused

LOOKS_EVERY_STEPS = 4
"""How often the clock is looked at for snapshots."""
CLOCK_EVERY_STEPS = 32
"""How often it is looked at for workers whose wait is over."""
LOOKS_TO_BEGIN = 3
"""After so many it is known whether the vertices of a change of layout can be divided, or that the job is over."""
RECOVERING = ("call", "answer", "store")
"""What happens while the job starts or recovers: all else stands still."""


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
        told: dict[str, Any] = {"plan": lambda: self.plan, "on_answer": self._on_answer, "on_progress": self._on_progress}
        self.errors = RaisedErrors(lambda: self.recovery.remembered, self.on_raised)
        self.actors = LocalActors(self.processes, self.chance, lambda: self.now_s(), failure_of=self.errors.failure_of, **told)
        self._store = StoreEvents()
        self.job = RunningJob(plan, config, str(seed), b"", name, places, self._surroundings())
        self.wishes: deque[Wish] = deque()
        """Changes of layout; the first one is being carried out."""
        self.rescaling: LocalRescale | None = None
        self.rescaler = Rescaler(self.job, self._carry_out, in_steps=False, step_timeout_s=math.inf)
        self.supervisor = Supervisor(self.job, self.rescaler, store=store, on_effect=self._on_effect)
        self.leader: JobLeader = self.supervisor.leader
        self.recoveries = 0
        self.error: BaseException | None = None
        self.on_effect: Callable[[lead.Effect], None] = lambda effect: None
        """Called before each effect of the leader is carried out."""
        self.is_awaited = False
        """Whether the job may be over as soon as nothing is left to do; until then it is held."""
        self._pause = pause
        self._publishes_from = False

    def _surroundings(self) -> CoordinatorSurroundings:
        def plane(*, name: str, incarnation: int, **_: Any) -> CoordinatorEnd:
            return CoordinatorEnd(self.processes.bus, name, incarnation)

        return CoordinatorSurroundings(
            actors=self.actors,
            plane=plane,
            clock=LocalClock(lambda: self.now_s()),
            event=lambda: LocalEvent(self._meanwhile),
            beside=self._store.beside,
            lines=NoLines,
            failure_of=self.errors.of_coordinator,
        )

    # -- what others look at -------------------------------------------------------------------------
    @property
    def plan(self) -> Plan:
        """The dataflow, in the layout that it has."""
        return self.job.plan

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
    def receipts(self) -> dict[int, Any]:
        """Of all sinks by id, once the results are published."""
        outcome = self.supervisor.outcome
        return outcome.receipts if outcome is not None else {}

    def raise_if_over(self) -> None:
        """Raise the error that ended the job."""
        if self.state is JobState.CANCELLED:
            raise DataflowError(f"job {self.name!r} was cancelled: it has no results")
        if self.error is not None:
            raise self.error

    def on_raised(self, error: BaseException) -> None:
        """Called with each error, also with those that are survived; for tests."""

    def fail(self, error: BaseException) -> None:
        """The job ends with this error, if it is not over."""
        if not self.leader.is_over:
            self.supervisor.tell(self.supervisor.failed(error, is_final=True))

    # -- what the coordinator decides, as far as it has a meaning here alone --------------------------
    def _on_effect(self, effect: lead.Effect) -> None:
        self.on_effect(effect)
        match effect:
            case recovery_leader.Release(None):
                self.processes.clear()
            case recovery_leader.Listen() if effect.is_of_all:
                self.processes.clear()
            case recovery_leader.Running(_, restart_s) if restart_s is not None:
                self.recoveries += 1
            case lead.Publish(from_snapshot):
                self._publishes_from = from_snapshot
            case lead.StopAll(state):
                self.actors.is_over = True
                self._end_processes(aborts=state is not JobState.COMPLETE)
            case lead.End(JobState.FAILED, failure, why) if failure is not None:
                self.error = self.errors.of(failure) or RayadError(f"job {self.name!r} failed: {failure.who}: {failure.message}")
                if why:
                    self.error.add_note(f"job {self.name!r}: {why}")

    def _end_processes(self, *, aborts: bool) -> None:
        try:
            self.processes.end(aborts=aborts)
        except Exception as error:  # of cleaning up
            if self.error is None:
                self.error = error

    def _on_progress(self) -> None:
        """There is a progress worker: the job is held, unless somebody waits for its end."""
        if not self.is_awaited:
            self.processes.progress.hold()

    # -- life ----------------------------------------------------------------------------------------
    def begin(self) -> None:
        """Start everything."""
        self.supervisor.begin()
        self._recover()

    def tell(self, event: lead.Event) -> None:
        """Somebody wants something of the job."""
        self.supervisor.tell(event)
        self._recover()

    def look(self) -> None:
        """The coordinator's turn, and a recovery that follows, to its end."""
        self.processes.ready.discard(POLL)
        self.supervisor.look(0.0)
        self._recover()
        if self.snapshots is not None:
            self._trim_logs()

    def _recover(self) -> None:
        """Run a start or recovery that is under way to its end."""
        while self._is_recovering:
            self.step_recovery()
        if self.leader.is_over:
            for _ in range(LOOKS_TO_BEGIN * len(self.wishes)):
                self._look_at_wish()
        self._look_whether_more()

    @property
    def _is_recovering(self) -> bool:
        """Whether a start or recovery is under way, or some that are to run have not begun."""
        leader = self.recovery
        if self.leader.is_over or self.leader.is_publishing:
            return False
        if leader.has_failed or not leader.is_running:
            return True
        return any(waiting[0].method == "run" for waiting in self.actors.calls.values()) and not self.rescaler.newcomers

    def step_recovery(self) -> None:
        """Something is built, an answer arrives, or time passes."""
        leader = self.recovery
        if leader.has_failed:
            self.supervisor.tell(recovery_leader.AllReported())  # here one thing happens at a time, so all that could be has been
            self.supervisor.tell(recovery_leader.Tick())
            return
        events = self._events_of_recovery()
        if events:
            self.act(events[int(self.chance.random() * len(events))])
        elif not self.job.store_thread.is_busy:
            phase = leader.phase
            self.supervisor.look(0.0)  # what is known need not be waited for
            if self._events_of_recovery() or leader.phase is not phase or leader.has_failed:
                return
            due_in_s = leader.due_in_s(self.now_s())
            if due_in_s is None or leader.waiting:
                self.fail(InternalError(f"a recovery cannot go on: {leader.phase.value}: {sorted(leader.waiting)}"))
                return
            self._pause(due_in_s)
        self.supervisor.look(0.0)

    def _events_of_recovery(self) -> list[Any]:
        """What can happen while the job recovers."""
        ready = self.processes.ready
        ready.keep(STORE, self.job.store_thread.has_work)
        return [event for event in ready.items if event[0] in RECOVERING]

    def _look_whether_more(self) -> None:
        """Whether the coordinator, or who drives a change, has something to do."""
        ready = self.processes.ready
        if self.leader.is_over:
            return
        ready.keep(STORE, self.job.store_thread.has_work)
        if self.wishes:
            ready.add(WISH)

    def lose(self, stages: Collection[int] | None) -> None:
        """For tests: the processes that hold replicas of these vertices are lost (None: all), with everything in flight."""
        self.supervisor.look(0.0)  # it knows who is there
        crew, names = self.job.crew.actors, None
        if stages is None:
            self.job.store_thread.forget()
        else:
            gone = [stage for stage in self.plan.stages if stage.id in stages]
            names = frozenset(self.processes.places.processes_of(replicas_of(gone)))
        there = list(crew) if names is None else sorted(name for name in names if name in crew)
        self.job.calls.forget(there)
        if names is None:
            self.processes.clear()
        for name in there:
            self.actors.lose(crew[name])
        self.supervisor.tell(recovery_leader.Lost(names))
        self._recover()

    def start_configure(self, changes: Mapping[str, Any]) -> ConfigureWish:
        """Begin to change runtime parameters, when what was asked for before is over. Raises ConfigError."""
        wish = self.rescaler.wish_configured(changes)
        self._expect(wish)
        return wish

    def publish(self) -> None:
        """Let all sinks publish, unless they are about to."""
        if not self.job.store_thread.is_busy:
            self.supervisor.publish(self._publishes_from)
            self._look_whether_more()

    # -- one step ------------------------------------------------------------------------------------
    def step(self) -> bool:
        """One event, drawn by the seed. Returns False when nothing can move. An error ends the job, or begins a recovery."""
        if self.leader.is_over:
            return False
        processes = self.processes
        processes.at = COORDINATOR
        try:
            if not self.recovery.is_running and self._is_recovering:  # somebody has interrupted it
                self._recover()
            if self.steps % LOOKS_EVERY_STEPS == 0:
                self._look_at_clock()
            if self.steps % CLOCK_EVERY_STEPS == 0:
                processes.look_at_clock()
            if self.actors.watched:
                self.actors.look_at_watched()
            has_moved = bool(processes.ready.items) or (bool(self.wishes) and self._moves_on())
            if has_moved:
                event = processes.ready.draw(self.chance)
                self.perform(event)
                if event == STORE:  # what has been answered may be what somebody waits for
                    self.look()
                    while POLL in processes.ready.place:
                        self.look()
            else:
                has_moved = processes.pass_time()
            if processes.progress.is_over and self.actors.running:
                self.actors.look_for_ends()
        except Exception as error:
            self._on_error(error)
            has_moved = True
        self.steps += has_moved
        if self.leader.is_over:
            self.raise_if_over()
        return has_moved

    def perform(self, event: Any) -> None:
        """Do it."""
        self.act(event)

    def act(self, event: Any) -> None:
        """Do it, whatever stands in its way."""
        kind, what = event
        if self.processes.perform(kind, what):
            return
        if kind in actors.EVENTS:
            self.actors.perform(kind, what)
        elif event == POLL:
            self.look()
        elif event == WISH:
            self._look_at_wish()
        elif event == STORE:
            self._store.step()
            self.processes.ready.keep(STORE, self.job.store_thread.has_work)
        else:
            raise InternalError(f"nobody knows what {event} is")

    def _on_error(self, error: Exception) -> None:
        """Something has failed: the process at which it happened, or the coordinator."""
        name = self.processes.at
        if not self.actors.fail(name, error):
            self.supervisor.tell(self.supervisor.failed(error))
        self.look()

    def _look_at_clock(self) -> None:
        if self.wishes:
            self._look_at_wish()
        if self.snapshots is not None and self.recovery.is_running:
            self.snapshots.poll(0.0)
            self.processes.ready.keep(STORE, self.job.store_thread.has_work)

    def _trim_logs(self) -> None:
        """What all kept snapshots have of live inputs need not be kept for replay."""
        assert self.snapshots is not None
        saved, logs = self.snapshots.saved_inputs, self.processes.logs
        for name, stage in self.plan.inputs.items():
            if name in saved and stage in logs:
                logs[stage].trim(saved[name])

    # -- what comes to the coordinator ---------------------------------------------------------------
    def _hear(self, frames: list[Frame]) -> None:
        end = self.processes.bus.links[COORDINATOR]
        assert isinstance(end, CoordinatorEnd)
        end.take(frames)

    def _on_answer(self, ref: Ref) -> None:
        self.processes.ready.add(POLL)
        if self.wishes:
            self.processes.ready.add(WISH)

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

    # -- changes of layout ---------------------------------------------------------------------------
    def start_rescale(self, wanted: Mapping[str, int], *, groups: int | None = None, timeout_s: float = math.inf) -> LocalRescale | None:
        """Begin a change of layout as soon as no snapshot is under way. Returns None if the layout is already as wanted."""
        self.raise_if_over()
        if self.wishes:
            raise RescaleRefused("rescale(...): another change of layout is under way")
        wish = self.rescaler.wish(wanted, timeout_s, groups=groups)
        before = self.rescaling
        self._carry_out(self.rescaler, wish)
        for _ in range(LOOKS_TO_BEGIN):
            if self.wishes:
                self._look_at_wish()
        if wish.is_over:
            self.rescaling = before
        if wish.error is not None:
            raise wish.error
        return self.rescaling if wish.report is None else None

    def _carry_out(self, rescaler: Rescaler, wish: Wish) -> None:
        """It is the next one."""
        self._expect(wish)
        if isinstance(wish, LayoutWish):
            self.rescaling = LocalRescale(wish, self.processes)

    def _expect(self, wish: Wish) -> None:
        self.wishes.append(wish)
        self.processes.ready.add(WISH)

    def _look_at_wish(self) -> None:
        """Who drives a change of layout looks."""
        ready = self.processes.ready
        ready.discard(WISH)
        if not self.wishes:
            return
        wish = self.wishes[0]
        wish.look(0.0)
        if wish.is_over:
            self.wishes.popleft()
            self.actors.forget_watched()
            if isinstance(wish, ConfigureWish):
                self.processes.configured(self.job.config)
        if self.wishes and self.wishes[0].has_more:
            ready.add(WISH)
        if self.rescaler.failure is not None:
            ready.add(POLL)
        ready.keep(STORE, self.job.store_thread.has_work)
        if wish.error is not None and not isinstance(wish.error, RescaleRefused):
            raise wish.error

    def _meanwhile(self, is_so: Callable[[], bool], timeout_s: float | None) -> None:
        """Somebody waits in the middle of something: the change of layout goes on."""
        if timeout_s != 0.0 and not is_so():
            self._look_at_wish()

    def _moves_on(self) -> bool:
        """Nothing is ready: whether something is when who drives a change looks at the clock."""
        self._look_at_wish()
        return bool(self.processes.ready.items)


__all__ = ["LocalRuntime"]
