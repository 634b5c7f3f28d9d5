"""Wrappers around policies: when they let a decision pass, and what they make of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rayad.autoscale import (
    Bounds,
    CoolDown,
    Decision,
    DecisionOutcome,
    Hold,
    Hysteresis,
    JobSample,
    MaxStep,
    Policy,
    Record,
    ScaleDown,
    ScaleUp,
    ScalingGraph,
    ScalingState,
    VertexView,
    WarmUp,
)
from rayad.autoscale.decisions import decision_for
from rayad.autoscale.limits import share_out
from rayad.progress import ConfigError

GRAPH = ScalingGraph.of(["in", "a", "b"], [("in", "a"), ("a", "b")], sources=["in"])


def wants(**replicas: int) -> Policy:
    """A policy that always wants this."""

    def policy(samples: JobSample, state: ScalingState, now_s: float) -> Decision:
        return decision_for(state.layout, replicas, Hold(reason="it wants to", wanted=replicas))

    return policy


def state(a: int, b: int, *, changed_s: float = 0.0, history: tuple[Record, ...] = ()) -> ScalingState:
    return ScalingState(GRAPH, {"in": 1, "a": a, "b": b}, changed_s, history)


def ask(policy: Policy, given_state: ScalingState, now_s: float = 100.0, since_s: float = 90.0) -> Decision:
    return policy(JobSample(since_s, now_s, {}), given_state, now_s)


def test_warm_up_waits_for_a_sample_of_this_layout_alone() -> None:
    policy = WarmUp(wants(a=4), 5.0)
    early = ask(policy, state(1, 1, changed_s=86.0))
    assert early == Hold(reason="warming up: the sample begins 1 s too early: samples count from 5 s after a change of layout")
    assert ask(policy, state(1, 1, changed_s=85.0)).changes == {"a": 4}


def test_cool_down_has_a_time_for_each_direction() -> None:
    changed = Record(0, 50.0, {}, {}, Hold(reason=""), DecisionOutcome.APPLIED, 80.0)
    policy = CoolDown(wants(a=4, b=1), up_s=10.0, down_s=60.0)
    soon = ask(policy, state(2, 3, changed_s=80.0, history=(changed,)))
    assert isinstance(soon, ScaleUp)
    assert soon.changes == {"a": 4}
    assert soon.reason == "it wants to; cooling down: the last change was 20 s ago"
    assert soon.wanted == {"a": 4, "b": 1}
    assert ask(policy, state(2, 3, changed_s=80.0, history=(changed,)), now_s=140.0).changes == {"a": 4, "b": 1}
    assert ask(policy, state(2, 3, changed_s=95.0, history=(changed,))).changes == {}
    assert ask(policy, state(2, 3, changed_s=95.0)).changes == {"a": 4, "b": 1}  # the job's start is no change


def record(now_s: float, layout: Mapping[str, int], **wanted: int) -> Record:
    return Record(int(now_s), now_s, dict(layout), {}, Hold(reason="", wanted=wanted), DecisionOutcome.HELD)


def test_hysteresis_waits_until_it_has_been_wanted_for_long_enough() -> None:
    layout = {"in": 1, "a": 5, "b": 5}
    policy = Hysteresis(wants(a=2, b=9), down_rounds=3)
    once = ask(policy, state(5, 5))
    assert isinstance(once, ScaleUp)
    assert once.changes == {"b": 9}
    history = (record(80.0, layout, a=3), record(85.0, layout, a=4))
    assert ask(policy, state(5, 5, history=history)).changes == {"a": 4, "b": 9}  # the most that was wanted in three rounds
    interrupted = (record(80.0, layout, a=3), record(85.0, layout, a=5))
    assert ask(policy, state(5, 5, history=interrupted)).changes == {"b": 9}
    silent = (record(80.0, layout, a=3), record(85.0, layout))
    assert ask(policy, state(5, 5, history=silent)).changes == {"b": 9}
    before_the_change = (record(80.0, {**layout, "b": 4}, a=3), record(85.0, layout, a=3))
    assert ask(policy, state(5, 5, history=before_the_change)).changes == {"b": 9}
    assert ask(policy, state(5, 5, history=history, changed_s=82.0)).changes == {"b": 9}


def test_hysteresis_on_the_way_up_takes_the_least() -> None:
    layout = {"in": 1, "a": 5, "b": 5}
    policy = Hysteresis(wants(a=9), up_rounds=2)
    assert ask(policy, state(5, 5)).changes == {}
    assert ask(policy, state(5, 5, history=(record(85.0, layout, a=7),))).changes == {"a": 7}


@given(st.integers(1, 100), st.integers(1, 100), st.floats(1.0, 5.0), st.floats(1.0, 5.0))
def test_a_step_is_never_too_large_and_always_makes_progress(now: int, wanted: int, up: float, down: float) -> None:
    after = {"a": now, **ask(MaxStep(wants(a=wanted), up, down), state(now, 1)).changes}["a"]
    assert min(now, wanted) <= after <= max(now, wanted)
    assert after <= max(now + 1, now * up)
    assert after >= min(now - 1, now / down)
    assert after != now or wanted == now


COUNTS = st.tuples(st.integers(1, 60), st.integers(1, 60))


@given(COUNTS, COUNTS, st.integers(1, 9), st.integers(9, 20), st.integers(3, 40))
def test_bounds_hold_for_any_decision(now: tuple[int, int], wanted: tuple[int, int], least: int, most: int, total: int) -> None:
    policy = Bounds(wants(a=wanted[0], b=wanted[1]), {"a": least}, {"a": most}, total)
    after = {"in": 1, "a": now[0], "b": now[1], **ask(policy, state(*now)).changes}
    assert least <= after["a"] <= most
    assert after["b"] >= 1
    assert sum(after.values()) <= max(total, 1 + least + 1)


def test_bounds_bring_a_layout_inside_that_is_outside() -> None:
    decision = ask(Bounds(lambda samples, state, now_s: Hold(reason="all is well"), {"a": 3}), state(1, 1))
    assert isinstance(decision, ScaleUp)
    assert (decision.changes, decision.reason) == ({"a": 3}, "all is well; brought within the bounds")


def test_bounds_that_cross_or_name_nothing_are_refused() -> None:
    with pytest.raises(ConfigError, match="the bounds of 'a' are 5 to 4"):
        ask(Bounds(wants(a=1), {"a": 5}, {"a": 4}), state(1, 1))
    with pytest.raises(ConfigError, match=r"Bounds names \['c'\]: the vertices are \['a', 'b', 'in'\]"):
        ask(Bounds(wants(a=1), {"c": 5}), state(1, 1))


@given(st.dictionaries(st.sampled_from("abcd"), st.integers(1, 40), min_size=1), st.integers(1, 60))
def test_sharing_out_gives_the_most_that_all_can_get_through(wanted: dict[str, int], replicas: int) -> None:
    """What goes through is set by the vertex with the least of what it wants; no other sharing would do better."""
    given_out = share_out(wanted, dict.fromkeys(wanted, 1), replicas)
    assert sum(given_out.values()) <= max(replicas, len(wanted))
    through = min(given_out[n] / wanted[n] for n in wanted)
    # The least that gives every vertex a larger share than this would take more replicas than there are.
    more = {n: next((k for k in range(1, wanted[n] + 1) if k / wanted[n] > through), wanted[n] + 1) for n in wanted}
    assert through >= 1.0 or sum(more.values()) > replicas


def test_wrong_limits_are_refused() -> None:
    policy = wants()
    wrong: list[Callable[[], object]] = [
        lambda: WarmUp(policy, -1.0),
        lambda: CoolDown(policy, -1.0, 0.0),
        lambda: CoolDown(policy, 0.0, float("nan")),
        lambda: Hysteresis(policy, 0),
        lambda: Hysteresis(policy, 1, 0),
        lambda: MaxStep(policy, 0.5),
        lambda: MaxStep(policy, 2.0, 0.5),
    ]
    for make in wrong:
        with pytest.raises(ConfigError, match="it must be at least"):
            make()


def test_a_wrapper_that_lets_all_pass_changes_nothing() -> None:
    policy = wants(a=2, b=1)
    for wrapped in (WarmUp(policy, 0.0), CoolDown(policy, 0.0, 0.0), Hysteresis(policy, 1, 1), MaxStep(policy, 9.0, 9.0), Bounds(policy)):
        decision = ask(wrapped, state(1, 3))
        assert decision == ask(policy, state(1, 3))
    assert isinstance(ask(wants(b=1), state(1, 3)), ScaleDown)


def test_bounds_of_the_graph_hold_too() -> None:
    graph = ScalingGraph((VertexView("a", 2, 8),), ())
    decision = Bounds(wants(a=30))(JobSample(0.0, 1.0, {}), ScalingState(graph, {"a": 3}, 0.0), 1.0)
    assert decision.changes == {"a": 8}
