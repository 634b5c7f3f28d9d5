"""The leader of a change of layout decides by events alone: its effects for each event, in each phase, in any order."""

from __future__ import annotations

import dataclasses
import math
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import rayad as rd
from rayad.actors.lead import layouts
from rayad.actors.lead.change_leader import (
    GRACE_S,
    STEP_TIMEOUT_S,
    STOP_TIMEOUT_S,
    Admit,
    AskDivisible,
    Asked,
    AwaitDrained,
    AwaitEnded,
    AwaitPrepared,
    Broke,
    ChangeLeader,
    Commit,
    Declined,
    Died,
    Done,
    Effect,
    Event,
    Fail,
    Finish,
    Forget,
    GiveWay,
    HoldJob,
    HoldSnapshots,
    JobFailed,
    JobIsOver,
    Late,
    LayOut,
    Leave,
    Part,
    Phase,
    Prepare,
    Refuse,
    ReleaseJob,
    ReleaseSnapshots,
    Run,
    Start,
    Stop,
    TakeIn,
    Tick,
    Undo,
)
from rayad.actors.lead.layouts import FIRST_STEP_GROUPS, RescaleReport
from rayad.actors.plane.protocol import COORDINATOR
from rayad.actors.replica.migration import StepCost
from rayad.dataflow.plan import Plan
from rayad.progress import RescaleRefused
from tests.actors.test_layouts import KEY_GROUPS, ids, plan

TIMEOUT_S = 20.0


class Led:
    """A leader, its events and its effects. The vertex ``sums`` of the plan changes."""

    def __init__(self, wanted: dict[str, int] | None = None, *, before: Plan | None = None, **options: Any) -> None:
        self.now_s = 100.0
        self.before = plan(2) if before is None else before
        self.sums = ids(self.before)["sums"]
        given: dict[str, Any] = {"timeout_s": TIMEOUT_S, "asked_s": 100.0, "turn": 7, "groups": None, **options}
        self.leader = ChangeLeader(self.before, {"sums": 3} if wanted is None else wanted, **given)
        self.old = layouts.plane_names(self.before)
        self.said: list[Effect] = self.tell(Asked())

    def tell(self, event: Event, after_s: float = 0.0) -> list[Effect]:
        self.now_s += after_s
        self.said = self.leader.handle(event, self.now_s)
        self.leader.check_invariants()
        return self.said

    def done(self, name: str, cost: StepCost | None = None) -> list[Effect]:
        return self.tell(Done(self.leader.turn, name, cost))

    def all_done(self, cost: StepCost | None = None, after_s: float = 0.0) -> list[Effect]:
        """All actors that are asked in this turn answer."""
        self.now_s += after_s
        names = sorted(self.leader.missing)
        for name in names[:-1]:
            assert self.done(name, cost) == []
        return self.done(names[-1], cost)

    def until(self, phase: Phase) -> list[Effect]:
        """All actors do what is asked until this phase."""
        while self.leader.phase is not phase:
            self.all_done()
        return self.said

    def replica(self, number: int) -> str:
        return f"v{self.sums}.{number}"


def only(effects: list[Effect], kind: type) -> Any:
    (found,) = [effect for effect in effects if isinstance(effect, kind)]
    return found


# -- from the beginning to the end ----------------------------------------------------------------------------------------------


def test_replicas_are_added_from_the_question_to_the_report() -> None:
    led = Led()
    one, newcomer = led.replica(0), led.replica(2)
    old, everybody = led.old, tuple(sorted((*led.old, newcomer)))
    prepared = led.before.laid_out(layouts.prepared(led.before, {led.sums: 3})).layout
    goal = layouts.target(led.before.laid_out(prepared), {led.sums: 3})
    assert led.said == [AskDivisible(8, (one,), TIMEOUT_S)]
    assert led.all_done() == [HoldSnapshots(9)]
    assert led.all_done() == [Start(10, (newcomer,), prepared)]
    assert led.leader.missing == {COORDINATOR, newcomer}
    assert led.all_done() == [HoldJob(11)]
    assert led.all_done() == [Admit(12, (newcomer,), prepared)]
    assert led.all_done() == [Prepare(13, old, prepared, (newcomer,), frozenset({led.sums}), TIMEOUT_S)]
    assert led.all_done() == [Run(14, (newcomer,), TIMEOUT_S), AwaitPrepared(14, old, TIMEOUT_S)]
    assert not led.leader.has_begun
    measured = frozenset(led.replica(number) for number in range(3))
    assert led.all_done(after_s=2.0) == [TakeIn((newcomer,), prepared), LayOut(15, everybody, goal, measured)]
    assert led.leader.has_begun
    assert led.all_done(StepCost(state_s=0.5)) == [AwaitDrained(16, everybody)]
    assert led.all_done() == [Commit(17, everybody, goal)]
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
    assert led.all_done(cost, after_s=3.0) == [ReleaseSnapshots(), ReleaseJob(), Finish(report)]
    assert led.tell(JobFailed()) == []


