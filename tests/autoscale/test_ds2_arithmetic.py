"""DS2's arithmetic on made-up rates: the cases of its authors' implementation, and further ones."""

from __future__ import annotations

import pytest

from rayad.autoscale import (
    DS2,
    DecisionOutcome,
    EdgeView,
    Hold,
    Record,
    Rescale,
    ScaleDown,
    ScaleUp,
    ScalingGraph,
    ScalingState,
    Spread,
    VertexView,
)
from rayad.progress import ConfigError
from tests.autoscale.made_up import sample_of, state_of, steady_sample

PIPELINE = ScalingGraph.of(["source", "op1", "op2"], [("source", "op1"), ("op1", "op2")], sources=["source"])
ONE_EACH = {"source": 1, "op1": 1, "op2": 1}
LOOP = ScalingGraph(
    (VertexView("in", is_source=True, fixed="a source"), VertexView("step"), VertexView("check"), VertexView("out")),
    (
        EdgeView(0, "in", "step"),
        EdgeView(1, "step", "check"),
        EdgeView(2, "check", "step", is_feedback=True),
        EdgeView(3, "check", "out"),
    ),
)


def test_two_and_eight() -> None:
    """Source 100/s; op1 does 50/s and gives 8 for each, op2 does 100/s: op2 is sized for a load that it has never seen."""
    sample = sample_of(
        PIPELINE, ONE_EACH, {"source": 12.5, "op1": 12.5, "op2": 100.0}, {"source": 1000.0, "op1": 50.0, "op2": 100.0}, {0: 1, 1: 8}
    )
    decision = DS2(source_rates={"source": 100.0})(sample, state_of(PIPELINE, ONE_EACH), 10.0)
    assert isinstance(decision, ScaleUp)
    assert decision.changes == {"op1": 2, "op2": 8}
    assert decision.reason == "op1 needs 100/s, one replica can do 50/s: 1 -> 2; op2 needs 800/s, one replica can do 100/s: 1 -> 8"
    assert decision.figures["op2.required_per_s"] == pytest.approx(800.0)
    assert {name: (e.rate, e.capacity) for name, e in decision.expected.items()} == {
        "op1": (pytest.approx(100.0), pytest.approx(100.0)),
        "op2": (pytest.approx(800.0), pytest.approx(800.0)),
    }


@pytest.mark.parametrize(
    ("source_rate", "op1", "op1_output", "op2", "replicas"),
    [(100.0, 50.0, 400.0, 100.0, (2, 8)), (200.0, 40.0, 700.0, 99.0, (5, 36)), (200.0, 10.0, 700.0, 201.0, (20, 70))],
)
def test_the_cases_of_the_authors_tests(source_rate: float, op1: float, op1_output: float, op2: float, replicas: tuple[int, int]) -> None:
    """strymon-system/ds2, controller/tests/scaling_policy_test.rs: true rates of op1 and op2, and op1's true output rate."""
    true = {"source": 1e6, "op1": op1, "op2": op2}
    sample = steady_sample(PIPELINE, ONE_EACH, {"source": source_rate}, true, {0: 1.0, 1: op1_output / op1})
    decision = DS2(source_rates={"source": source_rate})(sample, state_of(PIPELINE, ONE_EACH), 10.0)
    assert (decision.changes["op1"], decision.changes["op2"]) == replicas


def test_two_sources_add_up() -> None:
    graph = ScalingGraph.of(["s1", "s2", "op1", "op2"], [("s1", "op1"), ("s2", "op1"), ("op1", "op2")], sources=["s1", "s2"])
    layout = dict.fromkeys(graph.by_name, 1)
    true = {"s1": 1e6, "s2": 1e6, "op1": 50.0, "op2": 100.0}
    sample = steady_sample(graph, layout, {"s1": 100.0, "s2": 100.0}, true, {0: 1.0, 1: 1.0, 2: 8.0})
    decision = DS2(source_rates={"s1": 100.0, "s2": 100.0})(sample, state_of(graph, layout), 10.0)
    assert decision.changes == {"op1": 4, "op2": 16}


