"""What one edge costs that goes and comes in a large random graph: `python -m benchmarks.collection_changes [--edges N] [--changes N]`.

Degrees, components, reachability and strong components of a collection of edges (a million, with half as many nodes). Printed are the rows
that come to all vertices while the graph is loaded, and for each change; how long an epoch of one change takes; and beside it, in the same
process, how long it takes to compute the same anew: by scipy, and by the functions of `rd.graphs` on streams where they have one. Rows are
counted and do not depend on the machine. `--only degrees` measures one of them. Strong components take the most memory and time to load (a
million edges: 8.5 GB, 260 s). `--peer pathway` runs Pathway beside it, which is given one change when the result of the one before is
there, too; both must end in the same table. Its iterations do not nest, so it has no strong components, which it is asked for all the same.
"""

from __future__ import annotations

import argparse
import random
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import breadth_first_order, connected_components

import rayad as rd
from benchmarks.peer_environments import NoFigure, PeerRun, run_peer
from rayad.incremental.moment_vertex import MomentVertex

Edge = tuple[int, int]
Build = Callable[[rd.Collection], rd.Collection]


def degrees(edges: rd.Collection) -> rd.Collection:
    """How many edges begin at each node."""
    return edges.key_by(lambda edge: edge[0]).count()


def reachable(edges: rd.Collection) -> rd.Collection:
    """From node 0."""
    found: rd.Collection = rd.graphs.reachable(edges, [0])
    return found


PROGRAMS: dict[str, Build] = {
    "degrees": degrees,
    "components": rd.graphs.connected_components,
    "reachability": reachable,
    "strong components": rd.graphs.strongly_connected_components,
}


@dataclass
class Touched:
    """What a program does."""

    loaded: int = 0
    """Rows that come to all vertices while the graph is loaded."""
    load_s: float = 0.0
    rows: list[int] = field(default_factory=list)
    """The same for each change."""
    seconds: list[float] = field(default_factory=list)
    given: list[int] = field(default_factory=list)
    """How many records of the result each change has changed."""
    digest: list[int] = field(default_factory=list)
    """Of the result at the end: how many nodes, and a sum over nodes and values."""


