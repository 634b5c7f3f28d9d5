"""Changes of layout as the coordinator leads them: newcomers beside the running job, steps, retiring replicas. Any thread may ask.

The coordinator's own thread goes on supervising meanwhile. When something fails it stops a change that is under way, and all begin anew
from the last snapshot, in its layout; the change is then asked for again. Design: docs/design/rescaling.md.
"""

from __future__ import annotations

import dataclasses
import logging
import threading
import time as clock
from collections.abc import Collection, Mapping
from typing import Any

import ray
from ray.exceptions import RayActorError, RayError, RayTaskError

from rayad.actors.cluster.failure import Failure, failure_of
from rayad.actors.cluster.joining import check_placeable
from rayad.actors.coordinator.running_job import RunningJob
from rayad.actors.job import JobState
from rayad.actors.lead import layout_steps
from rayad.actors.lead.layout_steps import Rescale
from rayad.actors.plane.protocol import PROGRESS, replica_name, stage_of
from rayad.actors.process.mailbox import NoAnswer
from rayad.actors.replica.graph_shape import targets_of
from rayad.actors.replica.migration import StepCost
from rayad.dataflow.config import configured
from rayad.dataflow.plan import Plan
from rayad.dataflow.resources import told_resources
from rayad.progress import ConfigError, RayadError, RescaleRefused

STOP_TIMEOUT_S = 30.0
"""How long a change may take to notice that the job has failed."""
STEP_TIMEOUT_S = 600.0
"""How long one step may take, and one replica to finish what is on its way out; not counted while a replica is in a long activation."""
HOLD_S = 5.0
"""How long one question of those that wait for something is held; then it is asked again."""
LONG_S = 1.0
"""An activation that has taken so long keeps its replica's event loop from answering: that is no fault of the change."""
_log = logging.getLogger(__name__)


class _Stopped(Exception):
    """The job has failed, or is over."""


