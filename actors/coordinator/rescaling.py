"""Changes of layout on Ray: newcomers beside the running job, steps, retiring replicas. Any thread may ask; that thread drives the leader.

:class:`ChangeLeader` decides. Here its effects become calls of actors, which do not block, and one loop collects the answers. The
coordinator's own thread goes on supervising meanwhile. When something fails, that thread stops the change, the job restarts from its last
snapshot in the layout of that snapshot, and the change is asked for again. Design: docs/design/rescaling.md.
"""

from __future__ import annotations

import dataclasses
import logging
import math
import queue
import threading
import time as clock
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias

import ray
from ray.exceptions import RayActorError, RayError, RayTaskError

from rayad.actors.cluster.joining import check_placeable
from rayad.actors.coordinator.placement import Node, places
from rayad.actors.coordinator.running_job import RunningJob
from rayad.actors.job import JobState
from rayad.actors.lead import change_leader as lead
from rayad.actors.lead import configure_leader, layouts
from rayad.actors.lead.change_leader import ChangeLeader
from rayad.actors.lead.configure_leader import ConfigureLeader
from rayad.actors.lead.failure import Failure, failure_of
from rayad.actors.lead.layouts import RescaleReport
from rayad.actors.plane.protocol import COORDINATOR, PROGRESS, replica_name, stage_of
from rayad.actors.process.mailbox import NoAnswer
from rayad.actors.process.threads import OwnedThread
from rayad.actors.replica.migration import StepCost
from rayad.dataflow.config import configured
from rayad.dataflow.plan import Layout
from rayad.dataflow.resources import told_resources
from rayad.progress import ConfigError, RayadError, RescaleRefused

HOLD_S = 5.0
"""How long a replica keeps a question whose answer it has to wait for; then it is asked again."""
LOOK_S = 0.05
"""Between two looks at the clock, and whether the job has failed."""
LONG_S = 1.0
"""An activation that has taken so long keeps its replica's event loop from answering: that is no fault of the change."""
_log = logging.getLogger(__name__)

Then: TypeAlias = Callable[[Any], Iterable[lead.Event]]
"""The events that an answer stands for; none when something else has to be asked first."""


