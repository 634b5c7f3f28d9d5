"""scipy on one core: weak or (``"connection": "strong"``) strong components of the edges in a Parquet file.

The time is from the file to the smallest node of every node's component. ``loading_s``, a part of it, is until the graph is
scipy's sparse matrix: reading, and building the matrix. Node numbers are used as indexes.
"""

import json
import sys
import time

import numpy as np
import pyarrow.parquet as pq
import scipy
from scipy.sparse import csgraph, csr_matrix

arguments = json.loads(sys.argv[1])
csgraph.connected_components(csr_matrix(np.eye(2)))
pq.ParquetFile(arguments["edges"]).read_row_group(0).column("src").to_numpy()  # what is loaded at first use is not its speed
began = time.perf_counter()
edges = pq.ParquetFile(arguments["edges"]).read(use_threads=False)
src, dst = edges.column("src").to_numpy(), edges.column("dst").to_numpy()
count = int(max(src.max(), dst.max())) + 1
matrix = csr_matrix((np.ones(len(src), np.int8), (src, dst)), shape=(count, count))
loaded = time.perf_counter()
strong = arguments.get("connection") == "strong"
found, component = csgraph.connected_components(matrix, directed=strong, connection="strong" if strong else "weak")
present = np.zeros(count, np.bool_)
present[src] = present[dst] = True
node = np.flatnonzero(present)
smallest = np.empty(found, np.int64)
smallest[component[node[::-1]]] = node[::-1]
label = smallest[component[node]]
seconds = time.perf_counter() - began
digest = [len(node), len(np.unique(label)), int(((node + 1) * (label + 1) % 1_000_003).sum())]
told = {"seconds": seconds, "loading_s": loaded - began, "digest": digest, "version": f"scipy {scipy.__version__}"}
print(json.dumps(told))