class Rescaler:
    """The changes of layout of one job."""

    def __init__(self, job: RunningJob) -> None:
        self._job = job
        self._one_at_a_time = threading.Lock()
        self._is_idle = threading.Event()
        self._is_idle.set()
        self._stop = threading.Event()
        self._step = 0
        self._left = threading.Condition()
        self.newcomers: set[str] = set()
        """Replicas that have not joined the job yet: if one fails, the change is refused and the job goes on."""
        self.leaving: dict[str, Any] = {}
        """Replicas that are to end, and what each has left when it has."""
        self.failure: Failure | None = None
        """What went wrong in the middle of a change: the job has to begin anew from its last snapshot."""
        self._wanted: dict[str, int] = {}
        self._has_begun = False
        self._held: Any = None

    def rescale(self, wanted: Mapping[str, int], timeout_s: float, decided_for: Mapping[str, int] | None = None) -> Rescale:
        """See :meth:`rayad.actors.job.Job.rescale`. From any thread; refused if ``decided_for`` another layout than now."""
        began_s, job = clock.monotonic(), self._job
        with self._one_at_a_time:
            while True:
                job.running.wait(timeout_s)
                if job.state is not JobState.RUNNING:
                    raise RescaleRefused(f"rescale({dict(wanted)}): job {job.name!r} is {job.state.value}")
                now = layout_steps.asked_of(job.plan)
                if decided_for is not None and decided_for != now:
                    raise RescaleRefused(f"rescale({dict(wanted)}): decided for the layout {dict(decided_for)}, which is {now} by now")
                self._is_idle.clear()
                try:
                    change = self._change(wanted, began_s, timeout_s)
                    self._wanted.update(wanted)
                    return change
                except _Stopped:
                    if clock.monotonic() - began_s > timeout_s:
                        raise RescaleRefused(
                            f"rescale({dict(wanted)}): job {job.name!r} failed meanwhile, and is not back after {timeout_s} s"
                        ) from None
                finally:
                    self._has_begun = False
                    self._is_idle.set()
                clock.sleep(0.05)

    def configure(self, changes: Mapping[str, Any]) -> None:
        """See :meth:`rayad.actors.job.Job.configure`. From any thread."""
        job = self._job
        config = configured(job.config, changes)
        with self._one_at_a_time:
            job.running.wait(job.config.start_timeout_s)
            if job.state is not JobState.RUNNING:
                raise ConfigError(f"configure({dict(changes)}): job {job.name!r} is {job.state.value}")
            self._is_idle.clear()
            try:
                self._hold()
                self._has_begun = True
                for turn in ("first", "senders", "receivers"):
                    names = job.crew.names()
                    self._get([job.crew.actors[name].change.remote("configure", dict(changes), turn) for name in names], 60.0)
            except _Stopped:
                pass  # those that begin anew begin with it
            finally:
                self._has_begun = False
                self._release()
                job.config = job.crew.config = config
                self._is_idle.set()

    def stop(self) -> None:
        """The coordinator's thread: the job has failed or is over; a change under way ends before anything else is done."""
        self._stop.set()
        deadline_s = clock.monotonic() + STOP_TIMEOUT_S
        while not self._is_idle.wait(0.01):
            if self._job.keeper is not None:
                self._job.keeper.serve()  # it may have asked something, and waits
            if clock.monotonic() > deadline_s:
                _log.warning("job %r: a change of layout did not end within %s s", self._job.name, STOP_TIMEOUT_S)
                break
        self.newcomers.clear()
        self.leaving.clear()
        self.failure = None
        self._stop.clear()

    def want(self, wanted: Mapping[str, int]) -> None:
        """The coordinator's thread: the run goes on from a snapshot with other replicas than it was asked for."""
        self._wanted.update(wanted)

    def check(self) -> None:
        """The coordinator's thread: the vertices are there and do not run yet. Raises RescaleRefused when one cannot be divided."""
        plan = self._job.plan
        for stage in plan.stages:
            count = self._wanted.get(stage.name, stage.parallelism)
            if count != stage.parallelism:
                ask = self._job.crew.actors[replica_name(stage.id, 0)].change.remote("may_move")
                why = ray.get(ask, timeout=self._job.config.start_timeout_s)
                if why:
                    raise RescaleRefused(f"resume={self._job.config.resume!r} with {count} replicas instead of {stage.parallelism}: {why}")

    def again(self) -> None:
        """The coordinator's thread: the job is back from a failure, perhaps in an older layout: what was asked for is done again."""
        now = layout_steps.asked_of(self._job.plan)
        lost = {name: count for name, count in self._wanted.items() if now.get(name) != count}
        if lost:
            threading.Thread(target=self._do_again, args=(lost,), name="rayad-rescale", daemon=True).start()

    def _do_again(self, wanted: dict[str, int]) -> None:
        try:
            self.rescale(wanted, self._job.config.start_timeout_s)
        except RayadError as error:
            _log.warning("job %r: after a failure the layout stays older than it was: %s", self._job.name, error)

    def on_left(self, name: str, left: Any) -> None:
        """The coordinator's thread: a replica has ended as it was told to."""
        with self._left:
            self.leaving[name] = left
            self._left.notify_all()

    # -- one change ------------------------------------------------------------------------------------
    def _change(self, wanted: Mapping[str, int], began_s: float, timeout_s: float) -> Rescale:
        job = self._job
        before = job.plan
        stages = layout_steps.wanted_replicas(before, wanted)
        if not stages:
            return Rescale(layout_steps.asked_of(before), layout_steps.asked_of(before))
        if job.config.failures.recovery == "upstream":
            raise RescaleRefused(layout_steps.NOT_UPSTREAM)
        for stage in stages:
            left_s = max(0.0, began_s + timeout_s - clock.monotonic())
            try:
                why = self._get([job.crew.actors[replica_name(stage, 0)].change_within.remote(left_s, "may_move")], left_s + HOLD_S)[0]
            except (NoAnswer, TimeoutError) as error:
                raise RescaleRefused(f"the layout stays {layout_steps.asked_of(before)}: {self._why_late(error, timeout_s)}") from None
            if why:
                raise RescaleRefused(f"rescale({before.stage(stage).name!r}, {stages[stage]}): {why}")
        keeper = job.keeper
        try:
            if keeper is not None:
                self._until(keeper.may_change, timeout_s, "the snapshot under way is complete")
            prepared = before.laid_out(layout_steps.prepared(before, stages))
            self._check_placeable(prepared, wanted)
            newcomers = self._prepare(before, prepared, set(stages), began_s + timeout_s)
            prepared_s = clock.monotonic() - began_s
            try:
                return self._move(prepared, stages, newcomers, began_s, prepared_s)
            except _Stopped:
                raise
            except Exception as error:
                told = failure_of("a change of layout", error)
                self.failure = dataclasses.replace(told, is_lost_peer=True)  # if another failure is found, that is the cause
                self._leave_to_coordinator()
                raise _Stopped from None
        finally:
            if keeper is not None:
                keeper.end_change()
            self._release()

    def _check_placeable(self, prepared: Plan, wanted: Mapping[str, int]) -> None:
        config = self._job.config
        try:
            check_placeable(prepared.needs(config.cpus_per_replica), f"rescale({dict(wanted)})", config.autoscaling_cluster)
        except ConfigError as error:
            raise RescaleRefused(f"the layout stays {layout_steps.asked_of(self._job.plan)}: {error}") from None

    def _hold(self) -> None:
        """From here to :meth:`_release` the job is not over, even if nothing is left to do. Raises _Stopped when it is over already."""
        progress = self._job.crew.actors[PROGRESS]
        if not self._get([progress.call.remote("hold")], STOP_TIMEOUT_S)[0]:
            self._leave_to_coordinator()
            raise _Stopped
        self._held = progress

    def _release(self) -> None:
        held, self._held = self._held, None
        if held is not None:
            held.call.remote("release")  # nobody waits: it may be gone

    def _prepare(self, before: Plan, prepared: Plan, moving: set[int], deadline_s: float) -> list[str]:
        """Start the newcomers and connect everybody; if that fails the old layout stays."""
        began_s = clock.monotonic()
        job, crew = self._job, self._job.crew
        old = crew.names()
        newcomers = [replica_name(s.id, r) for s in prepared.stages for r in range(before.stage(s.id).parallelism, s.parallelism)]
        job.incarnation += 1
        incarnation = job.incarnation
        self.newcomers = set(newcomers)
        progress = crew.actors[PROGRESS]
        try:
            crew.plan = prepared
            crew.start()
            incarnations = {**job.incarnations, **dict.fromkeys(newcomers, incarnation)}
            store = job.keeper.store.store if job.keeper is not None else None
            arguments = (job.config.host, incarnation, store, None, incarnations, prepared.layout, True)
            answers = self._get([crew.actors[name].listen.remote(*arguments) for name in newcomers], deadline_s - clock.monotonic())
            for name, answer in zip(newcomers, answers, strict=True):
                if isinstance(answer, Failure):
                    raise RescaleRefused(f"{job.who(name)} could not be started: {answer.message}")
                job.addresses[name] = answer
            self._hold()
            job.incarnations.update(dict.fromkeys(newcomers, incarnation))
            if job.keeper is not None:
                job.keeper.admit(newcomers, incarnation, prepared)
            if newcomers:
                self._get([progress.call.remote("join", newcomers, incarnation)], deadline_s - clock.monotonic())
            told = {name: job.addresses[name] for name in crew.names() if name in self.newcomers or stage_of(name) in moving}
            fresh = dict.fromkeys(newcomers, incarnation)
            left_s = max(0.0, deadline_s - clock.monotonic())
            calls = [crew.actors[name].change_within.remote(left_s, "prepare", prepared.layout, told, fresh, moving) for name in old]
            self._get(calls, left_s + HOLD_S)
            job.run(newcomers)
            self._await(old, "is_prepared", what="have connected", deadline_s=deadline_s)
            left_s = max(0.0, deadline_s - clock.monotonic())
            if newcomers and not self._get([progress.call.remote("joined", newcomers, left_s)], left_s + HOLD_S)[0]:
                raise TimeoutError("not all newcomers have registered")
        except Exception as error:
            if isinstance(error, _Stopped) or self._stop.is_set():
                raise _Stopped from None
            self._undo(before, old, newcomers)
            why = str(error)
            if isinstance(error, (RayError, TimeoutError, NoAnswer)):
                why = self._why_late(error, deadline_s - began_s)
            raise RescaleRefused(f"the layout stays {layout_steps.asked_of(before)}: {why}") from None
        job.admit(newcomers)
        self.newcomers = set()
        return newcomers

    def _why_late(self, error: Exception, timeout_s: float) -> str:
        """Why a change could not begin in time: somebody is in a long activation, or there is no room for newcomers."""
        busy = self._job.crew.busy(LONG_S)
        if busy:
            name, pulse = busy[0]
            return f"{self._job.who(name)} is in {pulse.activity}, and has not come to the change within {timeout_s:.1f} s; ask again later"
        free = told_resources(ray.available_resources())
        return f"the new replicas were not placed and connected in time ({type(error).__name__}); free resources now: {free}"

    def _undo(self, before: Plan, old: list[str], newcomers: list[str]) -> None:
        job = self._job
        job.crew.plan = before
        job.calls.forget(newcomers)  # before they are ended: nobody takes that for a failure
        try:
            self._get([job.crew.actors[PROGRESS].call.remote("forget", newcomers)], STOP_TIMEOUT_S)
            job.crew.stop(newcomers)
            undone = [job.crew.actors[name].change.remote("commit", before.layout) for name in old]
            self._get(undone, HOLD_S)  # who is in a long activation does it when that is over, before anything that it is asked later
        except (RayActorError, RayTaskError, TimeoutError, RayadError):
            return  # the job has failed, or is over
        finally:
            job.crew.stop(newcomers)
            if job.keeper is not None:
                job.keeper.part(newcomers, before, {})
            self.newcomers = set()

    def _move(self, prepared: Plan, stages: dict[int, int], newcomers: list[str], began_s: float, prepared_s: float) -> Rescale:
        job, crew = self._job, self._job.crew
        self._has_begun = True
        goal = layout_steps.target(prepared, stages)
        most_s = job.config.rescale_pause_s
        plan, groups, steps = prepared, layout_steps.FIRST_STEP_GROUPS if most_s is not None else prepared.key_groups, 0
        names, pauses = crew.names(), list[tuple[int, float]]()
        while plan.layout != goal or not steps:  # where only newcomers come, senders have to be told all the same
            if all(stage not in plan.layout.owners for stage in stages):
                groups = prepared.key_groups
            plan = plan.laid_out(layout_steps.next_layout(plan, goal, groups))
            self._step, steps = self._step + 1, steps + 1
            self._get([crew.actors[name].change.remote("relayout", self._step, plan.layout) for name in names], STEP_TIMEOUT_S)
            self._await(names, "is_settled", self._step, what=f"have settled step {steps} of a change")
            moving = [name for name in names if stage_of(name) in stages]
            last = [cost for _, cost in self._get([crew.actors[name].change.remote("costs") for name in moving], 60.0) if cost is not None]
            pauses.append((groups, max((cost.state_s for cost in last), default=0.0)))
            groups = layout_steps.groups_of_next_step(pauses, most_s) if most_s is not None else prepared.key_groups
        self._await(names, "is_drained", what="have consumed what was passed on to them")
        costs = self._retire(plan, names)
        job.plan = crew.plan = plan
        if job.keeper is not None:
            job.keeper.lay_out(plan)
        stay = [name for name in names if name in crew.actors]
        costs += self._get([crew.actors[name].change.remote("commit", plan.layout) for name in stay], 60.0)
        total = StepCost.total(costs)
        return Rescale(
            _before(prepared, newcomers),
            layout_steps.asked_of(plan),
            steps,
            total.groups,
            total.state_bytes,
            total.passed_on,
            total.held,
            prepared_s,
            clock.monotonic() - began_s,
            total.longest_pause_s,
            max((cost.pause_s for cost in costs), default=0.0),
        )

    def _retire(self, plan: Plan, names: list[str]) -> list[StepCost]:
        """Those beyond the new layout end; what their sink writers have staged is kept."""
        job, crew = self._job, self._job.crew
        gone = [name for name in names if int(name.split(".")[1]) >= plan.stage(stage_of(name)).parallelism]
        if not gone:
            return []
        costs = [total for total, _ in self._get([crew.actors[name].change.remote("costs") for name in gone], 60.0)]
        base = job.keeper.base() if job.keeper is not None else 0
        with self._left:
            self.leaving.update(dict.fromkeys(gone))
        self._get([crew.actors[name].change.remote("leave", base) for name in gone], STEP_TIMEOUT_S)
        self._part(gone, plan)
        for name in names:
            if name in gone:
                continue
            edges = [edge for edge in plan.edges if edge.target == stage_of(name)]
            ends = [(edge.id, one) for edge in edges for one in gone if edge.source == stage_of(one)]
            mine = int(name.split(".")[1])
            ends = [(edge, one) for edge, one in ends if mine in targets_of(plan, _edge(plan, edge), int(one.split(".")[1]))]
            if ends:
                self._await([name], "has_ended", ends, what="have met the last markers of those that retire")
        crew.stop(gone)
        return costs

    def _part(self, gone: list[str], plan: Plan) -> None:
        """Wait until these have left, and keep what they leave."""
        deadline_s = clock.monotonic() + STEP_TIMEOUT_S
        with self._left:
            while any(self.leaving[name] is None for name in gone):
                if self._stop.is_set():
                    raise _Stopped
                deadline_s = self._later(deadline_s)
                if clock.monotonic() > deadline_s:
                    raise TimeoutError(f"after {STEP_TIMEOUT_S:.1f} s not all of {gone} have left")
                self._left.wait(0.1)
            left = {name: self.leaving.pop(name) for name in gone}
        if self._job.keeper is not None:
            self._job.keeper.part(gone, plan, left)

    # -- waiting ---------------------------------------------------------------------------------------
    def _get(self, refs: list[Any], timeout_s: float) -> list[Any]:
        """The answers, unless the job fails meanwhile. Raises TimeoutError."""
        deadline_s = clock.monotonic() + timeout_s
        while refs:
            if self._stop.is_set():
                raise _Stopped
            _, late = ray.wait(refs, num_returns=len(refs), timeout=0.05)
            if not late:
                break
            deadline_s = self._later(deadline_s)
            if clock.monotonic() > deadline_s:
                raise TimeoutError(f"{len(late)} of {len(refs)} actors did not answer within {timeout_s:.1f} s")
        try:
            return list(ray.get(refs, timeout=STOP_TIMEOUT_S))  # they are there
        except RayTaskError as error:
            raise (error.cause if isinstance(error.cause, Exception) else error) from None
        except RayActorError as error:
            rest = {actor._actor_id.hex() for name, actor in self._job.crew.actors.items() if name not in self.newcomers}
            if self.newcomers and error.actor_id not in rest:
                raise  # one of them; of others the coordinator's thread hears, too
            self._stop.wait(STOP_TIMEOUT_S)
            raise _Stopped from None

    def _await(self, names: Collection[str], method: str, *args: Any, what: str, deadline_s: float | None = None) -> None:
        """Until one of HostRescale's methods gives True at each of these replicas. Raises TimeoutError."""
        crew, late = self._job.crew, list(names)
        began_s = clock.monotonic()
        deadline_s = began_s + STEP_TIMEOUT_S if deadline_s is None else deadline_s
        while late:
            hold_s = max(0.0, min(HOLD_S, deadline_s - clock.monotonic()))
            there = self._get([crew.actors[name].await_change.remote(method, hold_s, *args) for name in late], hold_s + HOLD_S)
            late = [name for name, is_there in zip(late, there, strict=True) if not is_there]
            deadline_s = self._later(deadline_s)
            if late and clock.monotonic() > deadline_s:
                raise TimeoutError(f"after {clock.monotonic() - began_s:.1f} s not all replicas {what}: {self._job.who(late[0])} has not")

    def _later(self, deadline_s: float) -> float:
        """A change that has begun cannot be given up half-way: time in which a replica is in a long activation does not count. It ends with
        that, with the replica (its heartbeat, RunConfig.activation_timeout_s), or with the job."""
        if self._has_begun and self._job.crew.is_busy(LONG_S):
            return max(deadline_s, clock.monotonic() + HOLD_S)
        return deadline_s

    def _leave_to_coordinator(self) -> None:
        """Wait until the coordinator's thread has taken notice: it ends the job, or begins anew."""
        while not self._stop.wait(0.05) and self._job.state is JobState.RUNNING:
            pass

    def _until(self, condition: Any, timeout_s: float, what: str) -> None:
        deadline_s = clock.monotonic() + timeout_s
        while not condition():
            if self._stop.is_set():
                raise _Stopped
            if clock.monotonic() > deadline_s:
                raise RescaleRefused(f"the layout stays: after {timeout_s} s it is not so that {what}")
            clock.sleep(0.005)


def _edge(plan: Plan, edge: int) -> Any:
    return next(one for one in plan.edges if one.id == edge)


def _before(prepared: Plan, newcomers: list[str]) -> dict[str, int]:
    counts = layout_steps.asked_of(prepared)
    for name in newcomers:
        counts[prepared.stage(stage_of(name)).name] -= 1
    return counts


__all__ = ["Rescaler"]
