"""Sum of a value for each key, in columns read from Parquet files, beside what one would use instead; few keys and many.

Two sizes: the large one for systems that work in columns, the small one for those that handle each row by itself. All read the same
rows and have all sums in one place at the end; a digest shows that they agree. (`columns` measures the same without reading files.)
"""

from __future__ import annotations

import os
import time
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import rayad as rd
from benchmarks import inputs
from benchmarks.machine import WORKER_NICE
from benchmarks.measurement import Measurement
from benchmarks.side_by_side import Outcome, System, chosen, compare, peer, ratios_of

TITLE = "Keyed sum of columnar rows from files"
NEEDS_RAY = True
COLUMNAR = (
    # peer's folder, name of its series, whether it is made of Ray workers
    ("pyarrow", "pyarrow, one process", False),
    ("polars", "Polars", False),
    ("duckdb", "DuckDB", False),
    ("spark", "Spark, local[2]", False),
    ("ray_data", "Ray Data", True),
)
BY_ROW = (("pathway", "Pathway, 2 threads", 1), ("pathway", "Pathway, 2 processes", 2), ("bytewax", "Bytewax, 2 workers", 1),
          ("bytewax", "Bytewax, 2 processes", 2))  # fmt: skip


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured."""

    repetitions: int = 3
    rows: int = 10_000_000
    keys: tuple[int, ...] = (1_000, 100_000, 1_000_000)
    spread_keys: tuple[int, ...] = (100_000,)
    """So many keys again, but far apart: not numbers that could be places in an array."""
    small_rows: int = 1_000_000
    small_keys: tuple[int, ...] = (1_000, 100_000)
    files: int = 8
    replicas: int = 2
    timeout_s: float = 120.0


FULL = Sizes()
QUICK = Sizes(repetitions=1, rows=50_000, keys=(10_000,), spread_keys=(1_000,), small_rows=5_000, small_keys=(100,), timeout_s=60.0)


def program(folder: Path) -> rd.Dataflow:
    """From the files to one table of sums."""
    flow = rd.Dataflow("keyed-sum")
    flow.read_parquet(f"{folder}/*.parquet").key_by("key").sum("value", name="sum").collect("sums", columnar=True)
    return flow


def run_once(folder: Path, replicas: int, **options: Any) -> Outcome:
    """One run over all files of the folder."""
    began = time.perf_counter()
    result = program(folder).run(parallelism=replicas, **options)
    whole_s = time.perf_counter() - began
    sums = result["sums"]
    digest = inputs.sum_digest(sums.column(0).to_numpy(), sums.column(1).to_numpy())
    return Outcome(result.statistics.run_s, digest, whole_s)


def named(name: str, rows: int, keys: int, spread: bool = False) -> str:
    """The series of a system at one size."""
    return f"{name}: {rows:,} rows, {keys:,} keys{' far apart' if spread else ''}"


def columnar(sizes: Sizes, keys: int, spread: bool = False) -> list[System]:
    """Those that work in columns, at the large size."""
    folder = inputs.keyed_folder(sizes.rows, keys, sizes.files, spread=spread)
    work = {"folder": str(folder), "workers": sizes.replicas}
    ours = System(named("Rayad", sizes.rows, keys, spread), partial(run_once, folder, sizes.replicas))
    return [ours] + [
        peer(named(name, sizes.rows, keys, spread), kind, "keyed_sum", work, timeout_s=sizes.timeout_s, on_ray=on_ray)
        for kind, name, on_ray in COLUMNAR
    ]


def by_row(sizes: Sizes, keys: int) -> list[System]:
    """Those that handle each row by itself, at the small size. Pathway reads the same rows from CSV: it has no Parquet reader."""
    folders = {csv: inputs.keyed_folder(sizes.small_rows, keys, sizes.files, csv=csv) for csv in (False, True)}
    ours = System(named("Rayad", sizes.small_rows, keys), partial(run_once, folders[False], sizes.replicas))
    out = [ours]
    for kind, name, processes in BY_ROW:
        work = {"folder": str(folders[kind == "pathway"]), "workers": sizes.replicas, "processes": processes}
        out.append(peer(named(name, sizes.small_rows, keys), kind, "keyed_sum", work, timeout_s=sizes.timeout_s))
    return out


def large(sizes: Sizes) -> list[tuple[int, bool]]:
    """Number of keys, and whether they are far apart, of each input of the large size."""
    return [(keys, False) for keys in sizes.keys] + [(keys, True) for keys in sizes.spread_keys]


def aims(sizes: Sizes) -> list[tuple[str, str, str]]:
    """All ratios."""
    out = []
    for keys, spread in large(sizes):
        ours = named("Rayad", sizes.rows, keys, spread)
        theirs = {kind: named(name, sizes.rows, keys, spread) for kind, name, _ in COLUMNAR}
        out += [(ours, theirs["pyarrow"], "at most 2"), (ours, theirs["polars"], "at most 2"), (ours, theirs["duckdb"], "")]
        out += [(theirs["spark"], ours, "at least 5"), (theirs["ray_data"], ours, "at least 5")]
    for keys in sizes.small_keys:
        out += [(named(name, sizes.small_rows, keys), named("Rayad", sizes.small_rows, keys), "at least 5") for _, name, _ in BY_ROW]
    for few, many in zip(sizes.keys, sizes.keys[1:], strict=False):
        out.append((named("Rayad", sizes.rows, many), named("Rayad", sizes.rows, few), ""))
    return out


def run(sizes: Sizes, peers: tuple[str, ...] | None = None) -> Measurement:
    """Each number of keys by itself, all systems in turn."""
    out = Measurement("keyed_sum", TITLE, asdict(sizes))
    what = "every system gave the same sums, and those of the numbers that were written"
    groups = [
        (inputs.keyed_folder(sizes.rows, keys, sizes.files, spread=spread), columnar(sizes, keys, spread)) for keys, spread in large(sizes)
    ]
    groups += [(inputs.keyed_folder(sizes.small_rows, keys, sizes.files), by_row(sizes, keys)) for keys in sizes.small_keys]
    for folder, systems in groups:
        compare(out, chosen(systems, peers), repetitions=sizes.repetitions, wanted=inputs.digest_of(folder), what=what)
    out.ratios = ratios_of(out, aims(sizes))
    out.notes.append(
        f"Ray's workers and all peers run at nice {WORKER_NICE}, the driver and Ray Data's main process at {os.nice(0)}. "
        f"Slow systems are given {sizes.timeout_s:.0f} s. Pathway reads CSV files of the same rows: it has no Parquet reader."
    )
    return out
