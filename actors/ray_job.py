"""The Ray runtime as the driver sees it: start or join a cluster, start a coordinator, hold the job."""

from __future__ import annotations

import dataclasses
import logging
import secrets
import threading
import time as clock
from collections.abc import Callable, Mapping
from typing import Any

import ray
from ray.exceptions import GetTimeoutError, RayActorError, RayTaskError

from rayad.actors import ray_calls
from rayad.actors.autoscaler_actor import AutoscalerHandle
from rayad.actors.coordinator import Coordinator
from rayad.actors.job import Job, JobInput, JobProgress, JobState, JobStatistics, Probe, Result, StageProgress, describe_blockers, not_yet
from rayad.actors.layouts import Rescale
from rayad.actors.outcome import Outcome, rebuild_error
from rayad.actors.protocol import replica_name
from rayad.actors.ray_actors import Failure, with_control
from rayad.actors.ray_cluster import ensure_ray
from rayad.actors.ray_inputs import InputPlane, RayInput
from rayad.actors.replica_report import ReplicaReport
from rayad.actors.termination import OF_THIS_PROCESS
from rayad.actors.worker_modules import check_can_travel
from rayad.dataflow.config import REPORT_INTERVAL, RunConfig, ScalingConfig, check_timeout, configured
from rayad.dataflow.flow import Dataflow
from rayad.dataflow.plan import Plan
from rayad.progress import ConfigError, DataflowError, RayadError, RescaleRefused, SnapshotError, Timestamp, say

_log = logging.getLogger(__name__)
_CONTROL_METHODS = (
    "cancel", "where", "saved_inputs", "replicas", "look", "look_at_snapshots", "blockers", "frontier", "wait_epoch", "stop", "not_stopped",
    "savepoint", "rescale", "configure",
)  # fmt: skip


def submit_to_ray(flow: Dataflow, config: RunConfig, scaling: ScalingConfig, **options: Any) -> RayJob:
    """Plan, check, and start a job on Ray."""
    if options:
        raise ConfigError(f"unknown options {sorted(options)} for runtime='ray'")
    plan = flow.plan(scaling=scaling, key_groups=config.key_groups, fingerprints=config.keeps_snapshots)
    plan = plan.needing(config.resources)
    ensure_ray(plan.needs(config.cpus_per_replica), f"{flow.name!r} with {plan.replicas} replicas", config.autoscaling_cluster)
    check_can_travel(plan)
    return RayJob(config.name or flow.name, plan, config, scaling)


