"""scipy on one core: PageRank by sparse matrix-vector products, from the edges in a Parquet file.

The time is from the file to the ranks. ``loading_s``, a part of it, is the time to read the edges, build the matrix without duplicate
edges, and transpose it.
"""

import json
import sys
import time

import numpy as np
import pyarrow.parquet as pq
import scipy
from scipy.sparse import csr_matrix

arguments = json.loads(sys.argv[1])
rounds, damping = arguments["rounds"], arguments["damping"]
_ = csr_matrix(np.eye(2)) @ np.ones(2)
pq.ParquetFile(arguments["edges"]).read_row_group(0).column("src").to_numpy()  # what is loaded at first use is not its speed
began = time.perf_counter()
edges = pq.ParquetFile(arguments["edges"]).read(use_threads=False)
src, dst = edges.column("src").to_numpy(), edges.column("dst").to_numpy()
size = int(max(src.max(), dst.max())) + 1
into = csr_matrix((np.ones(len(src)), (dst, src)), shape=(size, size))
into.data[:] = 1.0
loaded = time.perf_counter()
present = np.zeros(size, np.bool_)
present[src] = present[dst] = True
count = int(present.sum())
degree = np.bincount(into.indices, minlength=size)
share = 1.0 / np.maximum(degree, 1)
dangling = np.flatnonzero(present & (degree == 0))
rank = present / count
for _ in range(rounds):
    spread = rank[dangling].sum() / count
    rank = (1.0 - damping) / count + damping * (into @ (rank * share) + spread)
node = np.flatnonzero(present)
rank = rank[node]
seconds = time.perf_counter() - began
with np.load(arguments["reference"]) as right:
    worst = float((np.abs(rank - right["rank"]) * count).max()) if np.array_equal(node, right["node"]) else float("inf")
told = {"seconds": seconds, "loading_s": loaded - began, "digest": [count, worst <= 1e-9], "worst": worst}
print(json.dumps({**told, "version": f"scipy {scipy.__version__}"}))
