"""The Ray runtime as the driver sees it: start or join a cluster, start a coordinator, keep the job's handle.

It is long because it is one handle: every call on it meets the same coordinators, of which one may die and the next take its place.
"""

from __future__ import annotations

import dataclasses
import logging
import math
import random
import secrets
import threading
import time as clock
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import ray

from rayad.actors.autoscaler_actor import AutoscalerHandle
from rayad.actors.cluster.actor_class import PULSE, WAITING, remote_class
from rayad.actors.cluster.joining import ensure_ray
from rayad.actors.coordinator.outcome import JobOutcome, Look, rebuild_error
from rayad.actors.coordinator_actor import Coordinator
from rayad.actors.driver.coordinator_line import ANSWER_S, END_S, GLANCE_S, LOOK_AGAIN_S, CoordinatorLine, Gone, NoAnswer
from rayad.actors.driver.inputs import FedJob, InputPlane, RayInput
from rayad.actors.driver.probes import Holding, ProbedJob, RayProbe
from rayad.actors.driver.termination import OF_THIS_PROCESS
from rayad.actors.driver.worker_modules import check_can_travel
from rayad.actors.job import (
    THE_COORDINATOR,
    Job,
    JobInput,
    JobProgress,
    JobState,
    JobStatistics,
    Probe,
    Result,
    SourcesOfJob,
    StageProgress,
    describe_blockers,
    not_yet,
)
from rayad.actors.lead.failure import Failure, failure_of
from rayad.actors.lead.layouts import RescaleReport, replicas_wanted
from rayad.actors.plane.protocol import replica_name
from rayad.actors.replica.user_errors import restarts_of
from rayad.dataflow.config import REPORT_INTERVAL, RunConfig, ScalingConfig, check_timeout, configured
from rayad.dataflow.plan import Plan
from rayad.dataflow.streams.flow import Dataflow
from rayad.progress import ConfigError, DataflowError, RayadError, RescaleRefused, SnapshotError, arguments, say
from rayad.snapshots.restarts import End, Succession

_log = logging.getLogger(__name__)
_GROUPS = {
    PULSE: ("ping", "cancel"),
    "looks": ("saved_inputs", "saved_epochs", "replicas", "look", "look_at_snapshots", "hasten_snapshot", "not_stopped"),
    "waits": ("where", "frontier", "wait_epoch", "wait_saved"),
    "changes": ("stop", "savepoint", "rescale", "configure"),
}
_THREADS = {PULSE: 2, "looks": 4, "waits": WAITING, "changes": 8}
WATCH_EVERY_S = 0.5
"""How often the coordinator's end, and its silence, are looked for."""
CANCEL_S = 10.0
STOP_S = 40.0
"""How long a running job may take to hear that it is to drain."""
PIDS_S = 5.0
MOVE_S = 600.0
"""How long a change that has begun is waited for, beyond its timeout: it is not given up half-way."""


def submit_to_ray(flow: Dataflow, config: RunConfig, scaling: ScalingConfig, **options: Any) -> RayJob:
    """Plan, check, and start a job on Ray."""
    if options:
        raise ConfigError(f"unknown options {sorted(options)} for runtime='ray'")
    plan = flow.plan(scaling=scaling, key_groups=config.key_groups, fingerprints=config.keeps_snapshots)
    plan = plan.needing(config.resources)
    ensure_ray(plan.needs(config.cpus_per_replica), f"{flow.name!r} with {plan.replicas} replicas", config.autoscaling_cluster)
    asked_s = check_can_travel(plan)  # then a worker was started for that, else the coordinator is the first
    job = RayJob(config.name or flow.name, plan, config, scaling, asked_s or clock.time())
    try:
        job.sources.started(job, config)
    except BaseException:
        job.cancel()
        raise
    return job


