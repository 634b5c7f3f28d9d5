"""``rayad savepoint``, ``rescale``, ``stop`` and ``cancel``: each is one call on the handle of a job."""

from __future__ import annotations

import click

from rayad.actors.status.terminal import echo
from rayad.commands import on_cluster
from rayad.commands.results import show_results


@click.command(cls=on_cluster.ClusterCommand)
@on_cluster.NAME
@click.option("--timeout", "timeout_s", type=float, help="Seconds that it may take; by default what the job's SnapshotConfig says.")
@on_cluster.ADDRESS
def savepoint(name: str, timeout_s: float | None, address: str | None) -> None:
    """Take a snapshot of the job NAME that is kept, and print its path.

    The job goes on. `rayad resume FILE.py:FLOW --from PATH` begins with what it holds.
    """
    echo(on_cluster.attach(name, address).savepoint(timeout_s=timeout_s))


class Replicas(click.ParamType):  # type: ignore[type-arg]  # generic only in newer ones
    """``VERTEX=N``; gives the pair."""

    name = "vertex=n"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, int]:
        """Read it, or fail with what would be right."""
        vertex, separator, count = str(value).rpartition("=")
        if not (separator and vertex and count.isdigit() and int(count) > 0):
            self.fail(f"{value!r} is no number of replicas: write VERTEX=N with N of at least 1, such as counts=4", param, ctx)
        return vertex, int(count)


@click.command(cls=on_cluster.ClusterCommand)
@on_cluster.NAME
@click.argument("wanted", metavar="VERTEX=N...", nargs=-1, required=True, type=Replicas())
@click.option("--timeout", "timeout_s", type=float, default=120.0, show_default=True, help="Seconds for the new replicas to start.")
@on_cluster.ADDRESS
@on_cluster.JSON
def rescale(name: str, wanted: tuple[tuple[str, int], ...], timeout_s: float, address: str | None, as_json: bool) -> None:
    """Give vertices of the job NAME other numbers of replicas while it runs."""
    report = on_cluster.attach(name, address).rescale(dict(wanted), timeout_s=timeout_s)
    if as_json:
        on_cluster.print_json(report)
        return
    changed = [(vertex, report.before.get(vertex, 0), after) for vertex, after in report.after.items()]
    on_cluster.print_table(("vertex", "before", "after"), changed)
    moved = f"{report.moved_groups} key-groups, {report.moved_bytes / 1e6:.3f} MB of state"
    echo(f"{moved} moved in {report.took_s:.2f} s; the longest pause of a replica: {1000 * report.pause_s:.0f} ms")


@click.command(cls=on_cluster.ClusterCommand)
@on_cluster.NAME
@click.option("--drain/--no-drain", default=True, show_default=True, help="Finish what is under way, or cancel the job.")
@click.option("--timeout", "timeout_s", type=float, help="Seconds to wait for the end; then exit code 5, and the job goes on draining.")
@on_cluster.ADDRESS
@on_cluster.JSON
def stop(name: str, drain: bool, timeout_s: float | None, address: str | None, as_json: bool) -> None:
    """End the input of the job NAME here, and wait until it is complete."""
    job = on_cluster.attach(name, address)
    results = job.stop(drain=drain, timeout_s=timeout_s)
    show_results(name, job.state, results, as_json=as_json)


@click.command(cls=on_cluster.ClusterCommand)
@on_cluster.NAME
@on_cluster.ADDRESS
def cancel(name: str, address: str | None) -> None:
    """End the job NAME without results; its snapshots stay."""
    job = on_cluster.attach(name, address)
    job.cancel()
    echo(f"job {name!r} is {job.state.value}")
