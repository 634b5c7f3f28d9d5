"""The coordinator's thread: starts the actors of a job, wires them, watches them, publishes the results or cleans up.

STARTING -> RUNNING -> COMPLETE | FAILED | CANCELLED
"""

from __future__ import annotations

import dataclasses
import logging
import random
import time as clock
from collections.abc import Callable, Collection
from typing import Any, TypeVar

import ray
from ray.exceptions import GetTimeoutError, RayActorError, RayTaskError

from rayad.actors.cluster.failure import Failure, failure_of
from rayad.actors.cluster.joining import own_address
from rayad.actors.coordinator.crew import Stuck
from rayad.actors.coordinator.outcome import Outcome, Starting, stage_statistics
from rayad.actors.coordinator.rescaling import Rescaler
from rayad.actors.coordinator.running_job import RunningJob
from rayad.actors.coordinator.snapshots import SnapshotKeeper
from rayad.actors.job import JobState, JobStatistics
from rayad.actors.lead import layout_steps
from rayad.actors.plane.protocol import COORDINATOR, PROGRESS, stage_of
from rayad.actors.replica.report import ReplicaReport
from rayad.actors.replica.source_parts import parts_of
from rayad.actors.replica.upstream import region_of
from rayad.actors.replica.user_errors import restarts_of
from rayad.actors.store.job_store import JobStore, Superseded
from rayad.dataflow.resources import told_resources
from rayad.progress import DataflowError, RayadError, SnapshotError
from rayad.snapshots.coordination import SnapshotStatistics
from rayad.snapshots.restarts import End
from rayad.snapshots.store import StoreAwayError

GRACE_S = 0.5
"""After the first failure: how long others may still report, because the first to be noticed is seldom the cause."""
CALL_S = 30.0
"""For the answer of an actor that has it already: only its way can take long."""
LAST_PARTS_S = 60.0
"""After all replicas have ended: how long their parts of the last snapshot may be on their way."""
STORE_AWAY_S = 0.5
"""Between two questions to a store that does not answer, when the job has to go on from it."""

_log = logging.getLogger(__name__)
T = TypeVar("T")


class _Failed(Exception):
    def __init__(self, failure: Failure, names: set[str] | None = None, stuck: set[str] | None = None) -> None:
        super().__init__(failure.message)
        self.failure = failure
        self.names = names or set()
        self.stuck = stuck or set()
        """Of these, who will not leave what they do when they are asked to."""