def test_retiring_replicas_leave_their_staged_output_behind() -> None:
    led = Led({"sums": 1})
    assert isinstance(led.until(Phase.HOLDING)[0], HoldJob), "nobody is to be started"
    assert isinstance(led.all_done()[0], Prepare), "nobody is to be admitted"
    assert led.all_done() == [AwaitPrepared(led.leader.turn, led.old, TIMEOUT_S)]
    led.until(Phase.DRAINING)
    gone = led.replica(1)
    leave = led.all_done()
    assert leave == [Leave(led.leader.turn, (gone,))]
    part, ended = led.all_done(StepCost(groups=2))
    layout = led.leader.plan.layout
    assert part == Part(led.leader.turn, (gone,), layout)
    assert isinstance(ended, AwaitEnded)
    (out,) = (edge.id for edge in led.before.edges if edge.source == led.sums)
    counts = ids(led.before)["counts"]
    assert ended.ends == {f"v{counts}.{number}": ((out, gone),) for number in range(2)}
    stay = tuple(name for name in led.old if name != gone)
    assert led.all_done() == [Commit(led.leader.turn, stay, layout, (gone,))]
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
        layout = only(led.said, LayOut).layout
        after = layout.owners[led.sums]
        sizes.append(sum(a != b for a, b in zip(owners, after, strict=True)))
        owners, steps = after, steps + 1
        led.all_done(StepCost(state_s=0.01 * sizes[-1]))
    assert sizes[0] == FIRST_STEP_GROUPS
    assert sum(sizes) == KEY_GROUPS // 3
    assert led.until(Phase.OVER)
    assert only(led.said, Finish).report.steps == steps


def test_a_step_of_so_many_groups_and_all_at_once() -> None:
    assert only(_finished(Led(groups=1)), Finish).report.steps == KEY_GROUPS // 3
    assert only(_finished(Led(groups=None)), Finish).report.steps == 1


def _finished(led: Led) -> list[Effect]:
    return led.until(Phase.OVER)


# -- answers that do not count --------------------------------------------------------------------------------------------------


def test_answers_of_earlier_turns_and_second_ones_are_void() -> None:
    led = Led(groups=1)
    led.until(Phase.MOVING)
    turn, name = led.leader.turn, led.replica(0)
    assert led.done(name) == []
    missing = led.leader.missing
    earlier, other = turn - 1, led.replica(1)
    late = [Done(earlier, other), Died(earlier, other), Broke(earlier, other, "x"), Declined(earlier, other, "x"), Late(earlier, other)]
    for event in [Done(turn, name), Done(3, other), JobIsOver(earlier), *late]:
        assert led.tell(event) == []
        assert led.leader.missing == missing
    led.all_done()
    assert led.leader.turn == turn + 1
    assert led.done(name) == []
    assert led.tell(Done(turn, led.replica(1))) == []
    assert led.replica(1) in led.leader.missing


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
    assert led.tell(Declined(8, led.replica(0), "it is whole")) == [Refuse("rescale('sums', 3): it is whole")]


def undone(led: Led, said: list[Effect]) -> list[Effect]:
    """A change is refused after new replicas were started: they leave the plan before they are ended."""
    newcomer, layout = led.replica(2), led.before.layout
    assert said == [Forget(led.leader.turn, (newcomer,), layout)]
    out = led.all_done()
    assert out[0] == Stop((newcomer,), layout)
    return out[1:]


def stays(led: Led) -> str:
    return f"the layout stays {layouts.asked_of(led.before)}"


def test_a_new_replica_that_cannot_be_built_is_undone() -> None:
    led = Led()
    led.until(Phase.STARTING)
    said = led.tell(Declined(led.leader.turn, led.replica(2), "ValueError: no"))
    rest = undone(led, said)
    assert rest == [ReleaseSnapshots(), Refuse(f"{stays(led)}: 'sums'[2] could not be started: ValueError: no")]


