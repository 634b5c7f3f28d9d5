"""Mistakes planted in what only Ray ran before: supervisor, crew, running job, stored job, snapshots, rescaling, the store's thread. The
seeds have to find them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any
from unittest.mock import patch

from rayad.actors.coordinator.change_driver import ChangeDriver
from rayad.actors.coordinator.coordinators_part import CoordinatorsPart
from rayad.actors.coordinator.long_calls import LongCalls
from rayad.actors.coordinator.processes.crew import Crew
from rayad.actors.coordinator.processes.moving import Mover
from rayad.actors.coordinator.processes.sites import Sites
from rayad.actors.coordinator.rescaling import Rescaler
from rayad.actors.coordinator.running_job import RunningJob
from rayad.actors.coordinator.stored.snapshots import CoordinatorSnapshots
from rayad.actors.coordinator.stored.store_thread import StoreThread
from rayad.actors.coordinator.stored.stored_job import StoredJob
from rayad.actors.coordinator.supervisor import Supervisor
from rayad.actors.coordinator.surroundings import Ended
from rayad.actors.lead.nodes.known import KnownNodes
from rayad.actors.lead.recovery_leader import Failed, RollBack, Run
from rayad.actors.plane.protocol import COORDINATOR, PROGRESS
from rayad.actors.worker.progress_worker import ProgressWorker, Switch
from rayad.actors.worker.worker import Worker
from tests.simulation.defects import around

Plant = Callable[[ExitStack], None]
DEFECTS_OF_COORDINATORS: dict[str, Plant] = {}


def defect(plant: Plant) -> Plant:
    """Register a defect under its function's name."""
    DEFECTS_OF_COORDINATORS[plant.__name__.replace("_", " ")] = plant
    return plant


def _leaves_out(owner: Any, method: str, gives: Any = None) -> Plant:
    """A method that does nothing."""

    def plant(stack: ExitStack) -> None:
        around(stack, owner, method, lambda real, self, *arguments, **options: gives)

    return plant


def _left_out(name: str, owner: Any, method: str, gives: Any = None) -> None:
    DEFECTS_OF_COORDINATORS[name] = _leaves_out(owner, method, gives)


# -- supervisor --------------------------------------------------------------------------------------------------------------------
_left_out("replicas resume without their parts", Supervisor, "_parts", {})
_left_out("who ends without an error is not looked at", Supervisor, "_on_ended", ())
_left_out("what runs is released by nobody", Supervisor, "_release")
_left_out("sinks publish nothing of what was staged", Supervisor, "_all_staged", [])
_left_out("actors of a job that is over live on", Supervisor, "_stop_all")


@defect
def a_death_is_taken_for_the_end_of_the_work(stack: ExitStack) -> None:
    def get(real: Any, self: Any, ref: Any, who: str) -> Any:
        return {} if isinstance(ref.answer, Ended) else real(self, ref, who)

    around(stack, Supervisor, "_get", get)


@defect
def the_incarnation_of_a_survivor_is_taken_for_the_newest(stack: ExitStack) -> None:
    around(stack, Supervisor, "_incarnation_of", lambda real, self, name: self._job.incarnation)


@defect
def new_replicas_run_before_all_have_rolled_back(stack: ExitStack) -> None:
    def carry_out(real: Any, self: Any, effect: Any) -> Any:
        given = real(self, effect)
        leader = self.leader.recovery
        if isinstance(effect, RollBack):
            real(self, Run(leader._names(), leader.incarnation, dict(leader._addresses)))
        return given

    around(stack, Supervisor, "_carry_out", carry_out)


@defect
def who_has_failed_is_not_said(stack: ExitStack) -> None:
    def on_ended(real: Any, self: Any, *arguments: Any) -> Any:
        return [event for event in real(self, *arguments) if not (isinstance(event, Failed) and event.failure.has_ended)]

    around(stack, Supervisor, "_on_ended", on_ended)


