"""``rayad page``: a web page of a job that runs."""

from __future__ import annotations

import click

from rayad.actors.status.terminal import echo
from rayad.commands import on_cluster


@click.command(cls=on_cluster.ClusterCommand)
@on_cluster.NAME
@on_cluster.ADDRESS
@click.option("--host", default="127.0.0.1", show_default=True, help="Where to listen; 0.0.0.0 shows it to others, with a token.")
@click.option("--port", default=0, show_default=True, help="0: any that is free.")
def page(name: str, address: str | None, host: str, port: int) -> None:
    """Serve a web page of the job NAME, until it ends or Ctrl-C: its graph, table, progress and lag over time, snapshots, failures.

    From another machine: ssh -L 8080:127.0.0.1:8080 and --port 8080. The page needs nothing from a network.
    """
    job = on_cluster.attach(name, address)
    echo(job.page(host=host, port=port))
    echo(f"job {name!r} is {job.settle(None).state.value}")