def test_no_room_for_new_replicas() -> None:
    led = Led()
    led.until(Phase.STARTING)
    rest = undone(led, led.tell(Declined(led.leader.turn, COORDINATOR, "the cluster has 4 CPU")))
    assert rest[-1] == Refuse(f"{stays(led)}: the cluster has 4 CPU")


@pytest.mark.parametrize("phase", [Phase.STARTING, Phase.CONNECTING])
def test_a_new_replica_that_dies_before_it_has_joined_is_no_failure_of_the_job(phase: Phase) -> None:
    led = Led()
    led.until(phase)
    rest = undone(led, led.tell(Died(led.leader.turn, led.replica(2))))
    if phase is Phase.CONNECTING:
        assert rest == [Undo(led.leader.turn, led.old, led.before.layout)]
        rest = led.all_done()
        assert rest[1] == ReleaseJob()
    assert rest[0] == ReleaseSnapshots()
    assert rest[-1] == Refuse(f"{stays(led)}: 'sums'[2] died before it had joined", lacks_room=True)


@pytest.mark.parametrize("phase", [Phase.STARTING, Phase.HOLDING, Phase.ADMITTING, Phase.TELLING, Phase.CONNECTING])
def test_an_error_before_it_has_begun_is_undone(phase: Phase) -> None:
    led = Led()
    led.until(phase)
    name = min(led.leader.missing)
    undone(led, led.tell(Broke(led.leader.turn, name, "it broke")))
    led.until(Phase.OVER)
    assert led.said[-1] == Refuse(f"{stays(led)}: it broke")
    assert isinstance(led.said[-2], ReleaseSnapshots | ReleaseJob)


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
        assert why == f"{stays(led)}: the snapshot under way is not complete after 20 s"
    else:
        assert why == f"{stays(led)}: the new replicas were not placed and connected within 20 s"
    assert not led.leader.holds_job


@pytest.mark.parametrize("phase", [Phase.DIVISIBLE, Phase.TELLING], ids=lambda phase: phase.name)
def test_a_replica_that_withdraws_the_question_is_named_with_its_activation(phase: Phase) -> None:
    led = Led()
    led.until(phase)
    assert led.tell(Late(led.leader.turn, min(led.leader.missing)), 3.0) == [], "the next tick knows who is busy"
    led.tell(Tick("'sums'[0] is in on_recv for 3.0 s"))
    led.until(Phase.OVER)
    told = "'sums'[0] is in on_recv for 3.0 s, and has not come to the change within 3.0 s; ask again later"
    assert only(led.said, Refuse) == Refuse(f"{stays(led)}: {told}")


@pytest.mark.parametrize("how", ["late", "died", "broke"])
@pytest.mark.parametrize("phase", [Phase.FORGETTING, Phase.UNDOING], ids=lambda phase: phase.name)
def test_undoing_does_not_wait_for_actors_that_do_not_answer(phase: Phase, how: str) -> None:
    led = Led()
    led.until(Phase.CONNECTING)
    led.tell(Died(led.leader.turn, led.replica(2)))
    led.until(phase)
    if how == "late":
        led.tell(Tick(), STOP_TIMEOUT_S + 1.0)
    else:
        for name in sorted(led.leader.missing):
            led.tell(Died(led.leader.turn, name) if how == "died" else Broke(led.leader.turn, name, "it broke"))
    if phase is Phase.FORGETTING:
        assert led.said[0] == Stop((led.replica(2),), led.before.layout), "they are ended all the same"
        led.until(Phase.OVER)
    assert isinstance(led.leader.outcome, Refuse)


# -- failures ---------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("phase", [*NOT_BEGUN, *BEGUN], ids=lambda phase: phase.name)
def test_a_failure_of_the_job_ends_the_change_in_each_phase(phase: Phase) -> None:
    led = Led(BOTH)
    led.until(phase)
    holds_job, waits = led.leader.holds_job, phase is Phase.DIVISIBLE
    said = led.tell(JobFailed())
    assert said == [*([] if waits else [ReleaseSnapshots()]), *([ReleaseJob()] if holds_job else []), GiveWay()]
    assert led.tell(Done(led.leader.turn, led.replica(0))) == []


@pytest.mark.parametrize("phase", [*NOT_BEGUN, *BEGUN], ids=lambda phase: phase.name)
def test_the_death_of_a_replica_of_the_job_is_left_to_the_recovery_leader(phase: Phase) -> None:
    led = Led(BOTH)
    led.until(phase)
    name = min(name for name in led.leader.missing if led.leader.has_begun or name not in led.leader.newcomers)
    assert led.tell(Died(led.leader.turn, name)) == []
    assert led.leader.phase is Phase.FAILING
    assert led.tell(Tick(), STOP_TIMEOUT_S - 1.0) == []
    assert led.tell(Tick(), 2.0)[-1] == GiveWay()


