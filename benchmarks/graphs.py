"""Connected components, PageRank and strong components of R-MAT graphs, beside scipy, networkx, Spark and Pathway.

All read the same Parquet file and give a value for every node, as two arrays. Digests show that components are the same partition and that
ranks are within 1e-9 of the reference (as a share of the mean rank). The same algorithms are compared: label propagation in loops
of Spark DataFrames and in Pathway's ``iterate`` with label propagation in Rayad (Pregel); union-find in Rayad with scipy, and
with Spark that runs scipy in each partition.

There are two series for each. *Whole* is by the clock of :mod:`benchmarks.clock`, from the file to the arrays. *Without loading* is the
same less the time until the edges are ready: scipy's sparse matrix or networkx' graph is built, Spark's tables are cached.
Rayad works on edges while they arrive. So its loading time is that of a separate program, the shortest of all repetitions. For
components it reads and exchanges the edges in the same way and does nothing with them (so making sets counts for Rayad, while making the
matrix does not count for scipy); for the others it also puts them into sorted arrays. Pathway does it all in one call, so it has only the
whole.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import rayad as rd
from benchmarks import inputs
from benchmarks.clock import timed
from benchmarks.graph_data import DAMPING, EDGES, REFERENCE, ROUNDS, graph_folder, label_digest, rank_digest
from benchmarks.machine import WORKER_NICE, ray_address
from benchmarks.measurement import Measurement, Series
from benchmarks.peer_environments import run_ours, run_peer
from benchmarks.side_by_side import Outcome, System, chosen, compare, ratios_of
from rayad.graphs.adjacency import Adjacency
from rayad.graphs.edges import DST, SRC, prepared_edges
from rayad.graphs.rounds import GraphVertex

TITLE = "Graphs: components and PageRank"
NEEDS_RAY = True
COMPONENTS, PAGERANK, STRONG = "components", "PageRank", "strong components"
RAYAD, SCIPY, NETWORKX, SPARK, PATHWAY = "Rayad", "scipy", "networkx", "Spark DataFrames", "Pathway"
PROPAGATED, FORESTS = "Rayad, label propagation (Pregel)", "Spark, scipy in each partition"
FOLDERS = {SCIPY: "scipy", NETWORKX: "networkx", SPARK: "spark", FORESTS: "spark", PATHWAY: "pathway"}
SCRIPTS = {COMPONENTS: "components", PAGERANK: "pagerank", STRONG: "components"}
AIMS = {SCIPY: "at most 5", SPARK: "at least 1", FORESTS: "at least 5", PATHWAY: "at least 1", NETWORKX: ""}
LIKE = {(COMPONENTS, SPARK): PROPAGATED, (COMPONENTS, PATHWAY): PROPAGATED}
"""Our program with the same algorithm as a peer: union-find is not compared with label propagation."""
BARE = "without loading"


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured. ``slow_scale``: for networkx, Spark and Pathway; None: without them. ``pathway_shares``: Pathway gets one n-th
    of the edges, for each n in turn, until it finishes in time."""

    repetitions: int = 3
    scales: tuple[int, ...] = (16, 20)
    slow_scale: int | None = 16
    pathway_shares: tuple[int, ...] = (1, 2, 5)
    replicas: int = 2
    timeout_s: float = 300.0


FULL = Sizes()
QUICK = Sizes(repetitions=1, scales=(8,), slow_scale=8, pathway_shares=(1,), timeout_s=90.0)


@dataclass(frozen=True, slots=True)
class GraphOutcome(Outcome):
    """``loading_s`` is the part of ``seconds`` until the edges are ready; None when that is not known."""

    loading_s: float | None = None


# -- Rayad ------------------------------------------------------------------------------------------
class Arrived(rd.Vertex):
    """Takes edges and does nothing with them."""

    def on_recv(self, edge: int, batch: Any, time: rd.Timestamp) -> None:
        """Drop it."""


