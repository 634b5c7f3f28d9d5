"""Realistic mistakes in what the leader of a change asks actors, and in what it makes of their answers, planted one at a time.

Most of it was decided by the driver on Ray alone, where the simulation could not see it.
"""

from __future__ import annotations

import dataclasses
from contextlib import ExitStack
from typing import Any
from unittest.mock import PropertyMock, patch

from rayad.actors.lead import calls
from rayad.actors.lead.asking import Ask, Late, Questions
from rayad.actors.lead.change_leader import ChangeLeader
from rayad.actors.lead.change_protocol import Phase
from rayad.actors.lead.failure import Failure
from rayad.actors.lead.newcomers import Newcomers
from rayad.actors.plane.protocol import PROGRESS
from rayad.actors.replica.report import Left, ReplicaReport
from rayad.actors.worker.rescaling import HostRescale
from tests.simulation.defects import Plant, around

DEFECTS_OF_ASKING: dict[str, Plant] = {}


def defect(plant: Plant) -> Plant:
    """Register a defect under its function's name."""
    DEFECTS_OF_ASKING[plant.__name__.replace("_", " ")] = plant
    return plant


def _other_call(stack: ExitStack, kind: type[calls.Call], other: Any) -> None:
    """Calls of one kind are asked otherwise; ``other`` gets the leader, the names and the call, and gives the call."""

    def ask(real: Any, self: Any, names: Any, call: Any, *within_s: float) -> None:
        real(self, names, other(self, names, call) if isinstance(call, kind) else call, *within_s)

    around(stack, ChangeLeader, "_ask", ask)


def _other_meaning(stack: ExitStack, kind: type[calls.Call], meaning: Any) -> None:
    """Answers to calls of one kind mean something else; ``meaning`` gets the leader, the name, the answer, and what does as it should."""

    def on_answered(real: Any, self: Any, name: str, call: Any, value: Any) -> None:
        if isinstance(call, kind):
            meaning(self, name, value, lambda instead=value: real(self, name, call, instead))
        else:
            real(self, name, call, value)

    around(stack, ChangeLeader, "_on_answered", on_answered)


# -- addresses and incarnations ------------------------------------------------------------------------------------------------


@defect
def newcomers_are_looked_for_where_those_before_them_listened(stack: ExitStack) -> None:
    """Replicas of that name that have retired, or would not join."""

    def other(leader: Any, names: Any, call: Any) -> Any:
        before = {name: (name, leader.incarnation - 1) for name in leader.newcomers}
        return dataclasses.replace(call, addresses={**call.addresses, **before})

    _other_call(stack, calls.Prepare, other)


@defect
def siblings_are_not_told_where_the_others_listen(stack: ExitStack) -> None:
    """Only where newcomers do; but state goes from any replica of a stage to any other."""

    def other(leader: Any, names: Any, call: Any) -> Any:
        return dataclasses.replace(call, addresses={name: call.addresses[name] for name in leader.newcomers})

    _other_call(stack, calls.Prepare, other)


@defect
def only_siblings_are_told_of_newcomers(stack: ExitStack) -> None:
    """Those who send to them, or get from them, are not."""

    def other(leader: Any, names: Any, call: Any) -> Any:
        return dataclasses.replace(call, incarnations={}, addresses=dict.fromkeys(call.addresses, None))

    def ask(real: Any, self: Any, names: Any, call: Any, *within_s: float) -> None:
        if not isinstance(call, calls.Prepare):
            real(self, names, call, *within_s)
            return
        siblings = [name for name in names if name in call.addresses]
        real(self, siblings, call, *within_s)
        real(self, [name for name in names if name not in siblings], other(self, names, call), *within_s)

    around(stack, ChangeLeader, "_ask", ask)


@defect
def newcomers_are_admitted_in_the_jobs_incarnation(stack: ExitStack) -> None:
    """They listen in one of their own."""
    stack.enter_context(patch.object(Newcomers, "incarnations", property(lambda self: dict.fromkeys(self.fresh, self.incarnation - 1))))


@defect
def newcomers_register_in_the_jobs_incarnation(stack: ExitStack) -> None:
    _other_call(stack, calls.Join, lambda leader, _, call: dataclasses.replace(call, incarnation=leader.incarnation - 1))


@defect
def newcomers_join_before_the_coordinator_expects_them(stack: ExitStack) -> None:
    def go_on(real: Any, self: Any) -> None:
        if self.phase is Phase.HOLDING and self.newcomers:
            self._enter(Phase.ADMITTING, self._limit_s)
            self._ask([PROGRESS], calls.Join(self.newcomers, self.incarnation))
        else:
            real(self)

    around(stack, ChangeLeader, "_go_on", go_on)


@defect
def an_incarnation_is_used_by_two_changes(stack: ExitStack) -> None:
    """A newcomer has the incarnation of the job, as the one of its name that has retired had."""
    stack.enter_context(patch.object(ChangeLeader, "incarnation", PropertyMock(return_value=1)))


@defect
def a_newcomer_that_cannot_be_built_counts_as_one_that_listens(stack: ExitStack) -> None:
    def meaning(leader: Any, name: str, value: Any, as_it_should: Any) -> None:
        as_it_should((name, leader.incarnation) if isinstance(value, Failure) else value)

    _other_meaning(stack, calls.Listen, meaning)


# -- what is asked again -------------------------------------------------------------------------------------------------------


@defect
def a_question_that_was_given_up_is_not_asked_again(stack: ExitStack) -> None:
    _other_meaning(stack, calls.Condition, lambda leader, name, value, as_it_should: as_it_should() if value else None)


