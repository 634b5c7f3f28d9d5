"""The autoscaler's core and its journal: rounds, outcomes, refusals, policies that fail, continuing a journal."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rayad.autoscale import (
    DS2,
    AutoscalerCore,
    Decision,
    DecisionJournal,
    DecisionOutcome,
    FunctionPolicy,
    Hold,
    Policy,
    ReplicaReading,
    Rescale,
    ScalingGraph,
    WarmUp,
    policy_for,
)
from rayad.progress import ConfigError, DataflowError, InternalError
from tests.autoscale.dataflow_simulation import SimulatedDataflow, Work, run

GRAPH = ScalingGraph.of(["in", "work"], [("in", "work")], sources=["in"])


def readings(now_s: float, replicas: int = 1, rate: int = 100, busy: float = 0.5) -> list[ReplicaReading]:
    """All began at 0; each replica of the vertex consumed ``rate`` a second."""
    items = int(rate * now_s)
    source = ReplicaReading("in", 0, 0.0, now_s, 0.1 * now_s, 0.9 * now_s, 0.0, sent={0: (items * replicas, 0)}, read=(items * replicas, 0))
    work = [ReplicaReading("work", i, 0.0, now_s, busy * now_s, (1 - busy) * now_s, 0.0, {0: (items, 0)}) for i in range(replicas)]
    return [source, *work]


def to(**target: int) -> Policy:
    return FunctionPolicy(lambda samples, state, now_s: target)


def autoscaler(policy: Policy, **options: Any) -> AutoscalerCore:
    return AutoscalerCore(GRAPH, policy, {"in": 1, "work": 1}, 0.0, **options)


def test_a_round_trip_from_readings_to_the_outcome() -> None:
    scaler = autoscaler(to(work=3))
    assert scaler.on_readings(readings(1.0), 1.0) == Hold(reason="the first readings: there is nothing to compare them with")
    decision = scaler.on_readings(readings(2.0), 2.0)
    assert decision.changes == {"work": 3}
    assert scaler.on_readings(readings(3.0), 3.0) == Hold(reason="the change of decision 1 is under way")
    scaler.on_rescaled({"in": 1, "work": 3}, 3.5, "two replicas started")
    asked = scaler.journal.records[1]
    assert (asked.outcome, asked.changed_s, asked.answer, asked.layout) == (
        DecisionOutcome.APPLIED,
        3.5,
        "two replicas started",
        {"in": 1, "work": 1},
    )
    assert (asked.saw["work"].observed_rate, asked.saw["work"].true_rate) == (100.0, 200.0)
    assert asked.got == {}
    after = scaler.on_readings(readings(4.0, 3), 4.0)
    assert isinstance(after, Hold)
    assert after.reason == "<lambda> wants {'work': 3}"
    assert scaler.journal.records[1].got == {}  # that sample began before the change
    scaler.on_readings(readings(5.0, 3), 5.0)
    assert scaler.journal.records[1].got["work"].parallelism == 3
    assert scaler.layout == {"in": 1, "work": 3}
    scaler.journal.check_invariants()


def test_after_a_refusal_it_asks_again_later() -> None:
    scaler = autoscaler(to(work=3), retry_s=30.0)
    scaler.on_readings(readings(1.0), 1.0)
    scaler.on_readings(readings(2.0), 2.0)
    record = scaler.on_refused("no room for two more replicas", 10.0)
    assert record is not None
    assert (record.outcome, record.answer, record.changed_s) == (DecisionOutcome.REFUSED, "no room for two more replicas", None)
    waiting = scaler.on_readings(readings(20.0), 20.0)
    assert waiting == Hold(reason="a change was refused 10 s ago; asking again after 30 s")
    assert scaler.on_readings(readings(40.0), 40.0).changes == {"work": 3}


def test_a_user_may_rescale_in_between() -> None:
    scaler = autoscaler(to(work=3))
    scaler.on_rescaled({"in": 1, "work": 2}, 0.5)
    scaler.on_readings(readings(1.0, 2), 1.0)
    assert scaler.on_readings(readings(2.0, 2), 2.0).changes == {"work": 3}
    scaler.on_rescaled({"in": 1, "work": 9}, 3.0)
    assert [r.outcome for r in scaler.journal.records] == [DecisionOutcome.HELD, DecisionOutcome.REFUSED]
    assert scaler.journal.records[1].answer == "another layout took effect first"
    assert scaler.layout["work"] == 9


class BrokenError(Exception):
    pass


def broken(samples: Any, state: Any, now_s: float) -> Any:
    raise BrokenError("division by a wish")


@pytest.mark.parametrize(
    ("policy", "reason"),
    [
        (broken, "BrokenError: division by a wish"),
        (lambda samples, state, now_s: 3, "ConfigError: the policy gave 3, which is not a Decision; FunctionPolicy"),
        (to(nowhere=3), "DataflowError: the policy <lambda> names 'nowhere': the vertices are ['in', 'work']"),
        (to(work=0), "DataflowError: the policy <lambda> asks for 0 replicas of 'work': it must be an int of at least 1"),
        (to(work=257), "DataflowError: the policy <lambda> asks for 257 replicas of 'work': it can have 1 to 256"),
        (to(**{"in": 2}), "DataflowError: the policy <lambda> asks for 2 replicas of 'in', which stays at 1: it is a source"),
        (FunctionPolicy(lambda *_: "more"), "DataflowError: the policy <lambda> gave 'more': it must give a decision"),
        (lambda *_: Rescale(reason="", replicas={"in": 4}), "DataflowError: the policy asks for 4 replicas of 'in'"),
    ],
)  # fmt: skip
def test_a_policy_that_fails_holds_and_says_why(policy: Any, reason: str) -> None:
    scaler = autoscaler(policy)
    scaler.on_readings(readings(1.0), 1.0)
    decision = scaler.on_readings(readings(2.0), 2.0)
    assert isinstance(decision, Hold)
    assert decision.reason.startswith(f"the policy failed: {reason}")
    assert scaler.journal.records[-1].decision == decision


def test_functions_may_give_none_or_a_decision() -> None:
    scaler = autoscaler(FunctionPolicy(lambda samples, state, now_s: None))
    scaler.on_readings(readings(1.0), 1.0)
    assert scaler.on_readings(readings(2.0), 2.0) == Hold(reason="<lambda> gave None")
    assert callable(policy_for("ds2"))
    own = Hold(reason="mine")
    state = scaler.state()
    assert scaler.samples is not None
    assert policy_for(lambda *_: own)(scaler.samples, state, 3.0) is own
    for wrong in ("ds3", 3):
        with pytest.raises(ConfigError, match=r"(no policy 'ds3'|the policy is 3).*name 'ds2' or 'observe', or give"):
            policy_for(wrong)  # type: ignore[arg-type]


def test_the_window_reaches_back_as_far_as_asked_and_not_beyond_a_change() -> None:
    seen: list[tuple[float, float]] = []

    def watch(samples: Any, state: Any, now_s: float) -> Decision:
        seen.append((samples.since_s, samples.until_s))
        return Hold(reason="watching")

    scaler = autoscaler(watch, window_s=3.0, warm_up_s=1.0)
    for second in range(1, 7):
        scaler.on_readings(readings(float(second)), float(second))
    assert seen == [(1.0, 2.0), (1.0, 3.0), (1.0, 4.0), (2.0, 5.0), (3.0, 6.0)]
    seen.clear()
    scaler.on_rescaled({"in": 1, "work": 1}, 6.5)
    for second in range(7, 11):
        scaler.on_readings(readings(float(second)), float(second))
    assert seen == [(6.0, 7.0), (7.0, 8.0), (8.0, 9.0), (8.0, 10.0)]


def simulated() -> SimulatedDataflow:
    work = {"in": Work(rate=1e5, arrivals=1000.0, knows_backlog=True), "work": Work(rate=300.0)}
    return SimulatedDataflow(GRAPH, work, {0: 1.0}, {"in": 1, "work": 1})


def test_another_autoscaler_continues_from_the_journal() -> None:
    _, first = run(simulated(), WarmUp(DS2(down_margin=0.1), 1.0), until_s=20.0)
    written = json.loads(json.dumps(first.journal.as_json()))
    journal = DecisionJournal.from_json(written)
    assert journal.records == first.journal.records
    second = AutoscalerCore(GRAPH, DS2(), first.layout, 20.0, journal=journal)
    second.on_readings(readings(21.0), 21.0)
    assert journal.records[-1].number == first.journal.records[-1].number + 1


def test_a_decision_that_was_never_answered_counts_as_refused() -> None:
    scaler = autoscaler(to(work=3))
    scaler.on_readings(readings(1.0), 1.0)
    scaler.on_readings(readings(2.0), 2.0)
    journal = DecisionJournal.from_json(scaler.journal.as_json())
    assert journal.waiting is None
    last = journal.records[-1]
    assert (last.outcome, last.answer) == (DecisionOutcome.REFUSED, "the autoscaler ended before it was answered")


def test_the_journal_keeps_changes_longer_than_holds() -> None:
    journal = DecisionJournal(changes_keep=2, holds_keep=3)
    layout = {"in": 1, "work": 1}
    for round_number in range(40):
        change = round_number % 10 == 0
        decision = Rescale(reason="", replicas={"work": 2}) if change else Hold(reason="")
        journal.add(None, layout, decision, float(round_number))
        if change:
            journal.on_applied(float(round_number))
        journal.check_invariants()
    assert [r.number for r in journal.records] == [20, 30, 37, 38, 39]


def test_the_journal_refuses_calls_out_of_order() -> None:
    journal = DecisionJournal()
    with pytest.raises(InternalError, match="but no decision is waiting"):
        journal.on_applied(1.0)
    journal.add(None, {"in": 1, "work": 1}, Rescale(reason="one", replicas={"work": 2}), 1.0)
    with pytest.raises(InternalError, match="decision 0 has no outcome yet, and another one is added: two"):
        journal.add(None, {"in": 1, "work": 1}, Rescale(reason="two", replicas={"work": 3}), 2.0)
    with pytest.raises(ConfigError, match=r"decision 7 is not in the journal, which has \[0\]"):
        journal.compare(7)
    with pytest.raises(ConfigError, match="the journal names a decision 'Wish'"):
        DecisionJournal.from_json([{**journal.as_json()[0], "decision": "Wish"}])
    with pytest.raises(ConfigError, match="both must be at least 1"):
        DecisionJournal(holds_keep=0)


def test_a_layout_that_does_not_fit_the_graph_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"the layout names \['work'\], the graph has \['in', 'work'\]"):
        AutoscalerCore(GRAPH, to(work=2), {"work": 1}, 0.0)
    with pytest.raises(DataflowError, match="the policy <lambda> asks for True replicas"):
        to(work=True)(None, autoscaler(to()).state(), 0.0)  # type: ignore[arg-type]
