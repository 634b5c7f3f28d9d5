"""A year of flights from New York: from Spark, through a dataflow on Ray with a loop in it, to Parquet. This is ``make demo``.

    python examples/flights.py                          # 336,776 flights of 2013, Spark on Ray, 2 replicas of each vertex
    python examples/flights.py --days 20 --no-spark     # the first days, read by Arrow: no Java, little memory
    python examples/flights.py --local --days 60        # in this process: no Ray, no Spark
    ray job submit --working-dir examples -- python flights.py --days 20

Every day is an epoch. For each one, as soon as it is complete:

    carriers, routes   running totals: flights, cancelled ones, mean and largest delay          (keyed aggregation)
    hours              departures and mean delay of each airport and hour, by event time        (windows)
    pagerank           of the airports, on the routes flown up to that day                      (a loop, updated)
    networks           connected parts of each airline's own routes, up to that day             (a loop, updated)

Each becomes a folder of Parquet with a column ``day``; the tables printed at the end are read back from there.
"""

from __future__ import annotations

import datetime as dt
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click
import flights_data
import pyarrow as pa
import pyarrow.compute as pc
from flights_tables import read_results, show_tables
from job_display import JobDisplay
from rich.console import Console

import rayad as rd

DELAYS = {
    "flights": "count",
    "cancelled": ("sum", lambda flight: int(flight["cancelled"])),
    "mean_delay": ("mean", "dep_delay"),
    "max_delay": ("max", "dep_delay"),
}
_DELAY_FIELDS = [("flights", pa.int64()), ("cancelled", pa.int64()), ("mean_delay", pa.float64()), ("max_delay", pa.float64())]
_HOUR_FIELDS = [("start", pa.timestamp("us")), ("departures", pa.int64()), ("mean_delay", pa.float64())]
TABLES = {
    "carriers": pa.schema([("carrier", pa.string()), *_DELAY_FIELDS]),
    "routes": pa.schema([("origin", pa.string()), ("dest", pa.string()), *_DELAY_FIELDS]),
    "hours": pa.schema([("origin", pa.string()), *_HOUR_FIELDS]),
    "pagerank": pa.schema([("airport", pa.string()), ("rank", pa.float64())]),
    "networks": pa.schema([("carrier", pa.string()), ("airport", pa.string()), ("network", pa.string())]),
}
"""The folders that are written, each with its columns; a column ``day`` is added."""

ROUNDS = 20
FOLDER = click.Path(path_type=Path, file_okay=False)
SPARK = {"spark.ui.enabled": "false"}


# -- the dataflow ------------------------------------------------------------------------------
def analyse(flights: rd.Stream) -> dict[str, rd.Stream]:
    """The dataflow from cleaned flights (columnar, an epoch a day) to the records of each of :data:`TABLES`."""
    narrow = flights.map_batches(lambda batch: batch.select(["carrier", "origin", "dest", "cancelled", "dep_delay"]), name="narrow")
    carriers = narrow.key_by("carrier").aggregate(DELAYS, name="carriers")
    routes = narrow.key_by(["origin", "dest"]).aggregate(DELAYS, name="routes")

    departed = flights.map_batches(departures, name="departures").assign_timestamps("at", max_delay=dt.timedelta(hours=1))
    by_hour = departed.key_by("origin").window(rd.windows.tumbling(dt.timedelta(hours=1)))
    hours = by_hour.aggregate({"departures": "count", "mean_delay": ("mean", "dep_delay")}, name="hours")

    flown = flights.map_batches(routes_flown, name="routes-flown")
    both_ways = flown.flat_map(lambda r: ((r[1], r[2]), (r[2], r[1])))
    edges = both_ways.key_by(lambda e: e[0]).distinct(lambda e: e[1], name="new-routes")
    ranks = rd.graphs.pagerank(edges, rounds=ROUNDS)
    own_airports = flown.map(lambda r: (f"{r[0]}:{r[1]}", f"{r[0]}:{r[2]}"))
    own_edges = own_airports.key_by(lambda e: e[0]).distinct(lambda e: e[1], name="new-airline-routes")
    networks = rd.graphs.connected_components(own_edges)

    return {
        "carriers": carriers.map(lambda r: {"carrier": r[0], **r[1]}),
        "routes": routes.map(lambda r: {"origin": r[0][0], "dest": r[0][1], **r[1]}),
        "hours": hours.map(lambda r: {"origin": r[0], "start": r[1].start, **r[2]}),
        "pagerank": ranks.map(lambda r: {"airport": r[0], "rank": r[1]}),
        "networks": networks.map(lambda r: {"carrier": r[0][:2], "airport": r[0][3:], "network": r[1]}),
    }


