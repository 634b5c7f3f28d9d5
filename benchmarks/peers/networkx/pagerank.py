"""networkx: PageRank in plain Python dicts, exactly so many power iterations, from the edges in a Parquet file.

``networkx.pagerank`` itself calls scipy, which is measured on its own; this is networkx' other implementation, in Python.
It ends when the ranks change by less than a tolerance, and fails if they still change by more after ``max_iter`` iterations. So it is given
a tolerance that is 0 before the last iteration. The time is from the file to the ranks; ``loading_s``, a part of it, until networkx
has its graph.
"""

import json
import sys
import time

import networkx as nx
import numpy as np
import pyarrow.parquet as pq
from networkx.algorithms.link_analysis.pagerank_alg import _pagerank_python


class FromLastRound(float):
    """A tolerance that is 0, and infinite the ``rounds``-th time it is used."""

    asked = 0

    def __rmul__(self, count):
        FromLastRound.asked += 1
        return float("inf") if FromLastRound.asked == rounds else -1.0


arguments = json.loads(sys.argv[1])
rounds, damping = arguments["rounds"], arguments["damping"]
pq.ParquetFile(arguments["edges"]).read_row_group(0)  # what is loaded at first use is not its speed
began = time.perf_counter()
edges = pq.ParquetFile(arguments["edges"]).read(use_threads=False)
graph = nx.DiGraph()
graph.add_edges_from(zip(edges.column("src").to_pylist(), edges.column("dst").to_pylist(), strict=True))
loaded = time.perf_counter()
rank = _pagerank_python(graph, alpha=damping, max_iter=rounds, tol=FromLastRound())
node, found = np.array(list(rank)), np.array(list(rank.values()))
seconds = time.perf_counter() - began
order = np.argsort(node)
node, found = node[order], found[order]
with np.load(arguments["reference"]) as right:
    worst = float((np.abs(found - right["rank"]) * len(node)).max()) if np.array_equal(node, right["node"]) else float("inf")
told = {"seconds": seconds, "loading_s": loaded - began, "digest": [len(node), worst <= 1e-9], "worst": worst}
print(json.dumps({**told, "version": f"networkx {nx.__version__}"}))
