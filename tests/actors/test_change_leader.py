"""The leader of a change of layout decides by events alone: from the question to the report, what is refused, what fails, in any order."""

from __future__ import annotations

import dataclasses
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import rayad as rd
from rayad.actors.lead import calls, layouts
from rayad.actors.lead.asking import Answered, Ask, Broke, Died, Event, JobFailed, Late, NewcomerFailed, Tick
from rayad.actors.lead.change_protocol import (
    GRACE_S,
    HOLD_S,
    STEP_TIMEOUT_S,
    STOP_TIMEOUT_S,
    Effect,
    Fail,
    Finish,
    GiveWay,
    LayOut,
    Phase,
    Refuse,
    Stop,
    TakeIn,
)
from rayad.actors.lead.failure import Failure
from rayad.actors.lead.layouts import FIRST_STEP_GROUPS, RescaleReport
from rayad.actors.plane.protocol import COORDINATOR, PROGRESS
from rayad.actors.replica.migration import StepCost
from rayad.progress import RescaleRefused
from tests.actors.changing import BASE, TIMEOUT_S, Led, asks, good_answer, left_by, only, released
from tests.actors.test_layouts import KEY_GROUPS, ids, plan

# -- from the beginning to the end ----------------------------------------------------------------------------------------------


def test_replicas_are_added_from_the_question_to_the_report() -> None:
    led = Led()
    one, newcomer = led.replica(0), led.replica(2)
    old, everybody = led.old, tuple(sorted((*led.old, newcomer)))
    prepared = led.before.laid_out(layouts.prepared(led.before, {led.sums: 3})).layout
    goal = layouts.target(led.before.laid_out(prepared), {led.sums: 3})
    incarnations = {**led.members.incarnations, newcomer: 6}
    assert led.said == [Ask(8, (one,), calls.MayMove(), TIMEOUT_S)]
    assert led.all_answer() == [Ask(9, (COORDINATOR,), calls.HoldSnapshots())]
    assert led.all_answer() == [Ask(10, (COORDINATOR,), calls.StartProcesses((newcomer,), prepared, 6))]
    assert led.all_answer() == [Ask(11, (newcomer,), calls.Listen(6, incarnations, prepared, 3))]
    assert led.all_answer() == [Ask(12, (PROGRESS,), calls.Hold())]
    assert led.all_answer() == [Ask(13, (COORDINATOR,), calls.Expect((newcomer,), (newcomer,), prepared, 6))]
    assert led.all_answer() == [Ask(14, (PROGRESS,), calls.Join((newcomer,), 6))]
    concerned = {led.replica(number): f"at {led.replica(number)}" for number in range(3)}
    prepare = calls.Prepare(15, prepared, ((led.sums, 2),), concerned, {newcomer: 6}, frozenset({led.sums}))
    assert led.all_answer() == [Ask(15, old, prepare, TIMEOUT_S)]
    assert led.all_answer() == [
        Ask(16, (newcomer,), calls.Run({**led.members.addresses, newcomer: f"at {newcomer}"})),
        Ask(17, (PROGRESS,), calls.Joined((newcomer,)), HOLD_S),
        Ask(18, old, calls.IsPrepared(), HOLD_S),
    ]
    assert not led.leader.has_begun
    led.now_s += 2.0
    assert led.all_answer() == [TakeIn((newcomer,), prepared), Ask(19, everybody, calls.Relayout(19, goal))]
    assert led.leader.has_begun
    settle = [Ask(20 + number, (name,), calls.IsSettled(19), HOLD_S) for number, name in enumerate(everybody)]
    assert led.all_answer() == settle
    measured = [led.replica(number) for number in range(3)]
    turn = led.leader.turn
    assert led.all_answer() == [Ask(turn + 1 + number, (name,), calls.Costs()) for number, name in enumerate(measured)]
    turn = led.leader.turn
    assert led.all_answer(StepCost(state_s=0.5)) == [Ask(turn + 1, everybody, calls.IsDrained(), HOLD_S)]
    assert led.all_answer() == [LayOut(goal), Ask(turn + 2, everybody, calls.Commit(turn + 2, goal))]
    cost = StepCost(groups=4, state_bytes=10, passed_on=2, held=1, pause_s=0.3, longest_pause_s=0.2)
    report = RescaleReport(
        layouts.asked_of(led.before),
        {**layouts.asked_of(led.before), "sums": 3},
        steps=1,
        moved_groups=4 * (len(old) + 1),
        moved_bytes=10 * (len(old) + 1),
        passed_on=2 * (len(old) + 1),
        held=len(old) + 1,
        prepare_s=2.0,
        took_s=5.0,
        pause_s=0.2,
        paused_s=0.3,
    )
    led.now_s += 3.0
    assert led.all_answer(cost) == [
        Ask(turn + 3, (COORDINATOR,), calls.ReleaseSnapshots()),
        Ask(turn + 4, (PROGRESS,), calls.Release()),
        Finish(report),
    ]
    assert led.tell(JobFailed()) == []


