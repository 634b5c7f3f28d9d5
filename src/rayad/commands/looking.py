"""``rayad jobs``, ``status`` and ``explain``: what runs on a cluster, how far it is, and what it waits for."""

from __future__ import annotations

import click

from rayad.actors.job import JobProgress, JobState, StageProgress
from rayad.actors.status.terminal import echo
from rayad.commands import on_cluster
from rayad.progress import Timestamp


@click.command(cls=on_cluster.ClusterCommand)
@on_cluster.ADDRESS
@on_cluster.JSON
def jobs(address: str | None, as_json: bool) -> None:
    """List the jobs on the cluster: those that run, and detached ones whose results nobody has fetched."""
    found = on_cluster.states_of_jobs(address)
    if as_json:
        on_cluster.print_json([{"name": name, "state": state} for name, state in found.items()])
    elif found:
        rows = [(name, state.value if state is not None else "does not answer") for name, state in found.items()]
        on_cluster.print_table(("job", "state"), rows)
    else:
        echo("no job runs on this cluster")


@click.command(cls=on_cluster.ClusterCommand)
@on_cluster.NAME
@on_cluster.ADDRESS
@on_cluster.JSON
def status(name: str, address: str | None, as_json: bool) -> None:
    """Show how far the job NAME is, vertex by vertex.

    The frontier of a vertex: the earliest times that may still reach it. "waits": the times of notifications that are not delivered yet.
    """
    job = on_cluster.attach(name, address)
    told = job.progress()
    if as_json:
        on_cluster.print_json({"name": name, **on_cluster.plain(told)})
        return
    echo(f"job {name!r}: {told.state.value}, {told.failures} failures survived; {_snapshot(told)}")
    if told.snapshots_late is not None:
        echo(str(told.snapshots_late))
    header = ("vertex", "replicas", "frontier", "waits", "batches", "records")
    on_cluster.print_table(header, [_row(each) for each in told.stages])
    for silent in told.silent:
        echo(str(silent))
    if told.state is JobState.STARTING:
        echo(str(job.explain_stuck()).partition("\n")[0])


def _row(stage: StageProgress) -> tuple[object, ...]:
    times = _times(stage.frontier), _times(stage.pending_notifications)
    return stage.name, stage.replicas, *times, stage.batches_in, stage.records_in


TIMES_SHOWN = 3


def _times(times: tuple[Timestamp, ...]) -> str:
    more = f" and {len(times) - TIMES_SHOWN:,} more" if len(times) > TIMES_SHOWN else ""
    return ", ".join(map(str, times[:TIMES_SHOWN])) + more


def _snapshot(told: JobProgress) -> str:
    if told.snapshot is None:
        return "no snapshot in this run"
    every = f", one every {told.snapshot_interval_s:.3g} s" if told.snapshot_interval_s is not None else ""
    return f"newest snapshot {told.snapshot.number} ({told.snapshot.total_bytes / 1e6:.3f} MB in {told.snapshot.took_s:.2f} s){every}"


@click.command(cls=on_cluster.ClusterCommand)
@on_cluster.NAME
@on_cluster.ADDRESS
def explain(name: str, address: str | None) -> None:
    """Say what the job NAME waits for, and who holds it up."""
    echo(str(on_cluster.attach(name, address).explain_stuck()))
