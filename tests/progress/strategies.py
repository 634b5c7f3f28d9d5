"""Hypothesis strategies for times and summaries."""

from __future__ import annotations

from functools import reduce
from itertools import pairwise
from typing import Any

from hypothesis import strategies as st

from rayad.progress import PathSummary, Timestamp


def times(depth: int, largest: int = 3) -> st.SearchStrategy[Timestamp]:
    """Times of one depth, small enough that comparable and equal ones are frequent."""
    small = st.integers(0, largest)
    return st.builds(Timestamp, small, st.tuples(*[small] * depth))


@st.composite
def summaries(draw: Any, source: int, target: int, monotone: bool = False) -> PathSummary:
    """Compositions of ingress, egress and feedback that lead from depth `source` to depth `target`, bounded loops included."""
    depth = source
    steps = [PathSummary.identity(depth)]
    for _ in range(draw(st.integers(0, 5))):
        move = draw(st.integers(0, 2))
        if move == 0 and depth < 3:
            steps.append(PathSummary.ingress(depth))
            depth += 1
        elif move == 1 and depth > 0:
            steps.append(PathSummary.egress(depth))
            depth -= 1
        else:
            steps.append(feedback(draw, depth, monotone))
    while depth != target:
        steps.append(PathSummary.ingress(depth) if depth < target else PathSummary.egress(depth))
        depth += 1 if depth < target else -1
        if draw(st.booleans()):
            steps.append(feedback(draw, depth, monotone))
    composed = reduce(lambda left, right: left and right and left.followed_by(right), steps)
    return composed or PathSummary(source, 0, constants=(0,) * target, limits=((0, 0),)) if source else composed or PathSummary.identity(0)


def feedback(draw: Any, depth: int, monotone: bool) -> PathSummary:
    bound = draw(st.none() | st.integers(1, 4)) if depth else None
    return PathSummary.feedback_bound_below(depth, bound) if monotone else PathSummary.feedback(depth, bound)


@st.composite
def summary_pairs(draw: Any, monotone: bool = False) -> tuple[PathSummary, PathSummary]:
    """Two summaries between the same depths."""
    source, target = draw(st.integers(0, 3)), draw(st.integers(0, 3))
    return draw(composable(source, target, monotone)), draw(composable(source, target, monotone))


@st.composite
def composable(draw: Any, source: int, target: int, monotone: bool = False) -> PathSummary:
    """A summary between these depths; one that cannot be built (always empty from depth 0) is drawn again."""
    found: PathSummary = draw(summaries(source, target, monotone).filter(lambda s: (s.source_depth, s.target_depth) == (source, target)))
    return found


@st.composite
def summary_chains(draw: Any, length: int) -> list[PathSummary]:
    """Summaries of which each one starts where the one before ends."""
    depths = [draw(st.integers(0, 3)) for _ in range(length + 1)]
    return [draw(composable(source, target)) for source, target in pairwise(depths)]
