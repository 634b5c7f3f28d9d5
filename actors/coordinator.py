"""The coordinator of one job: starts the actors, wires them, watches them, publishes the results or cleans up. One Ray actor per job.

It is the owner of all other actors of the job: when it goes, or the driver that owns it, Ray ends them all.

    STARTING -> RUNNING -> COMPLETE | FAILED | CANCELLED
"""

from __future__ import annotations

import dataclasses
import logging
import threading
import time as clock
from typing import Any

import ray
from ray.exceptions import GetTimeoutError, RayActorError, RayTaskError

from rayad.actors.host import ReplicaReport
from rayad.actors.job import JobState, JobStatistics
from rayad.actors.plane import Address
from rayad.actors.protocol import PROGRESS, replica_name
from rayad.actors.ray_actors import Failure, failure_of, remote_progress, remote_vertex
from rayad.dataflow.config import RunConfig
from rayad.dataflow.graph import NodeKind
from rayad.dataflow.plan import Plan
from rayad.progress import RayadError, Timestamp

GRACE_S = 0.5
"""After the first failure: how long others may still report, because the first to be noticed is seldom the cause."""

END_TIMEOUT_S = 5.0
"""How long to wait for killed actors to be gone."""


@dataclasses.dataclass(frozen=True, slots=True)
class Outcome:
    """How a job ended."""

    state: JobState
    receipts: dict[int, Any]
    statistics: JobStatistics
    failure: Failure | None = None


class _Failed(Exception):
    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


def plan_for(plan: Plan, stage_id: int | None) -> Plan:
    """The plan with only what one stage needs: other stages' code and data stay away from its process."""
    stages = tuple(s if s.id == stage_id else dataclasses.replace(s, op=None, parts=(), outputs=()) for s in plan.stages)
    mine = _sinks_of(plan.stage(stage_id)) if stage_id is not None else set()
    return dataclasses.replace(plan, stages=stages, sinks=tuple(s for s in plan.sinks if s.id in mine))


def _sinks_of(stage: Any) -> set[int]:
    from rayad.dataflow.plan import ApplyStep, ShiftStep, SinkStep

    found: set[int] = set()
    queue = [step for steps in stage.outputs for step in steps]
    while queue:
        step = queue.pop()
        if isinstance(step, SinkStep):
            found.add(step.sink)
        elif isinstance(step, (ApplyStep, ShiftStep)):
            queue.extend(step.children)
    return found


