"""``rayad doctor``: what is wrong with this machine, a store or a cluster, and what to do about it."""

from __future__ import annotations

from collections import Counter

import click
from rich.table import Table

from rayad.actors.status.terminal import as_written, console, echo
from rayad.checkup.finding import Finding, Level
from rayad.commands import on_cluster

COLOURS = {Level.OK: "green", Level.WARN: "yellow", Level.FAIL: "red"}


@click.command(cls=on_cluster.ClusterCommand)
@click.option("--storage", metavar="PATH", help="Also try this storage_path: a folder or a URI.")
@click.option("--address", metavar="HOST:PORT", help="Also look at each node of this cluster; auto: of the one on this machine.")
@on_cluster.JSON
def doctor(storage: str | None, address: str | None, as_json: bool) -> None:
    """Look for what would keep jobs from running, and say what to do.

    Of this machine and this environment; with --address of all nodes of a cluster, too. Exit code 1 where something fails; warnings are
    what some programs do without, such as Java.
    """
    from rayad.checkup import machine, rules
    from rayad.checkup.storage import check_store

    here = machine.look()
    found = rules.judge(here)
    if storage is not None:
        found.append(check_store(storage))
    if address is not None:
        from rayad.checkup.cluster import check_cluster

        found += check_cluster(address, here, storage)
    if as_json:
        on_cluster.print_json(found)
    else:
        _show(found)
    if any(one.level is Level.FAIL for one in found):
        raise SystemExit(on_cluster.Exit.FAILED)


def _show(found: list[Finding]) -> None:
    table = Table("", "what", "seen, and what to do")
    for one in found:
        mend = f"\n-> {one.mend}" if one.mend else ""
        table.add_row(f"[{COLOURS[one.level]}]{one.level.value}[/]", one.what, as_written(one.seen + mend))
    console(highlight=False).print(table)
    counts = Counter(one.level for one in found)
    echo(", ".join(f"{counts[level]} {level.value}" for level in Level))
