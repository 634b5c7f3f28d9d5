"""Pathway: components by its own ``iterate``: every node takes the smallest label of its neighbours until nothing changes.

One process with as many threads as workers. The edges come from the Parquet file as a static table. The time is that of reading
the file, building the table, ``pw.run`` and making two arrays of the result, without interpreter and imports.
"""

import json

from _iterated import VERSION, run  # first: Pathway reads the environment that it sets

import numpy as np  # isort: skip
import pathway as pw  # isort: skip


def step(labels: pw.Table, edges: pw.Table) -> pw.Table:
    """One round: a node's label, or a smaller one of a neighbour."""
    offered = edges.join(labels, edges.src == labels.node).select(node=edges.dst, label=labels.label)
    every = labels.concat_reindex(offered)
    return every.groupby(every.node).reduce(every.node, label=pw.reducers.min(every.label)).with_universe_of(labels)


def build(edges: pw.Table) -> pw.Table:
    """The label of each node."""
    both = edges.concat_reindex(edges.select(src=edges.dst, dst=edges.src))
    both = both.groupby(both.src, both.dst).reduce(both.src, both.dst)
    nodes = both.groupby(both.src).reduce(node=both.src, label=both.src)
    return pw.iterate(lambda labels, edges: {"labels": step(labels, edges)}, labels=nodes, edges=both).labels


seconds, node, label = run(build, "label")
digest = [len(node), len(np.unique(label)), int(((node + 1) * (label + 1) % 1_000_003).sum())]
print(json.dumps({"seconds": seconds, "digest": digest, "version": VERSION}))