@defect
def replicas_are_not_told_the_incarnations_of_others(stack: ExitStack) -> None:
    def listen(real: Any, self: Any, names: Any) -> None:
        real(self, names)
        for ref in self._asked:
            if ref.method == "listen" and ref.actor.name != PROGRESS:
                ref.arguments = (*ref.arguments[:4], {}, *ref.arguments[5:])

    around(stack, Supervisor, "_let_listen", listen)


@defect
def replicas_begin_anew_in_the_layout_of_the_plan(stack: ExitStack) -> None:
    def listen(real: Any, self: Any, names: Any) -> None:
        real(self, names)
        for ref in self._asked:
            if ref.method == "listen" and ref.actor.name != PROGRESS:
                ref.arguments = (*ref.arguments[:5], None, *ref.arguments[6:])

    around(stack, Supervisor, "_let_listen", listen)


@defect
def those_that_live_on_roll_back_to_nothing(stack: ExitStack) -> None:
    def roll_back(real: Any, self: Any, effect: Any) -> None:
        real(self, effect)
        for ref in self._asked:
            if ref.method == "roll_back":
                ref.arguments = (*ref.arguments[:3], None, *ref.arguments[4:])

    around(stack, Supervisor, "_roll_back", roll_back)


@defect
def the_job_runs_before_its_snapshots_may_begin(stack: ExitStack) -> None:
    around(stack, CoordinatorSnapshots, "go", lambda real, self: None)


# -- crew --------------------------------------------------------------------------------------------------------------------------
_left_out("who is retired lives on", Crew, "stop")
_left_out("nobody notices who is silent", Crew, "find_stuck")
_left_out("answers to heartbeats are not heard", Crew, "_listen")
_left_out("actors outlive their job", Crew, "end")


@defect
def who_does_not_leave_its_work_is_kept(stack: ExitStack) -> None:
    def release(real: Any, self: Any, names: Any, incarnation: int, stuck: Any = ()) -> None:
        kill, self._port.kill = self._port.kill, lambda actor: None
        try:
            real(self, names, incarnation, stuck)
        finally:
            self._port.kill = kill

    around(stack, Crew, "release", release)


@defect
def who_died_is_not_started_anew(stack: ExitStack) -> None:
    def release(real: Any, self: Any, *arguments: Any) -> None:
        before = dict(self.actors)
        real(self, *arguments)
        self.actors = {**before, **self.actors}

    around(stack, Crew, "release", release)


@defect
def processes_are_not_told_that_their_incarnation_is_over(stack: ExitStack) -> None:
    def release(real: Any, self: Any, names: Any, incarnation: int, stuck: Any = ()) -> None:
        real(self, names, incarnation - 1, stuck)

    around(stack, Crew, "release", release)


@defect
def the_processes_of_the_old_layout_are_started(stack: ExitStack) -> None:
    def start(real: Any, self: Any) -> None:
        plan, self.plan = self.plan, self.first_plan
        real(self)
        self.plan = plan

    def made(real: Any, self: Any, plan: Any, *arguments: Any, **options: Any) -> None:
        real(self, plan, *arguments, **options)
        self.first_plan = plan

    around(stack, Crew, "start", start)
    around(stack, Crew, "__init__", made)


# -- running job -------------------------------------------------------------------------------------------------------------------
def _without_addresses(stack: ExitStack, is_left_out: Callable[[Any, str], bool]) -> None:
    def addresses(real: Any, self: Any, process: str) -> Any:
        return {name: at for name, at in real(self, process).items() if not is_left_out(self, name)}

    around(stack, RunningJob, "_addresses_for", addresses)


@defect
def nobody_is_told_where_the_coordinator_is(stack: ExitStack) -> None:
    _without_addresses(stack, lambda job, name: name == COORDINATOR)


@defect
def a_process_is_told_the_addresses_of_before(stack: ExitStack) -> None:
    first: dict[str, Any] = {}

    def addresses(real: Any, self: Any, process: str) -> Any:
        return {name: first.setdefault(name, at) for name, at in real(self, process).items()}

    around(stack, RunningJob, "_addresses_for", addresses)


