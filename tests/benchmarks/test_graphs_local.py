"""The graph benchmarks' data, answers and programs, in the local runtime, on small graphs. Nothing here asserts on time."""

from __future__ import annotations

import doctest
import json
from pathlib import Path

import networkx as nx
import numpy as np
import pyarrow.parquet as pq
import pytest

from benchmarks import graph_data, graphs, inputs
from benchmarks.graph_data import DAMPING, EDGES, REFERENCE, graph_folder, label_digest, rank_digest, rmat
from benchmarks.graphs import COMPONENTS, NETWORKX, PAGERANK, SCIPY, SCRIPTS, STRONG
from benchmarks.measurement import Measurement
from benchmarks.side_by_side import System

SCALE = 7


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return graph_folder(SCALE, root=tmp_path)


def graph_of(folder: Path) -> nx.DiGraph:
    edges = pq.read_table(folder / EDGES)
    return nx.DiGraph(zip(edges.column("src").to_pylist(), edges.column("dst").to_pylist(), strict=True))


def test_doctests_of_the_data_hold() -> None:
    assert doctest.testmod(graph_data).failed == 0


def test_edges_are_the_same_again_and_skewed() -> None:
    (src, dst), again = rmat(10), rmat(10)
    assert src.tolist() == again[0].tolist()
    assert dst.tolist() == again[1].tolist()
    assert len(src) == 16 << 10
    assert 0 <= min(src.min(), dst.min()) <= max(src.max(), dst.max()) < 1 << 10
    assert np.bincount(src).max() > 10 * len(src) / (1 << 10)


def test_the_answers_are_those_of_networkx(folder: Path) -> None:
    graph, digests = graph_of(folder), inputs.digest_of(folder)
    label = {node: min(part) for part in nx.weakly_connected_components(graph) for node in part}
    assert digests["components"] == label_digest(*(np.array(list(side)) for side in (label.keys(), label.values())))
    rank = nx.pagerank(graph, alpha=DAMPING, max_iter=1000, tol=1e-15)
    with np.load(folder / REFERENCE) as right:
        assert right["node"].tolist() == sorted(rank)
        assert np.abs(right["rank"] - [rank[node] for node in sorted(rank)]).max() < 1e-3  # 20 rounds of many
        assert right["rank"].sum() == pytest.approx(1.0)


def test_a_part_of_the_edges_is_the_first_of_them(folder: Path, tmp_path: Path) -> None:
    part = graph_folder(SCALE, 4, root=tmp_path)
    whole, fourth = (pq.read_table(path / EDGES) for path in (folder, part))
    assert fourth.equals(whole.slice(0, len(whole) // 4))


def test_a_wrong_label_or_rank_is_noticed(folder: Path) -> None:
    with np.load(folder / REFERENCE) as right:
        node, rank = right["node"], right["rank"].copy()
    assert rank_digest(node[::-1], rank[::-1], folder / REFERENCE) == [len(node), True]
    rank[3] += 1e-8 / len(node)
    assert rank_digest(node, rank, folder / REFERENCE) == [len(node), False]
    assert rank_digest(node[1:], rank[1:], folder / REFERENCE) == [len(node) - 1, False]
    label = np.zeros(len(node), np.int64)
    wrong = label.copy()
    wrong[5] = 1
    assert label_digest(node, label) != label_digest(node, wrong)


@pytest.mark.parametrize("replicas", [1, 2, 3])
@pytest.mark.parametrize("algorithm", [COMPONENTS, PAGERANK, STRONG])
def test_programs_give_the_right_answers(folder: Path, algorithm: str, replicas: int) -> None:
    done = graphs.one(algorithm, str(folder), replicas, runtime="local")
    assert done["loading_s"] > 0
    if algorithm == STRONG:
        label = {node: min(part) for part in nx.strongly_connected_components(graph_of(folder)) for node in part}
        assert done["digest"] == label_digest(*(np.array(list(side)) for side in (label.keys(), label.values())))
    else:
        assert done["digest"] == inputs.digest_of(folder)[SCRIPTS[algorithm]]


def test_label_propagation_gives_the_same_components(folder: Path) -> None:
    done = graphs.one(COMPONENTS, str(folder), 2, propagated=True, loading=False, runtime="local")
    assert done["digest"] == inputs.digest_of(folder)["components"]


def test_like_is_compared_with_like(folder: Path) -> None:
    out = Measurement("graphs", "", {})
    seconds = {graphs.RAYAD: 1.0, graphs.PROPAGATED: 20.0, graphs.SPARK: 60.0, graphs.FORESTS: 5.0, SCIPY: 2.0}

    def system(kind: str) -> System:
        done = graphs.GraphOutcome(seconds[kind], inputs.digest_of(folder)["components"])
        return System(graphs.name_of(kind, COMPONENTS, SCALE), lambda: done, peer=graphs.FOLDERS.get(kind, ""))

    graphs.compare_graph(out, COMPONENTS, SCALE, 1, [system(kind) for kind in seconds], 1, inputs.digest_of(folder)["components"])
    series = {entry.name: entry for entry in out.series}
    found = {(ratio.over.partition(": ")[2], ratio.under.partition(": ")[2]): ratio.values(series)[0] for ratio in out.ratios}
    assert found == {
        (graphs.SPARK, graphs.PROPAGATED): 3.0,
        (graphs.FORESTS, graphs.RAYAD): 5.0,
        (graphs.RAYAD, SCIPY): 0.5,
    }


@pytest.mark.parametrize("kind", [SCIPY, NETWORKX])
@pytest.mark.parametrize("algorithm", [COMPONENTS, PAGERANK, STRONG])
def test_peers_of_this_environment_agree(folder: Path, kind: str, algorithm: str) -> None:
    done = graphs.run_graph_peer(kind, algorithm, folder, graphs.QUICK)
    assert json.loads(json.dumps(done.digest)) == graphs.one(algorithm, str(folder), 2, loading=False, runtime="local")["digest"]
    assert done.loading_s is not None
    assert 0 < done.loading_s < done.seconds
