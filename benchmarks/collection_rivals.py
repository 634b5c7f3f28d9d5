"""A table that follows each change of a join, beside Pathway: `python -m benchmarks.collection_rivals [--peer none]`.

Orders of customers are loaded, then come epochs of changes, of which half are removals of what is there; what follows is the amount by
country, through a join and a sum. Rayad in rows and in columns, and Pathway in an environment of its own (`benchmarks/peers/pathway`,
made when it is first needed; what gives no figure is said). All run with one worker, one after another, and all must have the same table
at the end. Printed are the seconds of all of it, loading included. Rayad is given one epoch when the result of the one before is there,
and of it the microseconds a change after loading are printed, too; Pathway is given all at once, as Python rows.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import rayad as rd
from benchmarks.peer_environments import NoFigure, run_peer

COUNTRIES = 200
Figures = tuple[float, float | None, list[Any]]
"""Seconds of all, and of the changes after loading where they are told; the table at the end."""


def made(orders: int, customers: int, epochs: int, changes: int) -> tuple[pa.Table, pa.Table]:
    """Changes of orders and of customers, with the epoch and the weight of each; customers are there from the first epoch on."""
    chance = np.random.default_rng(3)
    there = np.stack([np.arange(orders), chance.integers(0, customers, orders), chance.integers(1, 1000, orders)], axis=1)
    parts = [(there.copy(), 0, 1)]
    for epoch in range(1, epochs + 1):
        some = chance.choice(len(there), changes // 2, replace=False)
        parts.append((there[some].copy(), epoch, -1))
        there[some, 1:] = np.stack([chance.integers(0, customers, len(some)), chance.integers(1, 1000, len(some))], axis=1)
        parts.append((there[some].copy(), epoch, 1))
    values = np.concatenate([part for part, _, _ in parts])
    times, diffs = (np.concatenate([np.full(len(part[0]), part[of]) for part in parts]) for of in (1, 2))
    of_orders = pa.table({"order": values[:, 0], "customer": values[:, 1], "amount": values[:, 2], "time": times, "diff": diffs})
    numbers = np.arange(customers)
    nothing = np.zeros(customers, np.int64)
    return of_orders, pa.table({"number": numbers, "country": numbers % COUNTRIES, "time": nothing, "diff": nothing + 1})


def ours(orders: pa.Table, customers: pa.Table, epochs: int, form: str) -> Figures:
    """Rayad, in rows or in columns."""
    flow = rd.Dataflow(f"rivals-{form}")
    left, right = (flow.input(name).as_collection(diff="diff", checked=False) for name in ("orders", "customers"))
    met = left.key_by("customer").join(right.key_by("number"))
    met = met.select({"country": rd.col("1", "1", "country"), "amount": rd.col("1", "0", "amount")})
    met.key_by("country").sum("amount").changes().probe("seen").collect("out")
    return _fed(flow, orders, customers, epochs, form, list)


def _fed(flow: rd.Dataflow, orders: pa.Table, customers: pa.Table, epochs: int, form: str, pair: Callable[[Any], list[Any]]) -> Figures:
    """Each epoch when the result of the one before is there."""
    job = flow.submit(runtime="local", parallelism=1)
    given = [(job.input("orders"), _by_epoch(orders, epochs)), (job.input("customers"), _by_epoch(customers, epochs))]
    ended = [time.perf_counter()]
    for epoch in range(epochs + 1):
        for one, parts in given:
            if parts[epoch].num_rows:
                one.send(parts[epoch] if form == "columns" else parts[epoch].to_pylist())
            one.advance_to(epoch + 1)
        job.probe("seen").wait(epoch)
        ended.append(time.perf_counter())
    for one, _ in given:
        one.close()
    table: Counter[Any] = Counter()
    for _, (record, weight) in job.wait()["out"]:
        table[record] += weight
    return ended[-1] - ended[0], ended[-1] - ended[1], sorted(pair(record) for record, weight in table.items() if weight)


def by_sql(orders: pa.Table, customers: pa.Table, epochs: int) -> Figures:
    """The same as a query."""
    query = "select country, sum(amount) as total from orders join customers on customer = number group by country"
    flow = rd.Dataflow("rivals-sql")
    made = {}
    for name, table in (("orders", orders), ("customers", customers)):
        schema = pa.schema([field for field in table.schema if field.name not in ("time", "diff")])
        made[name] = flow.input(name).as_collection(diff="diff", checked=False).with_schema(schema)
    flow.sql(query, **made).changes().probe("seen").collect("out")
    return _fed(flow, orders, customers, epochs, "columns", lambda record: [record["country"], record["total"]])


def _by_epoch(table: pa.Table, epochs: int) -> list[pa.RecordBatch]:
    times = table.column("time").to_numpy()
    bounds = np.searchsorted(times, np.arange(epochs + 2))
    plain = table.drop_columns(["time"]).combine_chunks().to_batches()[0]
    return [plain.slice(low, high - low) for low, high in itertools.pairwise(bounds)]


def pathway(orders: pa.Table, customers: pa.Table) -> Figures:
    """Pathway. Raises NoFigure."""
    with tempfile.TemporaryDirectory() as folder:
        paths = {name: str(Path(folder) / f"{name}.parquet") for name in ("orders", "customers")}
        for name, table in (("orders", orders), ("customers", customers)):
            pq.write_table(table, paths[name])
        done = run_peer("pathway", "changes", {**paths, "workers": 1}, timeout_s=600)
    return done.seconds, None, [list(pair) for pair in done.digest]


def main() -> None:
    """Measure and print."""
    asked = argparse.ArgumentParser(description="A table that follows each change of a join")
    for name, default in (("orders", 200_000), ("customers", 20_000), ("epochs", 20), ("changes", 10_000), ("repetitions", 3)):
        asked.add_argument(f"--{name}", type=int, default=default)
    asked.add_argument("--peer", choices=["pathway", "none"], default="pathway")
    given = asked.parse_args()
    orders, customers = made(given.orders, given.customers, given.epochs, given.changes)
    systems: dict[str, Callable[[], Figures]] = {
        "rayad, columns": lambda: ours(orders, customers, given.epochs, "columns"),
        "rayad, sql": lambda: by_sql(orders, customers, given.epochs),
        "rayad, rows": lambda: ours(orders, customers, given.epochs, "rows"),
    }
    if given.peer != "none":
        systems["pathway"] = lambda: pathway(orders, customers)
    found: dict[str, list[Figures]] = {name: [] for name in systems}
    for _ in range(given.repetitions):
        for name, system in systems.items():
            try:
                found[name].append(system())
            except NoFigure as error:
                print(f"  {name}: no figure: {error}")
    tables = [figures[2] for each in found.values() for figures in each]
    if any(table != tables[0] for table in tables):
        raise SystemExit("the systems end in different tables")
    print(
        f"{given.orders:,} orders, {given.customers:,} customers, {given.epochs} epochs of {given.changes:,} changes; the same table in all"
    )
    for name, each in found.items():
        if each:
            changed = [figures[1] for figures in each if figures[1] is not None]
            of_one = f", a change {statistics.median(changed) / given.epochs / given.changes * 1e6:7.2f} us" if changed else ""
            print(f"  {name:16} {statistics.median(figures[0] for figures in each):6.2f} s in all{of_one}")


if __name__ == "__main__":
    main()
