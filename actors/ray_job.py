"""The Ray runtime as the driver sees it: start or join a cluster, start a coordinator, hold the job."""

from __future__ import annotations

import secrets
import threading
from typing import Any

import cloudpickle  # type: ignore[import-untyped]
import ray
from ray.exceptions import GetTimeoutError, RayActorError

from rayad.actors.batches import encode_batch
from rayad.actors.coordinator import Coordinator, Outcome, rebuild_error
from rayad.actors.credits import SendWindow
from rayad.actors.host import ReplicaReport
from rayad.actors.job import Job, JobInput, JobProgress, JobState, JobStatistics, Probe, Result, StageProgress, describe_blockers
from rayad.actors.outbound import payload_bytes
from rayad.actors.plane import Plane
from rayad.actors.protocol import DRIVER, Kind, replica_name, unpack_credit
from rayad.actors.ray_actors import Failure, with_control
from rayad.actors.ray_cluster import ensure_ray
from rayad.dataflow.config import RunConfig, ScalingConfig
from rayad.dataflow.flow import Dataflow
from rayad.dataflow.plan import Plan
from rayad.progress import ConfigError, DataflowError, RayadError, Timestamp

_CONTROL_METHODS = ("cancel", "where", "look", "blockers", "frontier", "wait_epoch", "stop")


def check_picklable(plan: Plan) -> None:
    """Raise DataflowError that names the operator whose function or object cannot be sent to an actor."""
    for stage in plan.stages:
        _try_pickle(stage.op, stage.name, stage.where)
        _check_steps(stage.outputs)
    for sink in plan.sinks:
        _try_pickle(sink.sink, f"sink {sink.key}", sink.where)


def _check_steps(outputs: Any) -> None:
    queue = [step for steps in outputs for step in steps]
    while queue:
        step = queue.pop()
        if hasattr(step, "element"):
            _try_pickle(step.element, step.name, step.where)
        queue.extend(getattr(step, "children", ()))


def _try_pickle(value: Any, name: str, where: str) -> None:
    if type(value).__module__.startswith("rayad.integrations"):
        return  # holds object references, which Ray itself pickles
    try:
        cloudpickle.dumps(value)
    except Exception as error:
        raise DataflowError(
            f"{name!r} ({where}) cannot be sent to an actor: {type(error).__name__}: {error}; create connections, locks and open files "
            "inside the operator "
            "(in setup() of a Vertex), not outside of it"
        ) from error


def submit_to_ray(flow: Dataflow, config: RunConfig, scaling: ScalingConfig, **options: Any) -> RayJob:
    """Plan, check, and start a job on Ray."""
    if options:
        raise ConfigError(f"unknown options {sorted(options)} for runtime='ray'")
    plan = flow.plan(scaling=scaling, key_groups=config.key_groups)
    ensure_ray(plan.replicas * config.cpus_per_replica, f"{flow.name!r} with {plan.replicas} replicas of {config.cpus_per_replica:g} CPUs")
    check_picklable(plan)
    return RayJob(config.name or flow.name, plan, config)


class RayJob(Job):
    """A job on Ray."""

    def __init__(self, name: str, plan: Plan, config: RunConfig) -> None:
        super().__init__(name, plan)
        self.id = f"{name}-{secrets.token_hex(4)}"
        self._config = config
        self._secret = secrets.token_bytes(32)
        options = {"concurrency_groups": {"control": 16}, "max_restarts": 0, "max_task_retries": 0, "num_cpus": 0}
        coordinator = ray.remote(**options)(with_control(Coordinator, *_CONTROL_METHODS))
        self._coordinator = coordinator.remote(ray.put(plan), config, self.id, self._secret)
        self._outcome_ref = self._coordinator.run.remote()
        self._outcome: Outcome | None = None
        self._result: Result | None = None
        self._inputs: dict[str, RayInput] = {}
        self._feed = _InputPlane(self)

    # -- the end -----------------------------------------------------------------------
    @property
    def state(self) -> JobState:
        if self._outcome is not None:
            return self._outcome.state
        ready, _ = ray.wait([self._outcome_ref], timeout=0)
        if ready:
            return self._settle(None).state
        return self._ask("look", default=(JobState.STARTING, [], {}, 0))[0]  # type: ignore[no-any-return]

    def _settle(self, timeout_s: float | None) -> Outcome:
        if self._outcome is not None:
            return self._outcome
        try:
            self._outcome = ray.get(self._outcome_ref, timeout=timeout_s)
        except GetTimeoutError:
            raise TimeoutError(f"job {self.name!r} is not complete after {timeout_s} s; it goes on, wait() again or cancel()") from None
        except RayActorError as error:
            told = f"the coordinator actor died: {str(error).strip().splitlines()[0]}"
            failure = Failure("the coordinator", told, str(error), None, False)
            self._outcome = Outcome(JobState.FAILED, {}, JobStatistics(), failure)
        self._feed.close()
        self._kill_coordinator()
        return self._outcome

    def _kill_coordinator(self) -> None:
        ray.kill(self._coordinator, no_restart=True)

    def wait(self, timeout_s: float | None = None) -> Result:
        if self._result is not None:
            return self._result
        outcome = self._settle(timeout_s)
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
        try:
            ray.get(self._coordinator.cancel.remote(), timeout=10)
            self._settle(10)
        except (GetTimeoutError, RayActorError, TimeoutError):
            self._kill_coordinator()  # its actors are owned by it, so Ray ends them with it
            self._outcome = Outcome(JobState.CANCELLED, {}, JobStatistics())
            self._feed.close()

    def stop(self, *, drain: bool = True, timeout_s: float | None = None) -> Result:
        if not drain:
            self.cancel()
            return Result({}, JobStatistics())
        if self._outcome is None:
            self._ask("stop")
            for handle in self._inputs.values():
                handle.closed = True
        return self.wait(timeout_s)

    # -- looking ---------------------------------------------------------------------------
    def _ask(self, method: str, *args: Any, default: Any = None) -> Any:
        if self._outcome is not None:
            return default
        try:
            return ray.get(getattr(self._coordinator, method).remote(*args))
        except RayActorError:
            return default

    def progress(self) -> JobProgress:
        if self._outcome is not None:
            return JobProgress(self._outcome.state, (), 0)
        state, reports, views, active = self._ask("look", default=(JobState.STARTING, [], {}, 0))
        stages = []
        for stage in self.plan.stages:
            view = views.get(stage.id, ((), ()))
            mine = [r for r in reports if r.name == stage.name]
            stages.append(StageProgress(stage.name, view[0], view[1], sum(r.batches_in for r in mine), sum(r.records_in for r in mine)))
        return JobProgress(state, tuple(stages), active)

    def explain_stuck(self) -> str:
        if self._outcome is not None:
            return f"job {self.name!r} is {self._outcome.state.value}"
        parts = [describe_blockers(name, time, found) for name, time, found in self._ask("blockers", default=[])]
        reports: list[ReplicaReport] = self._ask("look", default=(None, [], {}, 0))[1]
        parts.extend(f"{report.name}[{report.replica}]: {line}" for report in reports for line in report.waiting)
        return "\n".join(parts) or "nothing is waiting"

    def savepoint(self) -> str:
        raise NotImplementedError

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
        done = self._job._ask("wait_epoch", self._node, epoch, timeout_s, default=None)
        if done:
            return True
        outcome = self._job._outcome
        if outcome is None and ray.wait([self._job._outcome_ref], timeout=0)[0]:
            outcome = self._job._settle(None)
        if outcome is not None and outcome.state is not JobState.COMPLETE:
            self._job.wait()  # raises what ended the job
        return outcome is not None


