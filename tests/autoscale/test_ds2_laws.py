"""Laws of DS2, on random graphs with loops: monotone in the load, a fixed point, reached at once, within bounds."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise

from hypothesis import assume, given
from hypothesis import strategies as st

from rayad.autoscale import DS2, Bounds, EdgeView, Hold, ScalingGraph, VertexView, solve_rates
from rayad.autoscale.ds2 import ROUNDING
from tests.autoscale.made_up import state_of, steady_sample


@dataclass(frozen=True)
class World:
    graph: ScalingGraph
    source_rate: float
    true_rate: dict[str, float]
    selectivity: dict[int, float]

    def rates(self, load: float) -> dict[str, float]:
        return dict(solve_rates(self.graph, self.selectivity, {"source": load}).total)


@st.composite
def worlds(draw: st.DrawFn) -> World:
    """A chain behind one source, with more edges forwards, and feedback edges whose selectivities are small enough for finite rates."""
    size = draw(st.integers(1, 4))
    names = [f"v{i}" for i in range(size)]
    pairs = [("source", names[0]), *pairwise(names)]
    ends = st.tuples(st.sampled_from(names), st.sampled_from(names))
    pairs += draw(st.lists(ends, max_size=3))
    edges = tuple(EdgeView(i, a, b, is_feedback=a in names and names.index(a) >= names.index(b)) for i, (a, b) in enumerate(pairs))
    eighths = st.integers(1, 16).map(lambda n: n / 8)
    selectivity = {e.id: draw(eighths) / (16.0 if e.is_feedback else 1.0) for e in edges}
    groups = st.sampled_from([None, None, 256, 12])
    vertices = tuple(VertexView(n, key_groups=(g := draw(groups)), most=g or 10**9) for n in names)
    graph = ScalingGraph((VertexView("source", is_source=True, fixed="a source"), *vertices), edges)
    true_rate = {n: float(draw(st.integers(20, 200))) for n in names} | {"source": 1e9}
    world = World(graph, float(draw(st.integers(1, 1000))), true_rate, selectivity)
    assume(not solve_rates(graph, selectivity, {"source": 1.0}).amplifying)
    return world


def layouts(world: World, draw: st.DataObject) -> dict[str, int]:
    views = world.graph.vertices
    return {v.name: 1 if v.is_source else draw.draw(st.integers(1, min(v.most, 60)), label=v.name) for v in views}


def decide(world: World, layout: dict[str, int], policy: DS2, load: float | None = None) -> dict[str, int]:
    """The layout after one decision."""
    sample = steady_sample(world.graph, layout, {"source": load or world.source_rate}, world.true_rate, world.selectivity)
    decision = Bounds(policy)(sample, state_of(world.graph, layout), 10.0)
    return {**layout, **decision.changes}


@given(worlds(), st.data(), st.floats(0.3, 1.0), st.floats(0.0, 0.5))
def test_deciding_again_at_the_new_layout_holds(world: World, data: st.DataObject, utilization: float, margin: float) -> None:
    policy = DS2(source_rates={"source": world.source_rate}, utilization=utilization, down_margin=margin)
    once = decide(world, layouts(world, data), policy)
    sample = steady_sample(world.graph, once, {"source": world.source_rate}, world.true_rate, world.selectivity)
    assert isinstance(policy(sample, state_of(world.graph, once), 20.0), Hold)


@given(worlds(), st.data())
def test_one_decision_gives_the_least_that_is_enough(world: World, data: st.DataObject) -> None:
    """From whatever layout: measured at one, right for all, as long as replicas do not disturb each other."""
    once = decide(world, layouts(world, data), DS2(source_rates={"source": world.source_rate}))
    for name, rate in world.rates(world.source_rate).items():
        vertex = world.graph.by_name[name]
        if vertex.is_source:
            continue
        exact = rate / world.true_rate[name]
        if vertex.key_groups is None:
            assert once[name] == max(1, math.ceil(exact * (1.0 - ROUNDING)))
        else:
            fullest = math.ceil(vertex.key_groups / once[name]) / vertex.key_groups  # the share of the replica with the most groups
            assert fullest * exact <= 1.05 + 1e-9 or once[name] == vertex.most
            assert once[name] >= min(vertex.most, math.ceil(exact * (1.0 - 2 * ROUNDING)))


@given(worlds(), st.data(), st.floats(1.0, 5.0))
def test_more_load_never_means_fewer_replicas(world: World, data: st.DataObject, times: float) -> None:
    layout = layouts(world, data)
    less, more = world.source_rate, times * world.source_rate
    for margin in (0.0, 0.2):
        few = decide(world, layout, DS2(source_rates={"source": less}, down_margin=margin), less)
        many = decide(world, layout, DS2(source_rates={"source": more}, down_margin=margin), more)
        assert all(many[name] >= few[name] for name in layout)


@given(worlds(), st.data(), st.dictionaries(st.sampled_from(["v0", "v1", "v2", "v3"]), st.tuples(st.integers(1, 9), st.integers(0, 9))))
def test_bounds_always_hold(world: World, data: st.DataObject, bounds: dict[str, tuple[int, int]]) -> None:
    mine = {n: (low, low + more) for n, (low, more) in bounds.items() if n in world.graph.by_name}
    policy = Bounds(DS2(), {n: b[0] for n, b in mine.items()}, {n: b[1] for n, b in mine.items()}, total_most=30)
    layout = layouts(world, data)
    sample = steady_sample(world.graph, layout, {"source": world.source_rate}, world.true_rate, world.selectivity)
    after = {**layout, **policy(sample, state_of(world.graph, layout), 10.0).changes}
    assert all(mine[name][0] <= after[name] <= mine[name][1] for name in mine)
    assert sum(after.values()) <= max(30, sum(mine.get(n, (1, 1))[0] for n in after))


@given(worlds(), st.data(), st.floats(0.0, 0.09))
def test_a_load_that_wavers_within_the_margin_changes_nothing(world: World, data: st.DataObject, off: float) -> None:
    """At a layout that was chosen with room, a load that is a little off is no reason to go down."""
    policy = DS2(utilization=0.8, down_margin=0.1)
    layout = decide(world, layouts(world, data), DS2(source_rates={"source": world.source_rate}, utilization=0.8))
    load = world.source_rate * (1.0 - off)
    after = decide(world, layout, policy, load)
    assert all(after[name] >= layout[name] for name in layout)
