"""Distances and strong components of graphs of three shapes, whose edges come and go, are right after each epoch.

The shapes are those of differential dataflow's own tests (``bfs.rs`` and ``scc.rs``): nodes, edges, rounds of two insertions and two
removals.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components

import rayad as rd
from tests.incremental.programs import Edge, Kept, Shape, components, history
from tests.thorough import amount

SHAPES = [Shape(10, 20, 1 + amount(40, 1000)), Shape(100, 200, 1 + amount(4, 10)), Shape(100, 2000, 2)]


def distances(edges: rd.Collection) -> rd.Collection:
    return rd.graphs.bfs(edges, edges.map(lambda edge: 0).distinct())


def measured(there: Counter[Edge]) -> dict[Any, int]:
    """From node 0, from scratch."""
    targets: dict[int, list[int]] = {}
    for source, target in there:
        targets.setdefault(source, []).append(target)
    found, waiting = ({0: 0}, deque([0])) if there else ({}, deque())
    while waiting:
        node = waiting.popleft()
        for target in targets.get(node, ()):
            if target not in found:
                found[target] = found[node] + 1
                waiting.append(target)
    return dict.fromkeys(found.items(), 1)


def labelled(there: Counter[Edge]) -> dict[Any, int]:
    """The edges inside strong components, from scratch, by scipy."""
    if not there:
        return {}
    sources, targets = np.array(list(there)).T
    size = max(sources.max(), targets.max()) + 1
    _, labels = connected_components(coo_matrix((np.ones(len(sources)), (sources, targets)), shape=(size, size)), connection="strong")
    return {edge: there[edge] for edge in there if labels[edge[0]] == labels[edge[1]]}


@pytest.mark.thorough
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize(("build", "table"), [(distances, measured), (components, labelled)])
def test_graphs_of_three_shapes_are_right_after_each_epoch(build: Callable[..., Any], table: Callable[..., Any], shape: Shape) -> None:
    for seed in range(3 if shape.epochs < 1000 else 1):
        program = Kept(build.__name__, build, table, shape)
        changes = history(shape, seed)
        result = program.flow(changes).run(runtime="local", seed=seed, parallelism=1 + seed % 3)
        program.verify(changes, result["out"])
