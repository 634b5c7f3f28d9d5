"""The linear system of rates against numpy, the spectral radius against eigenvalues, and what loops do."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rayad.autoscale import EdgeView, ScalingGraph, Spread, VertexView, solve_rates
from rayad.autoscale.rates import solve_block, spectral_radius
from rayad.progress import ConfigError


@st.composite
def systems(draw: st.DrawFn) -> tuple[list[list[float]], list[float]]:
    size = draw(st.integers(1, 6))
    sparse = st.one_of(st.just(0.0), st.integers(1, 24).map(lambda n: n / 16))
    block = [[draw(sparse) for _ in range(size)] for _ in range(size)]
    return block, [float(draw(st.integers(0, 5))) for _ in range(size)]


def reached(block: list[list[float]], enters: list[float]) -> list[int]:
    inside = {i for i, value in enumerate(enters) if value > 0.0}
    while more := {t for t in range(len(enters)) for s in inside if block[t][s] > 0.0} - inside:
        inside |= more
    return sorted(inside)


@given(systems())
def test_the_solution_is_finite_exactly_if_what_is_entered_has_a_radius_below_one(system: tuple[list[list[float]], list[float]]) -> None:
    block, enters = system
    places = reached(block, enters)
    inside = np.array(block)[np.ix_(places, places)]
    radius = max(abs(np.linalg.eigvals(inside)), default=0.0) if places else 0.0
    if abs(radius - 1.0) < 1e-6:
        return
    found = solve_block(block, enters)
    assert (found is None) == (radius > 1.0)
    if found is not None:
        wanted = np.zeros(len(enters))
        wanted[places] = np.linalg.solve(np.eye(len(places)) - inside, np.array(enters)[places])
        np.testing.assert_allclose(found, wanted, rtol=1e-6, atol=1e-9)
        assert min(found) >= 0.0


@given(systems())
def test_the_solution_is_the_sum_over_all_rounds(system: tuple[list[list[float]], list[float]]) -> None:
    block, enters = system
    found = solve_block(block, enters)
    series, term = np.zeros(len(enters)), np.array(enters)
    for _ in range(400):
        series, term = series + term, np.array(block) @ term
        if series.max() > 1e12:
            break
    if found is None:
        assert term.sum() > 0.0
    else:
        assert (series <= np.array(found) * (1 + 1e-9) + 1e-9).all()


@given(systems())
def test_the_spectral_radius_of_a_loop_is_its_largest_eigenvalue(system: tuple[list[list[float]], list[float]]) -> None:
    block = system[0]
    size = len(block)
    for i in range(size):  # a cycle through all makes it irreducible, as every loop's block is
        block[(i + 1) % size][i] = max(block[(i + 1) % size][i], 0.25)
    assert spectral_radius(block) == pytest.approx(max(abs(np.linalg.eigvals(np.array(block)))), rel=1e-4)


def nested() -> ScalingGraph:
    names = ["in", "outer", "inner", "out"]
    vertices = tuple(VertexView(n, is_source=n == "in") for n in names)
    pairs = [("in", "outer"), ("outer", "inner"), ("inner", "inner"), ("inner", "outer"), ("inner", "out")]
    return ScalingGraph(vertices, tuple(EdgeView(i, a, b) for i, (a, b) in enumerate(pairs)))


def test_nested_loops_multiply() -> None:
    """Inner: half comes round again, so twice as much; outer: of what leaves the inner one half comes back, so twice as much again."""
    rates = solve_rates(nested(), {0: 1.0, 1: 1.0, 2: 0.5, 3: 0.25, 4: 0.25}, {"in": 60.0})
    assert rates.total == pytest.approx({"in": 60.0, "outer": 120.0, "inner": 240.0, "out": 60.0})
    assert list(rates.gains) == [("outer", "inner")]
    assert rates.amplifying == ()


def test_a_loop_with_a_gain_of_exactly_one_has_no_rate() -> None:
    rates = solve_rates(nested(), {0: 1.0, 1: 1.0, 2: 0.5, 3: 0.5, 4: 0.25}, {"in": 60.0})
    assert rates.amplifying == (("outer", "inner"),)
    assert rates.gains["outer", "inner"] == pytest.approx(1.0)
    assert rates.undetermined == {"outer", "inner", "out"}
    assert rates.total == {"in": 60.0}


def test_a_loop_that_nothing_enters_has_rate_zero_whatever_its_gain() -> None:
    rates = solve_rates(nested(), {0: 0.0, 1: 1.0, 2: 5.0, 3: 5.0, 4: 1.0}, {"in": 60.0})
    assert (rates.amplifying, rates.total["inner"], rates.total["out"]) == ((), 0.0, 0.0)


def test_rates_not_fed_by_an_amplifying_loop_are_determined() -> None:
    graph = ScalingGraph.of(
        ["in", "loop", "behind", "aside"], [("in", "loop"), ("loop", "loop"), ("loop", "behind"), ("in", "aside")], ["in"]
    )
    rates = solve_rates(graph, {0: 1.0, 1: 2.0, 2: 1.0, 3: 3.0}, {"in": 10.0})
    assert rates.undetermined == {"loop", "behind"}
    assert rates.total == {"in": 10.0, "aside": 30.0}


def test_copies_are_told_from_what_is_divided() -> None:
    graph = ScalingGraph(
        (VertexView("a", is_source=True), VertexView("b", is_source=True), VertexView("c")),
        (EdgeView(0, "a", "c"), EdgeView(1, "b", "c", Spread.COPIED)),
    )
    rates = solve_rates(graph, {0: 1.0, 1: 2.0}, {"a": 10.0, "b": 3.0})
    assert (rates.total["c"], rates.copied["c"]) == (16.0, 6.0)


@given(st.floats(0.0, 0.95), st.floats(1.0, 1e6), st.floats(1.0, 10.0))
def test_rates_grow_with_the_load_and_with_the_gain(gain: float, load: float, times: float) -> None:
    graph = ScalingGraph.of(["in", "loop"], [("in", "loop"), ("loop", "loop")], ["in"])
    rate = solve_rates(graph, {0: 1.0, 1: gain}, {"in": load}).total["loop"]
    assert rate == pytest.approx(load / (1.0 - gain))
    assert solve_rates(graph, {0: 1.0, 1: gain}, {"in": load * times}).total["loop"] >= rate
    assert solve_rates(graph, {0: 1.0, 1: min(0.96, gain + 0.01)}, {"in": load}).total["loop"] >= rate


def test_invalid_figures_are_refused() -> None:
    graph = ScalingGraph.of(["in"], [], ["in"])
    with pytest.raises(ConfigError, match="the rate from outside into 'in' is nan: it must be finite and at least 0"):
        solve_rates(graph, {}, {"in": float("nan")})
    with pytest.raises(ConfigError, match=r"the selectivity of edge 3 is -1\.0"):
        solve_rates(graph, {3: -1.0}, {})
