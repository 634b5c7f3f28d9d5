"""Spark streams in and out: flights come as files, Rayad keeps windows and a loop up to date, Spark reads the committed output as a stream.

    python examples/spark_streams.py                       # 8 days, one replica killed during the run
    python examples/spark_streams.py --days 60 --kills 3
    python examples/spark_streams.py --no-spark            # the files read by Rayad, the output by Arrow: no Java

    files, one a day ──> Spark query ──> Rayad: windows, a loop ──> committed Parquet ──> another Spark query

When a day's file appears, a Spark query reads it as a micro-batch, without cancelled flights. It is an epoch of the dataflow, which
counts the departures of each airport and hour (windows by event time) and keeps the connected parts of each airline's routes (a loop).
Results are committed with each snapshot. Other Spark queries read the folders as streams, without a jar, and get each row once.
Meanwhile replicas are killed. At the end the rows in Spark are compared with plain Python.
"""

from __future__ import annotations

import datetime as dt
import math
import os
import signal
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import click
import flights_data
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from flights import SPARK, routes_flown
from rich.console import Console

import rayad as rd

HOURS = pa.schema([("origin", pa.string()), ("start", pa.timestamp("us")), ("departures", pa.int64()), ("mean_delay", pa.float64())])
NETWORKS = pa.schema([("carrier", pa.string()), ("airport", pa.string()), ("network", pa.string())])
TABLES = {"hours": HOURS, "networks": NETWORKS}
"""The folders that are written, each with its columns; a column ``day`` is added."""
FLIGHTS_IN_SPARK = (
    "day int, at timestamp_ntz, carrier string, origin string, dest string, cancelled boolean, dep_delay double, arr_delay double, "
    "distance int"
)
RESULTS_IN_SPARK = {
    "hours": "origin string, start timestamp_ntz, departures bigint, mean_delay double, day bigint",
    "networks": "carrier string, airport string, network string, day bigint",
}
PATIENCE_S = 120.0


# -- the dataflow ------------------------------------------------------------------------------
def follow(flights: rd.Stream) -> dict[str, rd.Stream]:
    """From flights that departed (columnar, an epoch a day) to the records of each of :data:`TABLES`."""
    departed = flights.map_batches(lambda batch: batch.select(["at", "origin", "dep_delay"]), name="departures")
    timed = departed.assign_timestamps("at", max_delay=dt.timedelta(hours=1))
    by_hour = timed.key_by("origin").window(rd.windows.tumbling(dt.timedelta(hours=1)))
    hours = by_hour.aggregate({"departures": "count", "mean_delay": ("mean", "dep_delay")}, name="hours")
    airports = flights.map_batches(routes_flown, name="routes-flown").map(lambda r: (f"{r[0]}:{r[1]}", f"{r[0]}:{r[2]}"))
    edges = airports.key_by(lambda edge: edge[0]).distinct(lambda edge: edge[1], name="new-routes")
    networks = rd.graphs.connected_components(edges)
    return {
        "hours": hours.map(lambda r: {"origin": r[0], "start": r[1].start, **r[2]}),
        "networks": networks.map(lambda r: {"carrier": r[0][:2], "airport": r[0][3:], "network": r[1][3:]}),
    }


