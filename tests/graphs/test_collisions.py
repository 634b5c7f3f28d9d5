"""Two nodes that hash alike are told apart or refused, wherever they meet.

Issue 11: "two graph nodes that hash alike become one, which numbers.py says is refused": only the first name of each number in a batch
was looked at. The collision is forced: "Q" is given the hash of "b".
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rayad as rd
from rayad.graphs import bfs, connected_components, numbers, pagerank, strongly_connected_components
from tests.graphs.epochs import run

REFUSED = r"the nodes ('b' and 'Q'|'Q' and 'b') have one number, the same 64-bit hash, and would be taken for one node: rename one of them"
ALL: dict[str, Any] = {
    "connected_components": connected_components,
    "pagerank": pagerank,
    "bfs": lambda edges: bfs(edges, ["a"]),
    "bfs undirected": lambda edges: bfs(edges, ["a"], directed=False),
    "strongly_connected_components": strongly_connected_components,
}
GRAPHS: dict[str, list[list[tuple[Any, Any]]]] = {
    "one batch": [[("a", "b"), ("b", "a"), ("c", "Q"), ("Q", "c"), ("a", "c")]],
    "both sources": [[("a", "b"), ("b", "c"), ("Q", "a")]],
    "both targets": [[("a", "b"), ("a", "Q")]],
    "source and target": [[("a", "b"), ("Q", "a")]],
    "later epochs": [[("a", "b"), ("b", "a")], [("c", "a"), ("a", "c")], [("a", "Q"), ("Q", "a")]],
}


@pytest.fixture(autouse=True)
def alike(monkeypatch: pytest.MonkeyPatch) -> None:
    real = numbers.stable_hash
    fake = lambda node: real("b" if node == "Q" else node)  # noqa: E731
    monkeypatch.setattr(numbers, "stable_hash", fake)
    monkeypatch.setattr(numbers, "hash_array", lambda column: np.array([fake(node) for node in column.to_pylist()], np.uint64))


@pytest.mark.parametrize("columnar", [False, True])
@pytest.mark.parametrize("parallelism", [1, 3])
@pytest.mark.parametrize("graph", GRAPHS)
@pytest.mark.parametrize("algorithm", ALL)
def test_nodes_that_hash_alike_are_refused(algorithm: str, graph: str, parallelism: int, columnar: bool) -> None:
    with pytest.raises(rd.DataflowError, match=REFUSED):
        run(GRAPHS[graph], ALL[algorithm], parallelism=parallelism, columnar=columnar)


@pytest.mark.parametrize("epochs", [[[("a", "b")], [(0, 1)]], [[(0, 1)], [("a", "b")]], [[("a", "b"), (0, 1)]]])
def test_an_integer_that_is_the_number_of_a_name_is_refused(epochs: list[list[tuple[Any, Any]]]) -> None:
    number = numbers.number_of("b")
    clash = [[(number if u == 0 else u, v) for u, v in edges] for edges in epochs]
    for algorithm in (connected_components, pagerank, ALL["bfs"]):
        with pytest.raises(rd.DataflowError, match=r"the nodes ('b' and -?\d+|-?\d+ and 'b') have one number"):
            run(clash, algorithm)


def test_a_source_of_bfs_that_is_not_in_the_graph_is_no_other_node() -> None:
    assert run([[("b", "a"), ("c", "d")]], lambda edges: bfs(edges, ["Q", "c"])) == [[("c", 0), ("d", 1)]]
    with pytest.raises(rd.DataflowError, match=r"^bfs\(\) was given the sources 'b' and 'Q', which have the same 64-bit hash: rename one"):
        bfs(rd.Dataflow().from_items([]), ["b", "Q"])


def test_equal_nodes_of_different_types_are_still_one_node() -> None:
    (emitted,) = run([[((1, "x"), "a"), ((1.0, "x"), "c")]], connected_components)
    assert dict(emitted) == {(1, "x"): "a", "a": "a", "c": "a"}