@pytest.mark.parametrize("phase", BEGUN, ids=lambda phase: phase.name)
def test_an_error_after_it_has_begun_is_the_jobs(phase: Phase) -> None:
    led = Led(BOTH)
    led.until(phase)
    cause = ValueError("of the user")
    assert led.tell(Broke(led.leader.turn, min(led.leader.missing), "it broke", cause)) == [Fail("it broke", cause)]
    assert led.tell(Tick(), 1e6) == [], "until the job has failed"
    assert led.tell(JobFailed()) == [ReleaseSnapshots(), ReleaseJob(), GiveWay()]


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
    assert led.tell(JobIsOver(led.leader.turn)) == []
    assert led.tell(Tick(), 1e6) == []
    assert led.tell(JobFailed()) == [ReleaseSnapshots(), GiveWay()]


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
    effects, answered = list(led.said), list[Done]()
    while led.leader.outcome is None:
        assert len(effects) < 500, "it does not end"
        if led.leader.phase is Phase.FAILING:
            effects += led.tell(JobFailed())
            break
        name = draw.choice(sorted(led.leader.missing))
        turn = led.leader.turn
        event: Event = Done(turn, name, StepCost(groups=1))
        if trouble != "none" and draw.random() < 0.04:
            may_decline = led.leader.phase in (Phase.DIVISIBLE, Phase.STARTING)
            event = {
                "died": Died(turn, name),
                "broke": Broke(turn, name, "it broke"),
                "late": Late(turn, name),
                "failed": JobFailed(),
                "declined": Declined(turn, name, "no") if may_decline else Tick(),
            }[trouble]
            trouble = "none"
        if answered and draw.random() < 0.3:
            before = (led.leader.turn, led.leader.phase, led.leader.missing)
            assert led.tell(draw.choice(answered)) == [], "it counted once"
            assert before == (led.leader.turn, led.leader.phase, led.leader.missing)
        effects += led.tell(event)
        if isinstance(event, Done):
            answered.append(event)
        effects += led.tell(Tick())
    _require_sense(led, effects)


def _require_sense(led: Led, effects: list[Effect]) -> None:
    """Check the order of effects in a whole run."""
    kinds = [type(effect) for effect in effects]
    outcome = led.leader.outcome
    assert sum(isinstance(effect, Finish | Refuse | GiveWay) for effect in effects) == 1
    assert effects[-1] == outcome
    for held, released in ((HoldSnapshots, ReleaseSnapshots), (HoldJob, ReleaseJob)):
        assert kinds.count(held) == kinds.count(released) <= 1, (held, released)
    turns = [effect.turn for effect in effects if hasattr(effect, "turn")]
    assert turns == sorted(turns)
    steps = [effect for effect in effects if isinstance(effect, LayOut)]
    goal = layouts.target(led.before, led.leader.stages)
    if isinstance(outcome, Finish):
        assert steps[-1].layout.replicas == goal.replicas
        assert only(effects, Commit).layout == steps[-1].layout
        assert outcome.report.after == {**layouts.asked_of(led.before), **led.leader.wanted}
        assert kinds.index(TakeIn) < kinds.index(LayOut)
        assert (Leave in kinds) == (Part in kinds) == bool(led.leader.gone)
    elif isinstance(outcome, Refuse):
        assert not steps, "half of a move is no layout"
        assert (Start in kinds) == (Stop in kinds), "who was started is ended"
        assert (Prepare in kinds) == (Undo in kinds)
    else:
        assert Stop not in kinds or Forget in kinds


def test_events_and_effects_can_be_printed_and_replayed() -> None:
    led = Led(BOTH, groups=2)
    story: list[tuple[Event, list[Effect]]] = []
    draw = random.Random(4)
    while led.leader.outcome is None:
        event = Done(led.leader.turn, draw.choice(sorted(led.leader.missing)))
        story.append((event, led.tell(event)))
    again = Led(BOTH, groups=2)
    assert [(event, again.tell(event)) for event, _ in story] == story
    assert all(dataclasses.is_dataclass(effect) and repr(effect) for _, effects in story for effect in effects)
    assert not math.isnan(led.leader.turn)