def test_retiring_replicas_leave_their_staged_output_behind() -> None:
    led = Led({"sums": 1})
    assert asks(led.until(Phase.HOLDING), calls.Hold), "nobody is to be started"
    assert asks(led.all_done(), calls.Prepare), "nobody is to be admitted"
    assert led.all_done() == [Ask(led.leader.turn, led.old, calls.IsPrepared(), HOLD_S)]
    led.until(Phase.LEAVING)
    gone, turn = led.replica(1), led.leader.turn
    assert led.said == [Ask(turn, (COORDINATOR,), calls.LastPublished())]
    assert led.all_answer() == [Ask(turn + 1, (gone,), calls.Costs())]
    assert led.all_answer(StepCost(groups=2)) == [Ask(turn + 2, (gone,), calls.Leave(BASE))]
    assert led.all_answer() == [Ask(turn + 3, (gone,), calls.HasLeft(), HOLD_S)]
    part, *ended = led.all_answer()
    layout = led.leader.plan.layout
    assert part == Ask(turn + 4, (COORDINATOR,), calls.Part(layout, {gone: left_by(gone)}))
    (out,) = (edge.id for edge in led.before.edges if edge.source == led.sums)
    counts = ids(led.before)["counts"]
    assert ended == [Ask(turn + 5 + n, (f"v{counts}.{n}",), calls.HasEnded(((out, 1),)), HOLD_S) for n in range(2)]
    stay = tuple(name for name in led.old if name != gone)
    turn = led.leader.turn + 1
    assert led.all_answer() == [LayOut(layout, (gone,), (gone,)), Ask(turn, stay, calls.Commit(turn, layout))]
    assert only(led.all_done(), Finish).report.moved_groups == 2


def test_a_change_to_the_current_layout_is_done_at_once() -> None:
    now = layouts.asked_of(plan(2))
    assert Led({"sums": 2}).said == [Finish(RescaleReport(now, now))]


def test_where_only_stateless_replicas_come_one_step_tells_the_senders() -> None:
    led = Led({"rebalance": 3}, groups=1)
    led.until(Phase.MOVING)
    assert led.leader.plan.layout == layouts.target(led.leader.plan, led.leader.stages)
    led.until(Phase.OVER)
    assert only(led.said, Finish).report.steps == 1


def test_each_step_begins_when_all_have_settled_the_last_one_and_is_as_large_as_costs_allow() -> None:
    led = Led(groups=None, pause_s=0.01)
    sizes, steps = [], 0
    owners = led.before.owners(led.before.stage(led.sums))
    led.until(Phase.MOVING)
    while led.leader.phase is Phase.MOVING:
        (ask,) = asks(led.said, calls.Relayout)
        assert isinstance(ask.call, calls.Relayout)
        after = ask.call.layout.owners[led.sums]
        sizes.append(sum(a != b for a, b in zip(owners, after, strict=True)))
        owners, steps = after, steps + 1
        led.all_done(StepCost(state_s=0.01 * sizes[-1]))
    assert sizes[0] == FIRST_STEP_GROUPS
    assert sum(sizes) == KEY_GROUPS // 3
    assert led.until(Phase.OVER)
    assert only(led.said, Finish).report.steps == steps


