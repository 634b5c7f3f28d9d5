"""Nexmark queries 1, 2, 3, 4, 5, 7 and 8 over columns read from Parquet files, beside engines for batches and for streams.

Two sizes. The large one is for systems that work in columns and give an Arrow table (Spark: a table by ``toPandas``). The small one is
for Bytewax, which handles each record by itself and gives Python rows; Rayad runs it with rows and with columns. Rayad runs each query
as a stream, epoch by epoch, and updates its results with each; Polars, DuckDB and Spark see all of the input at once.
A digest shows that all results are equal. The results of queries 1 and 2 are as long as their input, so these end in sums of their columns.
The clock is that of :mod:`benchmarks.clock`.
"""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks import nexmark_data, nexmark_queries
from benchmarks.clock import timed
from benchmarks.machine import WORKER_NICE
from benchmarks.measurement import Measurement
from benchmarks.side_by_side import System, chosen, compare, ours, peer, ratios_of

TITLE = "Nexmark: windows and joins over an auction's events"
NEEDS_RAY = True
BATCH = (("polars", "Polars"), ("duckdb", "DuckDB"), ("spark", "Spark batch, local[2]"))
BY_RECORD = (("bytewax", "Bytewax, 2 workers", 1), ("bytewax", "Bytewax, 2 processes", 2))
BY_RECORD_QUERIES = tuple(nexmark_queries.ROW_QUERIES)
COLUMNS, ROWS, ALONE = "Rayad", "Rayad, Python rows", "Rayad, one process"
HEAVY = frozenset({4, 5, 7})
"""The queries that take one process half a second or more."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured; ``epochs`` of the large and of the small input."""

    repetitions: int = 3
    events: int = 10_000_000
    epochs: int = 20
    small_events: int = 300_000
    small_epochs: int = 6
    queries: tuple[int, ...] = tuple(nexmark_queries.QUERIES)
    replicas: int = 2
    timeout_s: float = 120.0


FULL = Sizes()
QUICK = Sizes(repetitions=1, events=40_000, epochs=4, small_events=10_000, small_epochs=2, queries=(4, 5), timeout_s=60.0)


def folders_of(sizes: Sizes) -> tuple[Path, Path]:
    """The large and the small input."""
    large = nexmark_data.Events(events=sizes.events, epochs=sizes.epochs)
    small = nexmark_data.Events(events=sizes.small_events, epochs=sizes.small_epochs)
    return nexmark_data.folder_of(large), nexmark_data.folder_of(small)


def one(query: int, folder: str, replicas: int, rows: bool = False, as_rows: bool = False, **options: Any) -> dict[str, Any]:
    """One run of one query, over columns or over Python rows; ``as_rows``: to a list of Python rows."""
    done = timed(
        lambda: nexmark_queries.program(query, Path(folder), rows=rows),
        lambda result: nexmark_queries.form_of(query, result["out"], as_rows=as_rows),
        parallelism=replicas,
        **options,
    )
    return {"seconds": done.seconds, "digest": nexmark_queries.digest_of(query, done.value), "start_s": done.start_s}


def named(name: str, query: int, events: int) -> str:
    """The series of a system."""
    return f"{name}: query {query}, {events:,} events"


def batch(sizes: Sizes, query: int, folder: Path) -> list[System]:
    """The systems that work in columns, at the large size."""
    work = {"folder": str(folder), "workers": sizes.replicas, "query": query}
    mine = {"query": query, "folder": str(folder), "replicas": sizes.replicas}
    alone = {**mine, "replicas": 1, "runtime": "local"}
    both = ((COLUMNS, mine), (ALONE, alone))
    first = [ours(named(name, query, sizes.events), "nexmark", arguments, timeout_s=sizes.timeout_s) for name, arguments in both]
    return first + [peer(named(name, query, sizes.events), kind, "nexmark", work, timeout_s=sizes.timeout_s) for kind, name in BATCH]


def by_record(sizes: Sizes, query: int, folder: Path) -> list[System]:
    """The systems that handle each record by itself, at the small size."""
    events = sizes.small_events
    mine = {"query": query, "folder": str(folder), "replicas": sizes.replicas, "as_rows": True}
    out = [
        ours(named(name, query, events), "nexmark", {**mine, "rows": name == ROWS}, timeout_s=sizes.timeout_s) for name in (COLUMNS, ROWS)
    ]
    for kind, name, processes in BY_RECORD:
        work = {"folder": str(folder), "workers": sizes.replicas, "processes": processes, "query": query}
        out.append(peer(named(name, query, events), kind, "nexmark", work, timeout_s=sizes.timeout_s))
    return out


def aims(sizes: Sizes) -> list[tuple[str, str, str]]:
    """All ratios."""
    out = []
    for query in sizes.queries:
        mine = named(COLUMNS, query, sizes.events)
        out.append((named(ALONE, query, sizes.events), mine, "at least 1.6" if query in HEAVY else "at least 1"))
        out += [(mine, named(name, query, sizes.events), "at most 3") for name in ("Polars", "DuckDB")]
        out.append((named("Spark batch, local[2]", query, sizes.events), mine, "at least 10"))
    for query in sizes.queries:
        if query in BY_RECORD_QUERIES:
            for beside, aim in ((ROWS, "at least 3"), (COLUMNS, "")):
                mine = named(beside, query, sizes.small_events)
                out += [(named(name, query, sizes.small_events), mine, aim) for _, name, _ in BY_RECORD]
    return out


def run(sizes: Sizes, peers: tuple[str, ...] | None = None) -> Measurement:
    """Each query by itself, all systems in turn."""
    out = Measurement("nexmark", TITLE, asdict(sizes))
    large, small = folders_of(sizes)
    groups = [batch(sizes, query, large) for query in sizes.queries]
    groups += [by_record(sizes, query, small) for query in sizes.queries if query in BY_RECORD_QUERIES]
    for systems in groups:
        compare(out, chosen(systems, peers), repetitions=sizes.repetitions, what="every system gave the same result of each query")
    out.ratios = ratios_of(out, aims(sizes))
    out.notes.append(
        f"Ray's workers, Rayad's driver and all peers run at nice {WORKER_NICE}, Ray's daemons at {os.nice(0)}. "
        "Events of 10,000 a second; windows of ten seconds, in query 5 every two seconds. Rayad and Bytewax "
        "compute as streams; the others have the whole input at once."
    )
    return out
