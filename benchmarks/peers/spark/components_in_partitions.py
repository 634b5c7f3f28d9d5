"""Spark, local mode: components without label propagation, which is slow: scipy reduces each partition of the edges to a forest
(``mapInPandas``), and the driver joins the forests.

The time begins when the session is up and has run a query over two rows; it ends when all labels are in the driver.
"""

import json
import time

import numpy as np
import pandas as pd
from _session import ARROW, VERSION, arguments, session
from scipy.sparse import csgraph, csr_matrix


def forest(src, dst):
    """Each node with the smallest node of its component."""
    nodes, ends = np.unique(np.concatenate([src, dst]), return_inverse=True)
    half = len(src)
    matrix = csr_matrix((np.ones(half, np.int8), (ends[:half], ends[half:])), shape=(len(nodes), len(nodes)))
    count, component = csgraph.connected_components(matrix, directed=False)
    smallest = np.empty(count, np.int64)
    smallest[component[::-1]] = nodes[::-1]
    return nodes, smallest[component]


def forests(frames):
    """The forest of one partition."""
    frames = list(frames)
    if frames:
        every = pd.concat(frames)
        nodes, roots = forest(every["src"].to_numpy(), every["dst"].to_numpy())
        yield pd.DataFrame({"src": nodes, "dst": roots})


workers = arguments["workers"]
spark = session(workers, memory="3g", settings=ARROW)
spark.createDataFrame(pd.DataFrame({"src": [1, 2], "dst": [2, 3]})).mapInPandas(forests, "src long, dst long").toPandas()  # first use
began = time.perf_counter()
edges = spark.read.parquet(arguments["edges"])
found = edges.coalesce(workers).mapInPandas(forests, "src long, dst long").toPandas()
node, label = forest(found["src"].to_numpy(), found["dst"].to_numpy())
seconds = time.perf_counter() - began
digest = [len(node), len(np.unique(label)), int(((node + 1) * (label + 1) % 1_000_003).sum())]
print(json.dumps({"seconds": seconds, "digest": digest, "version": VERSION}))
spark.stop()