def test_a_step_of_so_many_groups_and_all_at_once() -> None:
    assert only(Led(groups=1).until(Phase.OVER), Finish).report.steps == KEY_GROUPS // 3
    assert only(Led(groups=None).until(Phase.OVER), Finish).report.steps == 1


# -- refused ----------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wanted", "options", "why"),
    [
        ({"nobody": 2}, {}, "rescale('nobody', 2): there is no stage of that name"),
        ({"numbers": 3}, {}, "rescale('numbers', 3): 'numbers' reads input"),
        ({"sums": 3}, {"holds_by_time": True}, layouts.NOT_UPSTREAM),
    ],
)
def test_invalid_changes_are_refused_before_any_actor_is_asked(wanted: dict[str, int], options: dict[str, Any], why: str) -> None:
    (refused,) = Led(wanted, **options).said
    assert isinstance(refused, Refuse)
    assert refused.why.startswith(why)


def test_an_operator_that_runs_within_another_stage_is_told_where() -> None:
    flow = rd.Dataflow("fused")
    flow.from_items([1, 2]).map(abs, name="size").key_by(abs).count(name="counts").collect("out")
    with pytest.raises(RescaleRefused, match=r"rescale\('size', 2\): there is no stage of that name \('size' runs within 'items'\)"):
        layouts.wanted_replicas(flow.plan(), {"size": 2})


def test_a_vertex_that_cannot_be_divided_is_named() -> None:
    led = Led()
    assert led.answer(led.replica(0), "it is whole") == [Refuse("rescale('sums', 3): it is whole")]


def undone(led: Led, said: list[Effect]) -> list[Effect]:
    """A change is refused after new replicas were started: they leave the plan before they are ended."""
    newcomer = led.replica(2)
    assert said == [Ask(led.leader.turn, (PROGRESS,), calls.Forget((newcomer,)))]
    out = led.all_answer()
    assert out[0] == Stop((newcomer,), (newcomer,), led.before.layout)
    return out[1:]


def test_a_new_replica_that_cannot_be_built_is_undone() -> None:
    led = Led()
    led.until(Phase.STARTING)
    led.all_answer()
    failure = Failure("'sums'[2]", "ValueError: no", "", None, False)
    rest = undone(led, led.answer(led.replica(2), failure))
    assert released(rest) == [calls.ReleaseSnapshots]
    assert rest[-1] == Refuse(f"{led.stays}: 'sums'[2] could not be started: ValueError: no")


def test_no_room_for_new_replicas() -> None:
    led = Led()
    led.until(Phase.STARTING)
    rest = undone(led, led.answer(COORDINATOR, "the cluster has 4 CPU"))
    assert rest[-1] == Refuse(f"{led.stays}: the cluster has 4 CPU")
    assert not led.leader.joining


def test_a_new_replica_that_dies_while_it_starts_is_no_failure_of_the_job() -> None:
    led = Led()
    led.until(Phase.STARTING)
    led.all_answer()
    rest = undone(led, led.tell(Died(led.turn(led.replica(2)), led.replica(2))))
    assert released(rest) == [calls.ReleaseSnapshots]
    assert rest[-1] == Refuse(f"{led.stays}: 'sums'[2] died before it had joined", lacks_room=True)


def test_a_new_replica_that_fails_at_its_work_before_it_has_joined_is_no_failure_of_the_job() -> None:
    led = Led()
    led.until(Phase.CONNECTING)
    rest = undone(led, led.tell(NewcomerFailed(led.replica(2), "ValueError: no")))
    assert not led.tell(NewcomerFailed(led.replica(2), "once more")), "it is being undone"
    led.until(Phase.OVER)
    assert asks(rest, calls.Commit), "who was told is told again"
    assert led.said[-1] == Refuse(f"{led.stays}: 'sums'[2] has failed before it had joined: ValueError: no")
    assert not Led().tell(NewcomerFailed("v0.0", "it belongs to the job")), "the coordinator hears of that as a failure of the job"