def departed_only(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The filter of the Spark query, for runs without Spark."""
    return batch.filter(pc.invert(batch.column("cancelled")))


# -- files that appear -------------------------------------------------------------------------
class Airport:
    """Writes a file for each day: under another name first, so that no reader sees half of it."""

    def __init__(self, folder: Path, flights: pa.Table) -> None:
        self.folder, self.flights = folder, flights
        folder.mkdir()

    def publish(self, day: int) -> None:
        """Write the flights of a day."""
        making, path = self.folder / f"_day-{day:03}.parquet", self.folder / f"day-{day:03}.parquet"
        pq.write_table(self.flights.filter(pc.equal(self.flights.column("day"), day)), making)
        making.rename(path)

    def end(self) -> None:
        """Write the marker: no day follows."""
        (self.folder / "_DONE").touch()


# -- what is right -----------------------------------------------------------------------------
def expected_hours(flights: Iterable[dict[str, Any]]) -> dict[tuple[str, dt.datetime], tuple[int, float]]:
    """Departures and mean delay of each airport and hour."""
    delays: dict[tuple[str, dt.datetime], list[float]] = defaultdict(list)
    for flight in flights:
        delays[flight["origin"], flight["at"].replace(minute=0)].append(flight["dep_delay"])
    return {key: (len(values), math.fsum(values) / len(values)) for key, values in delays.items()}


def expected_networks(flights: Iterable[dict[str, Any]]) -> dict[tuple[str, str], str]:
    """For each airline and airport, the first airport by name of the connected part that it is in."""
    linked: dict[tuple[str, str], set[str]] = defaultdict(set)
    for flight in flights:
        linked[flight["carrier"], flight["origin"]].add(flight["dest"])
        linked[flight["carrier"], flight["dest"]].add(flight["origin"])
    found: dict[tuple[str, str], str] = {}
    for carrier, airport in sorted(linked):
        pending = [airport] if (carrier, airport) not in found else []
        while pending:
            place = pending.pop()
            if (carrier, place) not in found:
                found[carrier, place] = airport
                pending += linked[carrier, place]
    return found


def compare(rows: dict[str, list[dict[str, Any]]], flights: list[dict[str, Any]]) -> list[str]:
    """The differences from plain Python; none if the results are right."""
    wrong = []
    hours = expected_hours(flights)
    got = {(row["origin"], row["start"]): (row["departures"], row["mean_delay"]) for row in rows["hours"]}
    if len(got) != len(rows["hours"]):
        wrong.append(f"{len(rows['hours']) - len(got)} hours came twice")
    if got.keys() != hours.keys() or any(
        got[key][0] != count or not math.isclose(got[key][1], mean) for key, (count, mean) in hours.items()
    ):
        wrong.append(f"the hours are not those of plain Python: {len(got)} and {len(hours)}")
    networks = {(row["carrier"], row["airport"]): row["network"] for row in sorted(rows["networks"], key=lambda row: int(row["day"]))}
    if networks != expected_networks(flights):
        wrong.append("the networks are not those of plain Python")
    return wrong


# -- running it --------------------------------------------------------------------------------
@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--days", default=8, show_default=True, type=click.IntRange(1, 365), help="How many days of 2013, from 1 January.")
@click.option("--kills", default=1, show_default=True, type=click.IntRange(min=0), help="How many replicas to kill.")
@click.option(
    "--no-spark", is_flag=True, help="Rayad reads the files, Arrow reads the committed output: for machines without room for Spark."
)
@click.option("--folder", type=click.Path(path_type=Path), help="For files, snapshots and output; a temporary one by default.")
def main(days: int, kills: int, no_spark: bool, folder: Path | None) -> None:
    """Follow the flights of some days as they come, and kill replicas meanwhile."""
    console = Console(highlight=False, soft_wrap=True)
    with tempfile.TemporaryDirectory(prefix="rayad-spark-streams-", dir=folder) as scratch:
        run = run_with_arrow if no_spark else run_with_spark
        table = flights_data.read_with_arrow(days)
        rows = run(Path(scratch), Airport(Path(scratch) / "in", table), days, kills, console)
        wrong = compare(rows, [row for row in table.to_pylist() if not row["cancelled"]])
        for name, found in rows.items():
            console.print(f"{name}: {len(found):,} rows, each once")
        if wrong:
            raise SystemExit("; ".join(wrong))
        console.print(f"{table.num_rows:,} flights of {days} days: all as plain Python computes it")


def run_with_spark(place: Path, airport: Airport, days: int, kills: int, console: Console) -> dict[str, list[dict[str, Any]]]:
    """Spark on both sides; gives the rows that the last queries got."""
    try:
        spark = rd.spark_session("spark-streams", configs=SPARK)
    except rd.ConfigError as error:
        raise click.ClickException(f"{error}\nWithout Spark: --no-spark") from error
    try:
        return through_spark(spark, place, airport, days, kills, console)
    finally:
        rd.stop_spark()


def through_spark(spark: Any, place: Path, airport: Airport, days: int, kills: int, console: Console) -> dict[str, list[dict[str, Any]]]:
    """Run it in a session; gives the rows that the last queries got."""
    job = start(spark, place, airport, kills)
    let_days_come(job, airport, days, kills, console)
    queries = read_as_streams(spark, place, job)
    drain(job, days, console)
    return rows_read(spark, queries)


def start(spark: Any, place: Path, airport: Airport, kills: int) -> Any:
    """The first Spark query and the job behind it."""
    files = spark.readStream.schema(FLIGHTS_IN_SPARK).option("maxFilesPerTrigger", 1).parquet(str(airport.folder))
    flow = rd.Dataflow("flights")
    flights = flow.from_spark(files.where("not cancelled"), checkpoint=str(place / "checkpoint"), name="flights")
    return submit(flow, flights, place, kills)


def read_as_streams(spark: Any, place: Path, job: Any) -> list[Any]:
    """The last Spark queries, one for each folder of committed output."""
    wait_until(lambda: all((place / "out" / name / "_spark_metadata" / "0").is_file() for name in TABLES), job)
    return [read_back(spark, name, place) for name in TABLES]  # Spark needs the folder, with its log


def drain(job: Any, days: int, console: Console) -> None:
    """End the job when it has all days."""
    wait_until(lambda: job.input("flights").epoch >= days, job)
    job.input("flights").wait_saved(days - 1, timeout_s=PATIENCE_S)
    say_what_happened(job.stop(drain=True, timeout_s=PATIENCE_S), console)


def rows_read(spark: Any, queries: list[Any]) -> dict[str, list[dict[str, Any]]]:
    """What the last queries got, once they have all."""
    for query in queries:
        query.processAllAvailable()
        query.stop()
    return {name: [row.asDict() for row in spark.table(name).collect()] for name in TABLES}


def read_back(spark: Any, name: str, place: Path) -> Any:
    """A query that reads committed output as a stream, into a table in Spark's memory."""
    stream = spark.readStream.schema(RESULTS_IN_SPARK[name]).parquet(str(place / "out" / name))
    return stream.writeStream.format("memory").queryName(name).option("checkpointLocation", str(place / f"read-{name}")).start()


def run_with_arrow(place: Path, airport: Airport, days: int, kills: int, console: Console) -> dict[str, list[dict[str, Any]]]:
    """The same without Spark; gives the committed rows."""
    flow = rd.Dataflow("flights")
    files = flow.from_folder(airport.folder, "*.parquet", schema=flights_data.SCHEMA, every_s=0.1, until="_DONE", name="flights")
    job = submit(flow, files.map_batches(departed_only), place, kills)
    let_days_come(job, airport, days, kills, console)
    say_what_happened(job.wait(timeout_s=PATIENCE_S), console)
    return {name: rd.read_committed(place / "out" / name).to_table().to_pylist() for name in TABLES}


def submit(flow: rd.Dataflow, flights: rd.Stream, place: Path, kills: int) -> Any:
    """Start the job; Spark can read its output as a stream."""
    for name, stream in follow(flights).items():
        stream.write_parquet(str(place / "out" / name), name=f"{name}-table", schema=TABLES[name], epoch_column="day", spark_log=True)
    config = rd.RunConfig(
        storage_path=str(place / "jobs"),
        snapshots=rd.SnapshotConfig(interval_s=1.0),
        failures=rd.FailureConfig(max_failures=kills),
    )
    return flow.submit(config, parallelism=1)


def let_days_come(job: Any, airport: Airport, days: int, kills: int, console: Console) -> None:
    """Write one file after the other, and kill replicas at even intervals."""
    deaths = {(number + 1) * days // (kills + 1): number for number in range(kills)}
    for day in range(days):
        if day in deaths:
            kill_one(job, deaths[day], console)
        airport.publish(day)
    airport.end()


def kill_one(job: Any, number: int, console: Console) -> None:
    """Wait until the current processes have taken a snapshot, then kill a replica."""
    wait_until(lambda: job.progress().snapshot is not None and job.progress().failures == number and job.pids(), job)
    processes = job.pids()
    vertex = sorted(processes)[number % len(processes)]
    console.print(f"killing a replica of {vertex!r}, process {processes[vertex][0]}, after snapshot {job.progress().snapshot.number}")
    os.kill(processes[vertex][0], signal.SIGKILL)


def wait_until(holds: Callable[[], Any], job: Any) -> None:
    """Wait for a condition; raise the job's error if it fails meanwhile."""
    deadline_s = time.monotonic() + PATIENCE_S
    while not holds():
        if job.state.value in ("complete", "failed"):
            job.wait(timeout_s=PATIENCE_S)
        if time.monotonic() > deadline_s:
            raise SystemExit(f"nothing happened for {PATIENCE_S:.0f} s: {job.progress()}")
        time.sleep(0.1)


def say_what_happened(result: Any, console: Console) -> None:
    """Print failures and snapshots of the job."""
    failures, snapshots = result.statistics.failures, len(result.statistics.snapshots)
    console.print(f"the job survived {failures} failure{'' if failures == 1 else 's'} and took {snapshots} snapshots")


if __name__ == "__main__":
    main()
