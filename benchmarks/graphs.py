"""Connected components, PageRank and strong components of R-MAT graphs, beside scipy, networkx, Spark and Pathway.

All read the same Parquet file and give a value for every node; digests show that components are the same partition and that ranks are
within 1e-9 of the reference (as a share of the mean rank). There are two series for each. *Whole* is from the file to the result,
without the start of interpreters, engines and actors. *Without loading* takes off what it takes until the edges are where they
are computed on: scipy's sparse matrix and networkx' graph built, Spark's tables cached. Rayad works on edges while they arrive, so for
it this is the time of a program of its own, the shortest of all repetitions: for components one that reads and exchanges the edges in
the same way and does nothing with them (making sets of them stays in, while making scipy's matrix does not), for the others one that
also puts them into sorted arrays. Pathway does it all in one call, so it has the whole only.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

import rayad as rd
from benchmarks import inputs
from benchmarks.graph_data import DAMPING, EDGES, REFERENCE, ROUNDS, graph_folder, label_digest, rank_digest
from benchmarks.machine import WORKER_NICE
from benchmarks.measurement import Measurement, Series
from benchmarks.peer_environments import run_peer
from benchmarks.side_by_side import Outcome, System, chosen, compare, ratios_of
from rayad.graphs.adjacency import MutableAdjacency
from rayad.graphs.edges import DST, SRC, prepared_edges
from rayad.graphs.rounds import GraphVertex

TITLE = "Graphs: components and PageRank"
NEEDS_RAY = True
COMPONENTS, PAGERANK, STRONG = "components", "PageRank", "strong components"
RAYAD, SCIPY, NETWORKX, SPARK, PATHWAY = "Rayad", "scipy", "networkx", "Spark DataFrames", "Pathway"
FOLDERS = {SCIPY: "scipy", NETWORKX: "networkx", SPARK: "spark", PATHWAY: "pathway"}
SCRIPTS = {COMPONENTS: "components", PAGERANK: "pagerank", STRONG: "components"}
AIMS = {SCIPY: "at most 5", SPARK: "at least 50", PATHWAY: "at least 50", NETWORKX: ""}
BARE = "without loading"


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured. ``slow_scale`` is that of networkx, Spark and Pathway, None for without them; ``pathway_shares`` are tried in
    turn, each as one n-th of the edges, until it finishes in time."""

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
    """``loading_s`` is the part of ``seconds`` after which the edges are where they are computed on; None when that is not known."""

    loading_s: float | None = None


# -- Rayad ------------------------------------------------------------------------------------------
class Arrived(rd.Vertex):
    """Takes edges and does nothing with them."""

    def on_recv(self, edge: int, batch: Any, time: rd.Timestamp) -> None:
        """Let go of it."""


class Sorted(GraphVertex):
    """Takes edges and puts them into the arrays that PageRank and strong components work on: by input, the one or the other way round."""

    def on_notify(self, time: rd.Timestamp) -> None:
        """All have arrived."""
        arrived = self.waiting.pop(time)
        for ends in ((SRC, DST), (DST, SRC)):
            batches = [batch for edge, batch in arrived if edge == (ends[0] == DST)]
            if batches:
                MutableAdjacency().add_keys(self.take_edge_keys(batches, *ends))

    def on_round(self, time: rd.Timestamp, number: int, arrived: dict[int, list[Any]]) -> None:
        """There are no rounds."""


def program(algorithm: str, path: Path) -> rd.Dataflow:
    """One algorithm over the edges in a Parquet file; ``result["values"]`` is a table of nodes and values."""
    flow = rd.Dataflow(SCRIPTS[algorithm])
    edges = flow.read_parquet(str(path))
    if algorithm == PAGERANK:
        values = rd.graphs.pagerank(edges, rounds=ROUNDS, damping=DAMPING)
    elif algorithm == COMPONENTS:
        values = rd.graphs.connected_components(edges)
    else:
        values = rd.graphs.strongly_connected_components(edges)
    values.collect("values", columnar=True)
    return flow


def loading_program(algorithm: str, path: Path) -> rd.Dataflow:
    """The edges read, prepared and exchanged as for the algorithm, put where it finds them, and that is all."""
    flow = rd.Dataflow("loading")
    prepared = prepared_edges(flow.read_parquet(str(path)), None, "loading")
    exchanged = {
        COMPONENTS: [prepared.rebalance(buffer=64, keep_batches=True)],
        PAGERANK: [prepared.key_by("src")],
        STRONG: [prepared.key_by("src"), prepared.key_by("dst")],
    }
    flow.vertex(Arrived if algorithm == COMPONENTS else Sorted, inputs=exchanged[algorithm], name="arrived")
    return flow


def digest_of(algorithm: str, values: pa.Table, reference: Path) -> list[Any]:
    """Of the table that :func:`program` gives."""
    node, value = (values.column(name).to_numpy() for name in ("node", "value"))
    if algorithm == PAGERANK:
        return rank_digest(node, value, reference)
    return label_digest(node, value)