def test_surplus_replicas_are_removed_at_once() -> None:
    layout = {"source": 1, "op1": 9, "op2": 20}
    sample = steady_sample(PIPELINE, layout, {"source": 100.0}, {"source": 1e6, "op1": 50.0, "op2": 100.0}, {0: 1.0, 1: 8.0})
    decision = DS2()(sample, state_of(PIPELINE, layout), 10.0)
    assert isinstance(decision, ScaleDown)
    assert decision.changes == {"op1": 2, "op2": 8}


def test_up_and_down_in_one_decision() -> None:
    layout = {"source": 1, "op1": 9, "op2": 1}
    sample = steady_sample(PIPELINE, layout, {"source": 100.0}, {"source": 1e6, "op1": 50.0, "op2": 100.0}, {0: 1.0, 1: 8.0})
    decision = DS2(source_rates={"source": 100.0})(sample, state_of(PIPELINE, layout), 10.0)
    assert isinstance(decision, Rescale)
    assert decision.changes == {"op1": 2, "op2": 8}


def test_utilization_leaves_room() -> None:
    sample = steady_sample(PIPELINE, ONE_EACH, {"source": 100.0}, {"source": 1e6, "op1": 50.0, "op2": 100.0}, {0: 1.0, 1: 8.0})
    decision = DS2(source_rates={"source": 100.0}, utilization=0.8)(sample, state_of(PIPELINE, ONE_EACH), 10.0)
    assert decision.changes == {"op1": 3, "op2": 10}


def test_a_loop_is_sized_for_all_rounds() -> None:
    """Three quarters come round again: 100/s that enter are 400/s in the loop, and 100/s that leave."""
    layout = dict.fromkeys(LOOP.by_name, 1)
    true = {"in": 1e6, "step": 120.0, "check": 250.0, "out": 80.0}
    sample = steady_sample(LOOP, layout, {"in": 100.0}, true, {0: 1.0, 1: 1.0, 2: 0.75, 3: 0.25})
    decision = DS2(source_rates={"in": 100.0})(sample, state_of(LOOP, layout), 10.0)
    assert decision.changes == {"step": 4, "check": 2, "out": 2}
    assert decision.figures["step+check.gain"] == pytest.approx(0.75**0.5)


AMPLIFIES = (
    "the loop of step, check amplifies: 1.095 items come back for one, no number of replicas is enough; check, out, step left as they are"
)


def test_an_amplifying_loop_is_left_alone_with_all_behind_it() -> None:
    graph = ScalingGraph((*LOOP.vertices, VertexView("aside")), (*LOOP.edges, EdgeView(4, "in", "aside")))
    layout = dict.fromkeys(graph.by_name, 2)
    consumed = {"in": 100.0, "step": 240.0, "check": 240.0, "out": 20.0, "aside": 100.0}
    true = {"in": 1e6, "step": 120.0, "check": 250.0, "out": 80.0, "aside": 50.0}
    selectivity = {0: 1.0, 1: 1.0, 2: 1.2, 3: 0.25, 4: 1.0}
    sample = sample_of(graph, layout, consumed, true, selectivity)
    decision = DS2(utilization=0.8)(sample, state_of(graph, layout), 10.0)
    assert decision.changes == {"aside": 3}
    assert decision.reason == f"aside needs 100/s, one replica can do 50/s: 2 -> 3; {AMPLIFIES}"
    by_arrivals = DS2(amplifying="arrivals")(sample, state_of(graph, layout), 10.0)
    assert by_arrivals.changes["step"] == 4  # 100/s from the source and 1.2 * 240/s from check arrive: 388 / 120


def test_broadcast_items_are_not_divided() -> None:
    graph = ScalingGraph(
        (VertexView("facts", is_source=True, fixed="a source"), VertexView("rules", is_source=True, fixed="a source"), VertexView("join")),
        (EdgeView(0, "facts", "join"), EdgeView(1, "rules", "join", Spread.COPIED)),
    )
    true = {"facts": 1e6, "rules": 1e6, "join": 100.0}
    policy = DS2(source_rates={"facts": 400.0, "rules": 50.0})
    for replicas in (1, 3, 8, 20):  # each must take all 50 of the rules: 50/s are left for the 400/s of the facts, with 8 replicas
        layout = {"facts": 1, "rules": 1, "join": replicas}
        rates = {"facts": 40.0, "rules": 5.0, "join": 45.0}
        decision = policy(sample_of(graph, layout, rates, true, {0: 1.0, 1: 1.0}), state_of(graph, layout), 10.0)
        assert decision.wanted == {"join": 8}