class Sorted(GraphVertex):
    """Takes edges and puts them into the arrays of PageRank and strong components: from each input in one direction."""

    def on_notify(self, time: rd.Timestamp) -> None:
        """All have arrived."""
        arrived = self.waiting.pop(time)
        for ends in ((SRC, DST), (DST, SRC)):
            batches = [batch for edge, batch in arrived if edge == (ends[0] == DST)]
            if batches:
                Adjacency().add_keys(self.take_edge_keys(batches, *ends))

    def on_round(self, time: rd.Timestamp, number: int, arrived: dict[int, list[Any]]) -> None:
        """There are no rounds."""


class SmallestLabel(rd.graphs.VertexProgram):
    """Components by label propagation: every node takes the smallest label of its neighbours until none changes."""

    def init(self, node: int) -> int:
        """Its own name is its first label."""
        return node

    def compute(self, vertex: Any, state: int, messages: list[int]) -> tuple[int, Any]:
        """Take a smaller label and send it on."""
        best = min(state, *messages) if messages else state
        return best, vertex.to_neighbours(best) if best < state or not messages else ()

    def combine(self, left: int, right: int) -> int:
        """Only the smallest counts."""
        return min(left, right)


def both_ways(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Each edge, and its reverse."""
    src, dst = (batch.column(name).to_numpy() for name in ("src", "dst"))
    return pa.record_batch({"src": np.concatenate([src, dst]), "dst": np.concatenate([dst, src])})


def program(algorithm: str, path: Path, *, propagated: bool = False) -> rd.Dataflow:
    """One algorithm over the edges in a Parquet file; ``result["values"]`` is a table of nodes and values, or a list of pairs for
    components by label propagation (``propagated``)."""
    flow = rd.Dataflow(SCRIPTS[algorithm])
    edges = flow.read_parquet(str(path))
    if propagated:
        rd.graphs.pregel(edges.map_batches(both_ways), SmallestLabel()).collect("values")
        return flow
    if algorithm == PAGERANK:
        values = rd.graphs.pagerank(edges, rounds=ROUNDS, damping=DAMPING)
    elif algorithm == COMPONENTS:
        values = rd.graphs.connected_components(edges)
    else:
        values = rd.graphs.strongly_connected_components(edges)
    values.collect("values", columnar=True)
    return flow


def loading_program(algorithm: str, path: Path) -> rd.Dataflow:
    """Only the loading: read, prepare, exchange and store the edges as the algorithm does."""
    flow = rd.Dataflow("loading")
    prepared = prepared_edges(flow.read_parquet(str(path)), None, "loading")
    exchanged: dict[str, list[rd.Stream[Any] | rd.KeyedStream[Any, Any]]] = {
        COMPONENTS: [prepared.rebalance(buffer=64, keep_batches=True)],
        PAGERANK: [prepared.key_by("src")],
        STRONG: [prepared.key_by("src"), prepared.key_by("dst")],
    }
    arrived: type[rd.Vertex] = Arrived if algorithm == COMPONENTS else Sorted
    flow.vertex(arrived, inputs=exchanged[algorithm], name="arrived")
    return flow


def arrays_of(values: Any) -> tuple[np.ndarray, np.ndarray]:
    """Nodes and values as arrays, from either kind of result."""
    if isinstance(values, pa.Table):
        return values.column("node").to_numpy(), values.column("value").to_numpy()
    node, value = zip(*(record for _, record in values), strict=True)
    return np.array(node), np.array(value)


def digest_of(algorithm: str, arrays: tuple[np.ndarray, np.ndarray], reference: Path) -> list[Any]:
    """The digest of the arrays that are asked for."""
    return rank_digest(*arrays, reference) if algorithm == PAGERANK else label_digest(*arrays)


def one(algorithm: str, folder: str, replicas: int, propagated: bool = False, loading: bool = True, **options: Any) -> dict[str, Any]:
    """One run, to two arrays; with ``loading`` also one of the loading program."""
    edges = Path(folder, EDGES)
    done = timed(
        lambda: program(algorithm, edges, propagated=propagated),
        lambda result: arrays_of(result["values"]),
        parallelism=replicas,
        **options,
    )
    digest = digest_of(algorithm, done.value, Path(folder, REFERENCE))
    told = {"seconds": done.seconds, "digest": digest, "start_s": done.start_s}
    if loading:
        told["loading_s"] = timed(lambda: loading_program(algorithm, edges), lambda result: None, parallelism=replicas, **options).seconds
    return told


def run_rayad(
    algorithm: str, folder: Path, replicas: int, *, timeout_s: float, propagated: bool = False, loading: bool = True
) -> GraphOutcome:
    """One run in a process of its own."""
    arguments = {"algorithm": algorithm, "folder": str(folder), "replicas": replicas, "propagated": propagated, "loading": loading}
    done = run_ours("graphs", arguments, ray_address=ray_address(), timeout_s=timeout_s, nice=WORKER_NICE)
    return GraphOutcome(done.seconds, done.digest, done.wall_s, None, done.version, loading_s=done.told.get("loading_s"))


# -- peers -------------------------------------------------------------------------------------------
def run_graph_peer(kind: str, algorithm: str, folder: Path, sizes: Sizes) -> GraphOutcome:
    """One run of a peer's script."""
    arguments = {"edges": str(folder / EDGES), "reference": str(folder / REFERENCE), "rounds": ROUNDS, "damping": DAMPING}
    arguments |= {"workers": sizes.replicas, "connection": "strong" if algorithm == STRONG else "weak"}
    script = "components_in_partitions" if kind == FORESTS else SCRIPTS[algorithm]
    done = run_peer(FOLDERS[kind], script, arguments, timeout_s=sizes.timeout_s, nice=WORKER_NICE)
    return GraphOutcome(done.seconds, done.digest, done.wall_s, done.cpu_s, done.version, loading_s=done.told.get("loading_s"))


def name_of(kind: str, algorithm: str, scale: int, share: int = 1) -> str:
    """The name of a series."""
    part = f", 1/{share} of the edges" if share > 1 else ""
    return f"{algorithm}, scale {scale}{part}: {kind}"


def graph_peer(kind: str, algorithm: str, scale: int, folder: Path, sizes: Sizes, share: int = 1) -> System:
    """A peer as a system."""
    run_one: Callable[[], Outcome] = partial(run_graph_peer, kind, algorithm, folder, sizes)
    return System(name_of(kind, algorithm, scale, share), run_one, peer=FOLDERS[kind])


def systems(algorithm: str, scale: int, folder: Path, sizes: Sizes, peers: tuple[str, ...] | None) -> list[System]:
    """Rayad and the peers that get the whole graph."""
    kinds = [SCIPY]
    if scale == sizes.slow_scale:
        kinds += {STRONG: [NETWORKX], PAGERANK: [NETWORKX, SPARK], COMPONENTS: [NETWORKX, FORESTS, SPARK]}[algorithm]
    mine = [rayad(algorithm, scale, folder, sizes)]
    if algorithm == COMPONENTS and scale == sizes.slow_scale:
        mine.append(rayad(algorithm, scale, folder, sizes, kind=PROPAGATED))
    return chosen([*mine, *(graph_peer(kind, algorithm, scale, folder, sizes) for kind in kinds)], peers)


def rayad(algorithm: str, scale: int, folder: Path, sizes: Sizes, share: int = 1, *, kind: str = RAYAD, beside: str = "") -> System:
    """One of ours as a system."""
    propagated = kind == PROPAGATED
    run_one = partial(
        run_rayad, algorithm, folder, sizes.replicas, timeout_s=sizes.timeout_s, propagated=propagated, loading=not propagated
    )
    return System(name_of(kind, algorithm, scale, share) + beside, run_one)


def run(sizes: Sizes, peers: tuple[str, ...] | None = None) -> Measurement:
    """Each algorithm at each scale, all systems in turn."""
    out = Measurement("graphs", TITLE, asdict(sizes))
    for algorithm in (COMPONENTS, PAGERANK, STRONG):
        for scale in sizes.scales:
            folder = graph_folder(scale)
            found = systems(algorithm, scale, folder, sizes, peers)
            compare_graph(out, algorithm, scale, 1, found, sizes.repetitions, wanted_of(algorithm, scale))
    if sizes.slow_scale is not None and (peers is None or "pathway" in peers):
        for algorithm in (COMPONENTS, PAGERANK):
            compare_pathway(out, algorithm, sizes.slow_scale, sizes)
    out.notes.append(
        f"Ray's workers, Rayad's driver and all peers run at nice {WORKER_NICE}, Ray's daemons at {os.nice(0)}. All give two arrays of "
        f"numbers. A system is given {sizes.timeout_s:.0f} s. "
        f"A scale of s has 2^s vertex numbers and 16 times as many edges."
    )
    return out


def compare_pathway(out: Measurement, algorithm: str, scale: int, sizes: Sizes) -> None:
    """Pathway and Rayad with all edges or, when Pathway does not finish, with a part of them."""
    for share in sizes.pathway_shares:
        folder = graph_folder(scale, share)
        kind = LIKE.get((algorithm, PATHWAY), RAYAD)
        both = [
            graph_peer(PATHWAY, algorithm, scale, folder, sizes, share),
            rayad(algorithm, scale, folder, sizes, share, kind=kind, beside=", beside Pathway"),
        ]
        if compare_graph(out, algorithm, scale, share, both, sizes.repetitions, wanted_of(algorithm, scale, share)):
            return


def wanted_of(algorithm: str, scale: int, share: int = 1) -> Any:
    """The digest of the right answer; None for strong components: that of the first system to finish."""
    return None if algorithm == STRONG else inputs.digest_of(graph_folder(scale, share))[SCRIPTS[algorithm]]


def compare_graph(out: Measurement, algorithm: str, scale: int, share: int, found: list[System], repetitions: int, wanted: Any) -> bool:
    """Measure, add the series without loading and the ratios of equal algorithms; false when only Rayad gave a figure."""
    what = {
        PAGERANK: "PageRank: every rank is within 1e-9 of the reference, as a share of the mean rank",
        COMPONENTS: "components: the same partition, and the reference's",
        STRONG: "strong components: the same partition",
    }[algorithm]
    outcomes = compare(out, found, repetitions=repetitions, wanted=wanted, what=what)
    nice = {system.name: system.nice for system in found}
    for name, runs in outcomes.items():
        loading = [run.loading_s for run in runs if isinstance(run, GraphOutcome) and run.loading_s is not None]
        if len(loading) < len(runs):
            continue
        shortest = f": {RAYAD}" in name
        bare = [run.seconds - (min(loading) if shortest else one) for run, one in zip(runs, loading, strict=True)]
        if min(bare) > 0:
            series = Series(f"{name}, {BARE}", "s", nice[name])
            for seconds in bare:
                series.add(seconds)
            out.series.append(series)
    mine = [system.name for system in found if not system.peer]
    theirs = [system.name for system in found if system.peer]
    for name in theirs:
        kind = next(kind for kind in AIMS if f": {kind}" in name)
        aim = AIMS[kind] if algorithm != STRONG else ""
        like = name_of(LIKE.get((algorithm, kind), RAYAD), algorithm, scale, share)
        ours = next(own for own in mine if own in (like, f"{like}, beside Pathway"))
        pairs = [(ours + suffix, name + suffix) for suffix in ("", f", {BARE}")]
        out.ratios += ratios_of(out, [(*(pair if kind == SCIPY else reversed(pair)), aim) for pair in pairs])
    return any(name in outcomes for name in theirs)
