"""Pathway: PageRank by its own ``iterate``, so many rounds: a join of ranks and edges and a sum by target.

Ranks are integers with mean 2**46, as in Pathway's own PageRank. With sums of floats the result of
``pw.iterate`` (0.33.0) is that of its first round, whatever ``iteration_limit`` is; with integers the same loop continues.

One process with as many threads as workers. The edges come from the Parquet file as a static table. The time is that of reading
the file, building the table, ``pw.run`` and making two arrays of the result, without interpreter and imports.
"""

import fractions
import json

from _iterated import VERSION, arguments, run  # first: Pathway reads the environment that it sets

import numpy as np  # isort: skip
import pathway as pw  # isort: skip

MEAN = 1 << 46
damping = fractions.Fraction(str(arguments["damping"]))


def step(ranks: pw.Table, edges: pw.Table) -> pw.Table:
    """One round. Every node sends its rank along its edges; ``total`` has the number of nodes and the rank of nodes without edges."""
    passed = edges.join(ranks, edges.src == ranks.node).select(node=edges.dst, part=ranks.rank // ranks.degree)
    nothing = ranks.select(ranks.node, part=0)
    every = passed.concat_reindex(nothing)
    summed = every.groupby(every.node).reduce(every.node, part=pw.reducers.sum(every.part)).with_universe_of(ranks)
    loose = ranks.select(mass=pw.if_else(ranks.degree == 0, ranks.rank, 0))
    total = loose.reduce(mass=pw.reducers.sum(loose.mass), count=pw.reducers.count())
    mass, count = total.ix_ref(context=ranks).mass, total.ix_ref(context=ranks).count
    base = int(MEAN * (1 - damping))
    rank = base + (summed.part + mass // count) * damping.numerator // damping.denominator
    return ranks.select(ranks.node, ranks.degree, rank=rank)


def build(edges: pw.Table) -> pw.Table:
    """The rank of each node after so many rounds."""
    edges = edges.groupby(edges.src, edges.dst).reduce(edges.src, edges.dst)
    ends = edges.select(node=edges.src, one=1).concat_reindex(edges.select(node=edges.dst, one=0))
    nodes = ends.groupby(ends.node).reduce(ends.node, degree=pw.reducers.sum(ends.one))
    ranks = nodes.select(nodes.node, nodes.degree, rank=MEAN)
    return pw.iterate(
        lambda ranks, edges: {"ranks": step(ranks, edges)}, iteration_limit=arguments["rounds"], ranks=ranks, edges=edges
    ).ranks


seconds, node, rank = run(build, "rank")
order = np.argsort(node)
node, rank = node[order], rank[order] / (MEAN * len(node))
with np.load(arguments["reference"]) as right:
    worst = float((np.abs(rank - right["rank"]) * len(node)).max()) if np.array_equal(node, right["node"]) else float("inf")
told = {"seconds": seconds, "digest": [len(node), worst <= 1e-9], "worst": worst}
print(json.dumps({**told, "version": VERSION}))