def test_output_for_a_broadcast_does_not_depend_on_the_number_of_replicas() -> None:
    graph = ScalingGraph(
        (VertexView("rules", is_source=True, fixed="a source"), VertexView("match", fixed="for this test"), VertexView("after")),
        (EdgeView(0, "rules", "match", Spread.COPIED), EdgeView(1, "match", "after")),
    )
    for replicas in (1, 2, 5):
        layout = {"rules": 1, "match": replicas, "after": 1}
        rates = {"rules": 50.0, "match": 50.0, "after": 20.0}
        sample = sample_of(graph, layout, rates, {"rules": 1e6, "match": 100.0, "after": 20.0}, {0: 1.0, 1: 2.0})
        assert DS2()(sample, state_of(graph, layout), 10.0).wanted == {"after": 5}


def test_queues_are_worked_off_within_the_time() -> None:
    layout = {"source": 1, "op1": 2, "op2": 8}
    true, selectivity = {"source": 1e6, "op1": 50.0, "op2": 100.0}, {0: 1.0, 1: 8.0}
    sample = sample_of(PIPELINE, layout, {"source": 100.0, "op1": 100.0, "op2": 800.0}, true, selectivity, queues={"op1": 1000})
    assert isinstance(DS2()(sample, state_of(PIPELINE, layout), 10.0), Hold)
    decision = DS2(catch_up_s=20.0)(sample, state_of(PIPELINE, layout), 10.0)
    assert decision.changes == {"op1": 3, "op2": 12}  # 50/s more at op1, 400/s more at op2
    assert isinstance(DS2(catch_up_s=20.0, lag_s=10.0)(sample, state_of(PIPELINE, layout), 10.0), Hold)


def test_a_vertex_that_works_off_a_queue_keeps_its_replicas() -> None:
    layout = {"source": 1, "op1": 6, "op2": 24}
    true, selectivity = {"source": 1e6, "op1": 50.0, "op2": 100.0}, {0: 1.0, 1: 8.0}
    draining = sample_of(PIPELINE, layout, {"source": 100.0, "op1": 300.0, "op2": 2400.0}, true, selectivity)
    assert isinstance(DS2()(draining, state_of(PIPELINE, layout), 10.0), Hold)


def test_a_vertex_that_was_not_measured_keeps_its_replicas() -> None:
    layout = {"source": 1, "op1": 6, "op2": 24}
    true, selectivity = {"source": 1e6, "op1": 50.0}, {0: 1.0, 1: 8.0}
    sample = sample_of(PIPELINE, layout, {"source": 100.0, "op1": 0.0, "op2": 0.0}, true, selectivity)
    decision = DS2()(sample, state_of(PIPELINE, layout), 10.0)
    assert isinstance(decision, Hold)
    assert decision.reason == "no replicas are taken from op1, op2: a vertex there or upstream has never consumed anything"


def test_a_vertex_behind_one_that_was_not_measured_keeps_its_replicas() -> None:
    """op2 works off a queue; how much op1 will give it, once items go through op1, is not known."""
    layout = {"source": 1, "op1": 6, "op2": 24}
    sample = sample_of(PIPELINE, layout, {"source": 100.0, "op1": 0.0, "op2": 100.0}, {"source": 1e6, "op2": 100.0}, {0: 1.0, 1: 8.0})
    assert isinstance(DS2()(sample, state_of(PIPELINE, layout), 10.0), Hold)