class RayJob(Job):
    """A job on Ray."""

    def __init__(self, name: str, plan: Plan, config: RunConfig, scaling: ScalingConfig, asked_s: float) -> None:
        super().__init__(name)
        self._plan = plan
        self._config = config
        self._autoscaler = AutoscalerHandle(name, plan, scaling, config.storage_path) if scaling.is_adaptive else None
        self.sources = SourcesOfJob(plan)
        self._failed_by: RayadError | None = None
        self._stopping = False
        self._coordinators_lost = 0
        self._failures_max = config.failures.max_failures
        self._succession = Succession(restarts_of(config.failures, random.Random()), good_s=config.failures.delay_max_s)
        self._runs: list[str] = []
        self._outcome: JobOutcome | None = None
        self._result: Result | None = None
        self._restarting = threading.Lock()
        self._cancelling = False
        self._state = JobState.STARTING
        self._seen = JobProgress(JobState.STARTING, (), 0, scaling=self._autoscaler.told if self._autoscaler is not None else None)
        self._inputs: dict[str, RayInput] = {}
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
                raise_outcome=lambda: self.wait(timeout_s=30),
            )
        )
        self._probed = ProbedJob(
            self.name,
            patience_s=lambda: self._config.start_timeout_s + ANSWER_S,
            ask_again=self._ask_again,
            is_over=self._is_over,
            raise_outcome=lambda: self.wait(END_S),
            holding=Holding(),
        )
        self._is_terminated = False
        OF_THIS_PROCESS.watch(self, config.termination_s)
        threading.Thread(target=self._watch, name="rayad-coordinator", daemon=True).start()

    @property
    def plan(self) -> Plan:
        """The dataflow, in the layout that it was asked for."""
        return self._plan

    def _start_coordinator(self, asked_s: float) -> None:
        self.id = f"{self.name}-{secrets.token_hex(4)}"
        self._secret = secrets.token_bytes(32)
        coordinator = remote_class(Coordinator, _THREADS, _GROUPS, num_cpus=0)
        actor = coordinator.remote(ray.put(self.plan), self._config, self.id, self._secret, self.name)
        run, earlier = secrets.token_hex(8), tuple(self._runs)
        self._runs.append(run)
        outcome = actor.run.remote(run, earlier, asked_s=asked_s)
        patience_s, start_s = self._config.failures.heartbeat_timeout_s, self._config.start_timeout_s
        self._line = CoordinatorLine(actor, outcome, self.name, patience_s, start_s)
        self._succession.on_start(clock.monotonic())
        if self._autoscaler is not None:
            self._autoscaler.start(actor, goes_on=bool(earlier) or self._config.resume not in (None, "never"))
        if self._stopping:
            actor.stop.remote()

    @property
    def _coordinator(self) -> Any:
        return self._line.actor

    # -- the end -----------------------------------------------------------------------
    @property
    def state(self) -> JobState:
        if self._outcome is not None:
            return self._outcome.state
        line = self._line
        try:
            self._state = line.call("ping", timeout_s=GLANCE_S)
        except NoAnswer:
            pass  # as it was last known: explain_stuck() tells who does not answer
        except Gone as gone:
            if not self._start_again(line, gone):
                return self._settle(END_S).state
            self._state = JobState.STARTING
        if self._state not in (JobState.STARTING, JobState.RUNNING):
            try:
                return self._settle(END_S).state  # it is about to say how
            except TimeoutError:
                pass
        return self._state

    def _settle(self, timeout_s: float | None) -> JobOutcome:
        """How the job ended. Waits for that; raises TimeoutError. Without a timeout it ends with the job: see :meth:`_watch`."""
        deadline_s = float("inf") if timeout_s is None else clock.monotonic() + timeout_s
        while self._outcome is None:
            line = self._line
            if not line.has_ended(max(0.0, min(deadline_s - clock.monotonic(), 1.0))):
                if clock.monotonic() > deadline_s:
                    raise not_yet(self.name, timeout_s)
                continue
            try:
                outcome: JobOutcome = line.take_outcome()
            except Gone as gone:
                if self._start_again(line, gone):
                    if not self._await_successor(line, deadline_s):
                        raise not_yet(self.name, timeout_s) from None
                    continue
                outcome = JobOutcome(JobState.CANCELLED, {}, JobStatistics()) if self._cancelling else self._lost(gone)
            if outcome.state is JobState.CANCELLED and self._failed_by is not None:
                outcome = self._failed(outcome.statistics)
            if self._autoscaler is not None and line.is_connected():
                told = dataclasses.replace(outcome.statistics, scaling=self._autoscaler.finish())
                outcome = dataclasses.replace(outcome, statistics=told)
            self.sources.ended()
            self._outcome = self._outcome or outcome
            if not self._is_terminated:
                OF_THIS_PROCESS.release(self)
        self._feed.close()
        self._kill_coordinator()
        return self._outcome

    def _survives(self) -> bool:
        return self._config.keeps_snapshots and self._config.failures.max_failures > 0

    def _watch(self) -> None:
        """A thread: a coordinator that dies or is silent is noticed, and replaced where the job may survive it, also while nobody waits."""
        while self._outcome is None:
            try:
                line = self._line
                if line.has_ended(WATCH_EVERY_S):
                    self._settle(END_S)
                else:
                    line.listen()
            except Exception:
                if self._outcome is not None or not ray.is_initialized():
                    return  # whoever waits is told
                _log.debug("job %r: a look at the coordinator failed", self.name, exc_info=True)
                clock.sleep(WATCH_EVERY_S)

    def _lost(self, gone: Gone) -> JobOutcome:
        told = f"the coordinator actor died: {str(gone).splitlines()[0]}"
        return JobOutcome(JobState.FAILED, {}, JobStatistics(), Failure(THE_COORDINATOR, told, str(gone), None, False))

    def _start_again(self, line: CoordinatorLine, gone: Gone) -> bool:
        """The coordinator of a line died, and with it all actors: start another one, which resumes from the last snapshot, as often and
        after such delays as the configuration says; meanwhile the line stays. False when none may start."""
        with self._restarting:
            if self._line is not line:
                return True  # another thread has done so
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
            if not self._succession.is_due(clock.monotonic()):
                return True  # later: whoever looks again when the delay is over does it
            self._coordinators_lost += 1
            failures = dataclasses.replace(self._config.failures, max_failures=self._failures_max - decision.number)
            self._config = dataclasses.replace(self._config, failures=failures)
            told = "job %r: the coordinator died; after %.1f s another one resumes from the last snapshot: %s"
            _log.warning(told, self.name, decision.delay_s, gone)
            self._start_coordinator(clock.time())
            return True

    def _await_successor(self, line: CoordinatorLine, deadline_s: float) -> bool:
        """Look again a moment later, while the place of a coordinator that died is free; false when ``deadline_s`` is over."""
        if self._line is line:
            clock.sleep(max(0.0, min(LOOK_AGAIN_S, deadline_s - clock.monotonic())))
        return clock.monotonic() < deadline_s

    def _kill_coordinator(self) -> None:
        if not self._line.is_connected():
            return
        if self._autoscaler is not None:
            self._autoscaler.finish()
        self._line.kill()

    def wait(self, timeout_s: float | None = None) -> Result:
        check_timeout(timeout_s, "wait(timeout_s)")
        if self._result is not None:
            return self._result
        outcome = self._settle(timeout_s)
        if outcome.state is JobState.CANCELLED and self._is_terminated:
            OF_THIS_PROCESS.await_end()
        if outcome.state is JobState.CANCELLED:
            raise DataflowError(f"job {self.name!r} was cancelled: it has no results")
        if outcome.failure is not None and self._failed_by is not None and outcome.state is JobState.FAILED:
            raise self._failed_by
        if outcome.failure is not None:
            raise rebuild_error(self.name, outcome.failure)
        values = {sink.key: sink.sink.result(outcome.receipts[sink.id]) for sink in self.plan.sinks}
        self._result = Result(values, outcome.statistics)
        return self._result

    def cancel(self) -> None:
        if self._outcome is not None:
            return
        self._cancelling = True
        try:
            self._line.call("cancel", timeout_s=CANCEL_S)
            self._settle(CANCEL_S)
        except (Gone, TimeoutError):
            with self._restarting:  # not between two of them
                self._kill_coordinator()  # its actors are owned by it, so Ray ends them with it
            ended = JobOutcome(JobState.CANCELLED, {}, JobStatistics()) if self._failed_by is None else self._failed(JobStatistics())
            self.sources.ended()
            self._outcome = self._outcome or ended
            self._feed.close()

    def fail(self, error: RayadError) -> None:
        if self._outcome is None:
            self._failed_by = self._failed_by or error
            self.cancel()

    def _failed(self, statistics: JobStatistics) -> JobOutcome:
        """It was ended because what feeds it has failed."""
        assert self._failed_by is not None
        return JobOutcome(JobState.FAILED, {}, statistics, failure_of("what feeds the job", self._failed_by))

    def save_and_end(self, timeout_s: float) -> str:
        """SIGTERM: see :mod:`rayad.actors.driver.termination`."""
        if self._outcome is not None:
            return f"is {self._outcome.state.value}"
        told = "keeps no snapshots (RunConfig(storage_path=...)): what it did is lost"
        if self._config.keeps_snapshots:
            again = f"submit it again with resume='latest'{self._where_stored()} to go on"
            try:
                told = f"is saved in {self._take_savepoint(0.8 * timeout_s)}; {again}"
            except Exception as error:  # the last snapshot is there all the same
                told = f"could not be saved: {error}; {again} from its last snapshot"
        self._is_terminated = True
        try:
            self.cancel()
        except Exception as error:
            told += f" (it did not end in order: {type(error).__name__}: {say(error)})"
        return told

    def _where_stored(self) -> str:
        return f", name={self.name!r} and storage_path={self._config.storage_path!r}" if self._config.storage_path is not None else ""

    def stop(self, *, drain: bool = True, timeout_s: float | None = None) -> Result:
        check_timeout(timeout_s, "stop(timeout_s)")
        if not arguments.flag(drain, "stop(drain)"):
            self.cancel()
            return Result({}, JobStatistics())
        if self._outcome is None:
            self._stopping = True  # one that takes the coordinator's place is told, too
            try:
                self._ask("stop", timeout_s=self._config.start_timeout_s + STOP_S)
            except NoAnswer:
                _log.warning("job %r: the coordinator does not answer: the job drains when it does, or in the one after it", self.name)
            for handle in self._inputs.values():
                handle.closed = True
        try:
            return self.wait(timeout_s)
        except TimeoutError as error:
            try:
                late = self._ask("not_stopped", timeout_s=ANSWER_S) or []
            except NoAnswer:
                late = []
            if not late:
                raise
            raise TimeoutError(
                f"job {self.name!r} is not complete after {timeout_s} s: {', '.join(late)} has not come back from reading its input "
                "(next_batch) and stops when it does; it goes on, wait() again or cancel()"
            ) from error

    # -- looking ---------------------------------------------------------------------------
    def _ask(self, method: str, *args: Any, timeout_s: float, default: Any = None) -> Any:
        """What the coordinator answers; ``default`` when the job is over, or begins anew. Raises NoAnswer."""
        if self._outcome is not None:
            return default
        line = self._line
        try:
            return line.call(method, *args, timeout_s=timeout_s)
        except Gone as gone:
            self._start_again(line, gone)
            return default

    def _ask_again(self, method: str, *args: Any, timeout_s: float, successor_s: float = math.inf) -> Any:
        """As :meth:`_ask`; when the coordinator dies meanwhile, the one after it is asked, which is waited for at most ``successor_s``
        (it comes after the delay of restarts). None when there is none any more."""
        deadline_s = clock.monotonic() + successor_s
        while self._outcome is None:
            line = self._line
            try:
                return line.call(method, *args, timeout_s=timeout_s)
            except Gone as gone:
                if not self._start_again(line, gone):
                    return None
                if not self._await_successor(line, deadline_s):
                    raise NoAnswer(f"job {self.name!r}: {THE_COORDINATOR} died, and another one has not begun yet") from None
        return None

    def _why_over(self, gone: Gone) -> str:
        """Why there is no answer, and will be none: the job has ended in its own way, or its coordinator died."""
        with suppress(TimeoutError):
            outcome = self._settle(END_S)
            if outcome.failure is None or outcome.failure.who != THE_COORDINATOR:
                return f"job {self.name!r} is {outcome.state.value}"
        return f"the coordinator died: {gone}"

    def _is_over(self) -> bool:
        """Whether the coordinator has ended, and no other one goes on."""
        if self._outcome is None and not self._line.has_ended():
            return False
        try:
            self._settle(END_S)
        except TimeoutError:
            return False
        return True

    def progress(self) -> JobProgress:
        if self._outcome is not None:
            return JobProgress(self._outcome.state, (), 0, scaling=self._outcome.statistics.scaling)
        line = self._line
        try:
            look = self._ask("look", timeout_s=GLANCE_S, default=Look(JobState.STARTING))
            taken, interval_s, failures = self._ask("look_at_snapshots", timeout_s=GLANCE_S, default=(None, None, 0))
        except NoAnswer:
            return dataclasses.replace(self._seen, silent=(line.silence(GLANCE_S), *self._seen.silent))
        stages = []
        for stage in self.plan.stages:
            view = look.views.get(stage.id, ((), ()))
            mine = [r for r in look.reports if r.name == stage.name]
            stages.append(StageProgress(stage.name, view[0], view[1], sum(r.batches_in for r in mine), sum(r.records_in for r in mine)))
        scaling = self._autoscaler.look() if self._autoscaler is not None else None
        told = JobProgress(look.state, tuple(stages), look.active, taken, interval_s, failures, scaling=scaling, silent=look.silent)
        self._seen = dataclasses.replace(told, silent=())
        return told

    def pids(self) -> dict[str, list[int]]:
        """The process of each replica, by vertex, for other tools to look at; empty while the job starts and when it has ended."""
        look: Look = self._ask("look", False, PIDS_S, timeout_s=PIDS_S + ANSWER_S, default=Look(JobState.STARTING))
        out: dict[str, list[int]] = {}
        for report in sorted(look.reports, key=lambda report: report.replica):
            out.setdefault(report.name, []).append(report.pid)
        return out

    def explain_stuck(self) -> str:
        line = self._line
        try:
            look: Look | None = self._ask("look", True, timeout_s=GLANCE_S)
        except NoAnswer:
            patience_s = self._config.failures.heartbeat_timeout_s
            return f"{line.silence(GLANCE_S)}; after {patience_s:g} s it counts as dead"
        if look is None:
            return f"job {self.name!r} is {self.state.value}"
        parts = [str(look.starting)] if look.starting is not None else []
        parts.extend(str(one) for one in look.silent)
        parts.extend(describe_blockers(name, time, found) for name, time, found in look.blockers)
        answering = [report for report in look.reports if report.activity is None]
        parts.extend(f"{report.name}[{report.replica}]: {what}" for report in answering for what in report.waiting)
        return "\n".join(parts) or ("its actors are being started" if look.state is JobState.STARTING else "nothing is waiting")

    def savepoint(self) -> str:
        if self._outcome is not None:
            raise SnapshotError(f"job {self.name!r} is {self._outcome.state.value}: no savepoint can be taken")
        return self._take_savepoint(self._config.snapshots.timeout_s)

    def _take_savepoint(self, timeout_s: float) -> str:
        try:
            return str(self._line.call("savepoint", timeout_s, timeout_s=timeout_s + ANSWER_S))
        except NoAnswer:
            raise SnapshotError(f"the savepoint was not taken within {timeout_s} s") from None
        except Gone as gone:
            raise SnapshotError(f"the savepoint was not taken: {self._why_over(gone)}") from None

    def rescale(self, vertex: str | Mapping[str, int], replicas: int | None = None, *, timeout_s: float = 120.0) -> RescaleReport:
        wanted = replicas_wanted(vertex, replicas)
        timeout_s = arguments.number(timeout_s, "rescale(timeout_s)", zero=True, error=ConfigError)
        if self._outcome is not None:
            raise RescaleRefused(f"rescale({wanted}): job {self.name!r} is {self._outcome.state.value}")
        told, most_s = f"rescale({wanted})", timeout_s + MOVE_S
        return self._change("rescale", wanted, timeout_s, refused=RescaleRefused, what=told, most_s=most_s)  # type: ignore[no-any-return]

    def configure(self, **changes: Any) -> None:
        scaling = {name: changes.pop(name) for name in (REPORT_INTERVAL,) if name in changes and self._autoscaler is not None}
        config = configured(self._config, changes) if changes or not scaling else self._config
        if self._outcome is not None:
            raise ConfigError(f"configure({changes or scaling}): job {self.name!r} is {self._outcome.state.value}")
        if scaling and self._autoscaler is not None:
            self._autoscaler.configure(**scaling)
        if changes:
            most_s = self._config.start_timeout_s + MOVE_S
            self._change("configure", changes, refused=ConfigError, what=f"configure({changes})", most_s=most_s)
        self._config = config

    def _change(self, method: str, *args: Any, refused: type[RayadError], what: str, most_s: float) -> Any:
        """Ask the coordinator for a change, and if it dies meanwhile the one that goes on."""
        deadline_s = clock.monotonic() + most_s
        while True:
            line = self._line
            try:
                return line.call(method, *args, timeout_s=max(0.0, deadline_s - clock.monotonic()))
            except NoAnswer:
                told = f"{what}: it is not done after {most_s:g} s, and goes on; explain_stuck() tells who takes long"
                raise TimeoutError(told) from None
            except Gone as gone:
                if self._cancelling:
                    raise refused(f"{what}: job {self.name!r} was cancelled") from None
                if not self._start_again(line, gone):
                    raise refused(f"{what}: {self._why_over(gone)}") from None
                self._await_successor(line, deadline_s)
                if clock.monotonic() > deadline_s:
                    raise TimeoutError(
                        f"{what}: not within {most_s:g} s: {THE_COORDINATOR} died, and another one has not begun yet"
                    ) from None

    def input(self, name: str) -> JobInput:
        stage = self._known(name, "live input", self.plan.inputs)
        if name not in self._inputs:
            self._inputs[name] = RayInput(name, self._feed, replica_name(stage, 0))
        return self._inputs[name]

    def probe(self, name: str) -> Probe:
        return RayProbe(name, self._probed, self._known(name, "probe", self.plan.probes))
