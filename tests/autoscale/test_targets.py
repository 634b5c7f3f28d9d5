"""Latency and lag targets: the utilization that follows from a latency, and when DS2 alone decides."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rayad.autoscale import DS2, Hold, JobSample, LatencyTarget, ScalingGraph, VertexSample, lag_target
from rayad.autoscale.statistics import quantile_s
from rayad.autoscale.targets import UTILIZATION_LEAST, UTILIZATION_MOST, utilization_for
from rayad.progress import ConfigError
from tests.autoscale.made_up import sample_of, state_of

GRAPH = ScalingGraph.of(["in", "work"], [("in", "work")], sources=["in"])
BUCKET = 60  # of LatencyHistogram: 65.5 to 81.9 ms
LATENCY_S = quantile_s([0] * BUCKET + [1], 1.0)


def sample(rate: float, replicas: int) -> JobSample:
    """Each replica can do 100 a second; all latencies are about 80 ms."""
    layout = {"in": 1, "work": replicas}
    found = sample_of(GRAPH, layout, {"in": rate, "work": rate}, {"in": 1e6, "work": 100.0}, {0: 1.0})
    work = tuple(replace(replica, latencies={BUCKET: 10}) for replica in found.vertices["work"].replicas)
    return JobSample(found.since_s, found.until_s, {**found.vertices, "work": VertexSample("work", work)})


@given(st.floats(1e-6, 1e3), st.floats(1e-6, 1e3), st.floats(0.01, 0.99))
def test_the_utilization_follows_the_formula_within_its_bounds(latency_s: float, target_s: float, utilization: float) -> None:
    found = utilization_for(latency_s, target_s, utilization)
    assert UTILIZATION_LEAST <= found <= UTILIZATION_MOST
    if UTILIZATION_LEAST < found < UTILIZATION_MOST:
        assert found / (1 - found) == pytest.approx(target_s / latency_s * utilization / (1 - utilization))
    assert utilization_for(2 * latency_s, target_s, utilization) <= found


def test_a_high_latency_makes_room() -> None:
    """At 0.8 of the time busy 82 ms, wanted 20 ms: a quarter of the queue, so 0.5 busy."""
    assert pytest.approx(0.08192) == LATENCY_S
    layout = {"in": 1, "work": 5}
    decision = LatencyTarget(target_s=0.02)(sample(400.0, 5), state_of(GRAPH, layout), 10.0)
    assert decision.changes == {"work": 9}
    assert decision.figures["utilization"] == pytest.approx(0.494, abs=0.001)
    assert decision.reason.startswith("99% of latencies are below 0.08192 s, the target is 0.02 s, so 0.494 busy; work needs 400/s")


def test_near_the_target_nothing_changes() -> None:
    decision = LatencyTarget(target_s=0.08)(sample(400.0, 5), state_of(GRAPH, {"in": 1, "work": 5}), 10.0)
    assert isinstance(decision, Hold)
    assert decision.wanted == {"work": 5}


def test_overload_is_for_ds2() -> None:
    """A queue that grows without end has no latency to speak of."""
    policy = LatencyTarget(target_s=0.02, base=DS2(source_rates={"in": 800.0}, utilization=0.5))
    state = state_of(GRAPH, {"in": 1, "work": 4})
    assert policy(sample(400.0, 4), state, 10.0) == policy.base(sample(400.0, 4), state, 10.0)
    assert policy(sample(400.0, 4), state, 10.0).changes == {"work": 16}


def test_in_workers_the_time_that_vertices_are_busy_adds_up() -> None:
    """The source is busy for 0.3 of its worker's time and the work for 0.7: no other number of workers follows from the latency."""
    graph = ScalingGraph(tuple(replace(vertex, shares=True) for vertex in GRAPH.vertices), GRAPH.edges)
    policy = LatencyTarget(target_s=0.02, base=DS2(utilization=0.5))
    found, layout = sample(70.0, 1), {"in": 1, "work": 1}
    source = tuple(replace(replica, busy_share=0.3, idle_share=0.0, queued_share=0.7) for replica in found.vertices["in"].replicas)
    found = JobSample(found.since_s, found.until_s, {**found.vertices, "in": VertexSample("in", source)})
    assert policy(found, state_of(graph, layout), 10.0) == policy.base(found, state_of(graph, layout), 10.0)
    assert policy(found, state_of(GRAPH, layout), 10.0) != policy.base(found, state_of(GRAPH, layout), 10.0)


def test_without_latencies_ds2_decides() -> None:
    layout = {"in": 1, "work": 5}
    bare = sample_of(GRAPH, layout, {"in": 400.0, "work": 400.0}, {"in": 1e6, "work": 100.0}, {0: 1.0})
    policy = LatencyTarget(target_s=0.02, vertex="work")
    assert policy(bare, state_of(GRAPH, layout), 10.0) == policy.base(bare, state_of(GRAPH, layout), 10.0)


def test_targets_are_checked() -> None:
    with pytest.raises(ConfigError, match=r"LatencyTarget.target_s is 0\.0"):
        LatencyTarget(target_s=0.0)
    with pytest.raises(ConfigError, match=r"LatencyTarget.share is 1\.5"):
        LatencyTarget(target_s=1.0, share=1.5)
    with pytest.raises(ConfigError, match=r"LatencyTarget.vertex is 'sink': the vertices are \['in', 'work'\]"):
        LatencyTarget(target_s=1.0, vertex="sink")(sample(1.0, 1), state_of(GRAPH, {"in": 1, "work": 1}), 1.0)
    assert lag_target(2.0, 30.0) == DS2(utilization=0.8, down_margin=0.1, catch_up_s=30.0, lag_s=2.0)
