"""Snapshots of graph vertices: a new vertex that resumes from what was written emits the same as the old one would have."""

from __future__ import annotations

import pickle
import random
import sys
from typing import Any

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import rayad as rd
from rayad.dataflow.operators.state import touched_keys
from rayad.dataflow.operators.state.stored_columns import Unchanging
from rayad.graphs import ProgramVertex, VertexProgram, bfs, connected_components, pagerank, pregel, strongly_connected_components
from rayad.graphs.adjacency import Adjacency
from rayad.graphs.contraction import Contraction
from rayad.graphs.disjoint_sets import DisjointSets
from rayad.graphs.nodes import Nodes
from rayad.graphs.pregel import Supersteps
from rayad.graphs.rounds import RoundVertex
from tests.graphs.epochs import KINDS, Epochs, growing_graphs, run
from tests.thorough import by_turns, examples


class Smallest(VertexProgram):
    """The smallest number that reaches a node, by its representation."""

    def init(self, node: Any) -> str:
        return repr(node)

    def compute(self, vertex: ProgramVertex, state: Any, messages: list[Any]) -> Any:
        best = min([state, *messages])
        return best, vertex.to_neighbours(best) if best < state or vertex.superstep == 0 else None


ALGORITHMS: dict[str, tuple[str, str, Any]] = {
    "components": ("components", "Components", connected_components),
    "bfs": ("bfs", "BreadthFirst", lambda edges: bfs(edges, [*(make(i) for make in KINDS.values() for i in (0, 3))])),
    "pagerank": ("pagerank", "PageRank", lambda edges: pagerank(edges, rounds=5)),
    "scc": ("scc", "StrongComponents", strongly_connected_components),
    "pregel": ("pregel", "Supersteps", lambda edges: pregel(edges, Smallest())),
    "pregel with restart": ("pregel", "Supersteps", lambda edges: pregel(edges, Smallest(), restart=True)),
}


def swapping(cls: type[RoundVertex], chance: random.Random, seen: dict[str, int]) -> type[rd.Vertex]:
    """A vertex that is one of ``cls``, and sometimes another one that resumes from its snapshots."""

    class Swapping(rd.Vertex):
        sequential = cls.sequential

        def __init__(self, *args: Any) -> None:
            self.args = args
            self.chain: list[bytes] = []

        def setup(self) -> None:
            self.inner = self.fresh()

        def fresh(self) -> RoundVertex:
            inner = cls(*self.args)
            inner._context = self._context
            inner.setup()
            return inner

        def on_recv(self, edge: int, batch: Any, time: rd.Timestamp) -> None:
            self.inner.on_recv(edge, batch, time)
            self.snapshot()

        def on_notify(self, time: rd.Timestamp) -> None:
            self.inner.on_notify(time)
            self.snapshot()

        def snapshot(self) -> None:
            if chance.random() < 0.5:
                return
            changes = self.inner.take_changes()
            if changes is None or not self.chain or chance.random() < 0.1:
                self.chain = [pickle.dumps(self.inner.checkpoint())]
            else:
                self.chain.append(pickle.dumps(changes()))
                seen["increments"] = seen.get("increments", 0) + 1
            if chance.random() < 0.3:
                before = self.inner
                self.inner = self.fresh()
                state, *later = map(pickle.loads, self.chain)
                self.inner.restore(state)
                for some in later:
                    self.inner.restore_changes(some)
                self.chain = []
                assert pickle.dumps(plain(self.inner.checkpoint())) == pickle.dumps(plain(before.checkpoint()))

    return Swapping


def plain(value: Any) -> Any:
    """Without array types, sharing, and an order of dicts that means nothing."""
    if isinstance(value, Unchanging):
        return plain(value.value)
    if isinstance(value, dict):
        return sorted((repr(key), plain(part)) for key, part in value.items())
    if isinstance(value, (list, tuple, set)):
        return [plain(part) for part in value] if not isinstance(value, set) else sorted(map(repr, value))
    return (
        repr(value.tolist()) if isinstance(value, np.ndarray) else repr(value) if not hasattr(value, "to_pybytes") else value.to_pybytes()
    )