def departures(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The flights that departed: when, from where, how late."""
    return batch.filter(pc.invert(batch.column("cancelled"))).select(["at", "origin", "dep_delay"])


def routes_flown(batch: pa.RecordBatch) -> list[tuple[str, str, str]]:
    """The distinct (carrier, origin, dest) of a batch."""
    flown = pa.Table.from_batches([batch.filter(pc.invert(batch.column("cancelled")))])
    distinct = flown.group_by(["carrier", "origin", "dest"], use_threads=False).aggregate([])
    return list(zip(*(distinct.column(name).to_pylist() for name in ("carrier", "origin", "dest")), strict=True))


def flow() -> rd.Dataflow:
    """For ``rayad plan examples/flights.py:flow``: the dataflow on the flights of one day, without Spark and without files."""
    dataflow = rd.Dataflow("flights")
    for name, stream in analyse(dataflow.from_arrow(flights_data.read_with_arrow(1), epoch="day", name="flights")).items():
        stream.collect(f"{name}-table")
    return dataflow


# -- running it --------------------------------------------------------------------------------
@dataclass
class Phases:
    """The seconds of each phase, in order."""

    console: Console
    seconds: dict[str, float] = field(default_factory=dict)

    def run(self, name: str, call: Any) -> Any:
        """Call a function and show the phase's name meanwhile."""
        began_s = time.perf_counter()
        with self.console.status(f"{name} ..."):
            value = call()
        self.seconds[name] = time.perf_counter() - began_s
        self.console.print(f"{self.seconds[name]:6.1f} s  {name}", highlight=False)
        return value


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--days", default=365, show_default=True, type=click.IntRange(1, 365), help="How many days of 2013, from 1 January.")
@click.option("--parallelism", default=2, show_default=True, type=click.IntRange(min=1), help="Replicas of each vertex.")
@click.option(
    "--out", default=Path("out/flights"), show_default=True, type=FOLDER, help="Folder for the results; on several nodes, one that all see."
)
@click.option("--no-spark", is_flag=True, help="Read with Arrow in this process instead of Spark: for machines without room for Spark.")
@click.option("--scratch", type=FOLDER, help="Folder for the CSV that Spark reads; on several nodes, one that all see.")
@click.option("--local", is_flag=True, help="Everything in this process, without Ray and Spark.")
@click.option("--seed", default=0, show_default=True, help="Of the local runtime's interleaving.")
def main(days: int, parallelism: int, out: Path, no_spark: bool, scratch: Path | None, local: bool, seed: int) -> None:
    """Analyse a year of flights from New York, day by day."""
    console = Console()
    out = out.resolve()
    refuse_foreign_files(out)
    phases = Phases(console)
    with tempfile.TemporaryDirectory(prefix="rayad-flights-", dir=scratch) as folder:
        dataflow = rd.Dataflow("flights")
        flights = read(dataflow, phases, Path(folder), days, parallelism, use_spark=not (local or no_spark))
        for name, stream in analyse(flights).items():
            path = str(out / name)
            stream.write_parquet(path, name=f"{name}-table", schema=TABLES[name], epoch_column="day", mode="overwrite")
        try:
            if not (local or no_spark):
                phases.run("Spark reads and cleans", lambda: dataflow.plan(parallelism))  # the plan needs the partitions; they are kept
            runtime = "local" if local else "ray"
            job = phases.run("submitting the job", lambda: dataflow.submit(parallelism=parallelism, runtime=runtime, seed=seed))
            began_s = time.perf_counter()
            result = JobDisplay("flights", unit="day", epochs=days, sources=["flights"], console=console).watch(job)
            phases.seconds["actors and dataflow"] = time.perf_counter() - began_s
        finally:
            if not (local or no_spark):
                phases.run("stopping Spark", rd.stop_spark)
    rows = result.statistics.stages["flights"]["records_in"]
    tables = read_results(out, TABLES)
    show_tables(console, tables)
    say_what_was_done(console, phases, result.statistics, rows, tables)
    console.print(f"results: {out}", highlight=False, soft_wrap=True)


def read(dataflow: rd.Dataflow, phases: Phases, folder: Path, days: int, parallelism: int, *, use_spark: bool) -> rd.Stream:
    """The cleaned flights as a stream, an epoch a day."""
    if not use_spark:
        table = phases.run("reading with Arrow", lambda: flights_data.read_with_arrow(days))
        # The flights of a day are adjacent in the table: with parts by day all replicas but one would wait.
        order = pa.array([row for part in range(parallelism) for row in range(part, table.num_rows, parallelism)], pa.int64())
        return dataflow.from_arrow(table.take(order), epoch="day", parts=parallelism, name="flights")
    try:
        spark = phases.run("starting Spark", lambda: rd.spark_session("flights", configs=SPARK))
    except rd.ConfigError as error:
        raise click.ClickException(f"{error}\nWithout Spark: --no-spark") from error
    path = phases.run("unpacking the data", lambda: flights_data.unpack(folder))
    frame = flights_data.read_with_spark(spark, path, days)
    return dataflow.from_spark(frame, epoch="day", parts=parallelism, name="flights")


def refuse_foreign_files(out: Path) -> None:
    """Refuse to replace files that are not results of an earlier run."""
    for name in TABLES:
        folder = out / name
        if folder.is_dir() and any(folder.iterdir()) and not (folder / "_SUCCESS").is_file():
            raise click.ClickException(f"{folder} has files that are not results of this program: give another --out")


def say_what_was_done(console: Console, phases: Phases, statistics: Any, rows: int, tables: dict[str, pa.Table]) -> None:
    """Print how much was processed, how fast, by how many processes."""
    where = f"{statistics.actors} Ray actors, up in {statistics.start_s:.1f} s" if statistics.actors else "this process, without Ray"
    replicas = sum(stage["replicas"] for stage in statistics.stages.values())
    days = {name: len(pc.unique(table.column("day"))) for name, table in tables.items()}
    speed = f"{rows / statistics.run_s:,.0f} flights/s"
    records = sum(table.num_rows for table in tables.values())
    lines = [
        f"{rows:,} flights in {days['carriers']} epochs of a day each, {records:,} records of results",
        f"PageRank: {ROUNDS} rounds on each of {days['pagerank']} days with a new route; "
        f"airlines' networks changed on {days['networks']} days",
        f"dataflow: {statistics.run_s:.1f} s, {speed} through {len(statistics.stages)} vertices with {replicas} replicas",
        f"run by: {where}",
        f"in all: {sum(phases.seconds.values()):.1f} s: {', '.join(f'{name} {seconds:.1f}' for name, seconds in phases.seconds.items())}",
    ]
    console.print("\n".join(lines), highlight=False, soft_wrap=True)


if __name__ == "__main__":
    main()
