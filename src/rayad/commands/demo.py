"""``rayad demo``: a small program with windows and a loop, which loses its processes and recovers. Needs nothing but the package."""

from __future__ import annotations

import logging
import os
import signal
import tempfile
import time as clock
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import click

from rayad import demo_flights
from rayad.actors.status.terminal import echo
from rayad.commands import on_cluster
from rayad.dataflow.config import FailureConfig, RunConfig, SnapshotConfig
from rayad.progress import RayadError

PAUSE_S = 0.02
"""On Ray, between two days: the job lasts long enough for a kill in its middle."""
INTERVAL_S = 0.2
WAIT_S = 120.0
HOURS_SHOWN = 5


@click.command(cls=on_cluster.ClusterCommand)
@click.option("--days", default=200, show_default=True, type=click.IntRange(min=20, max=2000), help="How many days of flights are made.")
@click.option("--ray", "on_ray", is_flag=True, help="As actors on a Ray that is started here, and ended; else in this process.")
def demo(days: int, on_ray: bool) -> None:
    """Show windows, a loop, and a recovery on flights that are made up.

    Each day is an epoch. The job keeps departures and delays of each airport and hour, and which airports can be reached from which,
    which is a loop. In the middle it loses its processes and resumes from its last snapshot; in the end its results are compared with
    those of plain Python. Exit code 1 if they differ.
    """
    where = "on Ray, a process for each replica" if on_ray else "in this process"
    echo(f"{days} days, {days * demo_flights.FLIGHTS_A_DAY:,} flights, {where}")
    began_s = clock.monotonic()
    with tempfile.TemporaryDirectory(prefix="rayad-demo-") as folder:
        interval_s = INTERVAL_S if on_ray else None
        config = RunConfig(
            storage_path=folder,
            snapshots=SnapshotConfig(interval_s=interval_s),
            failures=FailureConfig(max_failures=5, delay_s=0.1),
        )
        with _a_failure_is_meant():
            result = _on_ray(days, config) if on_ray else _here(days, config)
    _show(days, result, clock.monotonic() - began_s)


@contextmanager
def _a_failure_is_meant() -> Iterator[None]:
    """Warnings of it are not shown."""
    logger = logging.getLogger("rayad")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


def _here(days: int, config: RunConfig) -> Any:
    import rayad  # noqa: F401  # registers the runtimes

    job = demo_flights.flights_flow(days).submit(config, runtime="local", parallelism=2, seed=1)
    _step_until(job, lambda: _records(job) > days * demo_flights.FLIGHTS_A_DAY / 3)
    job.savepoint()
    echo(f"a snapshot is taken when the vertices have handled {_records(job):,} records")
    _step_until(job, lambda: _records(job) > days * demo_flights.FLIGHTS_A_DAY)
    echo(f"all is lost when they have handled {_records(job):,}: the job resumes from the snapshot")
    job.crash()
    return job.wait()


def _records(job: Any) -> int:
    return sum(stage.records_in for stage in job.progress().stages)


def _step_until(job: Any, is_so: Callable[[], bool]) -> None:
    while not is_so():
        if not job.step():
            return


def _on_ray(days: int, config: RunConfig) -> Any:
    from rayad.actors.cluster.joining import start_ray

    echo("Ray starts, with the processes of the job: some seconds")
    start_ray()
    job = demo_flights.flights_flow(days, PAUSE_S).submit(config, parallelism=2)
    deadline_s = clock.monotonic() + WAIT_S
    while job.progress().snapshot is None or not job.pids().get("hours"):
        if clock.monotonic() > deadline_s:
            raise RayadError(f"no snapshot within {WAIT_S:g} s: {job.explain_stuck()}; rayad doctor may tell why")
        clock.sleep(INTERVAL_S)
    pid = job.pids()["hours"][0]
    echo(f"process {pid}, a replica of 'hours', is killed after {_records(job):,} records")
    os.kill(pid, signal.SIGKILL)
    result = job.wait(timeout_s=WAIT_S)
    echo(f"the job survived {result.statistics.failures} failure and took {len(result.statistics.snapshots)} more snapshots")
    return result


def _show(days: int, result: Any, took_s: float) -> None:
    hours, networks = demo_flights.hours_found(result), demo_flights.networks_found(result)
    latest = sorted(hours.items(), key=lambda one: -one[1][1])[:HOURS_SHOWN]
    echo("\nthe hours with the greatest delays, of windows in event time:")
    on_cluster.print_table(
        ("airport", "day", "hour", "departures", "minutes late in all"),
        [(airport, start // demo_flights.DAY_MIN, start // 60 % 24, *figures) for (airport, start), figures in latest],
    )
    echo("networks of airports, by a loop that runs on each day's changes:")
    rows: list[tuple[int, int]] = []
    for day, of in networks.items():
        count = demo_flights.count_networks(of.values())
        if not rows or rows[-1][1] != count:
            rows.append((day, count))
    on_cluster.print_table(("from day", "networks"), rows)
    last = networks[max(networks)]
    is_right = hours == demo_flights.hours_expected(days) and last == demo_flights.networks_expected(days)
    if not is_right:
        raise on_cluster.Told("the results differ from those of plain Python", on_cluster.Exit.FAILED)
    echo(f"{len(hours):,} windows and {len(last)} airports are as plain Python has them, after a failure; {took_s:.1f} s")
