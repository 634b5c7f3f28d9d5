"""What it costs that a stream's columns are known: the same program behind a source that tells its schema, and behind one that does not.

Many small batches, where whatever is done for each batch weighs most: filters, a new column, a union of unlike types, keyed sums of each
epoch and ``as_columns``. Behind the source that tells nothing no schema is derived, nothing is checked, and nothing is cast. Two things are
timed, in turn, in one process without Ray: writing the program, and running it.

And what it costs that ``map(schema=)`` says the columns behind a function: sums of each epoch of small batches and of large ones, beside
the same ``map`` without, behind which records stay rows.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import rayad as rd
from benchmarks.measurement import Measurement, Ratio
from rayad.integrations import ArrowSource

TITLE = "What a known schema costs"
NEEDS_RAY = False


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured."""

    repetitions: int = 41
    epochs: int = 150
    batch_rows: int = 16
    keys: int = 4
    programs: int = 5
    large_epochs: int = 4
    large_rows: int = 20_000


FULL = Sizes()
QUICK = Sizes(repetitions=1, epochs=5, programs=1, large_epochs=2, large_rows=50)


class Untold(ArrowSource):
    """The same records, of which nothing is known when the program is written."""

    schema = None


def table_of(sizes: Sizes) -> pa.Table:
    """An epoch, a key and a value for each row."""
    rows = sizes.epochs * sizes.batch_rows
    rng = np.random.default_rng(1)
    return pa.table({"e": np.arange(rows) // sizes.batch_rows, "k": rng.integers(0, sizes.keys, rows), "v": rng.integers(0, 1000, rows)})


def program(source: Callable[..., ArrowSource], table: pa.Table) -> rd.Dataflow:
    """Steps that stay in columns, one of each kind."""
    flow = rd.Dataflow("schemas")
    read = flow.source(source(table, epoch="e"), name="read")
    some = read.filter(pc.field("v") >= 10).with_columns({"w": pc.field("v") * 2}).rename({"k": "key"})
    both = some.union(some.filter(pc.field("w") > 900)).select("key", "w")
    sums = both.key_by("key").per_epoch().sum("w", name="sums").as_columns()
    sums.filter(pc.field("sum(w)") > 0).key_by("key").sum("sum(w)", name="all").as_columns("key", "sum").collect("out", columnar=True)
    return flow


def spent_s(work: Callable[[], Any]) -> tuple[float, Any]:
    """Processor seconds, and what came out."""
    began = time.process_time()
    found = work()
    return time.process_time() - began, found


def totals(flow: rd.Dataflow) -> list[tuple[int, int]]:
    """The last sum of each key."""
    out = flow.run(runtime="local")["out"]
    return sorted(dict(zip(out["key"].to_pylist(), out["sum"].to_pylist(), strict=True)).items())


SAID = pa.schema({"k": pa.int64(), "v": pa.float64(), "name": pa.string()})


def record(number: int) -> dict[str, Any]:
    """A record of three fields."""
    return {"k": number % 4, "v": number / 2, "name": "x"}


def behind_a_function(schema: pa.Schema | None, epochs: list[list[int]]) -> list[Any]:
    """The sums of each epoch, of records that a function makes."""
    flow = rd.Dataflow("function")
    made = flow.from_epochs(epochs).map(record, schema=schema)
    made.key_by("k").per_epoch().sum("v", name="sums").collect("out")
    return sorted(found for _, found in flow.run(runtime="local")["out"])


def run(sizes: Sizes) -> Measurement:
    """Both sources in turn, in the other order each time."""
    out = Measurement("schemas", TITLE, asdict(sizes))
    table = table_of(sizes)
    sources: list[tuple[str, Callable[..., ArrowSource]]] = [("known", ArrowSource), ("not known", Untold)]
    totals(program(ArrowSource, table))  # what is imported and compiled once
    wanted = totals(program(Untold, table))
    written = {name: out.new_series(f"writing the program, {name}", "ms", "0") for name, _ in sources}
    ran = {name: out.new_series(f"running it, {name}", "us/batch", "0") for name, _ in sources}
    for repetition in range(sizes.repetitions):
        for name, source in sources if repetition % 2 == 0 else reversed(sources):
            seconds, flows = spent_s(lambda source=source: [program(source, table) for _ in range(sizes.programs)])  # type: ignore[misc]
            written[name].add(1e3 * seconds / sizes.programs)
            seconds, found = spent_s(lambda flow=flows[0]: totals(flow))  # type: ignore[misc]
            ran[name].add(1e6 * seconds / sizes.epochs)
            out.check("both give the same sums", found, wanted)
    out.ratios = [Ratio(f"{what}, known", f"{what}, not known") for what in ("running it", "writing the program")]
    for size, epochs, rows in (("small", sizes.epochs, sizes.batch_rows), ("large", sizes.large_epochs, sizes.large_rows)):
        numbers = [list(range(at * rows, (at + 1) * rows)) for at in range(epochs)]
        unit, factor = ("us/batch", 1e6 / epochs) if size == "small" else ("ns/record", 1e9 / (epochs * rows))
        ways = [("map(schema=)", SAID), ("map", None)]
        series = {way: out.new_series(f"{size} batches, {way}", unit, "0") for way, _ in ways}
        first = behind_a_function(None, numbers)
        for repetition in range(sizes.repetitions):
            for way, schema in ways if repetition % 2 == 0 else reversed(ways):
                seconds, sums = spent_s(lambda schema=schema, numbers=numbers: behind_a_function(schema, numbers))  # type: ignore[misc]
                series[way].add(factor * seconds)
                out.check("rows and columns give the same sums of epochs", sums, first)
        out.ratios.append(Ratio(f"{size} batches, map(schema=)", f"{size} batches, map"))
    return out