@defect
def a_question_that_was_given_up_counts_as_answered(stack: ExitStack) -> None:
    _other_meaning(stack, calls.Condition, lambda leader, name, value, as_it_should: as_it_should(True))


@defect
def a_replica_that_has_heard_of_a_step_has_settled_it(stack: ExitStack) -> None:
    _other_meaning(stack, calls.Relayout, lambda leader, name, value, as_it_should: leader._settle(name))


@defect
def a_second_question_of_a_phase_has_the_turn_of_the_first(stack: ExitStack) -> None:
    """So a late answer to the first counts for it."""

    def ask(real: Any, self: Any, names: Any, call: Any, *within_s: float) -> Any:
        if isinstance(call, calls.IsSettled | calls.Costs) and len(names) == 1 and names[0] in self._open:
            turn = self._open[names[0]][0]
            self._open[names[0]] = (turn, call)
            return Ask(turn, tuple(names), call, *within_s)
        return real(self, names, call, *within_s)

    around(stack, Questions, "ask", ask)


@defect
def a_call_that_was_withdrawn_counts_as_done(stack: ExitStack) -> None:
    def on_answer(real: Any, self: Any, answer: Any, call: Any) -> None:
        if isinstance(answer, Late):
            self._settle(answer.name)
        else:
            real(self, answer, call)

    around(stack, ChangeLeader, "_on_answer", on_answer)


# -- the job, held and released ------------------------------------------------------------------------------------------------


@defect
def the_job_is_not_released(stack: ExitStack) -> None:
    def end(real: Any, self: Any, outcome: Any) -> None:
        self.holds_job = False
        real(self, outcome)

    around(stack, ChangeLeader, "_end", end)


@defect
def the_job_is_not_held(stack: ExitStack) -> None:
    """It may be complete, and its replicas ended, before the change is."""

    def ask(real: Any, self: Any, names: Any, call: Any, *within_s: float) -> None:
        if isinstance(call, calls.Hold):
            self._go_on()
        else:
            real(self, names, call, *within_s)

    around(stack, ChangeLeader, "_ask", ask)


@defect
def a_job_that_is_over_counts_as_held(stack: ExitStack) -> None:
    _other_meaning(stack, calls.Hold, lambda leader, name, value, as_it_should: as_it_should(True))


# -- those who leave -----------------------------------------------------------------------------------------------------------


@defect
def a_replica_has_left_when_it_has_heard_that_it_shall(stack: ExitStack) -> None:
    _other_meaning(stack, calls.Leave, lambda leader, name, value, as_it_should: leader._on_left(name, Left(ReplicaReport("", 0), {})))


@defect
def what_a_replica_has_left_is_lost(stack: ExitStack) -> None:
    around(stack, ChangeLeader, "_on_left", lambda real, self, name, left: real(self, name, dataclasses.replace(left, staged={})))


@defect
def a_replica_leaves_what_snapshots_have_already(stack: ExitStack) -> None:
    """Nobody was asked which snapshot was published last."""
    _other_call(stack, calls.Leave, lambda leader, names, call: calls.Leave(-1))


@defect
def a_replica_leaves_what_no_snapshot_has(stack: ExitStack) -> None:
    """The other way round: what was staged for attempts that were given up since."""
    _other_call(stack, calls.Leave, lambda leader, names, call: calls.Leave(10**9))


@defect
def costs_of_those_who_leave_are_lost(stack: ExitStack) -> None:
    def on_left(real: Any, self: Any, name: str, left: Any) -> None:
        with patch.object(self._costs, "on_replica", lambda cost: None):
            real(self, name, left)

    around(stack, ChangeLeader, "_on_left", on_left)


@defect
def costs_of_steps_are_not_asked_for(stack: ExitStack) -> None:
    """Each step is as large as it may be after one that took no time."""

    def meaning(leader: Any, name: str, value: Any, as_it_should: Any) -> None:
        if value:
            leader._settle(name)
        else:
            as_it_should()

    _other_meaning(stack, calls.IsSettled, meaning)


@defect
def a_replica_is_told_of_those_alone_with_which_it_exchanges_frames_now(stack: ExitStack) -> None:
    """Another replica may come to a new process later."""

    def prepare(
        real: Any, self: HostRescale, turn: int, layout: Any, newcomers: Any, addresses: Any, incarnations: Any, moving: Any
    ) -> None:
        place = self.place
        plan = place.plan.laid_out(layout)
        mine = place.places.partners(place.worker.name, plan, [place.at])
        if place.stage.id in moving:
            siblings = range(plan.stage(place.stage.id).parallelism)
            mine |= {place.places.process_of(place.stage.id, replica) for replica in siblings} - {place.worker.name}
        told = {process: incarnation for process, incarnation in incarnations.items() if process in mine}
        real(self, turn, layout, newcomers, addresses, told, moving)

    around(stack, HostRescale, "prepare", prepare)


# -- undoing -------------------------------------------------------------------------------------------------------------------


@defect
def an_undoing_comes_with_the_turn_of_an_earlier_change(stack: ExitStack) -> None:
    """Replicas take it for one that was overtaken."""

    def other(leader: Any, names: Any, call: Any) -> Any:
        return dataclasses.replace(call, turn=0) if leader.phase is Phase.UNDOING else call

    _other_call(stack, calls.Commit, other)


@defect
def a_preparation_does_not_tell_its_turn(stack: ExitStack) -> None:
    """One that comes after its undoing is carried out, or none is."""
    _other_call(stack, calls.Prepare, lambda leader, names, call: dataclasses.replace(call, turn=10**9))
