"""Pathway: components by its own ``iterate``: every node takes the smallest label around it until nothing changes.

One process with as many threads as workers. The edges come from the Parquet file as a static table. The time is that of building the
table and of ``pw.run``, without interpreter and imports.
"""

import json
import os
import sys
import time

arguments = json.loads(sys.argv[1])
os.environ["PATHWAY_THREADS"] = str(arguments["workers"])
os.environ["PATHWAY_DISABLE_TELEMETRY"] = "1"

import numpy as np  # noqa: E402
import pandas as pd  # noqa: E402
import pathway as pw  # noqa: E402


def step(labels: pw.Table, edges: pw.Table) -> pw.Table:
    """One round: a node's label, or a smaller one of a neighbour."""
    offered = edges.join(labels, edges.src == labels.node).select(node=edges.dst, label=labels.label)
    every = labels.concat_reindex(offered)
    return every.groupby(every.node).reduce(every.node, label=pw.reducers.min(every.label)).with_universe_of(labels)


found: dict[int, int] = {}


def keep(key, row, time, is_addition):
    """The last word on each node."""
    if is_addition:
        found[row["node"]] = row["label"]


pw.debug.table_from_pandas(pd.DataFrame({"a": [1]}))  # what is loaded at first use is not its speed
frame = pd.read_parquet(arguments["edges"])
began = time.perf_counter()
edges = pw.debug.table_from_pandas(frame)
both = edges.concat_reindex(edges.select(src=edges.dst, dst=edges.src))
both = both.groupby(both.src, both.dst).reduce(both.src, both.dst)
nodes = both.groupby(both.src).reduce(node=both.src, label=both.src)
labels = pw.iterate(lambda labels, edges: {"labels": step(labels, edges)}, labels=nodes, edges=both).labels
pw.io.subscribe(labels, keep)
pw.run(monitoring_level=pw.MonitoringLevel.NONE)
seconds = time.perf_counter() - began
node, label = (np.array(side, np.int64) for side in (list(found), list(found.values())))
digest = [len(node), len(np.unique(label)), int(((node + 1) * (label + 1) % 1_000_003).sum())]
print(json.dumps({"seconds": seconds, "digest": digest, "version": f"pathway {pw.__version__}"}))
