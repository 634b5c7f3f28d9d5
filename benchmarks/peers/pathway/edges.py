"""Pathway: degrees, components or reachability of a graph of which edges come and go, by its own ``iterate``.

One process with as many threads as workers. Edges come from a connector in Python, first all that are there at first, then one change
after another, each when the result of the one before is complete by the callback of ``pw.io.subscribe``. ``load_s`` is the time until the
first result, ``seconds`` that of all changes, and ``changes_s`` that of each.
"""

import itertools
import json
import os
import sys
import threading
import time
from functools import partial

arguments = json.loads(sys.argv[1])
os.environ["PATHWAY_THREADS"] = str(arguments["workers"])
os.environ["PATHWAY_DISABLE_TELEMETRY"] = "1"

import pandas as pd  # noqa: E402
import pathway as pw  # noqa: E402
from _labels import components, smaller  # noqa: E402

EDGES = -1
"""In the place of a node: how many edges there are."""


def degrees(edges: pw.Table) -> pw.Table:
    """How many edges begin at each node."""
    return edges.groupby(edges.src).reduce(node=edges.src, value=pw.reducers.count())


def further(reached: pw.Table, edges: pw.Table) -> pw.Table:
    """A round of reachability: what is reached, and where its edges lead."""
    met = edges.join(reached, edges.src == reached.node).select(node=edges.dst)
    every = reached.select(reached.node).concat_reindex(met)
    return every.groupby(every.node).reduce(every.node, value=1)


def reachability(edges: pw.Table) -> pw.Table:
    """What can be reached from node 0."""
    first = pw.debug.table_from_rows(pw.schema_from_types(node=int), [(0,)])
    first = first.groupby(first.node).reduce(first.node, value=1)
    return pw.iterate(lambda reached, edges: {"reached": further(reached, edges)}, reached=pw.iterate_universe(first), edges=edges).reached


def spread(nodes: pw.Table, edges: pw.Table) -> pw.Table:
    """The smallest node that reaches each node."""
    return pw.iterate(lambda labels, edges: {"labels": smaller(labels, edges, "value")}, labels=nodes, edges=edges).labels


def same_ends(inside: pw.Table, graph: pw.Table) -> pw.Table:
    """The edges of a graph, turned, whose ends have the same label after labels have gone along the edges of ``inside``."""
    ends = graph.select(node=graph.src).concat_reindex(graph.select(node=graph.dst))
    nodes = ends.groupby(ends.node).reduce(ends.node, value=ends.node)
    labels = spread(nodes, inside)
    half = graph.join(labels, graph.src == labels.node).select(graph.src, graph.dst, mine=labels.value)
    whole = half.join(labels, half.dst == labels.node).select(src=half.dst, dst=half.src, mine=half.mine, other=labels.value)
    kept = whole.filter(whole.mine == whole.other)
    return kept.groupby(kept.src, kept.dst).reduce(kept.src, kept.dst)


def strong_components(edges: pw.Table) -> pw.Table:
    """The smallest node of each node's strong component: loops within a loop."""
    edges = edges.groupby(edges.src, edges.dst).reduce(edges.src, edges.dst)
    other_way = edges.select(src=edges.dst, dst=edges.src)
    inside = pw.iterate(
        lambda inside, edges, other_way: {"inside": same_ends(same_ends(inside, edges), other_way)},
        inside=pw.iterate_universe(edges),
        edges=edges,
        other_way=other_way,
    ).inside
    ends = edges.select(node=edges.src).concat_reindex(edges.select(node=edges.dst))
    nodes = ends.groupby(ends.node).reduce(ends.node, value=ends.node)
    return spread(nodes, inside)


def _is_complete(edges: int) -> bool:
    """The result of so many edges is."""
    return complete[0] == edges


class Edges(pw.io.python.ConnectorSubject):
    """Gives the graph, then one change after another, each when the result of the one before is complete."""

    def run(self):
        """Called by Pathway in a thread of its own."""
        there = 0
        for changes in told:
            for src, dst, diff in changes:
                if diff > 0:
                    self.next(src=src, dst=dst)
                else:
                    self.delete(src=src, dst=dst)
            self.commit()
            there += sum(diff for _, _, diff in changes)
            with state:
                state.wait_for(partial(_is_complete, there))
            seconds.append(time.perf_counter())


def keep(key, row, time, is_addition):
    """The result as it is."""
    if is_addition:
        found[row["node"]] = row["value"]
    elif found.get(row["node"]) == row["value"]:
        del found[row["node"]]


def over(at):
    """The result of a time is complete."""
    with state:
        complete[0] = found.get(EDGES, 0)
        state.notify_all()


frame = pd.read_parquet(arguments["edges"])
schema = pw.schema_builder({name: pw.column_definition(dtype=int, primary_key=True) for name in ("src", "dst")})
told = [list(zip(*(part[name].tolist() for name in ("src", "dst", "diff")), strict=True)) for _, part in frame.groupby("epoch")]
found: dict[int, int] = {}
complete, seconds = [0], [time.perf_counter()]
state = threading.Condition()
table = pw.io.python.read(Edges(), schema=schema, autocommit_duration_ms=None)
program = {
    "degrees": degrees,
    "components": lambda edges: components(edges, "value"),
    "reachability": reachability,
    "strong components": strong_components,
}[arguments["program"]]
count = table.reduce(node=EDGES, value=pw.reducers.count())  # changes at each time, since the callback is called at no others
pw.io.subscribe(program(table).concat_reindex(count), keep, on_time_end=over)
pw.run(monitoring_level=pw.MonitoringLevel.NONE)
del found[EDGES]
digest = [len(found), sum((node + 1) * (value + 1) % 1_000_003 for node, value in found.items())]
result = {
    "seconds": seconds[-1] - seconds[1],
    "load_s": seconds[1] - seconds[0],
    "changes_s": [later - sooner for sooner, later in itertools.pairwise(seconds[1:])],
    "digest": digest,
    "version": f"pathway {pw.__version__}",
}
print(json.dumps(result))
