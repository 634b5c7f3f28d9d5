"""The coordinator's thread: carries out what :class:`JobLeader` decides, and tells it what happens; it decides nothing itself.

What it waits for: actors that listen or roll back (short calls), their work (long calls), snapshots, the thread that calls the store and
sinks, and the clock.
"""

from __future__ import annotations

import dataclasses
import logging
import random
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, assert_never, cast

from rayad.actors.coordinator.outcome import JobOutcome, Starting, WorkDone, stage_statistics
from rayad.actors.coordinator.processes.crew import Stuck
from rayad.actors.coordinator.processes.moving import Mover
from rayad.actors.coordinator.rescaling import Rescaler
from rayad.actors.coordinator.running_job import RunningJob
from rayad.actors.coordinator.stored.stored_job import StoredJob
from rayad.actors.coordinator.surroundings import Ended, Gave, NotFetched, Raised, given
from rayad.actors.job import JobState, JobStatistics
from rayad.actors.lead import job_leader as lead
from rayad.actors.lead import recovery_leader as recovery
from rayad.actors.lead.crashes import how_it_died, isolated_steps, told_place
from rayad.actors.lead.failure import Failure
from rayad.actors.lead.job_leader import JobLeader, drive
from rayad.actors.lead.placing import WORKERS, needs_of
from rayad.actors.lead.recovery_leader import Failed, Listens, RolledBack
from rayad.actors.plane.address import Address
from rayad.actors.plane.protocol import COORDINATOR, PROGRESS, stage_of
from rayad.actors.plane.replica_id import ReplicaId, replicas_of
from rayad.actors.replica.input.source_parts import Resumable, parts_of
from rayad.actors.replica.places import is_worker
from rayad.actors.replica.user_errors import restarts_of
from rayad.actors.store.job_store import JobStore, NothingWhole
from rayad.dataflow.pacing import Ahead
from rayad.dataflow.resources import told_resources
from rayad.progress import DataflowError, RayadError, say
from rayad.snapshots.manifest import KeeperId, Manifest
from rayad.snapshots.store import Superseded

CALL_S = 30.0
"""For an answer that is there: only its transfer can take long."""
LOOK_S = 0.25
"""While actors start: how often it looks whether the job is cancelled, or time is up."""

_log = logging.getLogger(__name__)


