"""The tables that ``flights.py`` prints at its end, read back from the Parquet files that it wrote."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
from flights_data import names_of
from pyarrow import dataset
from rich import box
from rich.columns import Columns
from rich.console import Console
from rich.table import Table


def read_results(out: Path, schemas: dict[str, pa.Schema]) -> dict[str, pa.Table]:
    """All written results: a table for each folder, in order of days."""
    return {name: _read_folder(out / name, schema) for name, schema in schemas.items()}


def _read_folder(folder: Path, schema: pa.Schema) -> pa.Table:
    full = schema.append(pa.field("day", pa.int64()))
    files = sorted(str(path) for path in folder.glob("*.parquet"))
    return dataset.dataset(files, schema=full, format="parquet").to_table().sort_by("day") if files else full.empty_table()


def latest(table: pa.Table, key: list[str]) -> list[dict[str, Any]]:
    """The last record of each key: each day emits only what changed."""
    newest = {tuple(row[name] for name in key): row for row in table.to_pylist()}
    return list(newest.values())


def show_tables(console: Console, tables: dict[str, pa.Table]) -> None:
    """Print the most interesting records of each result."""
    airports = names_of("airports.csv", "faa", "name")
    airlines = names_of("airlines.csv", "carrier", "name")
    networks = latest(tables["networks"], ["carrier", "airport"])
    shown = [
        ranks_table(tables["pagerank"], airports),
        carriers_table(tables["carriers"], networks, airlines),
        routes_table(tables["routes"]),
        hours_table(tables["hours"]),
    ]
    console.print(Columns(shown, padding=(0, 2)))


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left", header_style="bold", border_style="dim", box=box.SIMPLE_HEAD)
    table.add_column(columns[0], no_wrap=True, max_width=22, overflow="ellipsis")
    for column in columns[1:]:
        table.add_column(column, justify="right", no_wrap=True)
    return table


def _minutes(value: float | None) -> str:
    return "" if value is None else f"{value:.1f}"


def ranks_table(ranks: pa.Table, airports: dict[str, str]) -> Table:
    """The most central airports of the route network."""
    rows = sorted(latest(ranks, ["airport"]), key=lambda row: (-row["rank"], row["airport"]))
    table = _table(f"PageRank of {len(rows)} airports", "airport", "rank")
    for row in rows[:10]:
        table.add_row(f"{row['airport']} {airports.get(row['airport'], '')}", f"{row['rank']:.4f}")
    return table


def carriers_table(carriers: pa.Table, networks: list[dict[str, Any]], airlines: dict[str, str]) -> Table:
    """All airlines: delays, and the number of unconnected parts of their own network."""
    parts = Counter(carrier for carrier, _ in {(row["carrier"], row["network"]) for row in networks})
    airports = Counter(row["carrier"] for row in networks)
    table = _table("Airlines", "airline", "flights", "cancelled", "mean delay, min", "airports", "networks")
    for row in sorted(latest(carriers, ["carrier"]), key=lambda row: -row["flights"]):
        code = row["carrier"]
        cancelled = f"{100 * row['cancelled'] / row['flights']:.1f}%"
        name = f"{code} {airlines.get(code, '')}"
        table.add_row(name, f"{row['flights']:,}", cancelled, _minutes(row["mean_delay"]), str(airports[code]), str(parts[code]))
    return table


def routes_table(routes: pa.Table) -> Table:
    """The routes with the largest delays, among those flown about once a week or more."""
    rows = latest(routes, ["origin", "dest"])
    days = max(routes.column("day").to_pylist(), default=0) + 1
    often = [row for row in rows if row["flights"] >= max(3, days // 7) and row["mean_delay"] is not None]
    table = _table(f"The latest of {len(often)} frequent routes", "route", "flights", "mean delay, min", "largest, min")
    for row in sorted(often, key=lambda row: (-row["mean_delay"], row["origin"], row["dest"]))[:10]:
        route = f"{row['origin']} to {row['dest']}"
        table.add_row(route, f"{row['flights']:,}", _minutes(row["mean_delay"]), _minutes(row["max_delay"]))
    return table


def hours_table(hours: pa.Table) -> Table:
    """The busiest hours."""
    rows = sorted(hours.to_pylist(), key=lambda row: (-row["departures"], row["start"], row["origin"]))
    table = _table(f"Busiest of {len(rows):,} hours at an airport", "hour", "departures", "mean delay, min")
    for row in rows[:10]:
        table.add_row(f"{row['origin']} {row['start']:%a %d %b, %H h}", str(row["departures"]), _minutes(row["mean_delay"]))
    return table
