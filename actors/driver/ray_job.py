"""The owner's handle of a job on Ray, in a driver or a keeper: it starts the coordinator, and another one when that dies."""

from __future__ import annotations

import dataclasses
import logging
import math
import random
import secrets
import threading
import time as clock
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import ray
from ray.exceptions import ActorUnavailableError, GetTimeoutError, RayActorError

from rayad.actors.cluster import names, ray_calls
from rayad.actors.cluster.parcels import parcel
from rayad.actors.coordinator.outcome import Beat, JobOutcome
from rayad.actors.coordinator.processes.starts import starts_of
from rayad.actors.coordinator_actor import new_coordinator
from rayad.actors.driver.coordinator_line import END_S, GLANCE_S, CoordinatorLine, Gone
from rayad.actors.driver.epoch_ticker import EpochTicker
from rayad.actors.driver.inputs import FedJob, InputPlane
from rayad.actors.driver.job_handle import CANCEL_S, RayJobHandle
from rayad.actors.driver.ray_input import RayInput
from rayad.actors.driver.termination import OF_THIS_PROCESS
from rayad.actors.inputs.epoch_ticks import lengths_of
from rayad.actors.inputs.job_input import JobInput
from rayad.actors.job import JobProgress, JobState, JobStatistics, Result, SourcesOfJob
from rayad.actors.lead.failure import failure_of
from rayad.actors.lead.placing import placed
from rayad.actors.plane.protocol import replica_name
from rayad.actors.process import unwaited
from rayad.actors.process.threads import Threads
from rayad.actors.replica.places import Places
from rayad.actors.replica.user_errors import restarts_of
from rayad.actors.store.keeper_files import KeeperFiles
from rayad.actors.warm.preparing import prepare
from rayad.actors.warm.session import keep_s_of
from rayad.actors.warm.sets import OF_THIS_PROCESS as WARM
from rayad.actors.warm.sets import WarmSet, new_set
from rayad.dataflow.config import REPORT_INTERVAL, RunConfig, ScalingConfig, configured
from rayad.dataflow.plan import Plan
from rayad.progress import RayadError, mask, say
from rayad.snapshots.restarts import End, Succession

if TYPE_CHECKING:
    from rayad.actors.autoscaler_actor import AutoscalerHandle
    from rayad.autoscale import ScalingProgress

_log = logging.getLogger(__name__)
WATCH_EVERY_S = 0.5
"""Seconds between two checks whether the coordinator has ended or is silent."""
TAKE_S = 30.0
"""How long a coordinator that waits for jobs may take to build one."""
JOIN_S = 2.0
"""How long the end of a job waits for its threads in this process; one that asks Ray may take longer."""


@dataclass(frozen=True, slots=True)
class Kept:
    """What the owner of a job has besides when it is in a keeper: what the keeper's processes before this one have left.

    Args:
        token: of the keeper's name, which is the job's.
        runs: of the coordinators before, which have died with those processes: the next one resumes where they were.
        succession: which those deaths have counted for.
        failures: how many of them count.
        has_begun: whether the job has run in one of those processes.
        on_run: told of each run before it begins.
        on_running: told, again and again, that the job runs.
        files: where what live inputs are sent is kept, too.
    """

    token: str
    runs: tuple[str, ...]
    succession: Succession
    failures: int
    has_begun: bool
    on_run: Callable[[str], None]
    on_running: Callable[[], None]
    files: KeeperFiles | None


def succession_of(config: RunConfig) -> Succession:
    """Whether and when another coordinator, or another process of a keeper, takes the place of one that died."""
    return Succession(restarts_of(config.failures, random.Random()))


def _autoscaler_of(name: str, plan: Plan, config: RunConfig, scaling: ScalingConfig) -> AutoscalerHandle | None:
    """The autoscaler of a job that has one; other jobs do not load its policies."""
    if not scaling.is_adaptive:
        return None
    from rayad.actors.autoscaler_actor import AutoscalerHandle

    return AutoscalerHandle(name, plan, scaling, config.storage_path, places_for(plan, config, scaling))