def random_graph(edges: int, seed: int = 1) -> list[Edge]:
    """So many different edges between half as many nodes: one large strong component, and much around it."""
    chance = random.Random(seed)
    nodes = max(2, edges // 2)
    out: dict[Edge, None] = {}
    while len(out) < edges:
        out[chance.randrange(nodes), chance.randrange(nodes)] = None
    return list(out)


@contextmanager
def counted() -> Iterator[Counter[int]]:
    """By epoch, the rows that come to all vertices of collections."""
    rows: Counter[int] = Counter()
    received = MomentVertex.on_recv

    def counting(self: MomentVertex, edge: int, batch: Any, time: rd.Timestamp) -> None:
        rows[time.epoch] += len(batch)
        received(self, edge, batch, time)

    with patch.object(MomentVertex, "on_recv", counting):
        yield rows


def touched(build: Build, edges: Sequence[Edge], toggled: Sequence[Edge]) -> Touched:
    """All edges in one epoch, then each of some goes in one and comes back in the next."""
    out = Touched()
    flow = rd.Dataflow("changes")
    told: Counter[int] = Counter()
    build(flow.collection("edges")).subscribe(lambda epoch, some: told.update({epoch: len(some)})).changes().probe("seen").collect("out")
    with counted() as rows:
        job = flow.submit(runtime="local", parallelism=1)
        given = job.collection("edges")
        given.insert(edges)
        for epoch in range(1 + 2 * len(toggled)):
            if epoch:
                (given.remove if epoch % 2 else given.insert)([toggled[(epoch - 1) // 2]])
            began = time.perf_counter()
            given.advance_to(epoch + 1)
            job.probe("seen").wait(epoch)
            out.seconds.append(time.perf_counter() - began)
        given.close()
        changes = job.wait()["out"]
    out.digest = digest_of(changes)
    out.loaded, out.load_s = rows[0], out.seconds.pop(0)
    out.rows = [rows[epoch] for epoch in range(1, 1 + 2 * len(toggled))]
    out.given = [told[epoch] for epoch in range(1, 1 + 2 * len(toggled))]
    return out


def digest_of(changes: Sequence[tuple[Any, tuple[Any, int]]]) -> list[int]:
    """How many nodes there are when all changes are counted, and a sum over nodes and values (1 where a record is a node alone)."""
    table: Counter[Any] = Counter()
    for _, (record, weight) in changes:
        table[record] += weight
    there = [record if isinstance(record, tuple) else (record, 1) for record, weight in table.items() if weight]
    return [len(there), sum((node + 1) * (value + 1) % 1_000_003 for node, value in there)]


def by_pathway(name: str, edges: Sequence[Edge], toggled: Sequence[Edge]) -> PeerRun:
    """The same loading and changes by Pathway. Raises NoFigure."""
    rows = [(source, target, 0, 1) for source, target in edges]
    for epoch, (source, target) in enumerate((edge for edge in toggled for _ in range(2)), 1):
        rows.append((source, target, epoch, -1 if epoch % 2 else 1))
    sources, targets, epochs, diffs = np.array(rows, np.int64).T
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "edges.parquet")
        pq.write_table(pa.table({"src": sources, "dst": targets, "epoch": epochs, "diff": diffs}), path)
        return run_peer("pathway", "edges", {"edges": path, "program": name, "workers": 1}, timeout_s=1800)


def by_scipy(name: str, edges: Sequence[Edge]) -> float:
    """Seconds to compute the same anew, from arrays."""
    sources, targets = np.array(edges).T
    size = int(max(sources.max(), targets.max())) + 1
    began = time.perf_counter()
    if name == "degrees":
        np.bincount(sources, minlength=size)
    else:
        matrix = coo_matrix((np.ones(len(sources), np.int8), (sources, targets)), shape=(size, size)).tocsr()
        if name == "reachability":
            breadth_first_order(matrix, 0, return_predecessors=False)
        else:
            connected_components(matrix, connection="weak" if name == "components" else "strong")
    return time.perf_counter() - began


def by_streams(name: str, edges: Sequence[Edge]) -> float | None:
    """Seconds of `rd.graphs` on a stream of the edges; None: it has no such function."""
    functions: dict[str, Callable[[Any], Any]] = {
        "components": rd.graphs.connected_components,
        "strong components": rd.graphs.strongly_connected_components,
        "reachability": lambda stream: rd.graphs.bfs(stream, [0]),
    }
    if name not in functions:
        return None
    flow = rd.Dataflow("anew")
    functions[name](flow.from_items(edges)).collect("out")
    began = time.perf_counter()
    flow.run(runtime="local", parallelism=1)
    return time.perf_counter() - began


def _beside(peer: str, name: str, edges: Sequence[Edge], toggled: Sequence[Edge], ours: Touched) -> None:
    try:
        theirs = by_pathway(name, edges, toggled)
    except NoFigure as error:
        print(f"  {'':18} {peer}: no figure: {error}", flush=True)
        return
    if theirs.digest != ours.digest:
        raise SystemExit(f"{name}: Rayad ends with {ours.digest}, {peer} with {theirs.digest}")
    seconds = statistics.median(theirs.told["changes_s"])
    print(
        f"  {'':18} {theirs.version}: load {theirs.told['load_s']:8.1f} s, {seconds * 1e3:8.2f} ms in the median; the same table",
        flush=True,
    )


def main() -> None:
    """Measure and print."""
    asked = argparse.ArgumentParser(description="One edge that goes and comes in a large random graph")
    asked.add_argument("--edges", type=int, default=1_000_000)
    asked.add_argument("--changes", type=int, default=20)
    asked.add_argument("--only", choices=list(PROGRAMS))
    asked.add_argument("--no-streams", action="store_true")
    asked.add_argument("--peer", choices=["pathway", "none"], default="none")
    given = asked.parse_args()
    edges = random_graph(given.edges)
    toggled = random.Random(2).sample(edges, given.changes)
    print(f"{len(edges):,} edges, {len(edges) // 2:,} nodes; {given.changes} edges go and come, one an epoch")
    for name, build in PROGRAMS.items():
        if given.only not in (None, name):
            continue
        one = touched(build, edges, toggled)
        middle, mean = statistics.median(one.rows), statistics.mean(one.rows)
        print(
            f"  {name:18} load {one.loaded:12,} rows {one.load_s:8.1f} s   a change {middle:6.0f} rows in the median, {mean:8.0f} in the "
            f"mean, {max(one.rows):8,} at most; {statistics.median(one.seconds) * 1e3:8.2f} ms in the median; "
            f"{statistics.mean(one.given):.1f} records of the result change"
        )
        streams = None if given.no_streams else by_streams(name, edges)
        told = "" if streams is None else f", by rd.graphs on a stream {streams:8.1f} s"
        print(f"  {'':18} anew: by scipy {by_scipy(name, edges) * 1e3:8.1f} ms{told}", flush=True)
        if given.peer != "none":
            _beside(given.peer, name, edges, toggled, one)


if __name__ == "__main__":
    main()