@by_turns(2)
@pytest.mark.parametrize("algorithm", ALGORITHMS)
@examples(each_run=14, soak=40)
@given(epochs=growing_graphs(), parallelism=st.integers(1, 3), seed=st.integers(0, 99))
def test_graphs_resume_from_a_snapshot(algorithm: str, epochs: Epochs, parallelism: int, seed: int) -> None:
    check(algorithm, epochs, parallelism, seed, {})


def check(algorithm: str, epochs: Epochs, parallelism: int, seed: int, seen: dict[str, int]) -> None:
    module, name, make = ALGORITHMS[algorithm]
    straight = run(epochs, make, parallelism=parallelism, seed=seed)
    with pytest.MonkeyPatch.context() as patch:
        cls = getattr(sys.modules[f"rayad.graphs.{module}"], name)
        patch.setattr(sys.modules[f"rayad.graphs.{module}"], name, swapping(cls, random.Random(seed), seen))
        patch.setattr(touched_keys, "FEW_ITEMS", 4)
        swapped = run(epochs, make, parallelism=parallelism, seed=seed)
    assert [sorted(map(repr, part)) for part in swapped] == [sorted(map(repr, part)) for part in straight]


@by_turns(2)
@pytest.mark.parametrize("parallelism", [1, 3])
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_larger_graphs_resume_from_increments(algorithm: str, parallelism: int) -> None:
    edges = [(u, v) for u, v in nx.gnm_random_graph(300, 500, seed=4, directed=True).edges]
    seen: dict[str, int] = {}
    check(algorithm, [edges, *([edge] for edge in [(0, 299), (7, 400), (1, 2)])], parallelism, 5, seen)
    assert seen["increments"]


def increment(part: Any) -> bytes:
    changes = part.take_changes()
    assert changes is not None
    return pickle.dumps(changes())


def test_parts_of_graphs_write_only_new_state() -> None:
    edges, nodes = Adjacency(), Nodes(0, 1, 256)
    sets = DisjointSets(nodes)
    rng = np.random.default_rng(1)
    nodes.add(np.arange(10_000) * 3)
    sets.grow()
    sets.union(np.arange(5_000), np.arange(5_000) + 1)
    edges.add(*rng.integers(0, 10_000, (2, 50_000)))
    wholes = [len(pickle.dumps(part.checkpoint())) for part in (nodes, edges, sets)]
    assert [part.take_changes() for part in (nodes, edges, sets)] == [None] * 3
    nodes.add(np.array([7, 9, 8]))
    sets.grow()
    sets.union(np.array([8_000]), np.array([9_000]))
    edges.add(np.array([1, 2, 3]), np.array([10_001, 10_001, 10_000]))
    for whole, part in zip(wholes, (nodes, edges, sets), strict=True):
        assert len(increment(part)) < whole / 20
    assert wholes[1] < 50_000 * 6


def test_a_contraction_resumes_in_the_middle() -> None:
    whole, again = Contraction(), Contraction()
    whole.ROWS_MIN = again.ROWS_MIN = 4
    rng = np.random.default_rng(2)
    batches = [rd.graphs.edges.named_edges(*rng.integers(0, 40, (2, 3)), None) for _ in range(20)]
    for batch in batches[:11]:
        whole.add(batch)
    again.restore(pickle.loads(pickle.dumps(whole.checkpoint())))
    for batch in batches[11:]:
        whole.add(batch)
        again.add(batch)
    assert [part.tolist() for part in again.forest()] == [part.tolist() for part in whole.forest()]


def test_state_holds_no_program() -> None:
    class Local(Smallest):
        pass

    vertex = Supersteps(Local(), False)
    with pytest.raises((pickle.PicklingError, AttributeError), match="Local"):
        pickle.dumps(rd.Vertex.checkpoint(vertex))
    pickle.dumps(vertex.checkpoint())