@pytest.mark.parametrize("phase", [Phase.STARTING, Phase.HOLDING, Phase.ADMITTING, Phase.TELLING, Phase.CONNECTING])
def test_an_error_before_it_has_begun_is_undone(phase: Phase) -> None:
    led = Led()
    led.until(phase)
    name = min(led.leader.missing)
    rest = undone(led, led.tell(Broke(led.turn(name), name, "it broke")))
    assert bool(asks(rest, calls.Commit)) == (phase in (Phase.TELLING, Phase.CONNECTING)), "who was told is told again"
    led.until(Phase.OVER)
    assert led.said[-1] == Refuse(f"{led.stays}: it broke")
    assert released(led.said)[0] == calls.ReleaseSnapshots


NOT_BEGUN = list(Phase)[: list(Phase).index(Phase.MOVING)]
BEGUN = [Phase.MOVING, Phase.DRAINING, Phase.LEAVING, Phase.PARTING, Phase.COMMITTING]
BOTH = {"sums": 1, "counts": 3}
"""Replicas are added and removed, so the change has all phases."""


@pytest.mark.parametrize("phase", NOT_BEGUN, ids=lambda phase: phase.name)
def test_late_answers_before_it_has_begun_are_not_waited_for(phase: Phase) -> None:
    led = Led()
    led.until(phase)
    limit_s = 100.0 + TIMEOUT_S
    assert led.tell(Tick(), limit_s - led.now_s) == []
    said = led.tell(Tick(), 2 * GRACE_S)
    if phase in (Phase.DIVISIBLE, Phase.SNAPSHOTS):
        assert isinstance(said[-1], Refuse)
    else:
        undone(led, said)
        led.until(Phase.OVER)
        said = led.said
    why = only(said, Refuse).why
    if phase is Phase.SNAPSHOTS:
        assert why == f"{led.stays}: the snapshot under way is not complete after 20 s"
    else:
        assert why == f"{led.stays}: the new replicas were not placed and connected within 20 s"
    assert not led.leader.holds_job


@pytest.mark.parametrize("phase", [Phase.DIVISIBLE, Phase.TELLING], ids=lambda phase: phase.name)
def test_a_replica_that_withdraws_the_question_is_named_with_its_activation(phase: Phase) -> None:
    led = Led()
    led.until(phase)
    name = min(led.leader.missing)
    assert led.tell(Late(led.turn(name), name), 3.0) == [], "the next tick knows who is busy"
    led.tell(Tick("'sums'[0] is in on_recv for 3.0 s"))
    led.until(Phase.OVER)
    told = "'sums'[0] is in on_recv for 3.0 s, and has not come to the change within 3.0 s; ask again later"
    assert only(led.said, Refuse) == Refuse(f"{led.stays}: {told}")


@pytest.mark.parametrize("how", ["late", "died", "broke"])
@pytest.mark.parametrize("phase", [Phase.FORGETTING, Phase.UNDOING], ids=lambda phase: phase.name)
def test_undoing_does_not_wait_for_actors_that_do_not_answer(phase: Phase, how: str) -> None:
    led = Led()
    led.until(Phase.TELLING)
    name = min(led.leader.missing)
    led.tell(Broke(led.turn(name), name, "why it is refused"))
    led.until(phase)
    if how == "late":
        led.tell(Tick(), STOP_TIMEOUT_S + 1.0)
    else:
        for name in sorted(led.leader.missing):
            turn = led.turn(name)
            led.tell(Died(turn, name) if how == "died" else Broke(turn, name, "it broke"))
    if phase is Phase.FORGETTING:
        assert led.said[0] == Stop((led.replica(2),), (led.replica(2),), led.before.layout), "they are ended all the same"
        led.until(Phase.OVER)
    assert led.leader.outcome == Refuse(f"{led.stays}: why it is refused")


