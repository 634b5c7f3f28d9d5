"""The rates that a dataflow needs, loops included: the linear system behind DS2.

Let ``r[v]`` be the items a second that arrive at vertex v, ``a[e]`` the items put on edge e for each item that its source consumes (the
edge's selectivity), and ``b[v]`` what arrives from outside (at sources). What arrives at v is what its edges bring::

    r[v] = b[v] + sum over edges e = (u, v) of a[e] * r[u]          that is   (I - A) r = b,   A[v, u] = sum of a[e]

Without loops A is strictly triangular in topological order, and solving is DS2's sweep from the sources to the sinks (equation 8 of its
paper). With loops A is not triangular, but the system still holds: ``r = b + A b + A^2 b + ...`` says that an item arrives, comes round
again, and again. That series is finite exactly if the spectral radius of A is below 1 wherever something arrives. Then ``I - A`` is a
nonsingular M-matrix and the solution is unique and non-negative; otherwise a loop gives back more items than it gets, and no number of
replicas is enough (the loop *amplifies*).

The test comes with the solution: for A >= 0, all pivots of Gaussian elimination of ``I - A`` without exchanges are positive if and only if
the spectral radius is below 1 (Berman and Plemmons, *Nonnegative Matrices in the Mathematical Sciences*, chapter 6, theorem 2.3). Each
strongly connected component is solved by itself, in topological order, so that one bad loop is found by its name and leaves the rest
solved. Blocks are small (vertices of one loop): plain Python.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rayad.autoscale.scaling_graph import ScalingGraph, Spread
from rayad.progress import ConfigError, show

PIVOT_LEAST = 1e-9
"""A pivot below this counts as none: such a loop would hold a billion items for each one that enters."""


@dataclass(frozen=True, slots=True)
class RequiredRates:
    """What each vertex has to consume, items a second.

    Args:
        total: by vertex; what is broadcast to it counts once.
        copied: the part of it that each replica gets (from broadcast edges); the rest is divided.
        gains: by loop, how many items come back for one (the spectral radius of its block).
        amplifying: loops with a gain of 1 or more into which something flows: there is no finite rate.
        undetermined: the vertices of these loops and all behind them; they are not in ``total``.
    """

    total: Mapping[str, float]
    copied: Mapping[str, float]
    gains: Mapping[tuple[str, ...], float]
    amplifying: tuple[tuple[str, ...], ...] = ()
    undetermined: frozenset[str] = frozenset()


def solve_rates(graph: ScalingGraph, selectivity: Mapping[int, float], outside: Mapping[str, float]) -> RequiredRates:
    """Solve ``(I - A) r = b``.

    Args:
        selectivity: by edge id, items put on the edge for each item that its source consumes; missing: none.
        outside: items a second that arrive from outside, by vertex; missing: none.

    Raises ConfigError where a figure is negative or not finite.

    >>> graph = ScalingGraph.of(["in", "op1", "op2"], [("in", "op1"), ("op1", "op2")], sources=["in"])
    >>> solve_rates(graph, {0: 1.0, 1: 8.0}, {"in": 100.0}).total
    {'in': 100.0, 'op1': 100.0, 'op2': 800.0}

    Of what a loop's step gets, three quarters come round again: four times as much arrives as enters.

    >>> loop = ScalingGraph.of(["in", "step", "out"], [("in", "step"), ("step", "step"), ("step", "out")], sources=["in"])
    >>> solve_rates(loop, {0: 1.0, 1: 0.75, 2: 0.25}, {"in": 100.0}).total
    {'in': 100.0, 'step': 400.0, 'out': 100.0}
    >>> solve_rates(loop, {0: 1.0, 1: 1.25, 2: 0.25}, {"in": 100.0}).amplifying
    (('step',),)
    """
    figures = {f"selectivity of edge {edge}": value for edge, value in selectivity.items()}
    figures |= {f"rate from outside into {name!r}": value for name, value in outside.items()}
    for what, value in figures.items():
        if not 0.0 <= value < float("inf"):
            raise ConfigError(f"the {what} is {show(value)}: it must be finite and at least 0")
    total: dict[str, float] = {}
    copied: dict[str, float] = {}
    gains: dict[tuple[str, ...], float] = {}
    amplifying: list[tuple[str, ...]] = []
    lost: set[str] = set()
    loops = set(graph.loops)
    for members in graph.components:
        sources = {edge.source for name in members for edge in graph.incoming[name] if selectivity.get(edge.id, 0.0) > 0.0}
        if sources & lost:
            lost.update(members)
            continue
        enters = {name: outside.get(name, 0.0) + _arriving(graph, name, selectivity, total) for name in members}
        if members not in loops:
            total.update(enters)
        else:
            block = _block(graph, members, selectivity)
            gains[members] = spectral_radius(block)
            rates = solve_block(block, [enters[name] for name in members])
            if rates is None:
                amplifying.append(members)
                lost.update(members)
                continue
            total.update(zip(members, rates, strict=True))
    for name in total:
        edges = [edge for edge in graph.incoming[name] if edge.spread is Spread.COPIED]
        copied[name] = sum(selectivity.get(edge.id, 0.0) * total.get(edge.source, 0.0) for edge in edges)
    order = [vertex.name for vertex in graph.vertices if vertex.name in total]
    return RequiredRates(
        {name: total[name] for name in order}, {name: copied[name] for name in order}, gains, tuple(amplifying), frozenset(lost)
    )


def _arriving(graph: ScalingGraph, name: str, selectivity: Mapping[int, float], known: Mapping[str, float]) -> float:
    """Items a second from the vertices of other components, which are solved already."""
    return sum(selectivity.get(edge.id, 0.0) * known[edge.source] for edge in graph.incoming[name] if edge.source in known)


def _block(graph: ScalingGraph, members: Sequence[str], selectivity: Mapping[int, float]) -> list[list[float]]:
    """``A`` of one component: row v, column u."""
    place = {name: i for i, name in enumerate(members)}
    block = [[0.0] * len(members) for _ in members]
    for name in members:
        for edge in graph.incoming[name]:
            if edge.source in place:
                block[place[name]][place[edge.source]] += selectivity.get(edge.id, 0.0)
    return block


def solve_block(block: Sequence[Sequence[float]], enters: Sequence[float]) -> list[float] | None:
    """The smallest non-negative solution of ``(I - A) r = b`` for A >= 0, b >= 0; None where it is not finite.

    Rows and columns that nothing reaches are left out first: an amplifying loop that nothing enters has the rate 0.

    >>> solve_block([[0.0, 0.5], [1.0, 0.0]], [10.0, 0.0])
    [20.0, 20.0]
    >>> solve_block([[0.0, 2.0], [1.0, 0.0]], [10.0, 0.0]) is None, solve_block([[3.0]], [0.0])
    (True, [0.0])
    """
    size = len(enters)
    reached = {i for i in range(size) if enters[i] > 0.0}
    pending = list(reached)
    while pending:
        source = pending.pop()
        for target in range(size):
            if block[target][source] > 0.0 and target not in reached:
                reached.add(target)
                pending.append(target)
    places = sorted(reached)
    rows = [[(1.0 if i == j else 0.0) - block[i][j] for j in places] + [enters[i]] for i in places]
    for step, row in enumerate(rows):
        if row[step] <= PIVOT_LEAST:
            return None
        for below in rows[step + 1 :]:
            factor = below[step] / row[step]  # not positive, so what is added to the right is not negative: nothing cancels there
            for column in range(step, len(row)):
                below[column] -= factor * row[column]
    found = [0.0] * size
    for step in reversed(range(len(rows))):
        row = rows[step]
        solved = sum(row[later] * found[places[later]] for later in range(step + 1, len(rows)))
        found[places[step]] = (row[-1] - solved) / row[step]
    return found


def spectral_radius(block: Sequence[Sequence[float]], rounds: int = 500) -> float:
    """Of a non-negative square matrix that is irreducible, to about six digits; for reports only, no decision depends on it.

    Power iteration of ``A + cI``: the shift makes it converge for cycles too, where A's powers would swing for ever. The quotients bound
    the radius from both sides (Collatz and Wielandt), so it ends when they meet.

    >>> round(spectral_radius([[0.0, 0.5], [0.5, 0.0]]), 6), round(spectral_radius([[0.0, 4.0], [1.0, 0.0]]), 6)
    (0.5, 2.0)
    """
    size = len(block)
    rows = [[(column, value) for column, value in enumerate(row) if value > 0.0] for row in block]
    shift = max((sum(row) for row in block), default=0.0)
    if shift == 0.0:
        return 0.0
    vector = [1.0] * size
    least, most = 0.0, shift
    for _ in range(rounds):
        product = [shift * vector[i] + sum(value * vector[column] for column, value in rows[i]) for i in range(size)]
        quotients = [p / v for p, v in zip(product, vector, strict=True)]
        least, most = min(quotients) - shift, max(quotients) - shift
        if most - least <= 1e-7 * shift:
            break
        largest = max(product)
        vector = [p / largest for p in product]
    return max(0.0, (least + most) / 2.0)
