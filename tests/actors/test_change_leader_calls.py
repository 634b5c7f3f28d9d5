"""What the leader of a change tells each actor, what it makes of each answer, and which answers are void."""

from __future__ import annotations

import pytest

from rayad.actors.lead import calls, layouts
from rayad.actors.lead.asking import Answered, Ask, Broke, Died, Late, Tick
from rayad.actors.lead.change_costs import ChangeCosts
from rayad.actors.lead.change_protocol import HOLD_MIN_S, HOLD_S, Finish, LayOut, Members, Phase, Refuse
from rayad.actors.plane.protocol import COORDINATOR, PROGRESS
from rayad.actors.replica.migration import StepCost
from rayad.actors.replica.places import Places
from rayad.actors.replica.report import Left, ReplicaReport
from tests.actors.changing import BASE, TIMEOUT_S, Led, asks, only
from tests.actors.test_layouts import ids, plan

# -- who is told which addresses --------------------------------------------------------------------------------------------------


def test_replicas_are_told_where_newcomers_and_those_of_moving_stages_listen() -> None:
    led = Led({"sums": 3, "rebalance": 3, "counts": 1})
    led.until(Phase.TELLING)
    (ask,) = asks(led.said, calls.Prepare)
    assert isinstance(ask.call, calls.Prepare)
    stages = ids(led.before)
    moving = {f"v{stages['sums']}.{n}" for n in range(3)} | {f"v{stages['counts']}.{n}" for n in range(2)}
    moving |= {f"v{stages['rebalance']}.{n}" for n in range(3)}
    newcomers = {f"v{stages['sums']}.2", f"v{stages['rebalance']}.2"}
    assert set(led.leader.newcomers) == newcomers
    assert ask.names == led.old, "newcomers know it from the beginning"
    assert ask.call.addresses == {name: f"at {name}" for name in moving}, "those that do not change are known"
    assert ask.call.incarnations == dict.fromkeys(newcomers, 6), "of the others they are known"
    assert ask.call.moving == {stages["sums"], stages["rebalance"], stages["counts"]}


def test_a_newcomer_listens_in_a_new_incarnation_and_is_told_all_others() -> None:
    led = Led({"sums": 4, "counts": 3})
    led.until(Phase.STARTING)
    sums, counts = led.sums, ids(led.before)["counts"]
    newcomers = [f"v{sums}.2", f"v{sums}.3", f"v{counts}.2"]
    listen = {ask.names: ask.call for ask in asks(led.all_answer(), calls.Listen)}
    layout, incarnations = led.leader.plan.layout, {**led.members.incarnations, **dict.fromkeys(newcomers, 6)}
    ended = {name: 3 if name in newcomers[:2] else 0 for name in newcomers}
    told = {(name,): calls.Listen(6, incarnations, layout, times) for name, times in ended.items()}
    assert listen == told, "processes of the first vertex have ended three times in a row"
    led.until(Phase.CONNECTING)
    run = asks(led.said, calls.Run)
    assert [ask.names for ask in run] == [(name,) for name in newcomers]
    everybody = {**led.members.addresses, **{name: f"at {name}" for name in newcomers}}
    assert all(ask.call == calls.Run(everybody) for ask in run)


def test_an_address_is_told_as_the_newcomer_gave_it() -> None:
    led = Led()
    led.until(Phase.STARTING)
    led.all_answer()
    led.answer(led.replica(2), "somewhere else")
    led.until(Phase.TELLING)
    (ask,) = asks(led.said, calls.Prepare)
    assert isinstance(ask.call, calls.Prepare)
    assert ask.call.addresses[led.replica(2)] == "somewhere else"


# -- conditions -------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("phase", "call"),
    [
        (Phase.CONNECTING, calls.IsPrepared),
        (Phase.CONNECTING, calls.Joined),
        (Phase.MOVING, calls.IsSettled),
        (Phase.DRAINING, calls.IsDrained),
        (Phase.PARTING, calls.HasEnded),
    ],
    ids=lambda value: getattr(value, "name", getattr(value, "__name__", "")),
)
def test_what_is_not_so_yet_is_asked_again_as_another_question(phase: Phase, call: type[calls.Call]) -> None:
    led = Led({"sums": 1, "counts": 3})
    led.until(phase)
    if phase is Phase.MOVING:
        led.all_answer()
    name = next(name for name in sorted(led.leader.missing) if isinstance(led.asked[name][1], call))
    before, asked = led.asked[name]
    for _ in range(3):
        again = Ask(led.leader.turn + 1, (name,), asked, HOLD_S)
        assert led.answer(name, False) == [again]
    assert led.tell(Answered(before, name, True)) == [], "the first question is void"
    assert name in led.leader.missing
    led.answer(name, True)
    assert name not in led.leader.missing or not isinstance(led.asked[name][1], call)


