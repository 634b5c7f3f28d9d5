"""Policies on simulated dataflows: DS2 reaches its target in at most three decisions, and noise does not make it flap."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise

import pytest

from rayad.autoscale import (
    DS2,
    EdgeView,
    Hysteresis,
    LatencyTarget,
    Policy,
    ScalingGraph,
    VertexView,
    WarmUp,
    lag_target,
    policy_for,
    recommended,
)
from tests.autoscale.dataflow_simulation import Moment, SimulatedDataflow, Work, changes, run

WORDCOUNT = ScalingGraph.of(["lines", "split", "count"], [("lines", "split"), ("split", "count")], sources=["lines"])
LOOP = ScalingGraph(
    (VertexView("edges", is_source=True, fixed="a source"), VertexView("step"), VertexView("check"), VertexView("out")),
    (
        EdgeView(0, "edges", "step"),
        EdgeView(1, "step", "check"),
        EdgeView(2, "check", "step", is_feedback=True),
        EdgeView(3, "check", "out"),
    ),
)


def contended(replicas: int) -> float:
    """Each further replica slows all of them down a little (a shared disk, a shared cache)."""
    return replicas / (1.0 + 0.02 * (replicas - 1))


def wordcount(replicas: int, *, disturb: bool = False, **options: float) -> SimulatedDataflow:
    """1,000 lines a second of nine words; splitting does 300 lines a second, counting 1,500 words."""
    scaling = contended if disturb else float
    work = {
        "lines": Work(rate=1e5, arrivals=1000.0, knows_backlog=True),
        "split": Work(rate=300.0, scaling=scaling),
        "count": Work(rate=1500.0, scaling=scaling),
    }
    return SimulatedDataflow(WORDCOUNT, work, {0: 1.0, 1: 9.0}, {"lines": 1, "split": replicas, "count": replicas}, **options)  # type: ignore[arg-type]


def loop(replicas: int, *, disturb: bool = False, **options: float) -> SimulatedDataflow:
    """1,000 a second enter, three of four come round again: 4,000 a second in the loop."""
    scaling = contended if disturb else float
    work = {
        "edges": Work(rate=1e5, arrivals=1000.0, knows_backlog=True),
        "step": Work(rate=600.0, scaling=scaling),
        "check": Work(rate=1100.0, scaling=scaling),
        "out": Work(rate=450.0, scaling=scaling),
    }
    layout = {"edges": 1, "step": replicas, "check": replicas, "out": replicas}
    return SimulatedDataflow(LOOP, work, {0: 1.0, 1: 1.0, 2: 0.75, 3: 0.25}, layout, **options)  # type: ignore[arg-type]


TARGETS = {wordcount: {"lines": 1, "split": 4, "count": 6}, loop: {"edges": 1, "step": 7, "check": 4, "out": 3}}


@pytest.mark.parametrize("dataflow", [wordcount, loop])
@pytest.mark.parametrize("replicas", [1, 40])
def test_ds2_reaches_its_target_in_at_most_three_decisions(dataflow, replicas: int) -> None:  # type: ignore[no-untyped-def]
    moments, _ = run(dataflow(replicas), WarmUp(DS2(), 1.0), until_s=120.0)
    assert 1 <= len(changes(moments)) <= 3
    assert moments[-1].layout == TARGETS[dataflow]


@pytest.mark.parametrize("dataflow", [wordcount, loop])
@pytest.mark.parametrize("replicas", [1, 40])
def test_also_where_replicas_disturb_each_other(dataflow, replicas: int) -> None:  # type: ignore[no-untyped-def]
    """The paper's reason for three steps: the first is off because true rates fall with more replicas, the next ones measure that."""
    moments, _ = run(dataflow(replicas, disturb=True), WarmUp(DS2(), 1.0), until_s=120.0)
    assert 1 <= len(changes(moments)) <= 3
    source = next(name for name in moments[-1].layout if name in ("lines", "edges"))
    assert moments[-1].produced[source] == pytest.approx(1000.0, rel=0.02)
    for name, work in dataflow(1, disturb=True).work.items():
        count = moments[-1].layout[name]
        if name != source and count > 1:  # and it is the least that is enough
            needed = TARGET_RATES[name]
            assert work.rate * contended(count) >= 0.99 * needed
            assert work.rate * contended(count - 1) < needed


