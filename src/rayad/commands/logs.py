"""``rayad logs``: what the processes of a job have written, on whichever node."""

from __future__ import annotations

import time as clock
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import click

from rayad.actors.job import JobState
from rayad.actors.status.terminal import echo
from rayad.commands import on_cluster

if TYPE_CHECKING:
    from rayad.actors.cluster.log_files import Chunk, LoggedProcess

FOLLOW_EVERY_S = 1.0


@click.command(cls=on_cluster.ClusterCommand)
@on_cluster.NAME
@click.option("--vertex", help="Only its replicas, those that run now; by default all processes, also those that have died.")
@click.option("--follow", is_flag=True, help="Go on printing what is written, until the job has ended or Ctrl-C.")
@on_cluster.ADDRESS
def logs(name: str, vertex: str | None, follow: bool, address: str | None) -> None:
    """Print what the processes of the job NAME have written, each line behind who wrote it.

    Lines of one process are in order. What a process writes to stderr comes behind its stdout.
    """
    from rayad.actors.cluster import log_files

    job = on_cluster.attach(name, address)
    ends: dict[tuple[int, str, str], int] = {}
    while True:
        pids = job.pids()
        chosen = _chosen(log_files.processes_of(name), pids, vertex)
        is_over = not follow or job.state not in (JobState.STARTING, JobState.RUNNING)
        chunks = list(log_files.read(chosen, ends))
        _print(chunks, pids)
        ends |= {(one.process.pid, one.process.node, one.stream): one.end for one in chunks}
        if chunks:
            continue
        if is_over:
            return
        clock.sleep(FOLLOW_EVERY_S)


def _chosen(processes: Iterable[LoggedProcess], pids: Mapping[str, list[int]], vertex: str | None) -> list[LoggedProcess]:
    if vertex is None:
        return list(processes)
    if vertex not in pids:
        raise on_cluster.Told(f"no replica of {vertex!r} runs: there are {sorted(pids)}", on_cluster.Exit.FAILED)
    return [one for one in processes if one.is_alive and one.pid in pids[vertex]]


def _print(chunks: Iterable[Chunk], pids: Mapping[str, list[int]]) -> None:
    replicas = {pid: f"{vertex}[{index}]" for vertex, those in pids.items() for index, pid in enumerate(those)}
    for chunk in chunks:
        process = chunk.process
        who = replicas.get(process.pid, process.what) if process.is_alive else f"{process.what}, dead"
        for line in chunk.text.splitlines():
            echo(f"({who} pid={process.pid}, {process.address}) {line}")
