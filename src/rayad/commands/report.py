"""``rayad report``: what happened to a job, as one HTML file."""

from __future__ import annotations

from pathlib import Path

import click

from rayad.actors.status.terminal import echo
from rayad.commands import on_cluster
from rayad.progress import SnapshotError


@click.command(cls=on_cluster.ClusterCommand)
@click.argument("job")
@click.option("--output", type=click.Path(dir_okay=False, writable=True, path_type=Path), help="The file; by default report.html here.")
@on_cluster.ADDRESS
def report(job: str, output: Path | None, address: str | None) -> None:
    """Write a page about JOB: the name of a job that runs, or the folder of one that has ended, <storage_path>/<job name>, a path or a URI.

    The file needs nothing from a network. It is made from the journal of the job, in all its runs.
    """
    from rayad.actors.status.journal import events_in
    from rayad.actors.status.report import as_report
    from rayad.actors.store.line_file import lines_of
    from rayad.snapshots.store import SnapshotStore, below

    if "/" in job:
        try:
            store = SnapshotStore(below(job, "journal.jsonl"))
            events = events_in(lines_of(store.filesystem, store.folder))
        except FileNotFoundError:
            raise SnapshotError(f"there is no journal in {job!r}: give the <storage_path>/<job name> of a job") from None
        except OSError as error:
            raise SnapshotError(f"the journal in {job!r} cannot be read: {error}") from error
        name = job.partition("?")[0].rstrip("/").rpartition("/")[2]
    else:
        events, name = list(on_cluster.attach(job, address).journal()), job
    path = output if output is not None else Path("report.html")
    path.write_text(as_report(name, events), encoding="utf-8")
    echo(f"{path}: {len(events)} events")
