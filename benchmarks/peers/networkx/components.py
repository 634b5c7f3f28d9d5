"""networkx: weak or (``"connection": "strong"``) strong components of the edges in a Parquet file, in plain Python.

The time is from the file to the smallest node of every node's component; ``loading_s``, a part of it, until networkx has its graph.
"""

import json
import sys
import time

import networkx as nx
import numpy as np
import pyarrow.parquet as pq

arguments = json.loads(sys.argv[1])
strong = arguments.get("connection") == "strong"
pq.ParquetFile(arguments["edges"]).read_row_group(0)  # what is loaded at first use is not its speed
began = time.perf_counter()
edges = pq.ParquetFile(arguments["edges"]).read(use_threads=False)
graph = nx.DiGraph() if strong else nx.Graph()
graph.add_edges_from(zip(edges.column("src").to_pylist(), edges.column("dst").to_pylist(), strict=True))
loaded = time.perf_counter()
labels = {}
for component in nx.strongly_connected_components(graph) if strong else nx.connected_components(graph):
    labels.update(dict.fromkeys(component, min(component)))
node, label = np.array(list(labels)), np.array(list(labels.values()))
seconds = time.perf_counter() - began
digest = [len(node), len(np.unique(label)), int(((node + 1) * (label + 1) % 1_000_003).sum())]
told = {"seconds": seconds, "loading_s": loaded - began, "digest": digest, "version": f"networkx {nx.__version__}"}
print(json.dumps(told))