class Rescaler:
    """The changes of layout of one job."""

    def __init__(self, job: RunningJob) -> None:
        self._job = job
        self._one_at_a_time = threading.Lock()
        self._is_idle = threading.Event()
        self._is_idle.set()
        self._stop = threading.Event()
        self._turn = 0
        self._driver: _Driver | None = None
        self.newcomers: set[str] = set()
        """Replicas that have not joined the job yet: if one fails, the change is refused and the job goes on."""
        self.leaving: dict[str, Any] = {}
        """Replicas that retire, and what each has left behind when it has ended."""
        self.failure: Failure | None = None
        """What went wrong in the middle of a change: the job has to restart from its last snapshot."""
        self._wanted: dict[str, int] = {}

    # -- from any thread -------------------------------------------------------------------------------
    def rescale(self, wanted: Mapping[str, int], timeout_s: float, decided_for: Mapping[str, int] | None = None) -> RescaleReport:
        """See :meth:`rayad.actors.job.Job.rescale`. Refused if ``decided_for`` another layout than now."""
        asked_s, job = clock.monotonic(), self._job
        with self._one_at_a_time:
            while True:
                job.running.wait(max(0.0, asked_s + timeout_s - clock.monotonic()))
                self._is_idle.clear()
                try:
                    if job.state is not JobState.RUNNING:
                        raise RescaleRefused(f"rescale({dict(wanted)}): job {job.name!r} is {job.state.value}")
                    outcome: lead.Outcome | None = None
                    if job.running.is_set():  # else it has failed just now, and stop() may have been called
                        self._refuse_unless(decided_for, wanted)
                        outcome = self._change(wanted, asked_s, timeout_s)
                finally:
                    self._is_idle.set()
                match outcome:
                    case lead.Finish(report):
                        self._wanted.update(wanted)
                        job.journal.on_layout(report)
                        return report
                    case lead.Refuse(why, lacks_room):
                        free = f"; free resources now: {told_resources(ray.available_resources())}" if lacks_room else ""
                        job.journal.note("layout refused", why + free, wanted=dict(wanted))
                        raise RescaleRefused(why + free)
                if clock.monotonic() - asked_s > timeout_s:
                    raise RescaleRefused(f"rescale({dict(wanted)}): job {job.name!r} failed meanwhile, and is not back after {timeout_s} s")
                clock.sleep(LOOK_S)

    def _refuse_unless(self, decided_for: Mapping[str, int] | None, wanted: Mapping[str, int]) -> None:
        now = layouts.asked_of(self._job.plan)
        if decided_for is not None and decided_for != now:
            raise RescaleRefused(f"rescale({dict(wanted)}): decided for the layout {dict(decided_for)}, which is {now} by now")

    def _change(self, wanted: Mapping[str, int], asked_s: float, timeout_s: float) -> lead.Outcome | None:
        config = self._job.config
        leader = ChangeLeader(
            self._job.plan,
            wanted,
            timeout_s=timeout_s,
            asked_s=asked_s,
            turn=self._turn,
            pause_s=config.rescale_pause_s,
            holds_by_time=config.failures.recovery == "upstream",
        )
        self._drive(leader)
        return leader.outcome

    def configure(self, changes: Mapping[str, Any]) -> None:
        """See :meth:`rayad.actors.job.Job.configure`."""
        job = self._job
        config = configured(job.config, changes)
        with self._one_at_a_time:
            job.await_running(job.config.start_timeout_s)
            self._is_idle.clear()
            try:
                if job.state is not JobState.RUNNING:
                    raise ConfigError(f"configure({dict(changes)}): job {job.name!r} is {job.state.value}")
                leader = ConfigureLeader(job.crew.names(), turn=self._turn)
                try:
                    self._drive(leader, changes)
                finally:
                    job.changes.update(changes)
                    job.config = job.crew.config = config  # those that begin anew begin with it
            finally:
                self._is_idle.set()
            if isinstance(leader.outcome, configure_leader.NotConfigured):
                cause = leader.outcome.cause
                raise cause if isinstance(cause, Exception) else TimeoutError(leader.outcome.why)

    def _drive(self, leader: ChangeLeader | ConfigureLeader, changes: Mapping[str, Any] | None = None) -> None:
        self._driver = _Driver(self, self._job, leader, self._stop, changes or {})
        try:
            self._driver.run()
        finally:
            self._turn = leader.turn
            self._driver = None

    # -- the coordinator's thread ----------------------------------------------------------------------
    def stop(self) -> None:
        """The job has failed or is over; a change under way ends before anything else is done."""
        self._stop.set()
        deadline_s = clock.monotonic() + lead.STOP_TIMEOUT_S
        while not self._is_idle.wait(0.01):
            if clock.monotonic() > deadline_s:
                _log.warning("job %r: a change of layout did not end within %s s", self._job.name, lead.STOP_TIMEOUT_S)
                break
        if self._job.snapshots is not None:
            self._job.snapshots.serve()  # what the change has posted is done, or void, before anything begins anew
        self.newcomers.clear()
        self.leaving.clear()
        self.failure = None
        self._stop.clear()

    def want(self, wanted: Mapping[str, int]) -> None:
        """The run resumes from a snapshot with other numbers of replicas than are asked for."""
        self._wanted.update(wanted)

    def check(self) -> None:
        """The vertices are there and do not run yet. Raises RescaleRefused when one cannot be divided."""
        plan = self._job.plan
        for stage in plan.stages:
            count = self._wanted.get(stage.name, stage.parallelism)
            if count != stage.parallelism:
                ask = self._job.crew.actors[replica_name(stage.id, 0)].change.remote("may_move")
                why = ray.get(ask, timeout=self._job.config.start_timeout_s)
                if why:
                    raise RescaleRefused(f"resume={self._job.config.resume!r} with {count} replicas instead of {stage.parallelism}: {why}")

    def again(self) -> None:
        """The job is back from a failure, perhaps in an older layout: what was asked for is done again."""
        lost = layouts.lost_of(self._job.plan, self._wanted)
        if lost:
            OwnedThread("rescale", partial(self._do_again, lost)).start()  # stop() waits for what it changes

    def _do_again(self, wanted: dict[str, int]) -> None:
        try:
            self.rescale(wanted, self._job.config.start_timeout_s)
        except RayadError as error:
            _log.warning("job %r: after a failure the layout stays older than it was: %s", self._job.name, error)

    def on_left(self, name: str, left: Any) -> None:
        """A replica has ended as it was told to."""
        self.leaving[name] = left
        driver = self._driver
        if driver is not None:
            driver.on_left(name)


