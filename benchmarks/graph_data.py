"""R-MAT graphs: the edges that the graph benchmarks read, the same for Rayad and all peers.

An edge falls into one quadrant of the adjacency matrix after another, `scale` times, with the probabilities a, b, c and 1 - a - b - c; so
vertex numbers below 2**scale come out with degrees as skewed as in social networks. Vertices are then renamed by a seeded
permutation, as Graph500 does, so that a number says nothing about its degree. Duplicate edges and self-loops stay in.

Source: Chakrabarti, Zhan and Faloutsos, "R-MAT: a recursive model for graph mining" (SDM 2004).
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.machine import ROOT

EDGE_FACTOR = 16
A, B, C = 0.57, 0.19, 0.19
SEED = 20_130_411
CACHE = ROOT / ".cache" / "benchmarks"
ROW_GROUP_ROWS = 1 << 20
_CHUNK_EDGES = 1 << 20


def rmat(scale: int, seed: int = SEED) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
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


def edges_file(scale: int) -> Path:
    """A Parquet file of the edges, columns ``src`` and ``dst`` (int64), made if it is not there."""
    path = CACHE / f"rmat-{scale}-{EDGE_FACTOR}-{SEED}.parquet"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        src, dst = rmat(scale)
        unfinished = path.with_suffix(f".{os.getpid()}")
        pq.write_table(pa.table({"src": src, "dst": dst}), unfinished, row_group_size=ROW_GROUP_ROWS, compression="none", use_dictionary=False)
        unfinished.replace(path)
    return path