class _InputPlane:
    """The driver's end of the data plane, shared by all live inputs of a job; guarded by a lock, since plane objects are for one thread
    at a time."""

    def __init__(self, job: RayJob) -> None:
        self._job = job
        self._lock = threading.RLock()
        self._plane: Plane | None = None
        self._windows: dict[str, SendWindow] = {}
        self._closed = False

    def send(self, peer: str, kind: Kind, payload: list[Any], *, credit: bool) -> None:
        """Send one frame to an input's replica; with ``credit`` wait until there is room for it."""
        with self._lock:
            plane = self._connect(peer)
            window = self._windows[peer]
            while credit and not window.may_send():
                self._take_credits(plane, 0.1)
            if credit:
                window.on_send(payload_bytes(payload))
            plane.send(peer, kind, 0, payload)
            self._take_credits(plane, 0.0)
            while plane.queued_bytes(peer):
                self._take_credits(plane, 0.05)

    def _take_credits(self, plane: Plane, timeout_s: float) -> None:
        for frame in plane.poll(timeout_s):
            if frame.kind == Kind.CREDIT:
                self._windows[frame.peer].on_credit(*unpack_credit(frame.payload))
        if plane.take_lost() or (timeout_s and ray.wait([self._job._outcome_ref], timeout=0)[0]):
            self._job.wait(timeout_s=30)  # raises what ended the job
            raise DataflowError(f"job {self._job.name!r} has ended: its inputs take nothing any more")

    def _connect(self, peer: str) -> Plane:
        if self._closed or self._job._outcome is not None:
            self._job.wait()
            raise DataflowError(f"job {self._job.name!r} has ended: its inputs take nothing any more")
        if self._plane is None:
            self._plane = Plane(name=DRIVER, job=self._job.id, incarnation=1, secret=self._job._secret)
        if peer not in self._windows:
            config = self._job._config
            address = self._job._ask("where", peer, config.start_timeout_s)
            if address is None:
                self._job.wait(timeout_s=30)
                raise RayadError(f"job {self._job.name!r} did not start its inputs within {config.start_timeout_s} s")
            self._plane.connect(peer, address, timeout_s=config.start_timeout_s)
            self._windows[peer] = SendWindow(config.window_batches, int(config.window_bytes))
        return self._plane

    def close(self) -> None:
        """The job is over."""
        with self._lock:
            self._closed = True
            if self._plane is not None:
                self._plane.close(linger_s=0.0)
                self._plane = None


class RayInput(JobInput):
    """Sends straight to the input's replica."""

    def __init__(self, name: str, job: RayJob, peer: str) -> None:
        super().__init__(name)
        self._job = job
        self._peer = peer

    def _send(self, batch: Any) -> None:
        self._job._feed.send(self._peer, Kind.INPUT_BATCH, encode_batch(Timestamp(self.epoch), batch), credit=True)

    def _advance(self, epoch: int) -> None:
        self._job._feed.send(self._peer, Kind.INPUT_ADVANCE, [epoch.to_bytes(8, "little")], credit=False)

    def _close(self) -> None:
        if self._job._outcome is None:
            self._job._feed.send(self._peer, Kind.INPUT_CLOSE, [b""], credit=False)

