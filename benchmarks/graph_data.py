"""R-MAT graphs: the edges that the graph benchmarks read, the same for Rayad and all peers, and the right answers.

For each edge a quadrant of the adjacency matrix is drawn `scale` times, one inside the other, with the probabilities a, b, c and 1 - a - b
- c. So degrees of the vertices, numbers below 2**scale, are as skewed as in social networks. Vertices are then renamed by a seeded
permutation, as Graph500 does, so that a number does not depend on the degree. Duplicate edges and self-loops stay in.

The answers for components and PageRank come from a few lines of numpy, which are not measured.

Source: Chakrabarti, Zhan and Faloutsos, "R-MAT: a recursive model for graph mining" (SDM 2004).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks import inputs

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

EDGE_FACTOR = 16
A, B, C = 0.57, 0.19, 0.19
SEED = 20_130_411
ROUNDS, DAMPING = 20, 0.85
EDGES, REFERENCE = "edges.parquet", "pagerank.npz"
ROW_GROUP_ROWS = 1 << 17
_CHUNK_EDGES = 1 << 20


def rmat(scale: int, seed: int = SEED) -> tuple[Ints, Ints]:
    """Sources and targets of ``EDGE_FACTOR << scale`` edges, each shape (edges,), numbers in [0, 2**scale).

    >>> src, dst = rmat(4)
    >>> len(src), len(dst), int(max(src.max(), dst.max())) < 16
    (256, 256, True)
    """
    random = np.random.default_rng([seed, scale])
    name = random.permutation(1 << scale).astype(np.int64)
    edges = EDGE_FACTOR << scale
    ends = np.empty((2, edges), np.int64)
    for start in range(0, edges, _CHUNK_EDGES):
        count = min(_CHUNK_EDGES, edges - start)
        src, dst = np.zeros(count, np.int64), np.zeros(count, np.int64)
        for _ in range(scale):
            drawn = random.random(count, np.float32)
            below = drawn >= A + B
            src = src << 1 | below
            dst = dst << 1 | ((drawn >= A) & ~below | (drawn >= A + B + C))
        ends[0, start : start + count], ends[1, start : start + count] = name[src], name[dst]
    return ends[0], ends[1]


def graph_folder(scale: int, share: int = 1, root: Path = inputs.FOLDER) -> Path:
    """A folder with the edges (Parquet, columns ``src`` and ``dst``, int64) and the ranks (``node``, ``rank``); made if it is not there.

    ``share=n`` gives the first n-th of the edges. Its digest is ``{"components": ..., "pagerank": ...}``.
    """

    def make(path: Path) -> Any:
        src, dst = (side[: len(side) // share] for side in rmat(scale))
        table = pa.table({"src": src, "dst": dst})
        pq.write_table(table, path / EDGES, row_group_size=ROW_GROUP_ROWS, compression="none", use_dictionary=False)
        nodes, ends = np.unique(np.concatenate([src, dst]), return_inverse=True)
        source, target = ends[: len(src)], ends[len(src) :]
        label = nodes[smallest_connected(len(nodes), source, target)]
        np.savez(path / REFERENCE, node=nodes, rank=ranks(len(nodes), source, target))
        return {"components": label_digest(nodes, label), "pagerank": [len(nodes), True]}

    return inputs.made(f"rmat-{scale}-{EDGE_FACTOR}-seed-{SEED}" + (f"-first-of-{share}" if share > 1 else ""), make, root)


# -- the right answers ----------------------------------------------------------------------------
def smallest_connected(count: int, source: Ints, target: Ints) -> Ints:
    """For each of ``count`` nodes the smallest node that it is connected with: labels pass along the edges until none changes."""
    label = np.arange(count)
    while True:
        before = label.copy()
        np.minimum.at(label, target, label[source])
        np.minimum.at(label, source, label[target])
        label = label[label]
        if np.array_equal(label, before):
            return label


def ranks(count: int, source: Ints, target: Ints) -> Floats:
    """PageRank after ROUNDS power iterations from the uniform vector; edges count once, dangling mass is spread uniformly."""
    once = np.unique(source * count + target)
    source, target = once // count, once % count
    degree = np.bincount(source, minlength=count)
    rank = np.full(count, 1.0 / count)
    for _ in range(ROUNDS):
        passed = np.bincount(target, weights=(rank / np.maximum(degree, 1))[source], minlength=count)
        rank = (1.0 - DAMPING) / count + DAMPING * (passed + rank[degree == 0].sum() / count)
    return rank


def label_digest(node: Ints, label: Ints) -> list[int]:
    """The digest of a partition whose parts are named by their smallest nodes: numbers of nodes and parts, and a hash in any order."""
    return [len(node), len(np.unique(label)), int(((node + 1) * (label + 1) % 1_000_003).sum())]


def rank_digest(node: Ints, rank: Floats, reference: Path) -> list[Any]:
    """Number of nodes, and whether every rank is within 1e-9 times the mean rank of the reference."""
    with np.load(reference) as right:
        order = np.argsort(node)
        same = np.array_equal(node[order], right["node"])
        return [len(node), bool(same and (np.abs(rank[order] - right["rank"]) * len(node)).max() <= 1e-9)]