class Supervisor:
    """Runs one job, in one thread.

    Args:
        job, rescaler: see there.
        store: of snapshots; None: as the job's configuration says.
        on_effect: called before each effect of the leader is carried out.
    """

    def __init__(
        self,
        job: RunningJob,
        rescaler: Rescaler,
        *,
        store: JobStore | None = None,
        on_effect: Callable[[lead.Effect], None] = lambda effect: None,
    ) -> None:
        self._job = job
        self._on_effect = on_effect
        self._failure_of = job.around.failure_of
        self._actors, self._clock = job.around.actors, job.around.clock
        self._rescaler = rescaler
        restarts = restarts_of(job.config.failures, random.Random(job.job))
        self.leader = JobLeader(job.plan, job.config, restarts, keeps_snapshots=job.config.keeps_snapshots, places=job.places)
        self._asked: dict[Any, tuple[str, int, type[Listens | RolledBack]]] = {}  # short calls under way, by reference
        self._asked_s = 0.0
        self._published: deque[Manifest] = deque()  # since the last look
        self._mover = Mover(job)
        told: dict[str, Any] = {"published": self._published.append, "failed": self.failed, "wanted": rescaler.want}
        self._stored = StoredJob(job, self.leader.recovery, store=store, **told)
        self._ended = WorkDone()
        self.outcome: JobOutcome | None = None
        """How the job has ended, once it has."""
        self._began_s = self._clock.time()
        self._start_s = 0.0
        self._run_s = 0.0
        self._stays = False

    # -- the long call ----------------------------------------------------------------
    def run(self, run: str | None = None, earlier: Collection[str] = (), **options: Any) -> JobOutcome:
        """Start everything, wait for the end, publish. Never raises: the outcome says what happened. The arguments are those of
        :meth:`begin`."""
        try:
            self.begin(run, earlier, **options)
            while self.outcome is None:
                self.look()
            if self._job.snapshots is not None:
                self._job.snapshots.close_journal()
            return dataclasses.replace(self.outcome, journal=self._job.journal.events, stays=self._stays)
        except Exception as error:  # a mistake of ours
            self._stop_all(JobState.FAILED)
            return JobOutcome(JobState.FAILED, {}, JobStatistics(), self._failure_of("coordinator", error))
        finally:
            self._stored.close()

    def begin(
        self,
        run: str | None = None,
        earlier: Collection[str] = (),
        *,
        has_begun: bool = False,
        keeper: KeeperId | None = None,
        failures: int = 0,
        asked_s: float | None = None,
    ) -> None:
        """Begin to start everything.

        Args:
            run: tells this coordinator's run from others in the store.
            earlier: the runs of the coordinators that died before: it resumes where they were, and a store that is away is waited for.
            has_begun: whether the job is known to have run: then a store without snapshots is away.
            keeper: of a detached job.
            failures: so many were survived before, outside of this coordinator: they count as its own.
            asked_s: when the driver began to start this actor, by ``time.time()``: the start of a job counts from there.
        """
        self._began_s = self._clock.time() if asked_s is None else min(self._clock.time(), asked_s)
        self._stored.run, self._stored.earlier = run, tuple(earlier)
        self._stored.has_begun, self._stored.keeper = has_begun, keeper
        self._job.failures = len(earlier)
        self._job.begun.set()
        self.tell(lead.Cancel() if self._job.cancelled.is_set() else recovery.Begin(bool(earlier), failures))

    def tell(self, event: lead.Event) -> None:
        """Something has happened: do what follows."""
        drive(self.leader, event, self._clock.monotonic, self._carry_out, self.failed)
        self.leader.check_invariants()
        self._show_awaited()

    def failed(self, error: BaseException, *, is_final: bool = False) -> Failed:
        """An error in this thread as an event."""
        if self.leader.is_over:
            _log.warning("job %r: while it ended", self._job.name, exc_info=error)
        is_final = is_final or isinstance(error, (Superseded, NothingWhole))
        return Failed(None, self.leader.recovery.incarnation, self._failure_of("coordinator", error), is_final=is_final)

    def _show_awaited(self) -> None:
        """Tell other threads who is waited for."""
        leader, job = self.leader.recovery, self._job
        is_starting = leader.phase is recovery.Phase.LISTENING
        waiting = tuple(sorted(map(job.who, leader.waiting)))
        job.awaited = (Starting(waiting, leader.asked), self._asked_s) if is_starting else None

    # -- what happens -------------------------------------------------------------------
    def look(self, most_s: float = LOOK_S) -> None:
        """One turn: wait for something to happen, not longer than this, and tell the leader."""
        job, leader = self._job, self.leader
        if leader.recovery.is_running:
            leader.recovery.on_changed(job.plan, job.incarnation, job.incarnations)
        try:
            events = list(self._events(most_s))
        except Exception as error:
            events = [self.failed(error)]
        while self._published:
            self.tell(recovery.SnapshotPublished(is_last=self._published.popleft().kind == "final"))
            self._move(self._mover.on_published())
        for event in events:
            self.tell(event)
        if leader.recovery.is_running and not leader.recovery.has_failed:
            self._move(self._mover.look(self._rescaler.newcomers))
        if job.cancelled.is_set():
            self.tell(lead.Cancel())
        if job.is_stopping and not leader.is_stopping:
            self.tell(lead.Stop())
        if leader.recovery.is_running and not job.calls:
            self.tell(lead.AllEnded())
        self.tell(recovery.Tick())

    def _move(self, names: frozenset[str]) -> None:
        if names:
            self.tell(recovery.Move(names))

    def _events(self, most_s: float) -> Iterable[lead.Event]:
        job, rescaler = self._job, self._rescaler
        job.calls.take_over()
        ready = self._wait([*self._asked, *job.calls.refs()], most_s)
        yield from self._stored.take()
        for ref in ready:
            if ref in self._asked:
                name, incarnation, kind = self._asked.pop(ref)
                answer = self._get(ref, job.who(name))
                if isinstance(answer, Failure):
                    yield Failed(name, incarnation, answer)
                else:
                    yield Listens(name, incarnation, answer) if kind is Listens else RolledBack(name, incarnation)
            elif (ended := job.calls.ended(ref)) is not None:  # else of a newcomer that was sent away
                yield from self._on_ended(ref, *ended)
        if job.superseded:
            yield self.failed(Superseded(job.superseded))
        for name, failure in rescaler.failed_since_they_came():
            yield Failed(name, self._incarnation_of(name), failure)
        if rescaler.failure is not None:
            yield Failed(None, self.leader.recovery.incarnation, rescaler.failure)
        if self.leader.recovery.is_running and not self.leader.recovery.has_failed:
            found = job.crew.find_stuck(job.calls.names() - rescaler.newcomers)
            if found is not None:
                yield Failed(found.name, self._incarnation_of(found.name), self._stuck_failure(found), is_stuck=True)

    def _on_ended(self, ref: Any, name: str, second: Any) -> Iterable[lead.Event]:
        """An actor's work is done, or has failed."""
        job, incarnation = self._job, self._incarnation_of(name)
        answer = self._get(ref, job.who(name))
        if isinstance(answer, Failure):
            if answer.has_ended:
                working = job.snapshots.ended_in(name) if job.snapshots is not None else ""
                told = f"{answer.message}{told_place(job.plan, name, working)}"
                answer = dataclasses.replace(answer, working=working, message=told)
            if name in self._rescaler.newcomers:
                self._rescaler.on_newcomer_failed(name, answer)
            else:
                yield Failed(name, incarnation, answer)
        elif name != PROGRESS:
            kept = self._get(second, job.who(name))
            if isinstance(kept, Failure):
                yield Failed(name, incarnation, kept)
                return
            self._ended.reports.update(answer)
            self._ended.kept.update(kept)
        else:
            self._ended.counts = answer

    def _incarnation_of(self, name: str) -> int:
        return self._job.incarnations.get(name, self._job.incarnation)

    def _incarnation_at(self, replica: str) -> int:
        return self._incarnation_of(self._job.places.process_of(*ReplicaId.from_plane_name(replica)))

    def _get(self, ref: Any, who: str) -> Any:
        answer = self._actors.take(ref, CALL_S)  # it is there
        match answer:
            case Gave(value):
                return value
            case Raised(cause):
                if not isinstance(cause, RayadError) and "pickle" in str(cause):  # of what it gives: all else of its own it tells itself
                    cause = DataflowError(
                        f"{who}: what its sinks have kept cannot be sent: {type(cause).__name__}: {say(cause)}; let them get data, not "
                        "handles such as files, sockets, locks or generators"
                    )
                return self._failure_of(who, cause)
            case NotFetched():
                return Failure(who, f"what {who} gave could not be fetched within {CALL_S:g} s: its node may be gone", "", None, False)
            case Ended(told):
                how = self._actors.last_words(answer) or how_it_died(told)
                return Failure(who, f"the actor of {who} died: {how}", told, None, False, has_ended=True)

    def _wait(self, waiting: list[Any], most_s: float) -> list[Any]:
        """Which calls have ended; takes part in the snapshots meanwhile."""
        snapshots, is_running = self._job.snapshots, self.leader.recovery.is_running
        due_s = self.leader.due_in_s(self._clock.monotonic())
        most_s = most_s if due_s is None else min(most_s, due_s)
        if snapshots is not None and is_running and (not snapshots.poll(min(0.1, most_s)) or not waiting):
            most_s = 0.0
        elif self._job.store_thread.is_busy:  # what follows on the call is what the job waits for: it begins, recovers or ends
            self._job.store_thread.wait(min(0.1, most_s))
            most_s = 0.0
        if not waiting:
            self._job.cancelled.wait(most_s)
            return []
        if most_s:
            self._actors.wait(waiting, most_s)
        return self._actors.wait(waiting, 0.0, len(waiting))

    def _stuck_failure(self, found: Stuck) -> Failure:
        """An actor that is given up, as the failure that it is."""
        job = self._job
        who, activity = job.who(found.name), found.activity
        pulse, _ = job.crew.last_pulse(found.name)
        on = f" on node {pulse.node}" if pulse is not None and pulse.node else ""
        if activity is None:
            patience_s = job.config.failures.heartbeat_timeout_s
            told = f"{who}{on} has not answered for {patience_s:g} s: its process is stopped, or its node is gone"
            return Failure(who, told, "", None, False)
        told = (
            f"{who}{on} is in {activity}: RunConfig.activation_timeout_s is {job.config.activation_timeout_s:g}. If this is how long your "
            "function takes, raise it; else see below where it stood"
        )
        failure = self._failure_of(who, DataflowError(told, located=True))
        return dataclasses.replace(failure, details=f"the stack of {who}, innermost last:\n{activity.stack}")

    # -- what is to be done ---------------------------------------------------------------
    def _carry_out(self, effect: lead.Effect) -> Iterable[lead.Event] | None:
        """One effect; gives the answers that are there at once."""
        job = self._job
        job.journal.on_effect(effect)
        self._on_effect(effect)
        match effect:
            case recovery.StopChange():
                job.running.clear()
                self._rescaler.stop()
            case recovery.Survived(failure, number, delay_s):
                job.failures += 1
                later = f" in {delay_s:.1f} s" if delay_s else ""
                facts = (job.name, number, job.config.failures_survived, failure.who, failure.message, later)
                _log.warning("job %r: failure %d of at most %d: %s: %s; resuming from the last snapshot%s", *facts)
            case recovery.WholeGraph(why):
                _log.info("job %r: the whole graph is restarted: %s", job.name, why)
            case recovery.Release(names, incarnation, stuck):
                self._release(names, incarnation, stuck)
            case recovery.Start(incarnation):
                job.incarnation = incarnation
                job.crew.start()
            case recovery.ReadStore():
                return self._stored.read(effect)
            case recovery.Switch(names, region, incarnation):
                switched = self._actors.call(job.crew.actors[PROGRESS], "call", "switch", names, region, incarnation)
                given(self._actors.take(switched, job.config.start_timeout_s), "the progress actor was asked to take in new replicas")
            case recovery.Listen():
                self._listen(effect)
            case recovery.RollBack():
                self._roll_back(effect)
            case recovery.Run(names, incarnation, addresses):
                job.addresses.update(cast("dict[str, Address]", addresses))
                if PROGRESS in names:
                    self._rescaler.check()
                job.run(list(names))
            case recovery.Running(names, restart_s):
                self._on_running(names, restart_s)
            case recovery.Acquit(names):
                job.ended = {}
                for name in names:
                    if name in job.crew.actors:
                        self._actors.call(job.crew.actors[name], "acquit")
            case recovery.TooLate(names, count, incarnation):
                return [Failed(None, incarnation, Failure("coordinator", self._told_late(names, count), "", None, False))]
            case recovery.LacksRoom(names):
                sharing = self._mover.share(names)
                self._asked = {ref: asked for ref, asked in self._asked.items() if asked[0] not in sharing}
                self._let_listen(sharing)
            case lead.StopReading():
                job.stop_reading()
            case lead.TakeLastSnapshot():
                pass  # each replica has said so when it finished
            case lead.Publish(from_snapshot):
                self.publish(from_snapshot)
            case lead.StopAll(state):
                ended_s = self._clock.time()  # when the results are published, not when actors have ended
                self._run_s = ended_s - self._began_s - self._start_s
                self._stop_all(state)
            case lead.AbortSinks():
                self._abort_sinks()
            case lead.End(state, failure, why):
                self.outcome = self._outcome_of(state, failure, why)
            case recovery.GaveUp():  # the leader of the job makes its end of it
                pass
            case _:
                assert_never(effect)
        return None

    def _release(self, names: tuple[str, ...] | None, incarnation: int, stuck: Collection[str]) -> None:
        job = self._job
        gone = list(job.crew.actors) if names is None else list(names)
        job.calls.forget(gone)
        self._asked = {ref: asked for ref, asked in self._asked.items() if names is not None and asked[0] not in gone}
        held = [at.plane_name for process in gone if process != PROGRESS for at in job.places.replicas_at(process, job.plan)]
        self._ended.forget(held)
        job.crew.release(gone, incarnation, stuck)

    def _listen(self, effect: recovery.Listen) -> None:
        """Let actors build what they are, from the beginning or from the snapshot that is resumed from."""
        job, snapshots, crew = self._job, self._job.snapshots, self._job.crew
        unix = "auto" if job.config.unix_sockets else "off"
        crew.start()  # the layout may be another one by now
        self._asked_s = self._clock.monotonic()
        job.incarnations = {COORDINATOR: job.incarnations.get(COORDINATOR, effect.incarnation), **effect.incarnations}
        if effect.is_of_all:
            job.incarnations[COORDINATOR] = effect.incarnation
            job.addresses = {}
            job.calls.clear()
            self._ended = WorkDone()
            if snapshots is not None:
                job.addresses[COORDINATOR] = snapshots.listen(self._actors.own_address(job.config.host), effect.incarnation, unix)
            settings = (job.config.failures.recovery == "upstream", Ahead.of_run(job.config), job.plan.layout)
            listening = self._actors.call(crew.actors[PROGRESS], "listen", job.config.host, unix, effect.incarnation, *settings)
            self._asked[listening] = (PROGRESS, effect.incarnation, Listens)
        elif snapshots is not None:
            snapshots.expect(effect.names, effect.incarnation)
        job.ended = effect.ended
        self._tell_isolated(effect.ended)
        self._let_listen([name for name in effect.names if name != PROGRESS])

    def _let_listen(self, names: Collection[str]) -> None:
        """Processes build the replicas that they hold."""
        job, snapshots = self._job, self._job.snapshots
        store = snapshots.store.store if snapshots is not None else None
        for name in names:
            ended = job.ended.get(stage_of(name), 0) if not is_worker(name) else 0
            resumed = (store, self._parts(name), job.incarnations, job.plan.layout, False, job.config, ended)
            incarnation = job.incarnations[name]
            listening = self._actors.call(job.crew.actors[name], "listen", job.config.host, incarnation, *resumed)
            self._asked[listening] = (name, incarnation, Listens)

    def _parts(self, process: str) -> dict[ReplicaId, Resumable]:
        """The parts of the snapshot from which the replicas of a process resume."""
        job, snapshots = self._job, self._job.snapshots
        parts = parts_of(snapshots.manifest, job.plan) if snapshots is not None else {}
        mine = {at: (job.plan.stage(at.stage).name, at.replica) for at in job.places.replicas_at(process, job.plan)}
        return {replica: parts[name] for replica, name in mine.items() if name in parts}

    def _tell_isolated(self, ended: Mapping[int, int]) -> None:
        """Tell which functions run in a process of their own from now on."""
        job = self._job
        for at, times in ended.items():
            if steps := isolated_steps(job.plan.stage(at), times):
                names = ", ".join(map(repr, steps))
                told = f"processes of {job.plan.stage(at).name!r} ended in a row: {times}; {names} run in processes of their own now"
                _log.warning("job %r: %s", job.name, told)
                job.journal.note("recovery", told, ended=times, steps=steps)

    def _roll_back(self, effect: recovery.RollBack) -> None:
        job, snapshots = self._job, self._job.snapshots
        assert snapshots is not None
        for name in effect.names:
            part = next(iter(self._parts(name).values()), None)  # the process holds one replica
            resumed = (effect.addresses, effect.incarnation, part, effect.void)
            rolling = self._actors.call(job.crew.actors[name], "roll_back", effect.region.edges, *resumed)
            self._asked[rolling] = (name, effect.incarnation, RolledBack)

    def _on_running(self, names: tuple[str, ...], restart_s: float | None) -> None:
        """These run from now on, and with them the job."""
        job, snapshots = self._job, self._job.snapshots
        if restart_s is None:
            self._start_s = self._clock.time() - self._began_s
        job.state = self.leader.state
        notes = snapshots.manifest.notes if snapshots is not None else {}
        job.found.update({name: (job.addresses[name], job.incarnations[name], notes) for name in names})
        if snapshots is not None:
            if restart_s is not None:
                snapshots.recovered(restart_s)
            snapshots.go()
        job.running.set()
        self._rescaler.again()

    def _told_late(self, names: tuple[str, ...], count: int) -> str:
        who = sorted(map(self._job.who, names))
        return (
            f"{len(who)} of {count} actors did not start within {self._job.config.start_timeout_s} s: {who[:5]}; "
            f"free resources now: {self._job.crew.sites.told_free()}; lower the parallelism or what a replica asks "
            f"for ({self._asked_by(who[0])}), or raise start_timeout_s"
        )

    def _asked_by(self, who: str) -> str:
        needs = {need.vertex: need for need in needs_of(self._job.plan, self._job.places, self._job.config.cpus_per_replica)}
        asked = next((need for name, need in needs.items() if who.startswith((f"{name!r}[", "worker " if name == WORKERS else "?"))), None)
        return f"{who} asks for {told_resources(asked.each)}" if asked is not None else "num_cpus, num_gpus, memory, resources"

    # -- the end ----------------------------------------------------------------------------
    def _stop_all(self, state: JobState) -> None:
        """The job is over: whoever still waits gets an answer, and all actors end."""
        job = self._job
        job.state = state
        job.running.set()
        self._rescaler.stop()
        if job.snapshots is not None:
            job.snapshots.end(f"job {job.name!r} is {state.value}")
            job.snapshots.close()
        self._stays = state is JobState.COMPLETE and not self.leader.recovery.failures and job.crew.rest()
        if not self._stays:
            job.crew.end()

    def _abort_sinks(self) -> None:
        for sink in self._job.plan.sinks:
            try:
                sink.sink.abort()
            except Exception:
                _log.warning("sink %r could not clean up", sink.key, exc_info=True)

    def _outcome_of(self, state: JobState, failure: Failure | None, why: str) -> JobOutcome:
        if state is JobState.COMPLETE:
            return JobOutcome(state, self._stored.receipts, self._statistics(), recent=self._ended.recent(self._incarnation_at))
        if failure is not None and why:
            told = f"{failure.message} ({why})"
            failure = dataclasses.replace(failure, message=told, details=f"{told}\n{failure.details}")
        return JobOutcome(state, {}, JobStatistics(), failure)

    def publish(self, from_snapshot: bool) -> None:
        """Let all sinks publish, what the last snapshot names or what all replicas have staged."""
        self._stored.publish(from_snapshot, self._all_staged())

    def _all_staged(self) -> list[dict[int, Any]]:
        """What all replicas have staged, without snapshots: first those that have retired, then in the order of the plan."""
        kept, left = self._ended.kept, self._job.left if self._job.snapshots is None else ()
        names = [at.plane_name for at in replicas_of(self._job.plan.stages)]
        return [*(one.staged for _, one in left), *(kept[name].staged for name in names if name in kept)]

    def _statistics(self) -> JobStatistics:
        job = self._job
        taken = tuple(job.snapshots.taken) if job.snapshots is not None else ()
        reports = [*self._ended.reports.values(), *(left.report for _, left in job.left)]
        stages = stage_statistics(reports, self._began_s)
        return JobStatistics(self._start_s, self._run_s, len(job.crew.processes()) + 2, stages, self._ended.counts, taken, job.failures)