class _Answers:
    """The calls of one change that are not answered yet, and what other threads report meanwhile."""

    def __init__(self) -> None:
        self._asked: dict[Any, tuple[int, str, Then]] = {}
        self._said: queue.SimpleQueue[Callable[[], Iterable[lead.Event]]] = queue.SimpleQueue()

    def ask(self, ref: Any, turn: int, name: str, then: Then) -> None:
        """The answer of this actor, in this turn, comes to ``then``."""
        self._asked[ref] = turn, name, then

    def say(self, *events: lead.Event) -> None:
        """From any thread: something has happened."""
        self._said.put(lambda: events)

    def call(self, then: Callable[[], Iterable[lead.Event]]) -> None:
        """From any thread: go on with this in the thread that drives the change."""
        self._said.put(then)

    def take(self) -> Iterator[lead.Event]:
        """What has come, within a moment."""
        if self._asked:
            waiting = list(self._asked)
            ready, late = ray.wait(waiting, num_returns=1, timeout=LOOK_S)
            if ready and late:
                ready += ray.wait(late, num_returns=len(late), timeout=0)[0]
            for ref in ready:
                yield from self._answer(ref, *self._asked.pop(ref))
        elif self._said.empty():
            try:
                yield from self._said.get(timeout=LOOK_S)()
            except queue.Empty:
                return
        while not self._said.empty():
            yield from self._said.get_nowait()()

    @staticmethod
    def _answer(ref: Any, turn: int, name: str, then: Then) -> Iterable[lead.Event]:
        try:
            value = ray.get(ref, timeout=lead.STOP_TIMEOUT_S)  # it is there
        except RayTaskError as error:
            cause = error.cause if isinstance(error.cause, Exception) else error
            return [lead.Late(turn, name) if isinstance(cause, NoAnswer) else lead.Broke(turn, name, str(cause), cause)]
        except RayActorError:
            return [lead.Died(turn, name)]
        except RayError as error:
            return [lead.Broke(turn, name, str(error), error)]
        return then(value)


