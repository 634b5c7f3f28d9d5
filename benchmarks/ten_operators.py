"""Ten operators over Parquet files that never leave columns, beside the same query in Polars and DuckDB, which see it whole.

A filter, two new columns, a new name, two more filters, a projection and so on, then a sum for each key. Polars and DuckDB reorder and
merge the steps and drop columns that nobody reads; Rayad runs each as it was written, one batch after the other, and would go on if more
came. The small size shows what leaving columns costs: the same ten steps as functions of Python rows.

A second program has steps with state that no engine can reorder away: the distinct values of each group, and of them the ten largest.
"""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq

import rayad as rd
from benchmarks import inputs, keyed_sum
from benchmarks.clock import timed
from benchmarks.machine import WORKER_NICE
from benchmarks.measurement import Measurement
from benchmarks.side_by_side import System, chosen, compare, ours, peer, ratios_of

TITLE = "Ten operators that stay in columns"
NEEDS_RAY = True
COLUMNS, ROWS, RANKED = "Rayad, columns", "Rayad, Python rows", "Rayad, distinct and top_k"
PEERS = (("polars", "Polars"), ("duckdb", "DuckDB"))


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured."""

    repetitions: int = 3
    rows: int = 10_000_000
    small_rows: int = 1_000_000
    keys: int = 100_000
    files: int = 8
    replicas: int = 2
    timeout_s: float = 120.0


FULL = Sizes()
QUICK = Sizes(repetitions=1, rows=50_000, small_rows=5_000, keys=1_000, timeout_s=60.0)


def columns(folder: str) -> rd.Dataflow:
    """The program, in expressions."""
    flow = rd.Dataflow("ten-operators")
    value = pc.field("value")
    odd = pc.equal(pc.bit_wise_and(value, 1), 1)
    priced = flow.read_parquet(f"{folder}/*.parquet").filter(value >= 100).with_columns({"cents": value * 100, "odd": odd})
    chosen_rows = priced.rename({"key": "who"}).filter(pc.field("odd")).drop("odd", "value")
    grouped = chosen_rows.with_columns({"group": pc.bit_wise_and(pc.field("who"), 1023), "net": pc.field("cents") - 7})
    named = grouped.select("group", "net").filter(pc.field("net") < 100_000).rename({"group": "g"})
    named.key_by("g").sum("net", name="sum").collect("sums", columnar=True)
    return flow


def rows(folder: str) -> rd.Dataflow:
    """The same, in functions of rows."""
    flow = rd.Dataflow("ten-operators-rows")
    read = flow.read_parquet(f"{folder}/*.parquet").filter(lambda row: row["value"] >= 100)
    priced = read.map(lambda row: {**row, "cents": row["value"] * 100, "odd": row["value"] & 1 == 1})
    named = priced.map(lambda row: {"who" if name == "key" else name: value for name, value in row.items()})
    some = named.filter(lambda row: row["odd"]).map(lambda row: {"who": row["who"], "cents": row["cents"]})
    grouped = some.map(lambda row: {**row, "group": row["who"] & 1023, "net": row["cents"] - 7})
    less = grouped.map(lambda row: {"group": row["group"], "net": row["net"]}).filter(lambda row: row["net"] < 100_000)
    less.map(lambda row: {"g": row["group"], "net": row["net"]}).key_by(lambda row: row["g"]).sum(lambda row: row["net"]).collect("sums")
    return flow


LIMIT, MOST = 900, 10


def ranked(folder: str) -> rd.Dataflow:
    """The ten largest of the distinct values of each group, in columns."""
    flow = rd.Dataflow("distinct-and-top-k")
    read = flow.read_parquet(f"{folder}/*.parquet").filter(pc.field("value") < LIMIT)
    grouped = read.select({"g": pc.bit_wise_and(pc.field("key"), 1023), "value": pc.field("value")})
    values = grouped.key_by("g").distinct("value", name="distinct").as_columns("g", "value")
    values.key_by("g").top_k(MOST, "value", name="top_k").collect("top", columnar=True)
    return flow


PROGRAMS = {COLUMNS: columns, ROWS: rows, RANKED: ranked}


def wanted_ranked(folder: Path) -> list[int]:
    """The digest of the right result of :func:`ranked`, by numpy."""
    table = pq.read_table(folder)
    keys, values = (table[name].to_numpy() for name in ("key", "value"))
    pairs = np.unique((keys[values < LIMIT] & 1023) * 1000 + values[values < LIMIT])
    groups, ordered = pairs // 1000, pairs % 1000
    place = np.searchsorted(groups, groups, side="right") - np.arange(len(groups))  # from the largest on: 1, 2, ...
    kept = place <= MOST
    present = np.unique(groups)
    return inputs.sum_digest(present, np.bincount(groups[kept], ordered[kept] * place[kept], minlength=1024)[present].astype(np.int64))


def ranked_dict_of(result: Any) -> dict[int, int]:
    """By group the sum of its largest values, each times its place."""
    groups, tops = result["top"].columns
    return dict(zip(groups.to_pylist(), (sum(v * place for place, v in enumerate(top, 1)) for top in tops.to_pylist()), strict=True))


def wanted(folder: Path) -> list[int]:
    """The digest of the right result, by numpy."""
    table = pq.read_table(folder)
    keys, values = (table[name].to_numpy() for name in ("key", "value"))
    net = values * 100 - 7
    kept = (values >= 100) & (values % 2 == 1) & (net < 100_000)
    groups, totals = keys[kept] & 1023, net[kept]
    present = np.unique(groups)
    return inputs.sum_digest(present, np.bincount(groups, totals, minlength=1024)[present].astype(np.int64))


def one(name: str, folder: str, replicas: int, **options: Any) -> dict[str, Any]:
    """One run over all files of the folder, to the sums by key."""
    taken = ranked_dict_of if name == RANKED else (lambda result: keyed_sum.dict_of(result["sums"]))
    done = timed(lambda: PROGRAMS[name](folder), taken, parallelism=replicas, **options)
    keys, totals = (np.array(list(side)) for side in (done.value, done.value.values()))
    return {"seconds": done.seconds, "digest": inputs.sum_digest(keys, totals), "start_s": done.start_s}


def named(name: str, count: int) -> str:
    """The series of a system at one size."""
    return f"{name}: {count:,} rows"


def mine(name: str, sizes: Sizes, count: int) -> System:
    """One of our programs."""
    folder = str(inputs.keyed_folder(count, sizes.keys, sizes.files))
    return ours(
        named(name, count), "ten_operators", {"name": name, "folder": folder, "replicas": sizes.replicas}, timeout_s=sizes.timeout_s
    )


def systems(sizes: Sizes) -> dict[int, list[System]]:
    """What runs at each size."""
    work = {"folder": str(inputs.keyed_folder(sizes.rows, sizes.keys, sizes.files))}
    peers = [peer(named(name, sizes.rows), folder, "ten_operators", work, timeout_s=sizes.timeout_s) for folder, name in PEERS]
    return {
        sizes.rows: [mine(COLUMNS, sizes, sizes.rows), *peers],
        sizes.small_rows: [mine(name, sizes, sizes.small_rows) for name in (COLUMNS, ROWS)],
    }


def ranking(sizes: Sizes) -> list[System]:
    """What runs the second program."""
    work = {"folder": str(inputs.keyed_folder(sizes.rows, sizes.keys, sizes.files)), "limit": LIMIT, "most": MOST}
    polars = peer(named("Polars, distinct and top_k", sizes.rows), "polars", "distinct_top_k", work, timeout_s=sizes.timeout_s)
    return [mine(RANKED, sizes, sizes.rows), polars]


def run(sizes: Sizes, peers: tuple[str, ...] | None = None) -> Measurement:
    """Both sizes, all systems in turn."""
    out = Measurement("ten_operators", TITLE, asdict(sizes))
    for count, some in systems(sizes).items():
        right = wanted(inputs.keyed_folder(count, sizes.keys, sizes.files))
        what = "every system gave the same sums, and those that numpy gives"
        compare(out, chosen(some, peers), repetitions=sizes.repetitions, wanted=right, what=what)
    right = wanted_ranked(inputs.keyed_folder(sizes.rows, sizes.keys, sizes.files))
    compare(out, chosen(ranking(sizes), peers), repetitions=sizes.repetitions, wanted=right, what="both gave the values that numpy gives")
    aims = [(named(COLUMNS, sizes.rows), named(name, sizes.rows), "") for _, name in PEERS]
    aims.append((named(RANKED, sizes.rows), named("Polars, distinct and top_k", sizes.rows), ""))
    out.ratios = ratios_of(out, [*aims, (named(ROWS, sizes.small_rows), named(COLUMNS, sizes.small_rows), "")])
    out.notes.append(
        f"Ray's workers, Rayad's driver and all peers run at nice {WORKER_NICE}, this process at {os.nice(0)}. Polars and DuckDB use as "
        f"many threads as they like, Rayad {sizes.replicas} replicas of each vertex. All end in 1,024 sums."
    )
    return out