# -- failures ---------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("phase", [*NOT_BEGUN, *BEGUN], ids=lambda phase: phase.name)
def test_a_failure_of_the_job_ends_the_change_in_each_phase(phase: Phase) -> None:
    led = Led(BOTH)
    led.until(phase)
    holds_job, waits = led.leader.holds_job, phase is Phase.DIVISIBLE
    said = led.tell(JobFailed())
    assert released(said) == [*([] if waits else [calls.ReleaseSnapshots]), *([calls.Release] if holds_job else [])]
    assert said[-1] == GiveWay()
    assert led.answer(min(led.asked)) == []


@pytest.mark.parametrize("phase", [*NOT_BEGUN, *BEGUN], ids=lambda phase: phase.name)
def test_the_death_of_a_replica_of_the_job_is_left_to_the_recovery_leader(phase: Phase) -> None:
    led = Led(BOTH)
    led.until(phase)
    name = min(name for name in led.leader.missing if led.leader.has_begun or name not in led.leader.newcomers)
    assert led.tell(Died(led.turn(name), name)) == []
    assert led.leader.phase is Phase.FAILING
    assert led.tell(Tick(), STOP_TIMEOUT_S - 1.0) == []
    assert led.tell(Tick(), 2.0)[-1] == GiveWay()


@pytest.mark.parametrize("phase", BEGUN, ids=lambda phase: phase.name)
def test_an_error_after_it_has_begun_is_the_jobs(phase: Phase) -> None:
    led = Led(BOTH)
    led.until(phase)
    cause, name = ValueError("of the user"), min(led.leader.missing)
    assert led.tell(Broke(led.turn(name), name, "it broke", cause)) == [Fail("it broke", cause)]
    assert led.tell(Tick(), 1e6) == [], "until the job has failed"
    said = led.tell(JobFailed())
    assert (released(said), said[-1]) == ([calls.ReleaseSnapshots, calls.Release], GiveWay())


@pytest.mark.parametrize("phase", BEGUN, ids=lambda phase: phase.name)
def test_a_change_that_has_begun_waits_for_long_activations_and_for_nothing_else(phase: Phase) -> None:
    led = Led(BOTH)
    led.until(phase)
    for _ in range(5):
        assert led.tell(Tick("'counts'[0] is in on_recv"), STEP_TIMEOUT_S) == []
    assert led.tell(Tick(), GRACE_S) == []
    name = min(led.leader.missing)
    who = "the coordinator" if name == COORDINATOR else led.before.title(int(name[1:].split(".")[0]), int(name.split(".")[1]))
    (fail,) = led.tell(Tick(), GRACE_S)
    assert fail == Fail(f"asked {phase.value}, not all have answered after {5 * STEP_TIMEOUT_S + 2 * GRACE_S:.1f} s: {who} has not")


def test_a_job_that_is_over_is_not_changed() -> None:
    led = Led()
    led.until(Phase.HOLDING)
    assert led.answer(PROGRESS, False) == []
    assert led.tell(Tick(), 1e6) == []
    said = led.tell(JobFailed())
    assert (released(said), said[-1]) == ([calls.ReleaseSnapshots], GiveWay())


# -- any order of the answers -----------------------------------------------------------------------------------------------------