class _Driver:
    """Drives one change: its effects become calls, their answers become events."""

    def __init__(
        self,
        rescaler: Rescaler,
        job: RunningJob,
        leader: ChangeLeader | ConfigureLeader,
        stopped: threading.Event,
        changes: Mapping[str, Any],
    ) -> None:
        self._rescaler = rescaler
        self._job = job
        self._leader = leader
        self._stopped = stopped
        self._changes = dict(changes)
        self._answers = _Answers()
        self._progress: Any = None  # the actor that was asked to hold the job
        self._wanted = leader.wanted if isinstance(leader, ChangeLeader) else {}
        self._leave_turn = 0
        self._costs: dict[str, StepCost] = {}  # of those who leave

    def run(self) -> None:
        """Until there is an outcome: the one place where this thread waits."""
        self._tell(lead.Asked())
        while self._leader.outcome is None:
            for event in self._answers.take():
                self._tell(event)
            if self._stopped.is_set() or self._job.state is not JobState.RUNNING:
                self._tell(lead.JobFailed())
            self._tell(lead.Tick(self._busy()))

    def _busy(self) -> str:
        busy = self._job.crew.busy(LONG_S)
        return f"{self._job.who(busy[0][0])} is in {busy[0][1].activity}" if busy else ""

    def _tell(self, event: lead.Event) -> None:
        for effect in self._leader.handle(event, clock.monotonic()):
            self._act(effect)

    def _act(self, effect: lead.Effect | configure_leader.Effect) -> None:
        """Carry out an effect; nothing here waits."""
        job, crew = self._job, self._job.crew
        match effect:
            case lead.AskDivisible(turn, names, within_s):
                for name in names:
                    self._ask(turn, name, partial(_divisible, turn, name), "change_within", within_s, "may_move")
            case lead.HoldSnapshots(turn):
                done = partial(self._answers.say, lead.Done(turn, COORDINATOR))
                if job.snapshots is None:
                    done()
                else:
                    job.snapshots.hold_back(done)
            case lead.Start():
                self._start(effect)
            case lead.HoldJob(turn):
                self._hold_job(turn)
            case lead.Admit():
                self._admit(effect)
            case lead.Prepare(turn, names, layout, newcomers, moving, within_s):
                told = {name: job.addresses[name] for name in crew.names() if name in newcomers or stage_of(name) in moving}
                fresh = {name: job.incarnations[name] for name in newcomers}
                for name in names:
                    self._ask(turn, name, _done(turn, name), "change_within", within_s, "prepare", turn, layout, told, fresh, set(moving))
            case lead.Run(turn, names, within_s):
                job.run(list(names))
                joined = self._progress.call.remote("joined", list(names), within_s)
                self._answers.ask(joined, turn, names[0], partial(_joined, turn, names))
            case lead.AwaitPrepared(turn, names, within_s):
                for name in names:
                    self._await(turn, name, _done(turn, name), "is_prepared", within_s=within_s)
            case lead.TakeIn(names):
                job.admit(list(names))
                self._rescaler.newcomers = set()
            case lead.LayOut(turn, names, layout, measured):
                for name in names:
                    settled = partial(self._measure, turn, name) if name in measured else _done(turn, name)
                    self._ask(turn, name, partial(self._await_settled, turn, name, settled), "change", "relayout", turn, layout)
            case lead.AwaitDrained(turn, names):
                for name in names:
                    self._await(turn, name, _done(turn, name), "is_drained")
            case lead.Leave(turn, names):
                self._leave(turn, names)
            case lead.Part():
                self._part(effect)
            case lead.AwaitEnded(turn, ends):
                for name, mine in ends.items():
                    self._await(turn, name, _done(turn, name), "has_ended", list(mine))
            case lead.Commit(turn, names, layout, gone):
                self._commit(turn, names, layout, gone)
            case lead.Forget(turn, names, layout):
                crew.plan = job.plan.laid_out(layout)
                job.calls.forget(names)  # before they are ended: nobody takes that for a failure
                self._ask(turn, PROGRESS, _done(turn, PROGRESS), "call", "forget", list(names))
            case lead.Stop(names, layout):
                crew.stop(names)
                if job.snapshots is not None:
                    job.snapshots.post(partial(job.snapshots.part, names, job.plan.laid_out(layout), {}))
                self._rescaler.newcomers = set()
            case lead.Undo(turn, names, layout):
                for name in names:
                    self._ask(turn, name, _done(turn, name), "change", "commit", turn, layout)
            case lead.ReleaseSnapshots():
                if job.snapshots is not None:
                    job.snapshots.end_change()
            case lead.ReleaseJob():
                self._progress.call.remote("release")  # nobody waits: it may be gone
            case lead.Fail(why, cause):
                failure = failure_of("a change of layout", cause if isinstance(cause, Exception) else TimeoutError(why))
                self._rescaler.failure = dataclasses.replace(failure, is_lost_peer=True)  # if another failure is found, that is the cause
            case configure_leader.Configure(turn, names, stage):
                for name in names:
                    self._ask(turn, name, _done(turn, name), "change", "configure", self._changes, stage)
            case _:
                pass  # the outcome: whoever asked looks at it

    # -- asking ----------------------------------------------------------------------------------------
    def _ask(self, turn: int, name: str, then: Then, call: str, *arguments: Any) -> None:
        """Call a method of an actor."""
        actor = self._job.crew.actors.get(name)
        if actor is None:
            self._answers.say(lead.Died(turn, name))
        else:
            self._answers.ask(getattr(actor, call).remote(*arguments), turn, name, then)

    def _await(self, turn: int, name: str, then: Then, method: str, *arguments: Any, within_s: float = math.inf) -> None:
        """Until one of HostRescale's methods gives True; asked again and again, as long as the turn lasts."""
        deadline_s = clock.monotonic() + within_s

        def answered(is_so: bool) -> Iterable[lead.Event]:
            if is_so:
                return then(None)
            if self._leader.turn == turn:
                again()
            return ()

        def again() -> None:
            hold_s = min(HOLD_S, max(10 * LOOK_S, deadline_s - clock.monotonic()))
            self._ask(turn, name, answered, "await_change", method, hold_s, *arguments)

        again()

    def _in_coordinator(self, turn: int, action: Callable[[], Any], then: Then) -> None:
        """Do something in the coordinator's thread, which keeps the snapshots; unless the change is over by then."""
        snapshots = self._job.snapshots
        assert snapshots is not None

        def act() -> None:
            if self._leader.outcome is not None:
                return
            try:
                value = action()
            except Exception as error:
                self._answers.say(lead.Broke(turn, COORDINATOR, str(error), error))
            else:
                self._answers.call(lambda: then(value))

        snapshots.post(act)

    # -- effects that take more than a call -------------------------------------------------------------
    def _start(self, effect: lead.Start) -> None:
        job, crew, turn = self._job, self._job.crew, effect.turn
        prepared = job.plan.laid_out(effect.layout)
        try:
            wanted = {
                stage.name: stage.parallelism for stage in prepared.stages if job.plan.stage(stage.id).parallelism < stage.parallelism
            }
            check_placeable(prepared.needs(job.config.cpus_per_replica), f"rescale({wanted})", job.config.autoscaling_cluster)
        except ConfigError as error:
            self._answers.say(lead.Declined(turn, COORDINATOR, str(error)))
            return
        job.incarnation += 1
        self._rescaler.newcomers = set(effect.names)
        crew.plan = prepared
        crew.start(self._places(effect.names))
        incarnations = {**job.incarnations, **dict.fromkeys(effect.names, job.incarnation)}
        store = job.snapshots.store.store if job.snapshots is not None else None
        arguments = (job.config.host, job.incarnation, store, None, incarnations, prepared.layout, True)
        for name in effect.names:
            ended = job.ended.get(stage_of(name), 0)
            self._ask(turn, name, partial(self._listens, turn, name), "listen", *arguments, None, ended)
        self._answers.say(lead.Done(turn, COORDINATOR))

    def _places(self, newcomers: Sequence[str]) -> dict[str, str]:
        job = self._job
        nodes = [Node(node["NodeID"], node["NodeManagerAddress"], node["Resources"]) for node in ray.nodes() if node["Alive"]]
        there = {name: job.addresses[name].host for name in layouts.plane_names(job.plan) if name in job.addresses}
        needs = {stage.id: need.each for stage, need in zip(job.plan.stages, job.plan.needs(job.config.cpus_per_replica), strict=True)}
        return places(newcomers, there, nodes, needs)

    def _listens(self, turn: int, name: str, answer: Any) -> Iterable[lead.Event]:
        if isinstance(answer, Failure):
            return [lead.Declined(turn, name, answer.message)]
        self._job.addresses[name] = answer
        return [lead.Done(turn, name)]

    def _hold_job(self, turn: int) -> None:
        self._progress = self._job.crew.actors[PROGRESS]
        held = self._progress.call.remote("hold")
        self._answers.ask(held, turn, PROGRESS, lambda is_held: [lead.Done(turn, PROGRESS) if is_held else lead.JobIsOver(turn)])

    def _admit(self, effect: lead.Admit) -> None:
        job, turn = self._job, effect.turn
        job.incarnations.update(dict.fromkeys(effect.names, job.incarnation))

        def join(_: Any = None) -> Iterable[lead.Event]:
            self._ask(turn, PROGRESS, _done(turn, PROGRESS), "call", "join", list(effect.names), job.incarnation)
            return ()

        if job.snapshots is None:
            join()
        else:
            plan = job.plan.laid_out(effect.layout)
            self._in_coordinator(turn, partial(job.snapshots.admit, effect.names, job.incarnation, plan), join)

    def _await_settled(self, turn: int, name: str, then: Then, _: Any) -> Iterable[lead.Event]:
        self._await(turn, name, then, "is_settled", turn)
        return ()

    def _measure(self, turn: int, name: str, _: Any) -> Iterable[lead.Event]:
        self._ask(turn, name, lambda costs: [lead.Done(turn, name, costs[1])], "change", "costs")
        return ()

    def _leave(self, turn: int, names: tuple[str, ...]) -> None:
        """Those beyond the new layout end; what their sink writers have staged is kept."""
        self._leave_turn = turn
        self._rescaler.leaving.update(dict.fromkeys(names))

        def leave(base: int) -> Iterable[lead.Event]:
            for name in names:
                self._ask(turn, name, partial(self._leave_one, turn, name, base), "change", "costs")
            return ()

        if self._job.snapshots is None:
            leave(0)
        else:
            self._in_coordinator(turn, self._job.snapshots.base, leave)

    def _leave_one(self, turn: int, name: str, base: int, costs: Any) -> Iterable[lead.Event]:
        self._costs[name] = costs[0]
        self._ask(turn, name, lambda _: (), "change", "leave", base)  # it has left when its long call has ended: on_left
        return ()

    def on_left(self, name: str) -> None:
        """The coordinator's thread: a replica has ended as it was told to."""
        self._answers.say(lead.Done(self._leave_turn, name, self._costs.get(name)))

    def _part(self, effect: lead.Part) -> None:
        job, done = self._job, lead.Done(effect.turn, COORDINATOR)
        left = {name: self._rescaler.leaving.pop(name) for name in effect.names}
        if job.snapshots is None:
            self._answers.say(done)
        else:
            plan = job.plan.laid_out(effect.layout)
            self._in_coordinator(effect.turn, partial(job.snapshots.part, effect.names, plan, left), lambda _: [done])

    def _commit(self, turn: int, names: tuple[str, ...], layout: Layout, gone: tuple[str, ...]) -> None:
        job = self._job
        job.crew.stop(gone)
        job.plan = job.crew.plan = job.plan.laid_out(layout)
        if job.snapshots is not None:
            job.snapshots.post(partial(job.snapshots.lay_out, job.plan))
        for name in names:
            self._ask(turn, name, partial(_done_at, turn, name), "change", "commit", turn, layout)


def _done_at(turn: int, name: str, cost: StepCost) -> Iterable[lead.Event]:
    return [lead.Done(turn, name, cost)]


def _divisible(turn: int, name: str, why: str) -> Iterable[lead.Event]:
    return [lead.Declined(turn, name, why) if why else lead.Done(turn, name)]


def _joined(turn: int, names: tuple[str, ...], are_there: bool) -> Iterable[lead.Event]:
    return [lead.Done(turn, name) for name in names] if are_there else [lead.Late(turn, names[0])]


def _done(turn: int, name: str) -> Then:
    """Whatever the answer is, this actor has done what it was asked."""
    return lambda _: [lead.Done(turn, name)]


__all__ = ["Rescaler"]