class RayJob(Job):
    """A job on Ray."""

    def __init__(self, name: str, plan: Plan, config: RunConfig, scaling: ScalingConfig) -> None:
        super().__init__(name, plan)
        self._config = config
        self._autoscaler = AutoscalerHandle(name, plan, scaling, config.storage_path) if scaling.is_adaptive else None
        self._stopping = False
        self._coordinators_lost = 0
        self._runs: list[str] = []
        self._start_coordinator()
        self._outcome: Outcome | None = None
        self._result: Result | None = None
        self._restarting = threading.Lock()
        self._cancelling = False
        self._inputs: dict[str, RayInput] = {}
        self._feed = InputPlane(self)
        self._is_terminated = False
        OF_THIS_PROCESS.watch(self, config.termination_s)
        if self._survives():
            threading.Thread(target=self._watch, name="rayad-coordinator", daemon=True).start()

    def _start_coordinator(self) -> None:
        self.id = f"{self.name}-{secrets.token_hex(4)}"
        self._secret = secrets.token_bytes(32)
        asked_s = clock.time()
        options = {"concurrency_groups": {"control": 16}, "max_restarts": 0, "max_task_retries": 0, "num_cpus": 0}
        coordinator = ray.remote(**options)(with_control(Coordinator, *_CONTROL_METHODS))
        self._coordinator = coordinator.remote(ray.put(self.plan), self._config, self.id, self._secret, self.name)
        run, earlier = secrets.token_hex(8), tuple(self._runs)
        self._runs.append(run)
        self._outcome_ref = self._coordinator.run.remote(run, earlier, asked_s=asked_s)
        if self._autoscaler is not None:
            self._autoscaler.start(self._coordinator, goes_on=bool(earlier) or self._config.resume not in (None, "never"))
        if self._stopping:
            self._coordinator.stop.remote()

    # -- the end -----------------------------------------------------------------------
    @property
    def state(self) -> JobState:
        if self._outcome is not None:
            return self._outcome.state
        ready, _ = ray_calls.wait([self._outcome_ref], timeout=0)
        if ready:
            return self._settle(None).state
        return self._ask("look", default=(JobState.STARTING, [], {}, 0))[0]  # type: ignore[no-any-return]

    def _settle(self, timeout_s: float | None) -> Outcome:
        if self._outcome is not None:
            return self._outcome
        deadline_s = None if timeout_s is None else clock.monotonic() + timeout_s
        while self._outcome is None:
            try:
                left_s = None if deadline_s is None else max(0.0, deadline_s - clock.monotonic())
                outcome: Outcome = ray_calls.get(self._outcome_ref, timeout=left_s)
            except GetTimeoutError:
                raise TimeoutError(not_yet(self.name, timeout_s)) from None
            except RayActorError as error:
                if self._start_again(error):
                    continue
                outcome = Outcome(JobState.CANCELLED, {}, JobStatistics()) if self._cancelling else self._lost(error)
            if self._autoscaler is not None:
                told = dataclasses.replace(outcome.statistics, scaling=self._autoscaler.finish())
                outcome = dataclasses.replace(outcome, statistics=told)
            self._outcome = self._outcome or outcome
            if not self._is_terminated:
                OF_THIS_PROCESS.release(self)
        self._feed.close()
        self._kill_coordinator()
        return self._outcome

    def _survives(self) -> bool:
        return self._config.keeps_snapshots and self._config.failures.max_failures > 0

    def _watch(self) -> None:
        """The job goes on when its coordinator dies, also while the driver does not wait for it."""
        cluster = ray.get_runtime_context().gcs_address
        while self._outcome is None:
            try:
                if not ray.is_initialized() or ray.get_runtime_context().gcs_address != cluster:
                    return  # and do not start another Ray, as a call would
                if ray_calls.wait([self._outcome_ref], timeout=0.5)[0]:
                    self._settle(None)
            except Exception:
                return  # Ray has been shut down, or the job has failed: whoever waits is told

    def _lost(self, error: RayActorError) -> Outcome:
        told = f"the coordinator actor died: {str(error).strip().splitlines()[0]}"
        return Outcome(JobState.FAILED, {}, JobStatistics(), Failure("the coordinator", told, str(error), None, False))

    def _start_again(self, error: RayActorError) -> bool:
        """The coordinator died, and with it all actors: another one goes on from the last snapshot, as often as the configuration says."""
        with self._restarting:
            if not ray_calls.wait([self._outcome_ref], timeout=0)[0]:
                return True  # another thread has done so
            if self._cancelling or not self._survives():
                return False
            self._coordinators_lost += 1
            failures = dataclasses.replace(self._config.failures, max_failures=self._config.failures.max_failures - 1)
            self._config = dataclasses.replace(self._config, failures=failures)
            _log.warning("job %r: the coordinator died; another one goes on from the last snapshot: %s", self.name, error)
            self._start_coordinator()
            return True

    def _kill_coordinator(self) -> None:
        if self._autoscaler is not None:
            self._autoscaler.finish()
        ray_calls.kill(self._coordinator)

    def wait(self, timeout_s: float | None = None) -> Result:
        check_timeout(timeout_s, "wait(timeout_s)")
        if self._result is not None:
            return self._result
        outcome = self._settle(timeout_s)
        if outcome.state is JobState.CANCELLED and self._is_terminated:
            OF_THIS_PROCESS.await_end()
        if outcome.state is JobState.CANCELLED:
            raise DataflowError(f"job {self.name!r} was cancelled: it has no results")
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
            ray_calls.get(self._coordinator.cancel.remote(), timeout=10)
            self._settle(10)
        except (GetTimeoutError, RayActorError, TimeoutError):
            with self._restarting:  # not between two of them
                self._kill_coordinator()  # its actors are owned by it, so Ray ends them with it
            self._outcome = Outcome(JobState.CANCELLED, {}, JobStatistics())
            self._feed.close()

    def save_and_end(self, timeout_s: float) -> str:
        """SIGTERM: see :mod:`rayad.actors.termination`."""
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
        if not drain:
            self.cancel()
            return Result({}, JobStatistics())
        if self._outcome is None:
            self._stopping = True
            self._ask("stop")
            for handle in self._inputs.values():
                handle.closed = True
        try:
            return self.wait(timeout_s)
        except TimeoutError as error:
            late = self._ask("not_stopped") or []
            if not late:
                raise
            raise TimeoutError(
                f"job {self.name!r} is not complete after {timeout_s} s: {', '.join(late)} has not come back from reading its input "
                "(next_batch) and stops when it does; it goes on, wait() again or cancel()"
            ) from error

    # -- looking ---------------------------------------------------------------------------
    def _ask(self, method: str, *args: Any, default: Any = None) -> Any:
        if self._outcome is not None:
            return default
        try:
            return ray_calls.get(getattr(self._coordinator, method).remote(*args))
        except RayActorError:
            return default

    def _ask_again(self, method: str, *args: Any) -> Any:
        """As :meth:`_ask`; when the coordinator dies meanwhile, the one after it is asked."""
        while self._outcome is None:
            try:
                return ray_calls.get(getattr(self._coordinator, method).remote(*args))
            except RayActorError as error:
                if not self._start_again(error):
                    return None
        return None

    def _is_over(self) -> bool:
        """Whether the coordinator has ended, and no other one goes on."""
        if not ray.is_initialized():
            return True
        if not ray_calls.wait([self._outcome_ref], timeout=0)[0]:
            return False
        try:
            self._settle(30)
        except TimeoutError:
            return False
        return True

    def progress(self) -> JobProgress:
        if self._outcome is not None:
            return JobProgress(self._outcome.state, (), 0, scaling=self._outcome.statistics.scaling)
        state, reports, views, active = self._ask("look", default=(JobState.STARTING, [], {}, 0))
        stages = []
        for stage in self.plan.stages:
            view = views.get(stage.id, ((), ()))
            mine = [r for r in reports if r.name == stage.name]
            stages.append(StageProgress(stage.name, view[0], view[1], sum(r.batches_in for r in mine), sum(r.records_in for r in mine)))
        scaling = self._autoscaler.look() if self._autoscaler is not None else None
        taken, interval_s, failures = self._ask("look_at_snapshots", default=(None, None, 0))
        return JobProgress(state, tuple(stages), active, taken, interval_s, failures, scaling=scaling)

    def pids(self) -> dict[str, list[int]]:
        """The process of each replica, by vertex, for other tools to look at; empty while the job starts and when it has ended."""
        reports: list[ReplicaReport] = self._ask("look", default=(None, [], {}, 0))[1]
        out: dict[str, list[int]] = {}
        for report in sorted(reports, key=lambda report: report.replica):
            out.setdefault(report.name, []).append(report.pid)
        return out

    def explain_stuck(self) -> str:
        if self._outcome is not None:
            return f"job {self.name!r} is {self._outcome.state.value}"
        parts = [describe_blockers(name, time, found) for name, time, found in self._ask("blockers", default=[])]
        reports: list[ReplicaReport] = self._ask("look", default=(None, [], {}, 0))[1]
        parts.extend(f"{report.name}[{report.replica}]: {line}" for report in reports for line in report.waiting)
        return "\n".join(parts) or "nothing is waiting"

    def savepoint(self) -> str:
        if self._outcome is not None:
            raise SnapshotError(f"job {self.name!r} is {self._outcome.state.value}: no savepoint can be taken")
        return self._take_savepoint(self._config.snapshots.timeout_s)

    def _take_savepoint(self, timeout_s: float) -> str:
        try:
            return str(ray_calls.get(self._coordinator.savepoint.remote(timeout_s), timeout=timeout_s + 5.0))
        except GetTimeoutError:
            raise SnapshotError(f"the savepoint was not taken within {timeout_s} s") from None
        except RayTaskError as error:
            raise error.cause if isinstance(error.cause, RayadError) else error from None
        except RayActorError as error:
            raise SnapshotError(f"the savepoint was not taken: the coordinator died: {error}") from None

    def rescale(self, vertex: str | Mapping[str, int], replicas: int | None = None, *, timeout_s: float = 120.0) -> Rescale:
        wanted = vertex if isinstance(vertex, Mapping) else {vertex: replicas}
        if self._outcome is not None:
            raise RescaleRefused(f"rescale({wanted}): job {self.name!r} is {self._outcome.state.value}")
        told = f"rescale({wanted})"
        return self._change(lambda: self._coordinator.rescale.remote(dict(wanted), timeout_s), RescaleRefused, told)  # type: ignore[no-any-return]

    def configure(self, **changes: Any) -> None:
        scaling = {name: changes.pop(name) for name in (REPORT_INTERVAL,) if name in changes and self._autoscaler is not None}
        config = configured(self._config, changes) if changes or not scaling else self._config
        if self._outcome is not None:
            raise ConfigError(f"configure({changes or scaling}): job {self.name!r} is {self._outcome.state.value}")
        if scaling and self._autoscaler is not None:
            self._autoscaler.configure(**scaling)
        if changes:
            self._change(lambda: self._coordinator.configure.remote(changes), ConfigError, f"configure({changes})")
        self._config = config

    def _change(self, ask: Callable[[], Any], refused: type[RayadError], what: str) -> Any:
        """Ask the coordinator for a change, and if it dies meanwhile the one that goes on."""
        while True:
            try:
                return ray_calls.get(ask())
            except RayTaskError as error:
                raise error.cause if isinstance(error.cause, RayadError) else error from None
            except RayActorError as error:
                if self._cancelling:
                    raise refused(f"{what}: job {self.name!r} was cancelled") from None
                if not self._start_again(error):
                    raise refused(f"{what}: the coordinator died: {error}") from None

    def input(self, name: str) -> JobInput:
        stage = self._known(name, "live input", self.plan.inputs)
        if name not in self._inputs:
            self._inputs[name] = RayInput(name, self, replica_name(stage, 0))
        return self._inputs[name]

    def probe(self, name: str) -> Probe:
        return RayProbe(name, self, self._known(name, "probe", self.plan.probes))


class RayProbe(Probe):
    """Asks the progress actor."""

    def __init__(self, name: str, job: RayJob, node: int) -> None:
        super().__init__(name)
        self._job = job
        self._node = node

    def frontier(self) -> tuple[Timestamp, ...]:
        return self._job._ask("frontier", self._node, default=())  # type: ignore[no-any-return]

    def wait(self, epoch: int, timeout_s: float | None = None) -> bool:
        done = self._job._ask_again("wait_epoch", self._node, epoch, timeout_s)
        if done:
            return True
        outcome = self._job._outcome
        if outcome is None and ray_calls.wait([self._job._outcome_ref], timeout=0)[0]:
            outcome = self._job._settle(None)
        if outcome is not None and outcome.state is not JobState.COMPLETE:
            self._job.wait()  # raises what ended the job
        return outcome is not None