@settings(max_examples=150)
@given(
    st.data(),
    st.sampled_from([{"sums": 3}, {"sums": 1}, BOTH, {"sums": 4, "rebalance": 1}, {"counts": 1, "rebalance": 3}]),
    st.integers(0, 10**6),
)
def test_whatever_the_order_of_answers_the_outcome_is_the_new_or_the_old_layout(
    data: st.DataObject, wanted: dict[str, int], seed: int
) -> None:
    """Each actor answers each question, late answers come again, sometimes something fails: the effects must be valid."""
    draw = random.Random(seed)
    trouble = data.draw(st.sampled_from(["none", "none", "died", "broke", "declined", "late", "failed"]))
    led = Led(wanted, groups=draw.choice([1, 5, None]), pause_s=None)
    effects, answered = list(led.said), list[Answered]()
    while led.leader.outcome is None:
        assert len(effects) < 1000, "it does not end"
        if led.leader.phase is Phase.FAILING:
            effects += led.tell(JobFailed())
            break
        name = draw.choice(sorted(led.leader.missing))
        turn, call = led.asked[name]
        if trouble != "none" and draw.random() < 0.03:
            may_decline = isinstance(call, calls.MayMove | calls.StartProcesses)
            effects += led.tell(
                {
                    "died": Died(turn, name),
                    "broke": Broke(turn, name, "it broke"),
                    "late": Late(turn, name),
                    "failed": JobFailed(),
                    "declined": Answered(turn, name, "no") if may_decline else Tick(),
                }[trouble]
            )
            trouble = "none"
        elif answered and draw.random() < 0.3:
            before = (led.leader.turn, led.leader.phase, led.leader.missing)
            assert led.tell(draw.choice(answered)) == [], "it counted once"
            assert before == (led.leader.turn, led.leader.phase, led.leader.missing)
        elif isinstance(call, calls.Condition) and draw.random() < 0.2:
            effects += led.answer(name, False)
            assert led.asked[name][0] > turn, "it is asked again"
            answered.append(Answered(turn, name, False))
        else:
            effects += led.done(name, StepCost(groups=1))
            answered.append(Answered(turn, name, good_answer(name, call, StepCost())))
        effects += led.tell(Tick())
    _require_sense(led, effects)


def _require_sense(led: Led, effects: list[Effect]) -> None:
    """Check the order of effects in a whole run."""
    kinds = [type(effect.call) if isinstance(effect, Ask) else type(effect) for effect in effects]
    outcome = led.leader.outcome
    assert sum(isinstance(effect, Finish | Refuse | GiveWay) for effect in effects) == 1
    assert effects[-1] == outcome
    for held, release in ((calls.HoldSnapshots, calls.ReleaseSnapshots), (calls.Hold, calls.Release)):
        assert kinds.count(held) == kinds.count(release) <= 1, (held, release)
    turns = [effect.turn for effect in effects if isinstance(effect, Ask)]
    assert turns == list(range(8, 8 + len(turns))), "no turn is used twice"
    steps = [ask.call.layout for ask in asks(effects, calls.Relayout) if isinstance(ask.call, calls.Relayout)]
    goal = layouts.target(led.before, led.leader.stages)
    if isinstance(outcome, Finish):
        assert steps[-1].replicas == goal.replicas
        assert only(effects, LayOut).layout == steps[-1]
        assert outcome.report.after == {**layouts.asked_of(led.before), **led.leader.wanted}
        assert kinds.index(TakeIn) < kinds.index(calls.Relayout)
        assert (calls.Leave in kinds) == (calls.Part in kinds) == bool(led.leader.gone)
    elif isinstance(outcome, Refuse):
        assert not steps, "half of a move is no layout"
        assert (calls.StartProcesses in kinds) == (Stop in kinds), "who was started is ended"
        assert (calls.Prepare in kinds) == (calls.Commit in kinds)
    else:
        assert Stop not in kinds or calls.Forget in kinds


def test_events_and_effects_can_be_printed_and_replayed() -> None:
    led = Led(BOTH, groups=2)
    story: list[tuple[Event, list[Effect]]] = []
    draw = random.Random(4)
    while led.leader.phase is not Phase.LEAVING:
        name = draw.choice(sorted(led.leader.missing))
        turn, call = led.asked[name]
        event = Answered(turn, name, good_answer(name, call, StepCost()))
        story.append((event, led.tell(event)))
    again = Led(BOTH, groups=2)
    assert [(event, again.tell(event)) for event, _ in story] == story
    assert all(dataclasses.is_dataclass(effect) and repr(effect) for _, effects in story for effect in effects)
