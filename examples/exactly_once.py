"""Kill a running job again and again, and still count exactly once. Needs no Java.

    python examples/exactly_once.py                       # three kills
    python examples/exactly_once.py --kills 10 --recovery upstream
    python examples/exactly_once.py --folder /shared/jobs  # where snapshots and output go

A thousand orders arrive each second; a keyed sum is what each shop has sold so far, and every sum is written to Parquet. Meanwhile this
script kills vertex actors with SIGKILL. Each time the job resumes from its last snapshot. In the end the files are compared with the
sums of plain Python.
"""

from __future__ import annotations

import os
import signal
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

import rayad as rd

SHOPS = 7
ORDERS_PER_EPOCH = 50
EPOCH_S = 0.05


def orders_of(epoch: int) -> list[tuple[str, int]]:
    """The orders of an epoch: (shop, amount). Every call gives the same, as a log does."""
    return [(f"shop {(epoch * 31 + i * 3) % SHOPS}", (epoch + i) % 90 + 10) for i in range(ORDERS_PER_EPOCH)]


class Orders(rd.Source):
    """A log of orders to which an epoch is added every EPOCH_S seconds."""

    def __init__(self, epochs: int) -> None:
        self.epochs = epochs

    def list_parts(self) -> list[int]:
        return [0]

    def build_part(self, part: int, resume: Any | None) -> rd.SourcePart:
        return OrdersPart(self.epochs, resume or 0)


class OrdersPart(rd.SourcePart):
    """Reads from an epoch on."""

    def __init__(self, epochs: int, epoch: int) -> None:
        self.epochs, self.epoch, self.next_s = epochs, epoch, 0.0

    def next_batch(self) -> rd.SourceBatch | None:
        if self.epoch >= self.epochs:
            return None
        if time.monotonic() < self.next_s:
            return rd.SourceBatch(self.epoch, [])  # the epoch has not come yet
        self.next_s = time.monotonic() + EPOCH_S
        self.epoch += 1
        return rd.SourceBatch(self.epoch - 1, orders_of(self.epoch - 1))

    def epoch_floor(self) -> int:
        return self.epoch

    def offset(self) -> int:
        return self.epoch


def sales(epochs: int, folder: Path) -> rd.Dataflow:
    """What each shop has sold so far, after every epoch in which it sold something."""
    flow = rd.Dataflow("sales")
    totals = flow.source(Orders(epochs), name="orders").key_by(lambda order: order[0]).sum(lambda order: order[1], name="totals")
    rows = totals.map(lambda total: {"shop": total[0], "sold": total[1]}, name="rows")
    rows.write_parquet(str(folder / "sold"), epoch_column="epoch", mode="overwrite")
    return flow


def expected(epochs: int) -> Counter[tuple[int, str, int]]:
    """The same in plain Python: how many times each (epoch, shop, sold) comes."""
    sold: Counter[str] = Counter()
    out: Counter[tuple[int, str, int]] = Counter()
    for epoch in range(epochs):
        orders = orders_of(epoch)
        for shop, amount in orders:
            sold[shop] += amount
        out.update((epoch, shop, sold[shop]) for shop in {shop for shop, _ in orders})
    return out


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--kills", default=3, show_default=True, type=click.IntRange(min=0), help="How many actors to kill.")
@click.option("--epochs", default=400, show_default=True, type=click.IntRange(min=1), help="How many epochs come, 20 a second.")
@click.option("--recovery", default="graph", show_default=True, type=click.Choice(["graph", "upstream"]), help="What begins anew.")
@click.option("--folder", type=click.Path(path_type=Path), help="For snapshots and output; a temporary one by default.")
def main(kills: int, epochs: int, recovery: Any, folder: Path | None) -> None:
    """Run the job, kill its actors, compare."""
    console = Console(highlight=False, soft_wrap=True)
    with tempfile.TemporaryDirectory(prefix="rayad-exactly-once-") as scratch:
        place = folder if folder is not None else Path(scratch)
        config = rd.RunConfig(
            storage_path=str(place / "jobs"),
            resume="never",  # each call is a run of its own, also in a folder that has been used before
            snapshots=rd.SnapshotConfig(interval_s=0.5),
            failures=rd.FailureConfig(max_failures=max(1, kills), recovery=recovery, delay_s=0.1, delay_max_s=1.0),
        )
        job = sales(epochs, place).submit(config, parallelism=2)
        for number in range(kills):
            kill_one(job, number, console)
        result = job.wait()
        report(console, result.statistics, place, epochs)


def kill_one(job: Any, number: int, console: Console) -> None:
    """Wait until a snapshot has been taken, then kill a replica; return when the job runs again."""
    while True:
        processes = job.pids()
        progress = job.progress()
        if progress.state.value in ("complete", "failed"):
            return
        if processes and progress.snapshot is not None and progress.failures == number:
            break
        time.sleep(0.1)
    vertex = sorted(processes)[number % len(processes)]
    console.print(f"killing a replica of {vertex!r}, process {processes[vertex][0]}, after snapshot {progress.snapshot.number}")
    os.kill(processes[vertex][0], signal.SIGKILL)
    while job.progress().failures == number and job.state.value == "running":
        time.sleep(0.1)


def report(console: Console, statistics: Any, place: Path, epochs: int) -> None:
    """Compare the committed output with plain Python."""
    rows = rd.read_committed(str(place / "sold")).to_table().to_pylist()
    found = Counter((row["epoch"], row["shop"], row["sold"]) for row in rows)
    wanted = expected(epochs)
    table = Table(header_style="bold", border_style="dim")
    table.add_column("after the run")
    table.add_column("count", justify="right")
    table.add_row("failures survived", str(statistics.failures))
    table.add_row("snapshots taken", str(len(statistics.snapshots)))
    table.add_row("figures committed", f"{found.total():,}")
    table.add_row("figures lost", f"{(wanted - found).total():,}")
    table.add_row("figures twice, or wrong", f"{(found - wanted).total():,}")
    console.print(table)
    if found != wanted:
        raise SystemExit("the committed output is not what plain Python computes")
    console.print("each figure is committed once, and is what plain Python computes")


if __name__ == "__main__":
    main()
