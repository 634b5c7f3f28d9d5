"""``rayad top``: a table of a job that follows it."""

from __future__ import annotations

import click

from rayad.actors.status.terminal import echo_json
from rayad.commands import on_cluster

INTERVAL = click.option("--interval", "interval_s", type=click.FloatRange(min=0.1), default=2.0, show_default=True, help="Seconds.")


@click.command(cls=on_cluster.ClusterCommand)
@on_cluster.NAME
@on_cluster.ADDRESS
@INTERVAL
@click.option("--once", is_flag=True, help="Print one table and end.")
@click.option("--replicas", is_flag=True, help="Below each vertex, a line for each of its replicas.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON: one object a line.")
def top(name: str, address: str | None, interval_s: float, once: bool, replicas: bool, as_json: bool) -> None:
    """Show the job NAME vertex by vertex, until it ends or Ctrl-C: rates, what its replicas do, backlog, state, frontier and its lag.

    Without a terminal it prints plain lines.
    """
    from rayad.actors.driver.top import follow, shown

    job = on_cluster.attach(name, address)
    timeout_s = 0.0 if once else None
    if as_json:
        follow(job.status, lambda status: echo_json(status.as_json()), interval_s, timeout_s)
        return
    with shown(with_replicas=replicas) as show:
        follow(job.status, show, interval_s, timeout_s)