def is_ending(actor: Any) -> bool | None:
    """Whether a coordinator or a keeper is dead, or its job is over: a keeper then gives up the results that it keeps, and its name. None
    for one that does not answer, as that cannot be known."""
    try:
        beat: Beat = ray_calls.get(ray_calls.call(actor.ping), timeout=GLANCE_S)
        if beat.state in (JobState.STARTING, JobState.RUNNING):
            return False
        if hasattr(actor, "give_up"):
            ray_calls.call(actor.give_up)
    except (ActorUnavailableError, GetTimeoutError):
        return None
    except RayActorError:
        return True
    return True


_OWNED: weakref.WeakSet[RayJob] = weakref.WeakSet()


def owned(name: str, token: str) -> RayJob | None:
    """The job of this name that this process has started, if ``token`` is of one of its actors' names."""
    return next((job for job in list(_OWNED) if job.name == name and job.has_token(token)), None)


def places_for(plan: Plan, config: RunConfig, scaling: ScalingConfig) -> Places:
    """Which process of a job holds which replica, in the cluster that this process has joined. Where nodes can be added, there is a
    processor for each replica."""
    cpus = math.inf if config.autoscaling_cluster else float(ray.cluster_resources().get("CPU", 0.0))
    return placed(plan, scaling.placement, cpus, upstream=config.failures.recovery == "upstream")


