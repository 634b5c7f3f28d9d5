"""Shared by the Pathway scripts that look for components. To be imported when the environment has been set that Pathway reads."""

import pathway as pw


def smaller(labels: pw.Table, edges: pw.Table, value: str) -> pw.Table:
    """A round: a node's label, which ``value`` names, or a smaller one of a neighbour."""
    offered = edges.join(labels, edges.src == labels.node).select(node=edges.dst, **{value: labels[value]})
    every = labels.concat_reindex(offered)
    return every.groupby(every.node).reduce(every.node, **{value: pw.reducers.min(every[value])}).with_universe_of(labels)


def components(edges: pw.Table, value: str) -> pw.Table:
    """The smallest node of each node's component, in the column ``value``."""
    both = edges.concat_reindex(edges.select(src=edges.dst, dst=edges.src))
    both = both.groupby(both.src, both.dst).reduce(both.src, both.dst)
    nodes = both.groupby(both.src).reduce(node=both.src, **{value: both.src})
    return pw.iterate(lambda labels, edges: {"labels": smaller(labels, edges, value)}, labels=nodes, edges=both).labels