@defect
def the_long_call_of_the_progress_actor_is_not_waited_for(stack: ExitStack) -> None:
    def run(real: Any, self: Any, names: list[str]) -> None:
        real(self, names)
        self.calls.forget([PROGRESS])

    around(stack, RunningJob, "run", run)


# -- long calls --------------------------------------------------------------------------------------------------------------------
_left_out("calls of those that are gone are waited for", LongCalls, "forget")


@defect
def the_calls_of_the_incarnation_before_stay(stack: ExitStack) -> None:
    around(stack, LongCalls, "clear", lambda real, self: None)
    around(stack, LongCalls, "forget", lambda real, self, names: None)


@defect
def a_call_that_has_ended_is_waited_for_again(stack: ExitStack) -> None:
    def ended(real: Any, self: Any, ref: Any) -> Any:
        self.take_over()
        return self._calls.get(ref)

    around(stack, LongCalls, "ended", ended)


# -- stored job --------------------------------------------------------------------------------------------------------------------
_left_out("the layout is not that of the snapshot", StoredJob, "_lay_out")


@defect
def a_recovery_does_not_wait_for_a_commit(stack: ExitStack) -> None:
    def read_on(real: Any, self: Any) -> None:
        effect, snapshots = self._reading, self._job.snapshots
        if effect is None or snapshots is None:
            real(self)
            return
        self._reading = None
        void = 0
        if effect.region is None:
            snapshots.close()
        else:
            void = snapshots.fail_region() or 0
        answer: Any = _Answer(snapshots.find_newest())
        self._after_reading(effect, snapshots, void, answer)

    around(stack, StoredJob, "_read_on", read_on)


class _Answer:
    def __init__(self, value: Any) -> None:
        self._value = value

    def result(self, timeout: float) -> Any:
        return self._value


@defect
def an_answer_of_the_store_is_lost_while_the_job_recovers(stack: ExitStack) -> None:
    def take(real: Any, self: Any) -> Any:
        found = list(real(self))
        return found if self._recovery.is_running or self._job.failures == 0 else []

    around(stack, StoredJob, "take", take)


# -- snapshots ---------------------------------------------------------------------------------------------------------------------
_left_out("frames of replicas that begin anew are stale", CoordinatorSnapshots, "expect")
_left_out("newcomers are not expected", CoordinatorSnapshots, "admit")
_left_out("the layout of snapshots is the old one", CoordinatorSnapshots, "lay_out")
_left_out("what the retired had staged is in no snapshot", CoordinatorSnapshots, "part")
_left_out("whoever waits for a savepoint at the end waits for ever", CoordinatorSnapshots, "end")
_left_out("a snapshot that waits for its sinks is never committed", CoordinatorSnapshots, "_after_commit")


@defect
def a_change_begins_beside_a_snapshot(stack: ExitStack) -> None:
    around(stack, CoordinatorSnapshots, "hold_back", lambda real, self, told: told())


@defect
def snapshots_begin_before_all_are_connected(stack: ExitStack) -> None:
    around(stack, CoordinatorSnapshots, "_all_connected", lambda real, self: True)


@defect
def the_last_snapshot_is_not_told(stack: ExitStack) -> None:
    def after(real: Any, self: Any, number: int, attempts: Any, copied: Any, answer: Any) -> None:
        told, self.on_published = self.on_published, lambda manifest: None
        real(self, number, attempts, copied, answer)
        self.on_published = told

    around(stack, CoordinatorSnapshots, "_after_publish", after)


@defect
def the_attempt_of_a_region_that_failed_goes_on(stack: ExitStack) -> None:
    def fail_region(real: Any, self: Any) -> Any:
        self._is_live = self._is_connected = False
        return self.leader.snapshots.attempts if self.leader.may_live_on else None

    around(stack, CoordinatorSnapshots, "fail_region", fail_region)


@defect
def the_coordinator_looks_again_and_again_while_nothing_may_begin(stack: ExitStack) -> None:
    is_ready = property(lambda self: self._is_live and self.final is None)
    stack.enter_context(patch.object(CoordinatorSnapshots, "is_ready", is_ready))
    around(stack, CoordinatorSnapshots, "_all_connected", lambda real, self: real(self) and self._clock.now_s > self._live_s + 0.2)


