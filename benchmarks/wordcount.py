"""Count of each word in text files, in Python rows and in columns, beside other systems for this.

All read the same files and give all counts as a Python dict in one process; a digest shows that they agree. The clock is that of
:mod:`benchmarks.clock`. Bytewax with several processes has no caller: its clock stops when its last sink is closed.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

import rayad as rd
from benchmarks import inputs
from benchmarks.clock import timed
from benchmarks.machine import WORKER_NICE
from benchmarks.measurement import Measurement
from benchmarks.side_by_side import System, chosen, compare, ours, peer, ratios_of

TITLE = "Word count"
NEEDS_RAY = True
COLUMNS, ROWS, LAMBDAS = "Rayad, columns", "Rayad, rows", "Rayad, rows, lambdas only"
POLARS, DUCKDB, PLAIN, ACTORS = "Polars", "DuckDB", "plain Python Counter, one process", "hand-written Ray actors, 2 + 2"
BYTEWAX_THREADS, BYTEWAX = "Bytewax, one process, 2 workers", "Bytewax, 2 processes"
BYTEWAX_COMBINED = "Bytewax, 2 processes, batches counted first"
PATHWAY_THREADS, PATHWAY = "Pathway, 2 threads", "Pathway, 2 processes"
SPARK, STREAMING, RAY_DATA = "Spark batch, local[2]", "Spark Structured Streaming, local[2]", "Ray Data"
FLINK = "PyFlink"
AIMS = (
    (COLUMNS, POLARS, "at most 2"),
    (BYTEWAX_THREADS, COLUMNS, "at least 5"),
    (BYTEWAX, COLUMNS, "at least 5"),
    (PATHWAY_THREADS, COLUMNS, "at least 5"),
    (PATHWAY, COLUMNS, "at least 5"),
    (COLUMNS, PLAIN, "below 0.84: timely in Rust's ratio to the same Counter"),
    (BYTEWAX_THREADS, ROWS, "at least 3"),
    (BYTEWAX, ROWS, "at least 3"),
    (BYTEWAX_COMBINED, ROWS, ""),
    (BYTEWAX_COMBINED, COLUMNS, ""),
    (BYTEWAX_THREADS, LAMBDAS, "at least 3"),
    (BYTEWAX, LAMBDAS, "at least 3"),
    (ROWS, PLAIN, "at most 1"),
    (LAMBDAS, PLAIN, "at most 1"),
    (ACTORS, ROWS, ""),
    (ACTORS, COLUMNS, ""),
    (DUCKDB, COLUMNS, ""),
    (SPARK, COLUMNS, ""),
    (STREAMING, COLUMNS, ""),
    (RAY_DATA, COLUMNS, ""),
    (FLINK, COLUMNS, ""),
)


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured."""

    repetitions: int = 5
    lines: int = 500_000
    line_words: int = 10
    vocabulary: int = 50_000
    zipf: float = 1.2
    files: int = 8
    replicas: int = 2
    slow_repetitions: int = 5
    timeout_s: float = 120.0


FULL = Sizes()
QUICK = Sizes(repetitions=1, lines=5_000, vocabulary=500, slow_repetitions=1, timeout_s=60.0)


def folder_of(sizes: Sizes, root: Path = inputs.FOLDER) -> Path:
    """The text files."""
    return inputs.text_folder(sizes.lines, sizes.line_words, sizes.vocabulary, sizes.zipf, sizes.files, folder=root)


def rows(path: str) -> rd.Dataflow:
    """In Python records, with a built-in function where there is one."""
    flow = rd.Dataflow("wordcount-rows")
    flow.read_text(path).flat_map(str.split).key_by(lambda w: w).count().collect("counts")
    return flow


def lambdas(path: str) -> rd.Dataflow:
    """The same with a Python function for every step."""
    flow = rd.Dataflow("wordcount-lambdas")
    flow.read_text(path).flat_map(lambda line: line.split()).key_by(lambda w: w).count().collect("counts")
    return flow


def columns(path: str) -> rd.Dataflow:
    """In columns from the file to the result."""
    flow = rd.Dataflow("wordcount-columns")
    flow.read_text(path, columnar=True).map_batches(rd.columns.split_words("text")).key_by("word").count().collect("counts", columnar=True)
    return flow


PROGRAMS: dict[str, Callable[[str], rd.Dataflow]] = {COLUMNS: columns, ROWS: rows, LAMBDAS: lambdas}


def counts_of(result: Any) -> dict[str, int]:
    """Word to count, from either kind of result."""
    if isinstance(result, pa.Table):
        words, counts = (result.column(i).to_pylist() for i in range(2))
        return dict(zip(words, counts, strict=True))
    return dict(record for _, record in result)


def one(name: str, folder: str, replicas: int, **options: Any) -> dict[str, Any]:
    """One run of the program of that name over all files of the folder, to a dict of the counts."""
    done = timed(lambda: PROGRAMS[name](f"{folder}/*.txt"), lambda result: counts_of(result["counts"]), parallelism=replicas, **options)
    return {"seconds": done.seconds, "digest": inputs.count_digest(done.value.items()), "start_s": done.start_s}


def systems(sizes: Sizes, folder: Path, peers: tuple[str, ...] | None) -> list[System]:
    """All that are compared: Rayad's programs, and those of the chosen peers."""
    mine = [
        ours(name, "wordcount", {"name": name, "folder": str(folder), "replicas": sizes.replicas}, timeout_s=sizes.timeout_s)
        for name in PROGRAMS
    ]
    work, slow = {"folder": str(folder), "workers": sizes.replicas}, sizes.slow_repetitions

    def of(name: str, folder: str, most: int | None = None, *, on_ray: bool = False, script: str = "wordcount", **more: Any) -> System:
        return peer(name, folder, script, {**work, **more}, timeout_s=sizes.timeout_s, on_ray=on_ray, repetitions=most)

    theirs = [
        of(POLARS, "polars"),
        of(DUCKDB, "duckdb"),
        of(PLAIN, "plain"),
        of(ACTORS, "ray_actors", on_ray=True),
        of(BYTEWAX_THREADS, "bytewax", slow, processes=1),
        of(BYTEWAX, "bytewax", slow, processes=2),
        of(BYTEWAX_COMBINED, "bytewax", slow, processes=2, combine=True),
        of(PATHWAY_THREADS, "pathway", slow, processes=1),
        of(PATHWAY, "pathway", slow, processes=2),
        of(SPARK, "spark", slow),
        of(STREAMING, "spark", slow, script="wordcount_streaming"),
        of(FLINK, "pyflink", slow),
        of(RAY_DATA, "ray_data", slow, on_ray=True),
    ]
    return chosen(mine + theirs, peers)


def run(sizes: Sizes, peers: tuple[str, ...] | None = None) -> Measurement:
    """All in turn, several times."""
    out = Measurement("wordcount", TITLE, asdict(sizes))
    folder = folder_of(sizes)
    what = "every system counted every word alike, and as it was written"
    compare(out, systems(sizes, folder, peers), repetitions=sizes.repetitions, wanted=inputs.digest_of(folder), what=what)
    out.ratios = ratios_of(out, AIMS)
    out.notes.append(
        f"Ray's workers, Rayad's driver and all peers run at nice {WORKER_NICE}, the main processes of the peers that are made of Ray "
        f"workers at {os.nice(0)}. Slow systems are given {sizes.timeout_s:.0f} s."
    )
    return out
