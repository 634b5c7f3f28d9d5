"""What the first snapshot after a recovery writes: a join over all time with much state, of which little has changed since.

``python -m benchmarks.snapshot_after_recovery --rows 2000000`` runs a job in the local runtime with one replica: it brings so many rows to
each side, takes a snapshot, and ends. A second job resumes from that snapshot, brings one hundredth as many, and takes a snapshot, several
times. Printed is of each snapshot what was written into its folder, and how long it took; the results are checked.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

import click
import numpy as np
import pyarrow as pa

import rayad as rd

BATCH_ROWS = 50_000
SHARED_ONE_IN = 8
CHANGED_ONE_IN = 100


def batch(side: int, number: int, rows: int) -> pa.RecordBatch:
    """A key of 8 bytes and a payload of 16; of a row in eight the other side has the key, too, and no other row has it."""
    keys = np.random.default_rng((side, number)).integers(1 << 40, 1 << 62, rows)
    shared = rows // SHARED_ONE_IN
    keys[:shared] = np.arange(shared) + number * BATCH_ROWS
    return pa.record_batch({"key": keys, "a": keys ^ 1, "b": keys ^ 2})


class Job:
    """A join that counts its pairs."""

    def __init__(self, folder: str, resume: str | None) -> None:
        self.pairs = 0
        flow = rd.Dataflow("join")
        left, right = (flow.input(name).key_by("key") for name in ("left", "right"))
        left.join(right, name="join").map_batches(self._keep).probe("joined").collect("nothing")
        config = rd.RunConfig(storage_path=folder, resume=resume, snapshots=rd.SnapshotConfig(interval_s=None))
        self.job: Any = flow.submit(config, runtime="local", parallelism=1)
        self.inputs = [self.job.input(name) for name in ("left", "right")]

    def _keep(self, rows: Any) -> list[Any]:
        self.pairs += rows.num_rows
        return []

    def take(self, first: int, rows: int) -> int:
        """Bring rows to both sides; gives the number of the next batch."""
        for number in range(first, first - (-rows // BATCH_ROWS)):
            for side, source in enumerate(self.inputs):
                source.send(batch(side, number, min(BATCH_ROWS, rows - (number - first) * BATCH_ROWS)))
                source.advance_to(source.epoch + 1)
        self.job.probe("joined").wait(self.inputs[0].epoch - 1)
        return first - (-rows // BATCH_ROWS)

    def snapshot(self, what: str) -> str:
        """Take one; prints what it wrote."""
        began_s = time.perf_counter()
        path: str = self.job.savepoint()
        took_s = time.perf_counter() - began_s
        written = sum(file.stat().st_size for file in Path(path).glob("*.part"))
        click.echo(f"{what}: {written / 1e6:.2f} MB written, in {took_s:.2f} s")
        return path


@click.command()
@click.option("--rows", default=2_000_000, show_default=True, help="Of each side.")
@click.option("--changes", default=3, show_default=True, help="So many snapshots after the recovery, each after one hundredth of the rows.")
def main(rows: int, changes: int) -> None:
    """Measure."""
    folder = tempfile.mkdtemp(prefix="rayad-files-")
    try:
        job = Job(folder, None)
        number, due = job.take(0, rows), 0
        path = job.snapshot(f"{rows:,} rows a side")
        job.job.cancel()
        pairs, began_s = job.pairs, time.perf_counter()
        job = Job(folder, path)
        for _ in range(changes):
            number = job.take(number, rows // CHANGED_ONE_IN)
            if not due:
                click.echo(f"from the submission of the second job to its first results: {time.perf_counter() - began_s:.2f} s")
            job.snapshot(f"after {rows // CHANGED_ONE_IN:,} more")
            due += rows // CHANGED_ONE_IN // SHARED_ONE_IN
        due += sum(min(BATCH_ROWS, rows - at) // SHARED_ONE_IN for at in range(0, rows, BATCH_ROWS))
        click.echo(f"pairs: {'exact' if pairs + job.pairs == due else f'WRONG: {pairs + job.pairs}, not {due}'}")
        job.job.cancel()
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
