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

from rayad.actors.coordinator_snapshots import SnapshotKeeper
from rayad.actors.host import ReplicaReport
from rayad.actors.job import JobState, JobStatistics
from rayad.actors.job_store import JobStore, Superseded
from rayad.actors.outcome import Outcome, plan_for, stage_statistics
from rayad.actors.plane import Address
from rayad.actors.protocol import COORDINATOR, PROGRESS, replica_name
from rayad.actors.ray_actors import Failure, failure_of, remote_progress, remote_vertex
from rayad.dataflow.config import RunConfig
from rayad.dataflow.graph import NodeKind
from rayad.dataflow.plan import Plan
from rayad.progress import ConfigError, RayadError, SnapshotError, Timestamp

GRACE_S = 0.5
"""After the first failure: how long others may still report, because the first to be noticed is seldom the cause."""

ABANDON_TIMEOUT_S = 5.0
"""How long survivors of a failure may take to leave what they do; then they are killed and replaced."""
_log = logging.getLogger(__name__)

END_TIMEOUT_S = 5.0
"""How long to wait for killed actors to be gone."""


class _Failed(Exception):
    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


class Coordinator:
    """Runs one job."""

    def __init__(self, plan: Plan, config: RunConfig, job: str, secret: bytes, name: str = "") -> None:
        self.plan = plan
        self.config = config
        self.job = job
        self.secret = secret
        self.incarnation = 1
        self.failures = 0
        self.first_failure: Failure | None = None
        self.state = JobState.STARTING
        self.addresses: dict[str, Address] = {}
        self._name = name or plan.name
        self._keeper: SnapshotKeeper | None = None
        self._progress: Any = None
        self._vertices: dict[tuple[int, int], Any] = {}
        self._pings: dict[str, tuple[Any, float]] = {}
        self._pinged_s = 0.0
        self._found: tuple[dict[str, Address], int, dict[str, Any]] | None = None
        self._began_s = clock.time()
        self._start_s = 0.0
        self._cancelled = threading.Event()
        self._running = threading.Event()
        self._stopping = False

    # -- the long call ----------------------------------------------------------------
    def run(self) -> Outcome:
        """Start everything, wait for the end, publish. Never raises: the outcome says what happened."""
        try:
            if self.config.keeps_snapshots:
                self._keeper = SnapshotKeeper(
                    self.plan, JobStore(self._name, self.plan, self.config), job=self.job, secret=self.secret
                )
            reports, counts, staged = self._run_incarnations()
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
            if self._keeper is not None:
                self._keeper.end(f"job {self._name!r} is {self.state.value}")
                self._keeper.close()
            self._end_actors()
            if self.state is not JobState.COMPLETE and not self.config.keeps_snapshots:  # else a snapshot may name what is staged
                self._abort_sinks()

    def _run_incarnations(self) -> tuple[list[ReplicaReport], dict[str, int], dict[int, list[Any]]]:
        """Start, watch, and after a failure start again from the last snapshot, as often as the configuration says."""
        if self._keeper is not None and self._keeper.manifest.kind == "final":
            self._keeper.final = self._keeper.manifest  # the run that is resumed was complete
            return [], {}, {}
        while True:
            failed_s = clock.monotonic()
            try:
                runs = self._start()
                if self.failures and self._keeper is not None:
                    self._keeper.recovered(clock.monotonic() - failed_s)
                return self._supervise(runs)
            except _Failed as failed:
                self._may_go_on(failed.failure)
            except Superseded:
                raise
            except Exception as error:
                self._may_go_on(failure_of("coordinator", error))
            self._recover()

    def _may_go_on(self, failure: Failure) -> None:
        """Raise the failure, or the first one that led to it, unless the job is to survive it."""
        self._running.clear()
        self.first_failure = self.first_failure or failure
        self.failures += 1
        most = self.config.failures.max_failures
        if self._cancelled.is_set() or self._keeper is None or self.failures > most:
            if most and self.failures > most and not self._cancelled.is_set():
                first = self.first_failure
                told = f"{first.message} (failure 1 of {self.failures}; FailureConfig.max_failures is {most}; the last: {failure.message})"
                failure = dataclasses.replace(first, message=told, details=f"{told}\n{first.details}")
            raise _Failed(failure)
        _log.warning(
            "job %r: failure %d of at most %d: %s: %s; going on from the last snapshot",
            self._name, self.failures, most, failure.who, failure.message,
        )  # fmt: skip

    def _recover(self) -> None:
        """End the incarnation: survivors leave what they do, the others are killed; the keeper says where to go on."""
        assert self._keeper is not None
        actors: dict[Any, Any] = {**self._vertices, PROGRESS: self._progress}
        gone: set[Any] = set()
        waiting: dict[Any, Any] = {}
        for key, actor in actors.items():
            if actor is None:
                continue
            actor.abandon.remote(self.incarnation)
            waiting[actor.idle.remote()] = key
        ready, late = ray.wait(list(waiting), num_returns=len(waiting), timeout=ABANDON_TIMEOUT_S) if waiting else ([], [])
        for ref in ready:
            try:
                ray.get(ref)
            except (RayActorError, RayTaskError):
                gone.add(waiting[ref])
        gone.update(waiting[ref] for ref in late)
        for key in gone:
            ray.kill(actors[key], no_restart=True)  # also fences one that is only stopped
            if key == PROGRESS:
                self._progress = None
            else:
                del self._vertices[key]
        self.incarnation += 1
        self._pings.clear()
        self._create_missing()  # newcomers start while the parts are verified
        self._keeper.recover()

    def _create_missing(self) -> None:
        """Create all actors that are not there, side by side."""
        identity = (self.job, self.secret)
        if self._progress is None:
            self._progress = remote_progress().options(num_cpus=0).remote(ray.put(plan_for(self.plan, None)), *identity)
        for stage in self.plan.stages:
            missing = [replica for replica in range(stage.parallelism) if (stage.id, replica) not in self._vertices]
            spec = ray.put(plan_for(self.plan, stage.id)) if missing else None
            for replica in missing:
                options = remote_vertex().options(num_cpus=self.config.cpus_per_replica)
                self._vertices[stage.id, replica] = options.remote(spec, stage.id, replica, self.config, *identity)

    def _start(self) -> dict[Any, tuple[str, Any]]:
        """Create the actors, exchange addresses, and begin; gives for each long call's first result its name and second result."""
        host = self.config.host or ("127.0.0.1" if len(ray.nodes()) == 1 else ray.util.get_node_ip_address())
        unix = "auto" if self.config.unix_sockets else "off"
        keeper = self._keeper
        parts = keeper.store.parts(keeper.manifest) if keeper is not None else {}
        store = keeper.store.store if keeper is not None else None
        self.addresses = {}
        if keeper is not None:
            self.addresses[COORDINATOR] = keeper.listen(host, self.incarnation, unix)
        self._create_missing()
        listening = {PROGRESS: self._progress.listen.remote(host, unix, self.incarnation)}
        for (stage_id, replica), actor in self._vertices.items():
            part = parts.get((self.plan.stage(stage_id).name, replica))
            listening[replica_name(stage_id, replica)] = actor.listen.remote(host, self.incarnation, store, part)
        self._await_listening(listening)
        runs: dict[Any, tuple[str, Any]] = {}
        summary, staged = self._progress.run.options(num_returns=2).remote()
        runs[summary] = (PROGRESS, staged)
        for (stage_id, replica), actor in self._vertices.items():
            summary, staged = actor.run.options(num_returns=2).remote(self.addresses)
            runs[summary] = (replica_name(stage_id, replica), staged)
        if self.incarnation == 1:
            self._start_s = clock.time() - self._began_s
        self.state = JobState.RUNNING
        self._found = (dict(self.addresses), self.incarnation, keeper.manifest.notes if keeper is not None else {})
        if keeper is not None:
            keeper.go()
        self._running.set()
        if self._stopping:
            self.stop()
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

    def _supervise(self, runs: dict[Any, tuple[str, Any]]) -> tuple[list[ReplicaReport], dict[str, int], dict[int, list[Any]]]:
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
            for ref in self._wait(waiting):
                name, second = waiting.pop(ref)
                answer = self._get(ref, self._who(name))
                if isinstance(answer, Failure):
                    failures.append(answer)
                    is_cause = self._keeper is not None and not answer.is_lost_peer  # recovery need not wait for others to say the same
                    deadline_s = min(deadline_s, clock.monotonic() + (0.0 if is_cause else GRACE_S))
                elif isinstance(answer, ReplicaReport):
                    reports.append(answer)
                    for sink, part in ray.get(second).items():
                        staged[sink].append(part)
                else:
                    counts = answer
            if not failures:
                silent = self._silent(waiting)
                if silent is not None:
                    failures.append(silent)
                    break
        if failures:
            raise _Failed(min(failures, key=lambda f: (f.is_lost_peer, f.error is None and "died" not in f.message)))
        return reports, counts, staged

    def _wait(self, waiting: dict[Any, tuple[str, Any]]) -> list[Any]:
        """Which long calls have ended; takes part in the snapshots meanwhile."""
        keeper = self._keeper
        if keeper is None or keeper.poll(0.1):
            return list(ray.wait(list(waiting), num_returns=1, timeout=0.2)[0])
        return list(ray.wait(list(waiting), num_returns=len(waiting), timeout=0)[0])

    def _silent(self, waiting: dict[Any, tuple[str, Any]]) -> Failure | None:
        """An actor that has not answered for too long: stopped, or on a node that is gone (Ray may take a minute to notice)."""
        now_s = clock.monotonic()
        patience_s = self.config.failures.heartbeat_timeout_s
        if now_s - self._pinged_s < min(5.0, patience_s / 4):
            return None
        self._pinged_s = now_s
        running = {name for name, _ in waiting.values()}
        actors = {PROGRESS: self._progress, **{replica_name(*key): actor for key, actor in self._vertices.items()}}
        for name in running:
            ref, since_s = self._pings.get(name, (None, now_s))
            if ref is not None and not ray.wait([ref], timeout=0)[0]:
                if now_s - since_s > patience_s:
                    return Failure(self._who(name), f"{self._who(name)} has not answered for {patience_s:g} s", "", None, False)
                continue
            self._pings[name] = (actors[name].ping.remote(), now_s)
        return None

    def _who(self, name: str) -> str:
        if name == PROGRESS:
            return "the progress actor"
        stage, replica = name[1:].split(".")
        return f"{self.plan.stage(int(stage)).name!r}[{replica}]"

    # -- the end ----------------------------------------------------------------------------
    def _publish(self, staged: dict[int, list[Any]]) -> dict[int, Any]:
        if self._keeper is not None:
            assert self._keeper.final is not None
            try:
                receipts = self._keeper.store.publish_finally(self._keeper.final)
                self._keeper.store.retain()
            except RayadError as error:
                raise _Failed(failure_of("the coordinator while publishing", error)) from error
            return receipts
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
        run_s = clock.time() - self._began_s - self._start_s
        taken = tuple(self._keeper.taken) if self._keeper is not None else ()
        stages = stage_statistics(reports, self._began_s)
        return JobStatistics(self._start_s, run_s, len(self._vertices) + 2, stages, counts, taken, self.failures)

    # -- control calls, from other threads ------------------------------------------------------
    def cancel(self) -> None:
        """End the job without results."""
        self._cancelled.set()

    def where(self, name: str, timeout_s: float) -> tuple[Address, int, dict[str, Any]] | None:
        """The address of a replica, the incarnation, and the notes of the snapshot that this one went on from, once the job runs.

        The three belong together: an incarnation may be over by the time its addresses are used, and then nobody listens there.
        """
        self._running.wait(timeout_s)
        found = self._found
        return None if found is None else (found[0][name], *found[1:])

    def saved_inputs(self) -> dict[str, int]:
        """How many frames of each live input are in all the snapshots that a recovery may go on from."""
        return dict(self._keeper.saved_inputs) if self._keeper is not None else {}

    def savepoint(self, timeout_s: float | None) -> str:
        """See Job.savepoint."""
        if self._keeper is None:
            raise ConfigError(f"job {self._name!r} keeps no snapshots: give RunConfig(storage_path=...)")
        self._running.wait(self.config.start_timeout_s)
        if self.state is not JobState.RUNNING:
            raise SnapshotError(f"job {self._name!r} is {self.state.value}: no savepoint can be taken")
        return self._keeper.savepoint(timeout_s)

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
        deadline_s = clock.monotonic() + timeout_s if timeout_s is not None else float("inf")
        while True:
            left_s = deadline_s - clock.monotonic()
            self._running.wait(max(0.0, min(left_s, self.config.start_timeout_s)))
            if self.state is not JobState.RUNNING:
                return self._is_complete()
            try:
                return bool(ray.get(self._progress.call.remote("wait_epoch", node, epoch, None if timeout_s is None else max(0.0, left_s))))
            except (RayActorError, RayTaskError, AttributeError):  # this incarnation is over; perhaps there is another
                if self._keeper is None or left_s <= 0:
                    return self._is_complete()
                clock.sleep(0.02)

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
        self._stopping = True
        self._running.wait(self.config.start_timeout_s)
        starts = [s for s in self.plan.stages if s.kind in (NodeKind.SOURCE, NodeKind.INPUT)]
        try:
            ray.get([self._vertices[s.id, r].stop.remote() for s in starts for r in range(s.parallelism)], timeout=30)
        except RayActorError:
            return  # it is over, or will be in a moment: run() tells how