class RayJob(RayJobHandle):
    """The owner's handle of a job on Ray: it starts the coordinator, and another one when that dies.

    Args:
        name: the job's.
        plan, config, scaling: what runs, and how.
        asked_s: when the first process was asked for, by ``time.time()``.
        kept: in a keeper; None: the job ends with this process.
    """

    is_watched = False

    def __init__(self, name: str, plan: Plan, config: RunConfig, scaling: ScalingConfig, asked_s: float, kept: Kept | None = None) -> None:
        self._autoscaler = _autoscaler_of(name, plan, config, scaling)
        told = self._autoscaler.told if self._autoscaler is not None else None
        super().__init__(name, plan, config, JobProgress(JobState.STARTING, (), 0, scaling=told))
        self._scaling = scaling
        self.sources = SourcesOfJob(plan)
        self._failed_by: RayadError | None = None
        self._coordinators_lost = 0
        self._heeded: Beat | None = None
        self._failures = kept.failures if kept is not None else 0  # survived outside of the coordinator, those that count
        self._kept = kept
        self._cuts_inputs = kept is None
        self._succession = kept.succession if kept is not None else succession_of(config)
        self._runs = list(kept.runs) if kept is not None else []
        self._has_begun = kept is not None and kept.has_begun
        self._tokens = [kept.token] if kept is not None else []  # of the names that are this job's
        self._restarting = threading.Lock()
        self._threads = Threads()
        self._is_terminated = False
        self._warm: WarmSet | None = None
        self._is_let_go = False
        self._start_coordinator(asked_s)
        self._feed = InputPlane(
            FedJob(
                self.name,
                self._config,
                self._survives(),
                identity=lambda: (self.id, self._secret),
                ask=self._ask,
                ask_again=self._ask_again,
                has_outcome=lambda: self._outcome is not None,
                is_over=self._is_over,
                raise_outcome=lambda: self._await_result(timeout_s=30),
                files=kept.files if kept is not None else None,
            ),
            self._threads,
        )
        _OWNED.add(self)
        EpochTicker(self.name, lengths_of(self.plan), self.input, self._threads)
        if kept is None:
            unwaited.OF_THIS_PROCESS.watch(self)
        self._threads.start("coordinator", self._watch)  # ends when the outcome is known

    def _start_coordinator(self, asked_s: float, delay_s: float = 0.0) -> None:
        """Start the first coordinator, or one that takes the place of one that died: that has the job's name at once, and begins after the
        delay, when those before it have ended."""
        self.id = f"{self.name}-{secrets.token_hex(4)}"
        self._secret = secrets.token_bytes(32)
        places = places_for(self.plan, self._config, self._scaling)
        arguments = (parcel(self.plan), self._config, self.id, self._secret, self.name, places)
        run, earlier = secrets.token_hex(8), tuple(self._runs)
        if self._kept is not None:
            self._kept.on_run(run)
        before = []
        if self._warm is not None:
            self._entry.withdraw()
            before = [self._warm.name]
        self._warm = self._borrow() if self._kept is None and not self._runs and keep_s_of(self._config) is not None else None
        actor = self._claim_name()
        starts = starts_of(self.plan, places, self._config.cpus_per_replica, self.id if self._warm is None else "")
        if self._warm is None:
            prepare(actor.actor, starts)
        elif self._warm.is_new:
            self._warm.prepare(starts)
        taken = ray_calls.call(actor.take, self._warm is not None, *arguments)
        if self._warm is not None and self._warm.has_run:
            ray_calls.wait([taken], timeout=TAKE_S)  # else its other threads would not know the job
        self._runs.append(run)
        keeper = self._kept.files.id if self._kept is not None and self._kept.files is not None else None
        told: dict[str, Any] = {
            "has_begun": self._has_begun,
            "keeper": keeper,
            "failures": self._failures,
            "asked_s": asked_s,
            "delay_s": delay_s,
        }
        begin = partial(ray_calls.call, actor.run, run, earlier, before=before, **told)
        outcome = begin()
        ray_calls.call(actor.introduce, [outcome], (*earlier, run))
        patience_s, start_s = self._config.failures.heartbeat_timeout_s, self._config.start_timeout_s
        asks_again = partial(self._ask_outcome, actor, begin, (*earlier, run))
        self._line = CoordinatorLine(actor, outcome, self.name, patience_s, start_s, asks_again)
        self._succession.on_start()
        if self._autoscaler is not None:
            self._autoscaler.start(actor, resumes=bool(earlier) or self._config.resume not in (None, "never"))
        self._tell_again(actor)

    def _borrow(self) -> WarmSet:
        """Processes of a job before, or new ones that are to stay."""
        return WARM.borrow() or new_set()

    def _claim_name(self) -> Any:
        """Start the coordinator under the job's name, or let one that is there have it."""

        def start(options: Mapping[str, str]) -> Any:
            return self._warm.actor if self._warm is not None else new_coordinator(options, self.id)

        within = self._warm.name if self._warm is not None else ""
        try:
            if self._kept is None:
                actor, self._entry = names.claim(self.name, start, is_ending, self._tokens, within=within)
            else:  # the keeper has the name: who else is there belongs to a process of it that died, or is about to see that it is taken
                patience_s = self._config.start_timeout_s
                actor, self._entry = names.claim(self.name, start, lambda _: True, self._tokens, patience_s=patience_s)
        except BaseException:
            if self._warm is not None:
                self._warm.end()
            raise
        self._tokens.append(self._entry.token)
        return actor

    def _ask_outcome(self, actor: Any, begin: Callable[[], Any], runs: tuple[str, ...]) -> Any:
        """Another reference to the outcome of a coordinator, for all who look for the job. What it was told without an answer may have been
        lost with the connection, too: it is told again, and heeds that only once."""
        begin()
        outcome = ray_calls.call(actor.await_outcome)
        ray_calls.call(actor.introduce, [outcome], runs)
        self._tell_again(actor)
        return outcome

    @property
    def _coordinator(self) -> Any:
        return self._line.actor

    # -- the end -----------------------------------------------------------------------
    def unwaited(self) -> str:
        """See :mod:`rayad.actors.process.unwaited`."""
        if self._outcome is not None or not self._line.is_connected() or self._line.has_ended():
            return ""
        again = f"; submit it again with resume='latest'{self._where_stored()} to resume from its last snapshot"
        return (
            "ends with this process before it is complete: call wait() on what submit() gives, or submit(detached=True) for a job that "
            f"goes on without it{again if self._config.keeps_snapshots else ''}"
        )

    def _on_outcome(self, line: CoordinatorLine, outcome: JobOutcome) -> JobOutcome:
        if outcome.state is JobState.CANCELLED and self._failed_by is not None:
            outcome = self._failed(outcome.statistics)
        if self._autoscaler is not None and line.is_connected():
            told = dataclasses.replace(outcome.statistics, scaling=self._autoscaler.finish())
            outcome = dataclasses.replace(outcome, statistics=told)
        self.sources.ended()
        if not self._is_terminated:
            OF_THIS_PROCESS.release(self)
        return outcome

    def _on_over(self) -> None:
        self._feed.close()
        self._let_go()
        self._threads.stop()  # wait() and cancel() wait for them: others that ask may hold what these threads want

    def _let_go(self) -> None:
        """The coordinator has no more to do for this job: it ends, unless it is to wait for the next one."""
        with self._restarting:
            warm, self._warm = self._warm, None
            if self._is_let_go:
                return
            self._is_let_go = True
            keep_s, outcome = keep_s_of(self._config), self._outcome
            self._entry.withdraw()
            if warm is None or keep_s is None or outcome is None or not outcome.stays or not self._line.is_connected():
                self._kill_coordinator()
            else:
                if self._autoscaler is not None:
                    self._autoscaler.finish()
                warm.has_run = True
                WARM.give(warm, keep_s)

    def cancel(self) -> None:
        if self._outcome is not None:
            return
        self._cancelling = True
        try:
            self._line.call("cancel", timeout_s=CANCEL_S)
            self.settle(CANCEL_S)
            self._threads.close(JOIN_S)
        except (Gone, TimeoutError):
            self._let_go()  # not between two of them; its actors are owned by it, so Ray ends them with it
            ended = JobOutcome(JobState.CANCELLED, {}, JobStatistics()) if self._failed_by is None else self._failed(JobStatistics())
            self.sources.ended()
            self._outcome = self._outcome or ended
            self._feed.close()
            self._threads.close(JOIN_S)

    def fail(self, error: RayadError) -> None:
        if self._outcome is None:
            self._failed_by = self._failed_by or error
            self.cancel()

    def _failed(self, statistics: JobStatistics) -> JobOutcome:
        """The outcome of a job that was ended because its feeder failed."""
        assert self._failed_by is not None
        return JobOutcome(JobState.FAILED, {}, statistics, failure_of("what feeds the job", self._failed_by))

    def _survives(self) -> bool:
        return self._config.failures_survived > 0

    def _watch(self) -> None:
        """In a thread: notice a coordinator that dies or is silent, and replace it if the job may survive that, even if no call waits."""
        while self._outcome is None:
            try:
                line = self._line
                if line.has_ended(WATCH_EVERY_S):
                    self.settle(END_S)
                else:
                    line.listen()
                    self._heed(line.beat)
                    self._note_running(line)
            except Exception:
                if self._outcome is not None or not ray.is_initialized():
                    return  # calls that wait report it
                _log.debug("job %r: a look at the coordinator failed", self.name, exc_info=True)
                clock.sleep(WATCH_EVERY_S)

    def _has_successor(self, line: CoordinatorLine, gone: Gone) -> bool:
        """A coordinator died, or is given up: start another one, which ends what is left of it and resumes from the last snapshot, as often
        and after such delays as the configuration says. False when none may start."""
        with self._restarting:
            if self._line is not line:
                return True  # another thread has done so
            self._heed(line.beat)
            if self._cancelling or not self._survives() or not line.is_connected():
                return False
            if not line.given_up and line.has_ended():
                try:
                    line.take_outcome()
                    return False  # it did not die: the job has ended
                except Gone:
                    pass
            decision = self._succession.on_death(clock.monotonic())
            if isinstance(decision, End):
                return False
            self._coordinators_lost += 1
            self._failures = decision.number
            told = "job %r: the coordinator died; after %.1f s another one resumes from the last snapshot: %s"
            _log.warning(told, self.name, decision.delay_s, gone)
            line.kill()  # Ray may only believe that it is dead
            try:
                self._start_coordinator(clock.time(), decision.delay_s)
            except names.NameTaken as error:
                _log.warning("job %r: nobody takes the place of its coordinator: %s", self.name, error)
                return False
            return True

    def _lost(self, gone: Gone) -> JobOutcome:
        outcome, end = super()._lost(gone), self._succession.end
        if end is None or outcome.failure is None:
            return outcome
        return dataclasses.replace(outcome, failure=dataclasses.replace(outcome.failure, message=f"{outcome.failure.message}; {end.why}"))

    def _heed(self, beat: Beat | None) -> None:
        """What other handles asked of the coordinator that died: a cancel ends the job, the rest is passed on to the next one."""
        if beat is not None and beat is not self._heeded:
            self._heeded = beat  # once: what this handle has asked since then is newer
            self._cancelling = self._cancelling or beat.is_cancelled
            self._stopping = self._stopping or beat.is_stopping
            self._config = configured(self._config, beat.changes) if beat.changes else self._config

    def _note_running(self, line: CoordinatorLine) -> None:
        """Failures grow old while the job runs, which a heartbeat tells."""
        if line.beat is None or line.beat.state is not JobState.RUNNING:
            return
        with self._restarting:
            if self._line is line:
                self._succession.on_running(clock.monotonic())
                self._has_begun = True
        if self._kept is not None:
            self._kept.on_running()

    def _kill_coordinator(self) -> None:
        if not self._line.is_connected():
            return
        if self._autoscaler is not None:
            self._autoscaler.finish()
        self._line.kill()

    def wait(self, timeout_s: float | None = None, *, progress: bool | None = False) -> Result:
        try:
            return self._await_result(timeout_s, progress=progress)
        finally:
            if self._outcome is not None:
                self._threads.close(JOIN_S)

    def _await_result(self, timeout_s: float | None, *, progress: bool | None = False) -> Result:
        """As :meth:`wait`, which also waits for this process's threads of the job."""
        try:
            return super().wait(timeout_s, progress=progress)
        except RayadError:
            if self._failed_by is not None and self._outcome is not None and self._outcome.state is JobState.FAILED:
                raise self._failed_by from None
            if self._is_terminated and self._outcome is not None and self._outcome.state is JobState.CANCELLED:
                OF_THIS_PROCESS.await_end()
            raise

    def save_and_end(self, timeout_s: float) -> str:
        """SIGTERM: see :mod:`rayad.actors.driver.termination`."""
        if self._outcome is not None:
            return f"is {self._outcome.state.value}"
        told = "keeps no snapshots (RunConfig(storage_path=...)): what it did is lost"
        if self._config.keeps_snapshots:
            again = f"submit it again with resume='latest'{self._where_stored()} to go on"
            try:
                told = f"is saved in {self._take_savepoint(0.8 * timeout_s)}; {again}"
            except Exception as error:  # the last snapshot remains
                told = f"could not be saved: {say(error)}; {again} from its last snapshot"
        self._is_terminated = True
        try:
            self.cancel()
        except Exception as error:
            told += f" (it did not end in order: {type(error).__name__}: {say(error)})"
        return told

    def _where_stored(self) -> str:
        path = self._config.storage_path
        return mask(f", name={self.name!r} and storage_path={path!r}") if path is not None else ""

    # -- what only the owner has ----------------------------------------------------------
    def has_token(self, token: str) -> bool:
        """Whether this token is of a name that is or was this job's."""
        return token in self._tokens

    def look_at_scaling(self) -> ScalingProgress | None:
        return self._autoscaler.look() if self._autoscaler is not None else None

    def _configure_scaling(self, changes: Mapping[str, Any]) -> Mapping[str, Any]:
        scaling = {name: value for name, value in changes.items() if name == REPORT_INTERVAL}
        if self._autoscaler is None or not scaling:
            return changes
        own = {name: value for name, value in changes.items() if name not in scaling}
        if own:
            configured(self._config, own)  # nothing is changed when one of them cannot be
        self._autoscaler.configure(**scaling)
        return own

    def _open_input(self, name: str, stage: int) -> JobInput:
        return RayInput(name, self._feed, replica_name(stage, 0))
