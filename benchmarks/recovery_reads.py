"""What a recovery reads before the job runs again: what the coordinator looks at, and what each replica reads and verifies.

``python -m benchmarks.recovery_reads --rows 6000000`` runs a join over all time in the local runtime with two replicas: it brings so many
rows to each side, takes a snapshot, and ends. Then a process of its own does what a coordinator does to resume from it, and one for each
replica reads that one's parts, as on Ray (several files at a time), one process after another. Printed is of each the time, the processor
time, and the memory that it takes besides pages of files.
"""

from __future__ import annotations

import multiprocessing
import shutil
import tempfile
import time
from collections.abc import Callable
from typing import Any

import click

import rayad as rd
from benchmarks.snapshot_after_recovery import Job
from rayad.actors.host.side_by_side import side_by_side
from rayad.actors.replica.parts.part_reading import read_part
from rayad.actors.store.job_store import open_store


def anonymous_mb() -> float:
    """Memory of this process that is no page of a file."""
    with open("/proc/self/smaps_rollup", encoding="ascii") as lines:
        return next(int(line.split()[1]) for line in lines if line.startswith("Anonymous:")) / 1e3


def measured(what: str, do: Callable[[], Any]) -> None:
    """Do it, and print what it takes."""
    before_mb, began_s, began_cpu_s = anonymous_mb(), time.perf_counter(), time.process_time()
    kept = do()
    took_s, cpu_s = time.perf_counter() - began_s, time.process_time() - began_cpu_s
    click.echo(f"{what}: {took_s:.2f} s, {cpu_s:.2f} s of a processor, {anonymous_mb() - before_mb:.0f} MB")
    del kept


def coordinator(folder: str) -> None:
    """Find what to resume from."""
    store = open_store("join", rd.RunConfig(storage_path=folder))
    measured("the coordinator", lambda: store.latest(None, store.check_listed))


def replica(folder: str, number: int) -> None:
    """Read what it resumes from."""
    store = open_store("join", rd.RunConfig(storage_path=folder))
    manifest = store.load(store.numbers()[-1])
    (part,) = (part for part in manifest.parts if (part.vertex, part.replica) == ("state", number))
    measured(f"replica {number}, {part.state_bytes / 1e6:.0f} MB", lambda: read_part(store, part, side_by_side))


@click.command()
@click.option("--rows", default=6_000_000, show_default=True, help="Of each side.")
@click.option("--times", default=3, show_default=True)
def main(rows: int, times: int) -> None:
    """Measure."""
    folder = tempfile.mkdtemp(prefix="rayad-reads-")
    try:
        job = Job("join", folder, None, parallelism=2)
        job.take(0, rows)
        job.snapshot(f"{rows:,} rows a side")
        job.job.cancel()
        fresh = multiprocessing.get_context("spawn")
        for _ in range(times):
            for target, arguments in ((coordinator, ()), (replica, (0,)), (replica, (1,))):
                process = fresh.Process(target=target, args=(folder, *arguments))
                process.start()
                process.join()
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
