"""What the first snapshot after a recovery writes: a join over all time, or open windows or sessions, of which little has changed since.

``python -m benchmarks.snapshot_after_recovery join --rows 2000000`` runs a job in the local runtime with one replica: it brings so many
rows to each input, takes a snapshot, and ends. A second job resumes from that snapshot, brings one hundredth as many, and takes a snapshot,
several times. Printed is of each snapshot what was written into its folder, and how long it took; the results are checked. Inputs are the
two sides of a join, of streams or of collections, or one of events (``windows``, ``sessions``), of which none is over before the end.
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
MOMENTS, WIDTH = 100_000, 100
"""Event times are below the first; windows, and gaps of sessions, have the second."""


def side_of_join(side: int, number: int, rows: int) -> pa.RecordBatch:
    """A key of 8 bytes and a payload of 16; of a row in eight the other side has the key, too, and no other row has it."""
    keys = np.random.default_rng((side, number)).integers(1 << 40, 1 << 62, rows)
    shared = rows // SHARED_ONE_IN
    keys[:shared] = np.arange(shared) + number * BATCH_ROWS
    return pa.record_batch({"key": keys, "a": keys ^ 1, "b": keys ^ 2})


def events(side: int, number: int, rows: int) -> pa.RecordBatch:
    """Events of random keys at random moments."""
    chance = np.random.default_rng(number)
    return pa.record_batch(
        {"key": chance.integers(0, 1 << 62, rows), "at": chance.integers(0, MOMENTS, rows), "v": np.ones(rows, np.int64)}
    )


class Job:
    """A job that counts what it gives."""

    def __init__(self, state: str, folder: str, resume: str | None, *, parallelism: int = 1) -> None:
        self.found = 0
        self.is_join = state in ("join", "collection")
        self.batch_of = side_of_join if self.is_join else events
        flow = rd.Dataflow(state)
        names = ["left", "right"] if self.is_join else ["events"]
        bring = flow.collection if state == "collection" else flow.input
        streams: list[Any] = [bring(name) for name in names]
        if state == "collection":
            left, right = (stream.key_by("key") for stream in streams)
            out = left.join(right, name="state").changes()
        elif self.is_join:
            left, right = (stream.key_by("key") for stream in streams)
            out = left.join(right, name="state")
        else:
            windows = rd.windows.tumbling(WIDTH) if state == "windows" else rd.windows.session(WIDTH)
            out = streams[0].assign_timestamps("at", max_delay=MOMENTS).key_by("key").window(windows).sum("v", name="state")
        out.map_batches(self._keep).probe("out").collect("nothing")
        config = rd.RunConfig(storage_path=folder, resume=resume, snapshots=rd.SnapshotConfig(interval_s=None))
        self.job: Any = flow.submit(config, runtime="local", parallelism=parallelism)
        self.collections = [self.job.collection(name) for name in names] if state == "collection" else []
        self.inputs = [one.input for one in self.collections] or [self.job.input(name) for name in names]

    def _keep(self, rows: Any) -> list[Any]:
        self.found += rows.num_rows if self.is_join else int(rows.column(rows.num_columns - 1).to_numpy().sum())
        return []

    def due(self, rows: int) -> int:
        """What so many rows of each input give, which came at once."""
        return sum(min(BATCH_ROWS, rows - at) // SHARED_ONE_IN for at in range(0, rows, BATCH_ROWS)) if self.is_join else rows

    def take(self, first: int, rows: int) -> int:
        """Bring rows to all inputs; gives the number of the next batch."""
        for number in range(first, first - (-rows // BATCH_ROWS)):
            for side, source in enumerate(self.inputs):
                batch = self.batch_of(side, number, min(BATCH_ROWS, rows - (number - first) * BATCH_ROWS))
                if self.collections:
                    self.collections[side].insert(batch)
                else:
                    source.send(batch)
                source.advance_to(source.epoch + 1)
        self.job.probe("out").wait(self.inputs[0].epoch - 1)
        return first - (-rows // BATCH_ROWS)

    def snapshot(self, what: str) -> str:
        """Take one; prints what it wrote."""
        began_s = time.perf_counter()
        path: str = self.job.savepoint()
        took_s = time.perf_counter() - began_s
        written = sum(file.stat().st_size for file in Path(path).glob("*.part"))
        click.echo(f"{what}: {written / 1e6:.2f} MB written, in {took_s:.2f} s")
        return path

    def end(self) -> None:
        """Let the inputs end."""
        for source in self.inputs:
            source.close()
        self.job.wait()


@click.command()
@click.argument("state", type=click.Choice(["join", "collection", "windows", "sessions"]), default="join")
@click.option("--rows", default=2_000_000, show_default=True, help="Of each input.")
@click.option("--changes", default=3, show_default=True, help="So many snapshots after the recovery, each after one hundredth of the rows.")
def main(state: str, rows: int, changes: int) -> None:
    """Measure."""
    folder = tempfile.mkdtemp(prefix="rayad-files-")
    try:
        job = Job(state, folder, None)
        number, due = job.take(0, rows), job.due(rows)
        path = job.snapshot(f"{rows:,} rows an input")
        job.job.cancel()
        found, began_s, began_cpu_s = job.found, time.perf_counter(), time.process_time()
        job = Job(state, folder, path)
        for change in range(changes):
            number = job.take(number, rows // CHANGED_ONE_IN)
            if not change:
                took_s, cpu_s = time.perf_counter() - began_s, time.process_time() - began_cpu_s
                click.echo(
                    f"from the submission of the second job until it has taken more in: {took_s:.2f} s, {cpu_s:.2f} s of a processor"
                )
            job.snapshot(f"after {rows // CHANGED_ONE_IN:,} more")
            due += job.due(rows // CHANGED_ONE_IN)
        job.end()
        click.echo(f"results: {'exact' if found + job.found == due else f'WRONG: {found + job.found}, not {due}'}")
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