class Coordinator:
    """Runs one job."""

    def __init__(self, plan: Plan, config: RunConfig, job: str, secret: bytes) -> None:
        self.plan = plan
        self.config = config
        self.job = job
        self.secret = secret
        self.incarnation = 1
        self.state = JobState.STARTING
        self.addresses: dict[str, Address] = {}
        self._progress: Any = None
        self._vertices: dict[tuple[int, int], Any] = {}
        self._began_s = clock.time()
        self._start_s = 0.0
        self._cancelled = threading.Event()
        self._running = threading.Event()

    # -- the long call ----------------------------------------------------------------
    def run(self) -> Outcome:
        """Start everything, wait for the end, publish. Never raises: the outcome says what happened."""
        try:
            runs = self._start()
            staged, reports, counts = self._supervise(runs)
            receipts = self._publish(staged)
            self.state = JobState.COMPLETE
            return Outcome(self.state, receipts, self._statistics(reports, counts))
        except _Failed as failed:
            self.state = JobState.CANCELLED if self._cancelled.is_set() else JobState.FAILED
            return Outcome(self.state, {}, JobStatistics(), failed.failure)
        except Exception as error:
            self.state = JobState.CANCELLED if self._cancelled.is_set() else JobState.FAILED
            return Outcome(self.state, {}, JobStatistics(), failure_of("coordinator", error))
        finally:
            self._running.set()
            self._end_actors()
            if self.state is not JobState.COMPLETE:
                self._abort_sinks()

    def _start(self) -> dict[Any, tuple[str, Any]]:
        """Create all actors side by side, exchange addresses, and begin; gives for each long call's first result its name and second
        result."""
        host = self.config.host or ("127.0.0.1" if len(ray.nodes()) == 1 else ray.util.get_node_ip_address())
        vertex, progress = remote_vertex(), remote_progress()
        identity = (self.job, self.secret, self.incarnation)
        self._progress = progress.options(num_cpus=0).remote(ray.put(plan_for(self.plan, None)), *identity)
        listening = {PROGRESS: self._progress.listen.remote(host, "auto" if self.config.unix_sockets else "off")}
        for stage in self.plan.stages:
            spec = ray.put(plan_for(self.plan, stage.id))
            for replica in range(stage.parallelism):
                actor = vertex.options(num_cpus=self.config.cpus_per_replica).remote(spec, stage.id, replica, self.config, *identity)
                self._vertices[stage.id, replica] = actor
                listening[replica_name(stage.id, replica)] = actor.listen.remote(host)
        self._await_listening(listening)
        runs: dict[Any, tuple[str, Any]] = {}
        summary, staged = self._progress.run.options(num_returns=2).remote()
        runs[summary] = (PROGRESS, staged)
        for (stage_id, replica), actor in self._vertices.items():
            summary, staged = actor.run.options(num_returns=2).remote(self.addresses)
            runs[summary] = (replica_name(stage_id, replica), staged)
        self._start_s = clock.time() - self._began_s
        self.state = JobState.RUNNING
        self._running.set()
        return runs

    def _await_listening(self, listening: dict[str, Any]) -> None:
        deadline_s = clock.monotonic() + self.config.start_timeout_s
        waiting = dict(listening)
        while waiting:
            if self._cancelled.is_set():
                raise _Failed(Failure("job", "cancelled while starting", "", None, False))
            ready, _ = ray.wait(list(waiting.values()), num_returns=1, timeout=0.25)
            for name in [n for n, ref in waiting.items() if ref in ready]:
                answer = self._get(waiting.pop(name), self._who(name))
                if isinstance(answer, Failure):
                    raise _Failed(answer)
                self.addresses[name] = answer
            if waiting and clock.monotonic() > deadline_s:
                names = sorted(self._who(n) for n in waiting)
                raise _Failed(
                    Failure(
                        "coordinator",
                        f"{len(waiting)} of {len(listening)} actors did not start within {self.config.start_timeout_s} s: {names[:5]}; "
                        "free resources now: "
                        f"{ray.available_resources().get('CPU', 0.0):g} CPUs; lower the parallelism or RunConfig(cpus_per_replica=...), "
                        "or raise start_timeout_s",
                        "",
                        None,
                        False,
                    )
                )

    def _get(self, ref: Any, who: str) -> Any:
        try:
            return ray.get(ref)
        except RayTaskError as error:
            cause = error.cause if isinstance(error.cause, BaseException) else error
            return failure_of(who, cause)
        except RayActorError as error:
            lost = str(error).strip().split("\n")
            return Failure(who, f"the actor of {who} died: {lost[0]}", str(error), None, False)

    def _supervise(self, runs: dict[Any, tuple[str, Any]]) -> tuple[dict[int, list[Any]], list[ReplicaReport], dict[str, int]]:
        """Wait for all long calls; on the first failure give the others a moment, then raise the likeliest cause."""
        waiting = dict(runs)
        staged: dict[int, list[Any]] = {sink.id: [] for sink in self.plan.sinks}
        reports: list[ReplicaReport] = []
        counts: dict[str, int] = {}
        failures: list[Failure] = []
        deadline_s = float("inf")
        while waiting and clock.monotonic() < deadline_s:
            if self._cancelled.is_set():
                raise _Failed(Failure("job", "cancelled", "", None, False))
            ready, _ = ray.wait(list(waiting), num_returns=1, timeout=0.2)
            for ref in ready:
                name, second = waiting.pop(ref)
                answer = self._get(ref, self._who(name))
                if isinstance(answer, Failure):
                    failures.append(answer)
                    deadline_s = min(deadline_s, clock.monotonic() + GRACE_S)
                elif isinstance(answer, ReplicaReport):
                    reports.append(answer)
                    for sink, part in ray.get(second).items():
                        staged[sink].append(part)
                else:
                    counts = answer
        if failures:
            raise _Failed(min(failures, key=lambda f: (f.is_lost_peer, f.error is None and "died" not in f.message)))
        return staged, reports, counts

    def _who(self, name: str) -> str:
        if name == PROGRESS:
            return "the progress actor"
        stage, replica = name[1:].split(".")
        return f"{self.plan.stage(int(stage)).name!r}[{replica}]"

    # -- the end ----------------------------------------------------------------------------
    def _publish(self, staged: dict[int, list[Any]]) -> dict[int, Any]:
        receipts = {}
        for sink in self.plan.sinks:
            try:
                receipts[sink.id] = sink.sink.publish(staged[sink.id])
            except Exception as error:
                raise _Failed(failure_of(f"sink {sink.key!r} ({sink.where}) while publishing", error)) from error
        return receipts

    def _abort_sinks(self) -> None:
        for sink in self.plan.sinks:
            try:
                sink.sink.abort()
            except Exception:
                logging.getLogger(__name__).warning("sink %r could not clean up", sink.key, exc_info=True)

    def _end_actors(self) -> None:
        """Kill all actors and see them dead: one that were still alive when this coordinator ends would get a second order to exit from
        Ray, and
        threaded actors abort noisily when the two orders meet (ray 51582)."""
        actors = [actor for actor in [*self._vertices.values(), self._progress] if actor is not None]
        for actor in actors:
            ray.kill(actor, no_restart=True)
        deadline_s = clock.monotonic() + END_TIMEOUT_S
        for actor in actors:
            try:
                ray.get(actor.ping.remote(), timeout=max(0.1, deadline_s - clock.monotonic()))
            except (RayActorError, RayTaskError, GetTimeoutError):
                continue

    def _statistics(self, reports: list[ReplicaReport], counts: dict[str, int]) -> JobStatistics:
        stages: dict[str, dict[str, int]] = {}
        for report in reports:
            zeros = {"replicas": 0, "batches_in": 0, "records_in": 0, "batches_out": 0, "spilled_batches": 0}
            entry = stages.setdefault(report.name, zeros)
            entry["replicas"] += 1
            entry["batches_in"] += report.batches_in
            entry["records_in"] += report.records_in
            entry["batches_out"] += report.batches_out
            entry["spilled_batches"] += report.spilled_batches
            for name, value in (
                ("spill_memory_bytes_peak", report.spill_memory_bytes_peak),
                ("held_up_ms", round(1000 * report.held_up_s)),
                ("first_record_ms", round(1000 * (report.first_record_s - self._began_s)) if report.first_record_s else 0),
            ):
                entry[name] = max(entry.get(name, 0), value)
        run_s = clock.time() - self._began_s - self._start_s
        return JobStatistics(self._start_s, run_s, len(self._vertices) + 2, stages, counts)

    # -- control calls, from other threads ------------------------------------------------------
    def cancel(self) -> None:
        """End the job without results."""
        self._cancelled.set()

    def where(self, name: str, timeout_s: float) -> Address | None:
        """The address of a replica, once the job runs."""
        self._running.wait(timeout_s)
        return self.addresses.get(name)

    def look(self) -> tuple[JobState, list[ReplicaReport], dict[int, Any], int]:
        """State, what the replicas did, views by stage, active pointstamps."""
        if self.state is not JobState.RUNNING:
            return self.state, [], {}, 0
        try:
            reports = ray.get([actor.look.remote() for actor in self._vertices.values()], timeout=10)
            views, active = ray.get([self._progress.call.remote("look"), self._progress.call.remote("active")], timeout=10)
            return self.state, reports, views, active
        except (RayActorError, RayTaskError, GetTimeoutError):
            return self.state, [], {}, 0

    def blockers(self) -> list[tuple[str, Timestamp, list[tuple[str, Timestamp, int]]]]:
        """See ProgressHost.blockers."""
        return self._call("blockers") or []

    def frontier(self, node: int) -> tuple[Timestamp, ...]:
        """The frontier at a probe; empty when the job is over."""
        self._running.wait(self.config.start_timeout_s)
        return self._call("frontier", node) or ()

    def wait_epoch(self, node: int, epoch: int, timeout_s: float | None) -> bool:
        """Wait for an epoch at a probe."""
        self._running.wait(self.config.start_timeout_s)
        if self.state is JobState.COMPLETE:
            return True
        if self.state is not JobState.RUNNING:
            return False
        try:
            return bool(ray.get(self._progress.call.remote("wait_epoch", node, epoch, timeout_s)))
        except (RayActorError, RayTaskError):
            return self._is_complete()

    def _is_complete(self) -> bool:
        return self.state is JobState.COMPLETE

    def _call(self, method: str, *args: Any) -> Any:
        if self.state is not JobState.RUNNING or self._progress is None:
            return None
        try:
            return ray.get(self._progress.call.remote(method, *args), timeout=10)
        except (RayActorError, RayTaskError, GetTimeoutError):
            return None

    def stop(self) -> None:
        """Sources read no more, live inputs close."""
        self._running.wait(self.config.start_timeout_s)
        starts = [s for s in self.plan.stages if s.kind in (NodeKind.SOURCE, NodeKind.INPUT)]
        try:
            ray.get([self._vertices[s.id, r].stop.remote() for s in starts for r in range(s.parallelism)], timeout=30)
        except RayActorError:
            return  # it is over, or will be in a moment: run() tells how


def rebuild_error(job: str, failure: Failure) -> BaseException:
    """The exception that the driver raises for a failure."""
    original = failure.rebuild()
    if isinstance(original, RayadError):
        if failure.details:
            original.add_note(failure.details)
        return original
    error = RayadError(f"job {job!r} failed: {failure.who}: {failure.message}")
    if failure.details:
        error.add_note(failure.details)
    return error