class Supervisor:
    """Runs one job, in one thread."""

    def __init__(self, job: RunningJob, rescaler: Rescaler) -> None:
        self._job = job
        self._rescaler = rescaler
        self._first_failure: Failure | None = None
        self._stuck: set[str] = set()
        self._began_s = clock.time()
        self._start_s = 0.0
        self._restarts = restarts_of(job.config.failures, random.Random(job.job))
        self._newest_seen: SnapshotStatistics | None = None

    # -- the long call ----------------------------------------------------------------
    def run(self, run: str | None = None, earlier: Collection[str] = (), *, asked_s: float | None = None) -> Outcome:
        """Start everything, wait for the end, publish. Never raises: the outcome says what happened.

        Args:
            run: tells this coordinator's run from others in the store.
            earlier: the runs of the coordinators that died before: it goes on where they were, and a store that is away is waited for.
            asked_s: when the driver began to start this actor, by ``time.time()``: the start of a job counts from there.
        """

        job = self._job
        self._began_s = self._began_s if asked_s is None else min(self._began_s, asked_s)

        def keeper() -> SnapshotKeeper:
            store = JobStore(job.name, job.plan, job.config, run=run, earlier=earlier, calls=job.sink_calls)
            return SnapshotKeeper(job.plan, store, job=job.job, secret=job.secret)

        try:
            if job.config.keeps_snapshots:
                job.keeper = self._when_there(keeper) if earlier else keeper()
            reports, counts, staged = self._run_incarnations()
            receipts = self._publish(staged)
            job.state = JobState.COMPLETE
            return Outcome(job.state, receipts, self._statistics(reports, counts))
        except Exception as error:
            job.state = JobState.CANCELLED if job.cancelled.is_set() else JobState.FAILED
            failure = error.failure if isinstance(error, _Failed) else failure_of("coordinator", error)
            return Outcome(job.state, {}, JobStatistics(), failure)
        finally:
            job.running.set()
            self._rescaler.stop()
            if job.keeper is not None:
                job.keeper.end(f"job {job.name!r} is {job.state.value}")
                job.keeper.close()
            job.crew.end()
            if job.state is not JobState.COMPLETE and not job.config.keeps_snapshots:  # else a snapshot may name what is staged
                self._abort_sinks()

    def _run_incarnations(self) -> tuple[list[ReplicaReport], dict[str, int], dict[int, list[Any]]]:
        """Start, watch, and after a failure start again from the last snapshot, as often as the configuration says."""
        job = self._job
        if job.keeper is not None and job.keeper.resume_complete():
            return [], {}, {}
        is_going = False
        while True:
            failed_s = clock.monotonic()
            try:
                if not is_going:
                    self._start()
                if job.failures and job.keeper is not None:
                    job.keeper.recovered(clock.monotonic() - failed_s)
                return self._supervise()
            except _Failed as failed:
                self._stop_change()
                delay_s = self._may_go_on(failed.failure)
                self._stuck = failed.stuck
                is_going = self._try_upstream(failed.names, delay_s)
            except Superseded:
                raise
            except Exception as error:
                self._stop_change()
                delay_s = self._may_go_on(failure_of("coordinator", error))
                is_going = False
            if not is_going:
                self._recover(clock.monotonic() + delay_s)

    def _stop_change(self) -> None:
        self._job.running.clear()
        self._rescaler.stop()

    def _try_upstream(self, failed: set[str], delay_s: float) -> bool:
        job = self._job
        if job.config.failures.recovery != "upstream":
            return False
        job.cancelled.wait(delay_s)
        try:
            return self._recover_upstream(failed)
        except (_Failed, Superseded):
            raise
        except Exception as error:  # a second failure meanwhile: all begins anew
            _log.warning("job %r: recovery upstream of the failure failed, the whole graph is restarted: %s", job.name, error)
            return False

    def _may_go_on(self, failure: Failure) -> float:
        """Raise the failure, or the first one that led to it, unless the job is to survive it: then the seconds until it goes on."""
        job = self._job
        job.failures += 1
        keeper, most = job.keeper, job.config.failures.max_failures
        if job.cancelled.is_set() or keeper is None or not most:
            raise _Failed(failure)
        if keeper.newest is not self._newest_seen:
            self._newest_seen = keeper.newest
            self._restarts.on_snapshot()
        decision = self._restarts.on_failure(failure.sign, clock.monotonic())
        if decision.number == 1 or self._first_failure is None:
            self._first_failure = failure
        if isinstance(decision, End):
            cause = failure if decision.is_newest else self._first_failure
            last = f"; the last: {failure.message}" if not decision.is_newest else ""
            told = f"{cause.message} ({decision.why}{last})"
            raise _Failed(dataclasses.replace(cause, message=told, details=f"{told}\n{cause.details}"))
        later = f" in {decision.delay_s:.1f} s" if decision.delay_s else ""
        facts = (job.name, decision.number, most, failure.who, failure.message, later)
        _log.warning("job %r: failure %d of at most %d: %s: %s; resuming from the last snapshot%s", *facts)
        return decision.delay_s

    def _recover(self, due_s: float) -> None:
        """End the incarnation: survivors leave what they do, the others are killed; the keeper says where to go on.

        Not before ``due_s``, while the newcomers start.
        """
        job = self._job
        assert job.keeper is not None
        job.crew.release(list(job.crew.actors), job.incarnation, self._stuck)
        self._stuck = set()
        job.incarnation += 1
        job.crew.start()  # newcomers start while the parts are verified
        job.cancelled.wait(max(0.0, due_s - clock.monotonic()))
        self._when_there(job.keeper.recover)
        self._lay_out()

    def _when_there(self, look: Callable[[], T]) -> T:
        """Look into the store; one that does not answer is waited for, as long as for an actor that starts."""
        job = self._job
        deadline_s = clock.monotonic() + job.config.start_timeout_s
        while True:
            try:
                return look()
            except StoreAwayError as error:
                if job.cancelled.wait(STORE_AWAY_S) or clock.monotonic() > deadline_s:
                    raise
                _log.warning("job %r: waiting for the store: %s", job.name, error)

    def _lay_out(self) -> None:
        """The layout is that of the snapshot to go on from."""
        job = self._job
        if job.keeper is None:
            return
        job.plan = job.crew.plan = layout_steps.restored(job.plan, job.keeper.manifest.notes, job.asked)
        names = set(job.crew.names())
        job.crew.stop([name for name in job.crew.actors if name != PROGRESS and name not in names])
        job.keeper.lay_out(job.plan)

    def _start(self) -> None:
        """Create all actors that are not there side by side, exchange addresses, and begin."""
        job = self._job
        unix = "auto" if job.config.unix_sockets else "off"
        keeper, crew = job.keeper, job.crew
        if job.incarnation == 1:
            self._lay_out()
            if keeper is not None:
                self._rescaler.want(layout_steps.asked_anew(job.plan, keeper.manifest.notes, job.asked))
        crew.start()
        job.addresses = {}
        job.calls.clear()
        job.incarnations = dict.fromkeys([PROGRESS, COORDINATOR, *crew.names()], job.incarnation)
        if keeper is not None:
            job.addresses[COORDINATOR] = keeper.listen(own_address(job.config.host), job.incarnation, unix)
        survives = job.config.failures.recovery == "upstream"
        progress = crew.actors[PROGRESS].listen.remote(job.config.host, unix, job.incarnation, survives, job.plan.layout)
        self._await_listening({PROGRESS: progress, **self._listening(crew.names())})
        self._rescaler.check()
        job.run([PROGRESS, *crew.names()])
        if job.incarnation == 1:
            self._start_s = clock.time() - self._began_s
        self._go([PROGRESS, *crew.names()])

    def _listening(self, names: list[str]) -> dict[str, Any]:
        """Let replicas build what they are, from the beginning or from the keeper's manifest; the addresses to come."""
        job = self._job
        keeper = job.keeper
        parts = parts_of(keeper.manifest, job.plan) if keeper is not None else {}
        store = keeper.store.store if keeper is not None else None
        out = {}
        for name in names:
            part = parts.get(job.crew.replica(name))
            arguments = (
                job.config.host,
                job.incarnation,
                store,
                part,
                job.incarnations,
                job.plan.layout,
                False,
                job.config,
            )
            out[name] = job.crew.actors[name].listen.remote(*arguments)
        return out

    def _go(self, names: list[str]) -> None:
        """These run from now on, and with them the job."""
        job = self._job
        job.state = JobState.RUNNING
        notes = job.keeper.manifest.notes if job.keeper is not None else {}
        job.found.update({name: (job.addresses[name], job.incarnations[name], notes) for name in names})
        if job.keeper is not None:
            job.keeper.go()
        job.running.set()
        self._rescaler.again()
        if job.is_stopping:
            job.stop_reading()

    def _recover_upstream(self, failed: set[str]) -> bool:
        """Restart what has failed and what is upstream of it; the others live on. False when the whole graph has to be restarted."""
        job = self._job
        keeper = job.keeper
        if job.config.failures.recovery != "upstream" or keeper is None or PROGRESS in failed or not failed or keeper.is_ending:
            return False
        region = region_of(job.plan, {stage_of(name) for name in failed})
        if isinstance(region, str):
            _log.info("job %r: the whole graph is restarted: %s", job.name, region)
            return False
        names = [name for name in job.crew.names() if stage_of(name) in region.stages]
        living = [name for name in job.crew.names() if stage_of(name) not in region.stages]
        attempt = keeper.recover_upstream(names, job.incarnation + 1)
        if attempt is None:
            return False
        job.crew.release(names, job.incarnation, self._stuck)
        job.incarnation += 1
        job.incarnations.update(dict.fromkeys(names, job.incarnation))
        job.calls.forget(names)
        job.crew.start()
        ray.get(
            job.crew.actors[PROGRESS].call.remote("switch", names, region, job.incarnation),
            timeout=job.config.start_timeout_s,
        )
        self._await_listening(self._listening(names))
        addresses = {name: job.addresses[name] for name in names}
        parts = parts_of(keeper.manifest, job.plan)
        rolling = [
            job.crew.actors[name].roll_back.remote(region.edges, addresses, job.incarnation, parts.get(job.crew.replica(name)), attempt)
            for name in living
        ]
        job.run(names)
        ray.get(rolling, timeout=job.config.start_timeout_s + CALL_S)
        self._stuck = set()
        self._go(names)
        return True

    def _await_listening(self, listening: dict[str, Any]) -> None:
        try:
            self._await_all(listening)
        finally:
            self._job.awaited = None

    def _await_all(self, listening: dict[str, Any]) -> None:
        job = self._job
        began_s = clock.monotonic()
        deadline_s = began_s + job.config.start_timeout_s
        waiting = dict(listening)
        while waiting:
            job.awaited = Starting(tuple(sorted(map(job.who, waiting))), len(listening)), began_s
            if job.cancelled.is_set():
                raise _Failed(Failure("job", "cancelled while starting", "", None, False))
            ready, _ = ray.wait(list(waiting.values()), num_returns=1, timeout=0.25)
            for name in [n for n, ref in waiting.items() if ref in ready]:
                answer = self._get(waiting.pop(name), job.who(name))
                if isinstance(answer, Failure):
                    raise _Failed(answer)
                job.addresses[name] = answer
            if waiting and clock.monotonic() > deadline_s:
                names = sorted(job.who(n) for n in waiting)
                raise _Failed(
                    Failure(
                        "coordinator",
                        f"{len(waiting)} of {len(listening)} actors did not start within {job.config.start_timeout_s} s: {names[:5]}; "
                        f"free resources now: {told_resources(ray.available_resources())}; lower the parallelism or what a replica asks "
                        f"for ({self._asked_by(names[0])}), or raise start_timeout_s",
                        "",
                        None,
                        False,
                    )
                )

    def _asked_by(self, who: str) -> str:
        needs = {need.vertex: need for need in self._job.plan.needs(self._job.config.cpus_per_replica)}
        asked = next((need for name, need in needs.items() if who.startswith(f"{name!r}[")), None)
        return f"{who} asks for {told_resources(asked.each)}" if asked is not None else "num_cpus, num_gpus, memory, resources"

    def _get(self, ref: Any, who: str) -> Any:
        try:
            return ray.get(ref, timeout=CALL_S)  # it is there
        except RayTaskError as error:
            cause = error.cause if isinstance(error.cause, BaseException) else error
            return failure_of(who, cause)
        except GetTimeoutError:
            return Failure(who, f"what {who} gave could not be fetched within {CALL_S:g} s: its node may be gone", "", None, False)
        except RayActorError as error:
            lost = str(error).strip().split("\n")
            return Failure(who, f"the actor of {who} died: {lost[0]}", str(error), None, False)

    def _supervise(self) -> tuple[list[ReplicaReport], dict[str, int], dict[int, list[Any]]]:
        """Wait for all long calls; on the first failure give the others a moment, then raise the likeliest cause."""
        job = self._job
        waiting = job.calls
        failed: set[str] = set()
        stuck: set[str] = set()
        staged: dict[int, list[Any]] = {sink.id: [] for sink in job.plan.sinks}
        reports: list[ReplicaReport] = []
        counts: dict[str, int] = {}
        failures: list[Failure] = []
        deadline_s = float("inf")
        while (waiting or (self._is_final_missing() and not failures)) and clock.monotonic() < deadline_s:
            waiting.take_over()
            if job.cancelled.is_set():
                raise _Failed(Failure("job", "cancelled", "", None, False))
            if not waiting:
                deadline_s = min(deadline_s, clock.monotonic() + LAST_PARTS_S)
            for ref in self._wait(waiting.refs()):
                ended = waiting.ended(ref)
                if ended is None:
                    continue  # of a newcomer that was sent away
                name, second = ended
                answer = self._get(ref, job.who(name))
                if isinstance(answer, Failure) and name in self._rescaler.newcomers:
                    continue  # the change is refused
                if isinstance(answer, Failure):
                    failures.append(answer)
                    failed.add(name)
                    # Recovery of the whole graph need not wait for others to say the same.
                    at_once = job.keeper is not None and not answer.is_lost_peer and job.config.failures.recovery == "graph"
                    deadline_s = min(deadline_s, clock.monotonic() + (0.0 if at_once else GRACE_S))
                elif isinstance(answer, ReplicaReport):
                    reports.append(answer)
                    left = self._get(second, job.who(name))
                    if isinstance(left, Failure):
                        failures.append(left)
                        failed.add(name)
                        break
                    if name in self._rescaler.leaving:
                        self._rescaler.on_left(name, left)
                        left = {} if job.keeper is not None else left
                    for sink, part in left.items():
                        staged[sink].append(part)
                else:
                    counts = answer
            if self._rescaler.failure is not None and self._rescaler.failure not in failures:
                failures.append(self._rescaler.failure)
                deadline_s = min(deadline_s, clock.monotonic() + GRACE_S)
            if not failures:
                found = job.crew.find_stuck(waiting.names() - self._rescaler.newcomers)
                if found is not None:
                    failures.append(self._stuck_failure(found))
                    failed.add(found.name)
                    stuck.add(found.name)
                    break
        if failures:
            raise _Failed(min(failures, key=lambda f: (f.is_lost_peer, f.error is None and "died" not in f.message)), failed, stuck)
        if self._is_final_missing():
            raise SnapshotError(f"all replicas have ended, and {LAST_PARTS_S:g} s later parts of the last snapshot are missing")
        return reports, counts, staged

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
        failure = failure_of(who, DataflowError(told, located=True))
        return dataclasses.replace(failure, details=f"the stack of {who}, innermost last:\n{activity.stack}")

    def _is_final_missing(self) -> bool:
        """Whether a last snapshot has to be published: a replica ends when it has sent its part, which is looked at later, perhaps."""
        return self._job.keeper is not None and self._job.keeper.final is None

    def _wait(self, waiting: list[Any]) -> list[Any]:
        """Which long calls have ended; takes part in the snapshots meanwhile."""
        keeper = self._job.keeper
        if keeper is not None and not waiting:
            keeper.poll(0.1)
            return []
        if keeper is None or keeper.poll(0.1):
            return list(ray.wait(waiting, num_returns=1, timeout=0.2)[0]) if waiting else []
        return list(ray.wait(waiting, num_returns=len(waiting), timeout=0)[0])

    # -- the end ----------------------------------------------------------------------------
    def _publish(self, staged: dict[int, list[Any]]) -> dict[int, Any]:
        job = self._job
        if job.keeper is not None:
            assert job.keeper.final is not None
            try:
                receipts = job.keeper.store.publish_finally(job.keeper.final)
                job.keeper.store.retain()
            except RayadError as error:
                raise _Failed(failure_of("the coordinator while publishing", error)) from error
            return receipts
        receipts = {}
        for sink in job.plan.sinks:
            try:
                receipts[sink.id] = job.sink_calls.call(sink, "publish", staged[sink.id])
            except Exception as error:
                raise _Failed(failure_of(f"sink {sink.key!r} ({sink.where}) while publishing", error)) from error
        return receipts

    def _abort_sinks(self) -> None:
        for sink in self._job.plan.sinks:
            try:
                sink.sink.abort()
            except Exception:
                logging.getLogger(__name__).warning("sink %r could not clean up", sink.key, exc_info=True)

    def _statistics(self, reports: list[ReplicaReport], counts: dict[str, int]) -> JobStatistics:
        job = self._job
        run_s = clock.time() - self._began_s - self._start_s
        taken = tuple(job.keeper.taken) if job.keeper is not None else ()
        stages = stage_statistics(reports, self._began_s)
        return JobStatistics(self._start_s, run_s, job.plan.replicas + 2, stages, counts, taken, job.failures)