def test_a_rate_that_is_not_measured_now_is_the_last_one() -> None:
    """The source is held back so hard that nothing went through it in the window; the journal knows what it gives for each item."""
    policy = DS2(source_rates={"source": 100.0})
    true, selectivity = {"source": 1e6, "op1": 50.0, "op2": 100.0}, {0: 1.0, 1: 8.0}
    before = policy(steady_sample(PIPELINE, ONE_EACH, {"source": 100.0}, true, selectivity), state_of(PIPELINE, ONE_EACH), 10.0)
    record = Record(0, 10.0, ONE_EACH, {}, before, DecisionOutcome.REFUSED)
    stuck = sample_of(PIPELINE, ONE_EACH, {"source": 0.0, "op1": 0.0, "op2": 100.0}, true, selectivity, backpressured={"source": 1.0})
    assert policy(stuck, ScalingState(PIPELINE, ONE_EACH, 0.0, (record,)), 20.0).changes == {"op1": 2, "op2": 8}
    assert policy(stuck, state_of(PIPELINE, ONE_EACH), 20.0).changes == {}


def test_a_missing_vertex_holds() -> None:
    sample = steady_sample(PIPELINE, ONE_EACH, {"source": 10.0}, {"source": 1e6, "op1": 50.0, "op2": 100.0}, {0: 1.0, 1: 1.0})
    del sample.vertices["op2"]  # type: ignore[attr-defined]
    decision = DS2()(sample, state_of(PIPELINE, ONE_EACH), 10.0)
    assert decision == Hold(reason="nothing was measured of op2")


def back_pressured_sample():  # type: ignore[no-untyped-def]
    """The model finds enough everywhere, yet the source reads 80 of 100 a second."""
    layout = {"source": 1, "op1": 2, "op2": 8}
    true = {"source": 1e6, "op1": 50.0, "op2": 100.0}
    return layout, sample_of(PIPELINE, layout, {"source": 80.0, "op1": 80.0, "op2": 640.0}, true, {0: 1.0, 1: 8.0})


def test_an_error_of_the_model_is_corrected_once_and_remembered() -> None:
    layout, sample = back_pressured_sample()
    policy = DS2(source_rates={"source": 100.0}, target_rate_ratio=1.1)
    assert isinstance(DS2(source_rates={"source": 100.0})(sample, state_of(PIPELINE, layout), 10.0), Hold)
    first = policy(sample, state_of(PIPELINE, layout), 10.0)
    assert first.changes == {"op1": 3, "op2": 10}
    assert first.correction == pytest.approx(1.25)
    assert first.reason.endswith(
        "; times 1.25, because 'source' must read 1.25 times what it reads, though by the model every vertex has enough replicas"
    )
    layout = {"source": 1, "op1": 3, "op2": 10}
    true = {"source": 1e6, "op1": 50.0, "op2": 100.0}
    enough = sample_of(PIPELINE, layout, {"source": 100.0, "op1": 100.0, "op2": 800.0}, true, {0: 1.0, 1: 8.0})
    record = Record(0, 10.0, layout, {}, first, DecisionOutcome.APPLIED, 11.0)
    warming = Record(1, 12.0, layout, {}, Hold(reason="warming up"), DecisionOutcome.HELD)
    then = policy(enough, ScalingState(PIPELINE, layout, 11.0, (record, warming)), 20.0)
    assert isinstance(then, Hold)
    assert then.reason == "every vertex has what it needs; times 1.25, as found before"


def test_unknown_sources_and_wrong_figures_are_refused() -> None:
    layout, sample = back_pressured_sample()
    with pytest.raises(ConfigError, match=r"DS2.source_rates names \['op1'\], which are no sources of this dataflow"):
        DS2(source_rates={"op1": 1.0})(sample, state_of(PIPELINE, layout), 10.0)
    for wrong in (
        {"utilization": 0.0},
        {"utilization": 1.5},
        {"down_margin": 1.0},
        {"catch_up_s": 0.0},
        {"lag_s": -1.0},
        {"target_rate_ratio": 0.9},
    ):
        ((name, value),) = wrong.items()
        with pytest.raises(ConfigError, match=f"DS2.{name} is {value}"):
            DS2(**wrong)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="it must be 'hold' or 'arrivals'"):
        DS2(amplifying="most")  # type: ignore[arg-type]
