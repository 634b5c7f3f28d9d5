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
@click.option("--steps", is_flag=True, help="The job can be steered from the page: savepoint, rescale, stop. Needs the address's token.")
@click.option("--state", is_flag=True, help="The page shows first keys of states, of signed snapshots. Needs the address's token.")
def page(name: str, address: str | None, host: str, port: int, steps: bool, state: bool) -> None:
    """Serve a web page of the job NAME, until it ends or Ctrl-C: figures, its graph, table, lines over time, and what has happened.

    From another machine: ssh -L 8080:127.0.0.1:8080 and --port 8080. The page needs nothing from a network.
    """
    job = on_cluster.attach(name, address)
    echo(job.page(host=host, port=port, steps=steps, state=state))
    echo(f"job {name!r} is {job.settle(None).state.value}")
