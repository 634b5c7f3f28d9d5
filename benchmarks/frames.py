"""What a result costs whoever wants it as a data frame: the batches as they came, beside a tuple for each row, and Parquet out and back.

A program that does nothing but collect a table of three columns, in the local runtime. Each way runs in a process of its own, so that its
peak of memory is its own; what is timed is the run and what follows until the frame is there.
"""

from __future__ import annotations

import multiprocessing
import resource
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

import rayad as rd
from benchmarks.measurement import Measurement, Ratio

TITLE = "A result as a data frame"
NEEDS_RAY = False
CHILD_S = 300.0
"""How long one way may take."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured."""

    repetitions: int = 7
    rows: int = 1_000_000


FULL = Sizes()
QUICK = Sizes(repetitions=1, rows=1_000)


def table_of(rows: int) -> pa.Table:
    """Whole numbers, floats and short texts."""
    numbers = pa.array(range(rows), pa.int64())
    return pa.table({"n": numbers, "x": pc.divide(pc.cast(numbers, pa.float64()), 8.0), "s": pc.cast(pc.multiply(numbers, 7), pa.string())})


def program(rows: int) -> tuple[rd.Dataflow, rd.Stream]:
    """A source; what follows is the way out."""
    flow = rd.Dataflow("frames")
    return flow, flow.from_arrow(table_of(rows))


def _collected(rows: int) -> tuple[float, Any]:
    flow, stream = program(rows)
    stream.collect("x")
    began_s = time.perf_counter()
    return began_s, flow.run(runtime="local")["x"]


def by_tuples(rows: int) -> tuple[float, int]:
    """A tuple for each row, as a list of results was until there were others; then pandas."""
    began_s, found = _collected(rows)
    pairs = list(found)
    frame = pd.DataFrame([record for _, record in pairs])
    return time.perf_counter() - began_s, int(frame["n"].sum())


def tuples_alone(rows: int) -> tuple[float, int]:
    """A tuple for each row and nothing else."""
    began_s, found = _collected(rows)
    pairs = list(found)
    return time.perf_counter() - began_s, sum(record["n"] for _, record in pairs)


def by_arrow(rows: int) -> tuple[float, int]:
    """``to_arrow``."""
    began_s, found = _collected(rows)
    table = found.to_arrow()
    return time.perf_counter() - began_s, pc.sum(table["n"]).as_py()


def by_pandas(rows: int) -> tuple[float, int]:
    """``to_pandas``."""
    began_s, found = _collected(rows)
    frame = found.to_pandas()
    return time.perf_counter() - began_s, int(frame["n"].sum())


def by_polars(rows: int) -> tuple[float, int]:
    """``to_polars``."""
    began_s, found = _collected(rows)
    frame = found.to_polars()
    return time.perf_counter() - began_s, frame["n"].sum()


def by_parquet(rows: int) -> tuple[float, int]:
    """``write_parquet``, and pandas from the committed files."""
    flow, stream = program(rows)
    with tempfile.TemporaryDirectory(prefix="frames-") as folder:
        stream.write_parquet(folder, name="x")
        began_s = time.perf_counter()
        flow.run(runtime="local")
        frame = rd.read_committed(folder).to_table().to_pandas()
        return time.perf_counter() - began_s, int(frame["n"].sum())


WAYS: dict[str, Callable[[int], tuple[float, int]]] = {
    "a tuple for each row": tuples_alone,
    "pandas by tuples": by_tuples,
    "pandas by Parquet": by_parquet,
    "to_pandas()": by_pandas,
    "to_polars()": by_polars,
    "to_arrow()": by_arrow,
}


def _peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def one(way: str, rows: int) -> tuple[float, float, int]:
    """Seconds, the growth of the peak of memory in MB, and the sum of a column; for a fresh process."""
    WAYS[way](10)  # what is imported once
    before_mb = _peak_mb()
    seconds, total = WAYS[way](rows)
    return seconds, _peak_mb() - before_mb, total


def run(sizes: Sizes) -> Measurement:
    """All ways in turn, in the other order each time."""
    out = Measurement("frames", TITLE, asdict(sizes))
    seconds = {way: out.new_series(way, "s", "0") for way in WAYS}
    peaks = {way: out.new_series(f"{way}, memory", "MB", "0") for way in WAYS}
    for repetition in range(sizes.repetitions):
        for way in WAYS if repetition % 2 == 0 else reversed(WAYS):
            with multiprocessing.get_context("spawn").Pool(1) as child:
                taken_s, peak_mb, total = child.apply_async(one, (way, sizes.rows)).get(timeout=CHILD_S)
            seconds[way].add(taken_s)
            peaks[way].add(peak_mb)
            out.check("every way has all rows", total, sizes.rows * (sizes.rows - 1) // 2)
    out.ratios = [
        Ratio("to_pandas()", "pandas by tuples", "< 0.5"),
        Ratio("to_pandas()", "pandas by Parquet", "< 1"),
        Ratio("to_pandas(), memory", "a tuple for each row, memory"),
    ]
    return out