def run_rayad(algorithm: str, folder: Path, replicas: int, *, loading: bool = True, **options: Any) -> GraphOutcome:
    """One run; with ``loading`` also one of the loading program."""
    result = program(algorithm, folder / EDGES).run(parallelism=replicas, **options)
    digest = digest_of(algorithm, result["values"], folder / REFERENCE)
    loading_s = None
    if loading:
        loading_s = loading_program(algorithm, folder / EDGES).run(parallelism=replicas, **options).statistics.run_s
    return GraphOutcome(result.statistics.run_s, digest, loading_s=loading_s)


# -- peers -------------------------------------------------------------------------------------------
def run_graph_peer(kind: str, algorithm: str, folder: Path, sizes: Sizes) -> GraphOutcome:
    """One run of a peer's script."""
    arguments = {"edges": str(folder / EDGES), "reference": str(folder / REFERENCE), "rounds": ROUNDS, "damping": DAMPING}
    arguments |= {"workers": sizes.replicas, "connection": "strong" if algorithm == STRONG else "weak"}
    done = run_peer(FOLDERS[kind], SCRIPTS[algorithm], arguments, timeout_s=sizes.timeout_s, nice=WORKER_NICE)
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
    """Rayad and those that take the whole graph."""
    kinds = [SCIPY]
    if scale == sizes.slow_scale:
        kinds += [NETWORKX] if algorithm == STRONG else [NETWORKX, SPARK]
    ours = System(name_of(RAYAD, algorithm, scale), partial(run_rayad, algorithm, folder, sizes.replicas))
    return chosen([ours, *(graph_peer(kind, algorithm, scale, folder, sizes) for kind in kinds)], peers)


def run(sizes: Sizes, peers: tuple[str, ...] | None = None) -> Measurement:
    """Each algorithm at each scale, all systems in turn."""
    out = Measurement("graphs", TITLE, asdict(sizes))
    for algorithm in (COMPONENTS, PAGERANK, STRONG):
        for scale in sizes.scales:
            folder = graph_folder(scale)
            compare_graph(out, algorithm, scale, 1, systems(algorithm, scale, folder, sizes, peers), sizes)
    if sizes.slow_scale is not None and (peers is None or "pathway" in peers):
        for algorithm in (COMPONENTS, PAGERANK):
            compare_pathway(out, algorithm, sizes.slow_scale, sizes)
    out.notes.append(
        f"Ray's workers and all peers run at nice {WORKER_NICE}, the driver at {os.nice(0)}. A system is given {sizes.timeout_s:.0f} s. "
        f"A scale of s has 2^s vertex numbers and 16 times as many edges."
    )
    return out


def compare_pathway(out: Measurement, algorithm: str, scale: int, sizes: Sizes) -> None:
    """Pathway and Rayad with all edges or, when Pathway does not finish, with a part of them."""
    for share in sizes.pathway_shares:
        folder = graph_folder(scale, share)
        both = [
            graph_peer(PATHWAY, algorithm, scale, folder, sizes, share),
            System(f"{name_of(RAYAD, algorithm, scale, share)}, beside Pathway", partial(run_rayad, algorithm, folder, sizes.replicas)),
        ]
        if compare_graph(out, algorithm, scale, share, both, sizes):
            return


def compare_graph(out: Measurement, algorithm: str, scale: int, share: int, found: list[System], sizes: Sizes) -> bool:
    """Measure, add the series without loading and the ratios; false when all but Rayad gave no figure."""
    digests = inputs.digest_of(graph_folder(scale, share))
    what = {
        PAGERANK: "PageRank: every rank is within 1e-9 of the reference, as a share of the mean rank",
        COMPONENTS: "components: the same partition, and the reference's",
        STRONG: "strong components: the same partition",
    }[algorithm]
    wanted = None if algorithm == STRONG else digests[SCRIPTS[algorithm]]
    outcomes = compare(out, found, repetitions=sizes.repetitions, wanted=wanted, what=what)
    nice = {system.name: system.nice for system in found}
    for name, runs in outcomes.items():
        loading = [run.loading_s for run in runs if isinstance(run, GraphOutcome) and run.loading_s is not None]
        if len(loading) < len(runs):
            continue
        shortest = RAYAD in name
        bare = [run.seconds - (min(loading) if shortest else one) for run, one in zip(runs, loading, strict=True)]
        if min(bare) > 0:
            series = Series(f"{name}, {BARE}", "s", nice[name])
            for seconds in bare:
                series.add(seconds)
            out.series.append(series)
    ours = next(system.name for system in found if RAYAD in system.name)
    theirs = [system.name for system in found if system.name != ours]
    for name in theirs:
        kind = next(kind for kind in AIMS if f": {kind}" in name)
        aim = AIMS[kind] if algorithm != STRONG else ""
        pairs = [(ours + suffix, name + suffix) for suffix in ("", f", {BARE}")]
        out.ratios += ratios_of(out, [(*(pair if kind == SCIPY else reversed(pair)), aim) for pair in pairs])
    return any(name in outcomes for name in theirs)
