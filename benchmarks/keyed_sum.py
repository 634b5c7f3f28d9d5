"""Sum of a value for each key, in columns read from Parquet files, beside the alternatives; few keys and many.

Two sizes. The large one is for systems that work in columns: all read the same Parquet files and give two arrays of numbers. The small
one is for systems that handle each row by itself, each compared with the same method in Rayad: Python rows from Parquet (Bytewax), columns
that are summed a batch at a time (Bytewax with pyarrow), CSV (Pathway has no Parquet reader); all give a Python dict. A digest shows that
the results agree; the clock is that of :mod:`benchmarks.clock`. (`columns` measures the same without reading files.)
"""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pyarrow as pa

import rayad as rd
from benchmarks import inputs
from benchmarks.clock import timed
from benchmarks.machine import WORKER_NICE
from benchmarks.measurement import Measurement
from benchmarks.side_by_side import System, chosen, compare, ours, peer, ratios_of

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
COLUMNS, CSV, ROWS = "Rayad", "Rayad, from CSV", "Rayad, Python rows"
BY_ROW = (
    # peer's folder, name of its series, processes, whether batches are summed first, and what of ours does the same
    ("pathway", "Pathway, from CSV, 2 threads", 1, False, CSV),
    ("pathway", "Pathway, from CSV, 2 processes", 2, False, CSV),
    ("bytewax", "Bytewax, Python rows, 2 workers", 1, False, ROWS),
    ("bytewax", "Bytewax, Python rows, 2 processes", 2, False, ROWS),
    ("bytewax", "Bytewax, batches summed first, 2 processes", 2, True, COLUMNS),
)


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured."""

    repetitions: int = 3
    rows: int = 10_000_000
    keys: tuple[int, ...] = (1_000, 100_000, 1_000_000)
    spread_keys: tuple[int, ...] = (100_000,)
    """The number of keys that are far apart, so that they cannot be array indexes."""
    small_rows: int = 1_000_000
    small_keys: tuple[int, ...] = (1_000, 100_000)
    files: int = 8
    replicas: int = 2
    timeout_s: float = 120.0


FULL = Sizes()
QUICK = Sizes(repetitions=1, rows=50_000, keys=(10_000,), spread_keys=(1_000,), small_rows=5_000, small_keys=(100,), timeout_s=60.0)


def columns(folder: str) -> rd.Dataflow:
    """From Parquet files to one table of sums."""
    flow = rd.Dataflow("keyed-sum")
    flow.read_parquet(f"{folder}/*.parquet").key_by("key").sum("value", name="sum").collect("sums", columnar=True)
    return flow


def from_csv(folder: str) -> rd.Dataflow:
    """The same from CSV files."""
    flow = rd.Dataflow("keyed-sum-csv")
    flow.read_csv(f"{folder}/*.csv").key_by("key").sum("value", name="sum").collect("sums", columnar=True)
    return flow


def rows(folder: str) -> rd.Dataflow:
    """The same with a Python record for each row."""
    flow = rd.Dataflow("keyed-sum-rows")
    records = flow.read_parquet(f"{folder}/*.parquet").map(lambda row: (row["key"], row["value"]))
    records.key_by(lambda row: row[0]).sum(lambda row: row[1], name="sum").collect("sums")
    return flow


PROGRAMS = {COLUMNS: columns, CSV: from_csv, ROWS: rows}


def arrays_of(sums: Any) -> tuple[np.ndarray, np.ndarray]:
    """Keys and totals of a table."""
    return sums.column(0).to_numpy(), sums.column(1).to_numpy()


def dict_of(sums: Any) -> dict[int, int]:
    """Key to total, from either kind of result."""
    if isinstance(sums, pa.Table):
        return dict(zip(*(column.to_pylist() for column in sums.columns), strict=True))
    return dict(record for _, record in sums)


def one(name: str, folder: str, replicas: int, as_dict: bool = False, **options: Any) -> dict[str, Any]:
    """One run over all files of the folder, to two arrays or to a dict."""
    form = dict_of if as_dict else arrays_of
    done = timed(lambda: PROGRAMS[name](folder), lambda result: form(result["sums"]), parallelism=replicas, **options)
    keys, totals = (np.array(list(side)) for side in (done.value, done.value.values())) if as_dict else done.value
    return {"seconds": done.seconds, "digest": inputs.sum_digest(keys, totals), "start_s": done.start_s}


def named(name: str, rows: int, keys: int, spread: bool = False) -> str:
    """The series of a system at one size."""
    return f"{name}: {rows:,} rows, {keys:,} keys{' far apart' if spread else ''}"


def columnar(sizes: Sizes, keys: int, spread: bool = False) -> list[System]:
    """The systems that work in columns, at the large size."""
    folder = inputs.keyed_folder(sizes.rows, keys, sizes.files, spread=spread)
    work = {"folder": str(folder), "workers": sizes.replicas}
    mine = {"name": COLUMNS, "folder": str(folder), "replicas": sizes.replicas}
    return [ours(named(COLUMNS, sizes.rows, keys, spread), "keyed_sum", mine, timeout_s=sizes.timeout_s)] + [
        peer(named(name, sizes.rows, keys, spread), kind, "keyed_sum", work, timeout_s=sizes.timeout_s, on_ray=on_ray)
        for kind, name, on_ray in COLUMNAR
    ]


def by_row(sizes: Sizes, keys: int) -> list[System]:
    """The systems that handle each row by itself, at the small size, and our programs that do the same."""
    folders = {csv: str(inputs.keyed_folder(sizes.small_rows, keys, sizes.files, csv=csv)) for csv in (False, True)}
    out = []
    for name in PROGRAMS:
        mine = {"name": name, "folder": folders[name == CSV], "replicas": sizes.replicas, "as_dict": True}
        out.append(ours(named(name, sizes.small_rows, keys), "keyed_sum", mine, timeout_s=sizes.timeout_s))
    for kind, name, processes, combine, beside in BY_ROW:
        work = {"folder": folders[beside == CSV], "workers": sizes.replicas, "processes": processes, "combine": combine}
        out.append(peer(named(name, sizes.small_rows, keys), kind, "keyed_sum", work, timeout_s=sizes.timeout_s))
    return out


def large(sizes: Sizes) -> list[tuple[int, bool]]:
    """Number of keys, and whether they are far apart, of each input of the large size."""
    return [(keys, False) for keys in sizes.keys] + [(keys, True) for keys in sizes.spread_keys]


def aims(sizes: Sizes) -> list[tuple[str, str, str]]:
    """All ratios."""
    out = []
    for keys, spread in large(sizes):
        mine = named(COLUMNS, sizes.rows, keys, spread)
        theirs = {kind: named(name, sizes.rows, keys, spread) for kind, name, _ in COLUMNAR}
        out += [(mine, theirs["pyarrow"], "at most 2"), (mine, theirs["polars"], "at most 2"), (mine, theirs["duckdb"], "")]
        out += [(theirs["spark"], mine, "at least 5"), (theirs["ray_data"], mine, "at least 5")]
    for keys in sizes.small_keys:
        for _, name, _, combine, beside in BY_ROW:
            aim = "" if combine else "at least 5"
            out.append((named(name, sizes.small_rows, keys), named(beside, sizes.small_rows, keys), aim))
    for few, many in zip(sizes.keys, sizes.keys[1:], strict=False):
        out.append((named(COLUMNS, sizes.rows, many), named(COLUMNS, sizes.rows, few), ""))
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
        f"Ray's workers, Rayad's driver and all peers run at nice {WORKER_NICE}, Ray Data's main process at {os.nice(0)}. "
        f"Slow systems are given {sizes.timeout_s:.0f} s. Large sizes end in two arrays of numbers, small ones in a Python dict."
    )
    return out
