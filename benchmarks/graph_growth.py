"""How the time of components, PageRank and strong components grows with the graph: R-MAT graphs, each twice as large as the one before.

Every rung is a whole run, from the Parquet file to the result, without the start. The fixed cost of a run bends the
lower end of the curve, so there is a second fit through the upper half of the rungs.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import partial

from benchmarks import inputs
from benchmarks.climbing import climb, exponent
from benchmarks.graph_data import EDGE_FACTOR, graph_folder
from benchmarks.graphs import COMPONENTS, PAGERANK, SCRIPTS, STRONG, run_rayad
from benchmarks.machine import settle
from benchmarks.measurement import Measurement

TITLE = "Growth with the graph"
NEEDS_RAY = True


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured."""

    repetitions: int = 3
    scales: tuple[int, ...] = (14, 15, 16, 17, 18, 19, 20)
    replicas: int = 2
    timeout_s: float = 300.0
    algorithms: tuple[str, ...] = (COMPONENTS, PAGERANK, STRONG)


FULL = Sizes()
QUICK = Sizes(repetitions=1, scales=(7, 8), algorithms=(COMPONENTS,))  # the quick `graphs` runs all of them


def run(sizes: Sizes) -> Measurement:
    """Each algorithm up and down the ladder."""
    out = Measurement("graph_growth", TITLE, asdict(sizes))
    upper = out.new_table("Exponents: cost ~ edges^exponent", "algorithm", "all rungs", "upper half of the rungs")
    scale_of = {EDGE_FACTOR << scale: scale for scale in sizes.scales}
    ladder = sorted(scale_of)
    half = (len(ladder) - 1) // 2

    def rung(algorithm: str, edges: int) -> float:
        return measure(out, algorithm, scale_of[edges], sizes)

    def name(algorithm: str, edges: int) -> str:
        return f"{algorithm}, scale {scale_of[edges]}"

    for algorithm in sizes.algorithms:
        one, named = partial(rung, algorithm), partial(name, algorithm)
        costs = climb(out, algorithm, "edges", ladder, "s", one, repetitions=sizes.repetitions, per="s an edge", name=named)
        upper.add(algorithm, round(exponent(ladder, costs), 2), round(exponent(ladder[half:], costs[half:]), 2))
    return out


def measure(out: Measurement, algorithm: str, scale: int, sizes: Sizes) -> float:
    """Seconds of one run; its result is checked against the reference where there is one."""
    folder = graph_folder(scale)
    settle()
    outcome = run_rayad(algorithm, folder, sizes.replicas, timeout_s=sizes.timeout_s, loading=False)
    if algorithm != STRONG:
        out.check(f"{algorithm}: equal to the reference", outcome.digest, inputs.digest_of(folder)[SCRIPTS[algorithm]])
    return outcome.seconds