def test_a_question_is_not_kept_much_longer_than_the_change_may_be_refused() -> None:
    led = Led()
    led.until(Phase.CONNECTING)
    name = led.replica(0)
    led.now_s = 100.0 + TIMEOUT_S - 2.0
    assert only(led.answer(name, False), Ask).within_s == 2.0
    led.now_s = 100.0 + TIMEOUT_S + 1.0
    assert only(led.answer(name, False), Ask).within_s == HOLD_MIN_S
    assert led.tell(Tick()) == [], "its answer may still come"


# -- steps ------------------------------------------------------------------------------------------------------------------------


def test_a_replica_has_not_settled_a_step_by_having_heard_of_it() -> None:
    led = Led(groups=1)
    led.until(Phase.MOVING)
    name = led.replica(0)
    heard = Answered(led.turn(name), name)
    (settle,) = led.tell(heard)
    assert settle == Ask(led.leader.turn, (name,), calls.IsSettled(heard.turn), HOLD_S)
    assert led.tell(heard) == [], "the second time it is void"
    assert only(led.answer(name, True), Ask).call == calls.Costs()
    assert name in led.leader.missing
    led.answer(name, (StepCost(), None))
    assert name not in led.leader.missing


def test_only_replicas_of_stages_that_change_are_asked_for_their_costs() -> None:
    led = Led()
    led.until(Phase.MOVING)
    led.all_answer()
    (other,) = [name for name in led.old if name.startswith(f"v{ids(led.before)['counts']}.0")]
    assert led.answer(other, True) == []
    assert other not in led.leader.missing


def test_the_longest_pause_of_any_replica_counts_for_the_next_step() -> None:
    before = plan(2)
    sums, costs = ids(before)["sums"], ChangeCosts(groups=None, pause_s=0.015)
    keyed = before.laid_out(layouts.prepared(before, {sums: 3}))
    sizes = []
    for groups_s in (0.004, 0.008, 0.0):
        sizes.append(costs.begin_step(keyed, [sums]))
        for cost in (StepCost(state_s=0.001), StepCost(state_s=groups_s), None, StepCost()):
            costs.on_step(cost)
        costs.end_step()
    assert sizes == [4, 8, 15], "as in groups_of_next_step: a line through the longest pauses"


# -- answers that do not count ----------------------------------------------------------------------------------------------------


def test_answers_of_earlier_turns_and_second_ones_are_void() -> None:
    led = Led(groups=1)
    led.until(Phase.MOVING)
    name, other = led.replica(0), led.replica(1)
    turn = led.turn(name)
    led.answer(name)
    missing, asked, earlier = led.leader.missing, dict(led.asked), turn - 1
    late = [Died(earlier, other), Broke(earlier, other, "x"), Late(earlier, other), Answered(earlier, other, False)]
    for event in [Answered(turn, name), Answered(3, other), Answered(earlier, PROGRESS, False), *late]:
        assert led.tell(event) == []
        assert (led.leader.missing, led.asked) == (missing, asked)
    led.all_done()
    assert led.tell(Answered(turn, other)) == []
    assert isinstance(led.asked[other][1], calls.Relayout), "of the next step"


def test_an_answer_of_somebody_else_is_void() -> None:
    led = Led()
    led.until(Phase.HOLDING)
    turn = led.turn(PROGRESS)
    assert led.tell(Answered(turn, COORDINATOR, False)) == []
    assert led.leader.missing == {PROGRESS}


# -- newcomers --------------------------------------------------------------------------------------------------------------------


def test_newcomers_join_when_the_coordinator_expects_them() -> None:
    led = Led()
    led.until(Phase.ADMITTING)
    newcomers, layout = led.leader.newcomers, led.leader.plan.layout
    assert led.said == [Ask(led.leader.turn, (COORDINATOR,), calls.Expect(newcomers, newcomers, layout, 6))]
    assert led.answer(COORDINATOR) == [Ask(led.leader.turn, (PROGRESS,), calls.Join(newcomers, 6))]
    assert asks(led.answer(PROGRESS), calls.Prepare)


def test_newcomers_are_the_changes_until_they_are_taken_in() -> None:
    led = Led()
    led.until(Phase.STARTING)
    assert led.leader.joining == led.leader.newcomers == (led.replica(2),)
    led.until(Phase.CONNECTING)
    assert led.leader.joining
    led.until(Phase.MOVING)
    assert not led.leader.joining
    assert led.leader.newcomers == (led.replica(2),)


def test_the_death_of_the_progress_actor_while_newcomers_register_is_no_refusal() -> None:
    """Regression: the driver asked it in the name of the first newcomer, so its death was taken for that one's."""
    led = Led()
    led.until(Phase.CONNECTING)
    assert led.tell(Died(led.turn(PROGRESS), PROGRESS)) == []
    assert led.leader.phase is Phase.FAILING


# -- those who leave --------------------------------------------------------------------------------------------------------------


LEFT = Left(ReplicaReport("sums", 1), {"sink": "rows"})


