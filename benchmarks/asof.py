"""As-of joins of two tables in memory: trades with the last price of their share, and with the nearest one, beside pandas and Polars.

One process; in CPU nanoseconds a trade, threads of Polars included. Rayad runs in its local runtime, with one replica, and gets both tables
in as many epochs as are named: it answers when the watermarks have passed, and would go on if more came. pandas and Polars see both tables
whole, and want them sorted by time, which is in their time. The small size shows what rows cost.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

import rayad as rd
from benchmarks.measurement import Measurement
from benchmarks.side_by_side import Outcome, System, compare, ratios_of

TITLE = "As-of joins"
NEEDS_RAY = False
DIRECTIONS = ("backward", "nearest")


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured."""

    repetitions: int = 3
    rows: int = 1_000_000
    small_rows: int = 50_000
    shares: int = 1_000
    epochs: int = 10


FULL = Sizes()
QUICK = Sizes(repetitions=1, rows=20_000, small_rows=2_000, shares=50)


def tables(rows: int, shares: int) -> tuple[pa.Table, pa.Table]:
    """Trades and as many prices, in the order of time; no two prices have one time, and no two are equally near to a trade, of which
    Polars would take the later one, and pandas the earlier one."""
    rng = np.random.default_rng(rows)
    sides = []
    for name, offset in (("trade", 1), ("price", 0)):
        at = 4 * np.sort(rng.choice(5 * rows, rows, replace=False)) + offset
        sides.append(pa.table({"share": rng.integers(0, shares, rows), "at": at, name: np.arange(rows)}))
    return sides[0], sides[1]


def digest(trades: Any, prices: Any) -> list[int]:
    """Of numbers of trades and of their prices, -1 for none."""
    trades, prices = (np.asarray(some, np.int64) for some in (trades, prices))
    return [len(trades), int((prices >= 0).sum()), int(((trades % 1009) * (prices + 1)).sum())]


def by_rayad(trades: pa.Table, prices: pa.Table, direction: Any, epochs: int, in_rows: bool) -> list[int]:
    """The program."""
    flow = rd.Dataflow("asof")
    sides = []
    for table in (trades, prices):
        size = -(-table.num_rows // epochs)
        parts = [table.slice(at, size).combine_chunks().to_batches()[0] for at in range(0, table.num_rows, size)]
        stream = flow.from_epochs([part.to_pylist() for part in parts] if in_rows else parts)
        sides.append(stream.assign_timestamps("at", max_delay=20 * size).key_by("share"))
    found: list[tuple[Any, Any]] = []

    def keep(batch: Any) -> list[Any]:
        if isinstance(batch, pa.RecordBatch):
            pairs = batch.column("pair").storage
            found.append(tuple(pairs.field(side).field(name) for side, name in enumerate(("trade", "price"))))
        else:
            found.append(([a["trade"] for _, (a, _) in batch], [-1 if b is None else b["price"] for _, (_, b) in batch]))
        return []

    sides[0].join_asof(sides[1], direction=direction).map_batches(keep).collect("nothing")
    flow.run(runtime="local", parallelism=1)
    joined = [np.concatenate([_numbers(pair[side]) for pair in found]) for side in (0, 1)]
    return digest(*joined)


def _numbers(column: Any) -> Any:
    return column.fill_null(-1).to_numpy(zero_copy_only=False) if isinstance(column, pa.Array) else np.array(column, np.int64)


def by_pandas(trades: pa.Table, prices: pa.Table, direction: Any) -> list[int]:
    """``merge_asof``."""
    import pandas as pd

    left, right = (table.to_pandas().sort_values("at") for table in (trades, prices))
    joined = pd.merge_asof(left, right, on="at", by="share", direction=direction)
    return digest(joined["trade"], joined["price"].fillna(-1))


def by_polars(trades: pa.Table, prices: pa.Table, direction: Any) -> list[int]:
    """``join_asof``."""
    import polars as pl

    left, right = (pl.DataFrame(pl.from_arrow(table)).sort("at") for table in (trades, prices))
    joined = left.join_asof(right, on="at", by="share", strategy=direction, check_sortedness=False)
    return digest(joined["trade"].to_numpy(), joined["price"].fill_null(-1).to_numpy())


def system(name: str, work: Callable[[], list[int]], rows: int) -> System:
    """CPU nanoseconds a trade."""

    def run() -> Outcome:
        began = time.process_time()
        done = work()
        return Outcome(1e9 * (time.process_time() - began) / rows, done)

    return System(name, run, "0")


def run(sizes: Sizes) -> Measurement:
    """Both directions, then rows."""
    out = Measurement("asof", TITLE, asdict(sizes))
    for work in (by_pandas, by_polars, partial(by_rayad, epochs=2, in_rows=False)):
        work(*tables(100, 10), "nearest")  # nobody measures imports
    both = tables(sizes.rows, sizes.shares)
    aims = []
    for direction in DIRECTIONS:
        names = {how: f"{how}, {direction}, {sizes.rows:,} trades" for how in ("Rayad, columns", "pandas", "Polars")}
        by_system: dict[str, Callable[[], list[int]]] = {
            "Rayad, columns": partial(by_rayad, *both, direction, sizes.epochs, False),
            "pandas": partial(by_pandas, *both, direction),
            "Polars": partial(by_polars, *both, direction),
        }
        systems = [system(names[how], by_system[how], sizes.rows) for how in names]
        compare(out, systems, repetitions=sizes.repetitions, unit="ns/row", what=f"all found the same prices, {direction}")
        aims += [(names["Rayad, columns"], names[how], "") for how in ("pandas", "Polars")]
    few = tables(sizes.small_rows, sizes.shares)
    kinds = {f"Rayad, {kind}, {sizes.small_rows:,} trades": kind == "rows" for kind in ("rows", "columns")}
    systems = [system(name, partial(by_rayad, *few, "backward", sizes.epochs, rows), sizes.small_rows) for name, rows in kinds.items()]
    compare(out, systems, repetitions=sizes.repetitions, unit="ns/row", what="rows and columns found the same prices")
    rows, columns = kinds
    out.ratios = ratios_of(out, [*aims, (rows, columns, "")])
    return out