TARGET_RATES = {"split": 1000.0, "count": 9000.0, "step": 4000.0, "check": 4000.0, "out": 1000.0}


@pytest.mark.parametrize("dataflow", [wordcount, loop])
@pytest.mark.parametrize("replicas", [1, 40])
def test_the_recommended_layout_works_off_queues_and_settles_with_room(dataflow, replicas: int) -> None:  # type: ignore[no-untyped-def]
    simulated = dataflow(replicas)
    moments, _ = run(simulated, policy_for("ds2"), until_s=400.0, interval_s=5.0)
    settled = [m.layout for m in moments if m.now_s >= 250.0]
    assert all(layout == settled[0] for layout in settled)
    for name, rate in TARGET_RATES.items():
        if name in settled[0]:
            utilization = rate / (simulated.work[name].rate * settled[0][name])
            assert 0.5 < utilization <= 0.82
    assert sum(simulated.backlog.values()) < 100.0


def test_the_journal_shows_the_expected_effect() -> None:
    moments, autoscaler = run(loop(1), WarmUp(DS2(), 1.0), until_s=120.0)
    last = [r for r in autoscaler.journal.records if r.decision.changes][-1]
    for comparison in autoscaler.journal.compare(last.number):
        assert comparison.got_rate == pytest.approx(comparison.expected_rate, rel=0.02)
        assert comparison.accuracy == pytest.approx(1.0, abs=0.02)
    assert moments[-1].decision.reason == "every vertex has what it needs"


def directions(moments: list[Moment], name: str) -> int:
    """How often a vertex turned from growing to shrinking or back."""
    steps = [b.layout[name] - a.layout[name] for a, b in pairwise(moments) if a.layout[name] != b.layout[name]]
    return sum((a > 0) != (b > 0) for a, b in pairwise(steps))


@pytest.mark.parametrize("seed", range(5))
def test_noise_makes_bare_ds2_flap_and_hysteresis_does_not(seed: int) -> None:
    """The load is just where two counts meet (900/s at 300/s each), and rates waver by a fifth from step to step."""

    def noisy() -> SimulatedDataflow:
        work = {
            "lines": Work(rate=1e5, arrivals=900.0, knows_backlog=True),
            "split": Work(rate=300.0),
            "count": Work(rate=1500.0),
        }
        return SimulatedDataflow(WORDCOUNT, work, {0: 1.0, 1: 9.0}, {"lines": 1, "split": 1, "count": 1}, seed=seed, noise=0.2)

    bare, _ = run(noisy(), WarmUp(DS2(utilization=0.75), 1.0), until_s=300.0)
    calm, _ = run(noisy(), recommended(DS2(utilization=0.75, down_margin=0.1)), until_s=300.0, window_s=20.0, warm_up_s=5.0)
    assert len(changes(bare)) >= 30
    assert directions(bare, "split") + directions(bare, "count") >= 30
    assert directions(calm, "split") + directions(calm, "count") == 0
    assert len(changes(calm)) <= 5


def test_a_cyclic_load_is_followed_up_at_once_and_down_slowly() -> None:
    work = {
        "lines": Work(rate=1e5, arrivals=lambda t: 600.0 + 400.0 * math.sin(2 * math.pi * t / 300.0), knows_backlog=True),
        "split": Work(rate=100.0),
        "count": Work(rate=1500.0),
    }
    dataflow = SimulatedDataflow(WORDCOUNT, work, {0: 1.0, 1: 9.0}, {"lines": 1, "split": 8, "count": 8})
    moments, _ = run(dataflow, policy_for("ds2"), until_s=900.0, interval_s=5.0)
    counts = [m.layout["split"] for m in moments]
    assert max(counts[60:]) >= 12
    assert min(counts[60:]) <= 8
    assert directions(moments, "split") <= 7  # once up and once down in each of three periods
    assert max(dataflow.backlog.values()) < 1000.0