def leaving() -> tuple[Led, str]:
    """One replica retires, and has told what the change cost it."""
    led = Led({"sums": 1})
    led.until(Phase.LEAVING)
    led.all_answer()
    led.all_answer(StepCost(groups=7))
    gone = led.replica(1)
    assert led.asked[gone][1] == calls.Leave(BASE)
    return led, gone


def test_a_replica_has_left_when_its_work_has_ended_not_when_it_has_heard_that_it_shall() -> None:
    led, gone = leaving()
    assert [ask.call for ask in asks(led.answer(gone), calls.HasLeft)] == [calls.HasLeft()]
    assert led.leader.missing == {gone}
    assert asks(led.answer(gone, False), calls.HasLeft), "it is asked again"
    turn = led.turn(gone)
    (part,) = asks(led.answer(gone, LEFT), calls.Part)
    assert part.call == calls.Part(led.leader.plan.layout, {gone: LEFT})
    assert led.tell(Answered(turn, gone, LEFT)) == []


def test_what_the_change_cost_those_who_left_is_in_the_report() -> None:
    led, _ = leaving()
    led.until(Phase.OVER)
    assert only(led.said, Finish).report.moved_groups == 7


def test_nobody_leaves_before_it_is_asked_to() -> None:
    led = Led({"sums": 1})
    led.until(Phase.LEAVING)
    assert led.tell(Answered(led.leader.turn, led.replica(1), LEFT)) == []
    assert led.leader.missing == {COORDINATOR}


# -- at its end -------------------------------------------------------------------------------------------------------------------


def test_a_refused_change_undoes_in_its_own_turn() -> None:
    """A replica passes over what comes with an earlier turn than it has heard of: the undoing has to come with a later one."""
    led = Led()
    led.until(Phase.TELLING)
    (prepare,) = asks(led.said, calls.Prepare)
    assert isinstance(prepare.call, calls.Prepare)
    assert prepare.call.turn == prepare.turn
    name = min(led.leader.missing)
    led.tell(Broke(led.turn(name), name, "no"))
    (undo,) = asks(led.all_answer(), calls.Commit)
    assert undo.call == calls.Commit(undo.turn, led.before.layout)
    assert undo.turn > prepare.turn
    led.until(Phase.OVER)
    assert isinstance(led.leader.outcome, Refuse)


def test_costs_of_an_undone_change_are_nobodys() -> None:
    led = Led()
    led.until(Phase.TELLING)
    name = min(led.leader.missing)
    led.tell(Broke(led.turn(name), name, "no"))
    led.until(Phase.UNDOING)
    led.all_done(StepCost(groups=3))
    assert led.leader.outcome == Refuse(f"the layout stays {layouts.asked_of(led.before)}: no")


# -- workers --------------------------------------------------------------------------------------------------------------------


def in_workers(wanted: dict[str, int]) -> Led:
    """All vertices in two workers."""
    before = plan(2)
    places = Places(2, {stage.id: 0 for stage in before.stages})
    there = (COORDINATOR, PROGRESS, *places.processes(before))
    members = Members(5, dict.fromkeys(there, 4), {name: f"at {name}" for name in there}, {}, places)
    return Led(wanted, before=before, members=members)


def test_a_newcomer_to_a_worker_that_is_there_is_admitted_and_nothing_is_started() -> None:
    led = in_workers({"sums": 1})
    led.until(Phase.OVER)
    led = Led({"sums": 2}, before=led.leader.plan, members=led.members)
    led.until(Phase.CONNECTING)
    newcomer = led.replica(1)
    assert (led.leader.fresh, led.leader.joining, led.leader.incarnation) == ((), (), 5)
    (admit,) = asks(led.said, calls.Admit)
    assert admit.names == (newcomer,)
    assert not asks(led.said, calls.Run)
    led.tell(Broke(led.turn(newcomer), newcomer, "it cannot be built"))
    assert asks(led.said, calls.Forget)
    assert [ask.names for ask in asks(led.all_done(), calls.Withdraw)] == [(newcomer,)]
    assert isinstance(led.until(Phase.OVER)[-1], Refuse)


def test_a_new_worker_listens_once_for_all_newcomers_that_it_holds() -> None:
    led = in_workers({"sums": 3, "counts": 3})
    led.until(Phase.STARTING)
    assert led.leader.fresh == led.leader.joining == ("w2",)
    assert asks(led.said, calls.StartProcesses)[0].call.arguments[0] == ("w2",)
    assert [ask.names for ask in asks(led.all_answer(), calls.Listen)] == [("w2",)]
    led.until(Phase.CONNECTING)
    assert [ask.names for ask in asks(led.said, calls.Run)] == [("w2",)]
    assert not asks(led.said, calls.Admit)


def test_a_worker_that_holds_nothing_stays() -> None:
    led = in_workers({"sums": 1, "counts": 1})
    led.until(Phase.COMMITTING)
    assert only(led.said, LayOut).processes == ()
    assert len(only(led.said, LayOut).gone) == 2