# -- changes -----------------------------------------------------------------------------------------------------------------------
_left_out("a change goes on over a recovery", Rescaler, "stop")
_left_out("after a failure the layout stays older", Rescaler, "again")


@defect
def an_answer_is_taken_for_that_of_the_turn_before(stack: ExitStack) -> None:
    around(stack, ChangeDriver, "_event", lambda real, self, ref, turn, name: real(self, ref, turn - 1, name))


@defect
def newcomers_have_no_incarnation(stack: ExitStack) -> None:
    def do(real: Any, self: Any, call: Any, *more: Any, **options: Any) -> None:
        before = dict(self._job.incarnations)
        real(self, call, *more, **options)
        self._job.incarnations = before

    around(stack, CoordinatorsPart, "do", do)


@defect
def what_the_retired_leave_is_forgotten(stack: ExitStack) -> None:
    def do(real: Any, self: Any, call: Any, *more: Any, **options: Any) -> None:
        real(self, call, *more, **options)
        self._job.left.clear()

    around(stack, CoordinatorsPart, "do", do)


@defect
def the_layout_of_a_change_that_is_over_is_not_the_jobs(stack: ExitStack) -> None:
    around(stack, CoordinatorsPart, "lay_out", lambda real, self, layout, processes: self._end(processes))


_left_out("newcomers that are refused stay", CoordinatorsPart, "stop")


# -- nodes -------------------------------------------------------------------------------------------------------------------------
_left_out("a node that is silent is not known to be", Sites, "on_silence")
_left_out("nodes that drain and nodes that are silent get new processes", KnownNodes, "avoided", {})
_left_out("a node that drains is not left", Mover, "look", frozenset())
_left_out("workers wait for room for ever", Crew, "share", ())
_left_out("a node is left with the next snapshot, whenever that is", CoordinatorSnapshots, "hasten")
_left_out("spares that take nobody's place live on", Crew, "drop_reliefs")


# -- what the simulation found in the product ------------------------------------------------------------------------------------------
@defect
def control_calls_are_answered_before_frames_are_taken(stack: ExitStack) -> None:
    def turn(real: Any, self: Any, frames: Any, answer: Any = None) -> None:
        if answer is not None:
            answer()
        real(self, frames)

    around(stack, Worker, "turn", turn)


@defect
def what_a_survivor_did_with_what_is_sent_again_counts_at_once(stack: ExitStack) -> None:
    around(stack, Switch, "hold_back", lambda real, self, replica, changes: changes)


@defect
def views_go_to_newcomers_that_have_not_connected(stack: ExitStack) -> None:
    def show(real: Any, self: Any, name: str, node: int, payload: bytes) -> None:
        switch, self._switch = self._switch, None
        try:
            real(self, name, node, payload)
        finally:
            self._switch = switch

    around(stack, ProgressWorker, "show", show)


# -- the store's thread ------------------------------------------------------------------------------------------------------------
@defect
def only_the_first_answer_of_the_store_is_served(stack: ExitStack) -> None:
    def serve(real: Any, self: Any) -> None:
        if self._ended:
            call = self._ended.popleft()
            self._unserved -= 1
            self._ended.clear()
            call.then(call.answer)

    around(stack, StoreThread, "serve", serve)


@defect
def a_call_of_the_store_that_is_under_way_does_not_count(stack: ExitStack) -> None:
    def post(real: Any, self: Any, *call: Any) -> None:
        real(self, *call)
        self._unserved -= 1

    def serve(real: Any, self: Any) -> None:
        self._unserved += len(self._ended)
        real(self)

    around(stack, StoreThread, "post", post)
    around(stack, StoreThread, "serve", serve)


@defect
def what_the_store_has_answered_is_lost(stack: ExitStack) -> None:
    def perform(real: Any, self: Any) -> bool:
        real(self)
        self._ended.clear()
        return True

    around(stack, StoreThread, "_perform", perform)


__all__ = ["DEFECTS_OF_COORDINATORS", "Plant"]