def test_an_amplifying_loop_is_held_and_the_reason_says_so() -> None:
    dataflow = loop(2)
    dataflow.selectivity = {0: 1.0, 1: 1.0, 2: 1.1, 3: 0.1}  # type: ignore[assignment]
    moments, _ = run(dataflow, WarmUp(DS2(), 1.0), until_s=30.0)
    assert changes(moments) == []
    assert "the loop of step, check amplifies: 1.04" in moments[-1].decision.reason


def test_a_file_is_read_as_fast_as_everything_behind_it_may_grow() -> None:
    """A source that never waits for input sets no rate of its own but the one at which it could read."""
    work = {"lines": Work(rate=4000.0), "split": Work(rate=300.0), "count": Work(rate=6200.0)}
    dataflow = SimulatedDataflow(WORDCOUNT, work, {0: 1.0, 1: 9.0}, {"lines": 1, "split": 1, "count": 1}, buffer_items=5000.0)
    moments, _ = run(dataflow, WarmUp(DS2(down_margin=0.05), 2.0), until_s=120.0)
    assert len(changes(moments)) <= 3
    assert moments[-1].layout == {"lines": 1, "split": 14, "count": 6}
    assert moments[-1].produced["lines"] == pytest.approx(4000.0, rel=0.01)


def test_the_correction_finds_time_that_the_counters_do_not_see() -> None:
    """A third of the time goes to something that looks like waiting: true rates are too good, and DS2 alone stops too early."""

    def hidden() -> SimulatedDataflow:
        work = {
            "lines": Work(rate=1e5, arrivals=1000.0),
            "split": Work(rate=300.0, overhead=1 / 3),
            "count": Work(rate=1500.0, overhead=1 / 3),
        }
        return SimulatedDataflow(WORDCOUNT, work, {0: 1.0, 1: 9.0}, {"lines": 1, "split": 1, "count": 1}, buffer_items=2000.0)

    rates = {"lines": 1000.0}
    plain, _ = run(hidden(), WarmUp(DS2(source_rates=rates), 1.0), until_s=120.0)
    corrected, _ = run(hidden(), WarmUp(DS2(source_rates=rates, target_rate_ratio=1.05), 1.0), until_s=120.0)
    assert plain[-1].produced["lines"] < 900.0
    assert corrected[-1].produced["lines"] >= 999.0
    assert len(changes(corrected)) <= 3
    assert all(m.layout == corrected[-1].layout for m in corrected if m.now_s > 60.0)


def test_a_lag_target_works_off_queues() -> None:
    def behind() -> SimulatedDataflow:
        dataflow = wordcount(4)
        dataflow.backlog["lines"] = 20_000.0
        return dataflow

    slow, fast = behind(), behind()
    run(slow, WarmUp(DS2(utilization=0.8), 1.0), until_s=60.0)
    moments, _ = run(fast, WarmUp(lag_target(lag_s=1.0, catch_up_s=20.0), 1.0), until_s=60.0)
    assert fast.backlog["lines"] < 100.0
    assert fast.backlog["lines"] < slow.backlog["lines"]
    assert moments[-1].layout["split"] <= 6  # and afterwards the extra replicas go again


@pytest.mark.parametrize("replicas", [4, 30])
def test_a_latency_target_is_reached_from_both_sides(replicas: int) -> None:
    target_s = 0.012
    policy: Policy = Hysteresis(WarmUp(LatencyTarget(target_s=target_s, share=0.9, vertex="split"), 6.0), down_rounds=2)
    simulated = wordcount(replicas)
    moments, autoscaler = run(simulated, policy, until_s=300.0, interval_s=5.0)
    assert autoscaler.samples is not None
    found = autoscaler.samples.vertices["split"].latency_s(0.9)
    assert found is not None
    assert found <= 1.5 * target_s
    assert len({m.layout["split"] for m in moments[-20:]}) == 1
    assert moments[-1].layout["split"] < 12


def in_workers(graph: ScalingGraph) -> ScalingGraph:
    """The same, with all vertices in workers."""
    return ScalingGraph(tuple(replace(vertex, shares=True) for vertex in graph.vertices), graph.edges)


def chain(workers: int, *, shares: bool = True, arrivals: float = 1000.0) -> SimulatedDataflow:
    """Four steps that each take 0.5 processors at 1,000 a second: with the source 2.1."""
    names = ["lines", "a", "b", "c", "d"]
    plain = ScalingGraph.of(names, pairwise(names), sources=["lines"])
    graph = in_workers(plain) if shares else plain
    work = {name: Work(rate=2000.0) for name in names[1:]} | {"lines": Work(rate=10_000.0, arrivals=arrivals, knows_backlog=True)}
    return SimulatedDataflow(graph, work, {edge.id: 1.0 for edge in graph.edges}, dict.fromkeys(names, workers) | {"lines": 1})


@pytest.mark.parametrize("workers", [1, 2, 12])
def test_in_workers_what_the_vertices_need_adds_up(workers: int) -> None:
    """Regression: each vertex by itself needs half a processor, so one worker for all of them was held for enough."""
    simulated = chain(workers)
    moments, _ = run(simulated, WarmUp(DS2(), 1.0), until_s=120.0)
    assert len(changes(moments)) <= 3
    assert moments[-1].layout == {"lines": 1, "a": 3, "b": 3, "c": 3, "d": 3}
    assert moments[-1].produced["lines"] == pytest.approx(1000.0, rel=0.02)
    alone = run(chain(workers, shares=False), WarmUp(DS2(), 1.0), until_s=120.0)[0]
    assert alone[-1].layout == {"lines": 1, "a": 1, "b": 1, "c": 1, "d": 1}, "with a processor for each replica"


def test_in_workers_a_decision_says_how_many_processors_are_needed() -> None:
    moments, autoscaler = run(chain(1), WarmUp(DS2(), 1.0), until_s=120.0)
    (decision,) = changes(moments)
    assert decision.reason == "what shares workers needs 2.1 processors: 1 -> 3 workers"
    assert decision.figures["workers.load"] == pytest.approx(2.1, rel=0.02)
    (record,) = [r for r in autoscaler.journal.records if r.decision.changes]
    for comparison in autoscaler.journal.compare(record.number):
        assert comparison.got_rate == pytest.approx(comparison.expected_rate, rel=0.02)
    assert {round(one.utilization, 2) for one in decision.expected.values()} == {0.7}


@pytest.mark.parametrize("dataflow", [wordcount, loop])
def test_loops_and_fans_in_workers_get_as_many_as_all_need_together(dataflow) -> None:  # type: ignore[no-untyped-def]
    simulated = dataflow(1)
    simulated.graph = in_workers(simulated.graph)
    moments, _ = run(simulated, WarmUp(DS2(), 1.0), until_s=200.0)
    source = next(name for name in moments[-1].layout if name in ("lines", "edges"))
    load = 1000.0 / 1e5 + sum(rate / simulated.work[name].rate for name, rate in TARGET_RATES.items() if name in simulated.work)
    counts = {count for name, count in moments[-1].layout.items() if name != source}
    assert counts == {math.ceil(load)}
    assert len(changes(moments)) <= 3
    late = [moment.produced[source] for moment in moments[-40:]]  # a worker's turns make it uneven
    assert math.fsum(late) / len(late) >= 990.0


def test_in_workers_nothing_is_scaled_for_what_was_not_measured() -> None:
    """A source in four workers that reads nothing is no reason for four replicas of what comes after it, nor for fewer."""
    quiet = chain(1, arrivals=0.0)
    quiet.graph = ScalingGraph(tuple(replace(vertex, most=4) for vertex in quiet.graph.vertices), quiet.graph.edges)
    simulated = SimulatedDataflow(quiet.graph, quiet.work, quiet.selectivity, {"lines": 4, "a": 1, "b": 2, "c": 1, "d": 3})
    moments, _ = run(simulated, WarmUp(DS2(), 1.0), until_s=30.0)
    assert changes(moments) == []
