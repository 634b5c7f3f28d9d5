"""A job with much state on Ray: snapshots, a recovery and a change of layout: ``python -m benchmarks.large_state --rows 3000000``.

A join over all time, in two workers, gets so many rows on each side: a key of 8 bytes and a payload of 16. Then one hundredth as many come,
and a snapshot is taken; a worker is killed while rows go on coming; and a third replica is added. Printed are what each snapshot wrote and
how long it took, the time from the kill to the first pair that a new process gives, the memory of processes that is no page of a file, and
how long the change of layout took. Every row of the left side meets one of the right.
"""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import click
import numpy as np
import pyarrow as pa

import rayad as rd
from benchmarks.machine import own_ray

BATCH_ROWS = 50_000
CHANGED_ONE_IN = 100
GOES_ON_S, GOES_ON_ROWS = 0.05, 500
INTERVAL_S = 3.0
TIMEOUT_S = 1_800.0
ODD = np.uint64(0x9E3779B97F4A7C15)


class Side(rd.Source):
    """Batches in two parts, one behind the other, as many as the file ``gate`` says first; those from its second number on are small."""

    blocks = False

    def __init__(self, gate: Path) -> None:
        self.gate = gate

    def list_parts(self) -> list[int]:
        return [0, 1]

    def build_part(self, part: int, resume: int | None) -> rd.SourcePart:
        return _Part(self.gate, part, resume or 0)


class _Part(rd.SourcePart):
    def __init__(self, gate: Path, part: int, at: int) -> None:
        self.gate, self.part, self.at = gate, part, at
        self.most = self.large = 0

    def next_batch(self) -> rd.SourceBatch | None:
        if self.at >= self.most:
            self.most, self.large = map(int, self.gate.read_text(encoding="ascii").split())
        if self.at >= self.most:
            return rd.SourceBatch(self.at, [])
        self.at += 1
        return rd.SourceBatch(self.at - 1, batch_of(self.part, self.at - 1, self.at <= self.large))

    def epoch_floor(self) -> int:
        return self.at

    def offset(self) -> int:
        return self.at


def batch_of(part: int, number: int, is_large: bool) -> pa.RecordBatch:
    """Keys without order, each once."""
    first = (2 * number + part) * (BATCH_ROWS // 2)
    rows = (BATCH_ROWS if is_large else GOES_ON_ROWS) // 2
    keys = (np.arange(first, first + rows, dtype=np.uint64) * ODD).view(np.int64)
    return pa.record_batch({"key": keys, "a": keys ^ 1, "b": keys ^ 2})


def noted(folder: Path, batch: pa.RecordBatch) -> list[Any]:
    """Say which process gives how many pairs, and when."""
    if batch.num_rows:
        with (folder / f"pairs-{os.getpid()}").open("a", encoding="ascii") as file:
            file.write(f"{time.time()} {batch.num_rows}\n")
    return []


def program(gates: tuple[Path, Path], folder: Path) -> rd.Dataflow:
    """The join."""
    flow = rd.Dataflow("large-state")
    left, right = (flow.source(Side(gate), name=name).key_by("key") for gate, name in zip(gates, ("left", "right"), strict=True))
    left.join(right, name="state").map_batches(partial(noted, folder)).probe("seen").collect("nothing")
    return flow


def anonymous_mb(pid: int) -> float:
    """Memory of a process that is no page of a file; 0: it has ended."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii").splitlines()
    except OSError:
        return 0.0
    return next((int(line.split()[1]) / 1e3 for line in lines if line.startswith("Anonymous:")), 0.0)


class Running:
    """The job, and its gates."""

    def __init__(self, folder: Path, bound_mib: int) -> None:
        self.folder, self.batches, self.large = folder, 0, 0
        self.gates = folder / "gate-left", folder / "gate-right"
        self.open_to(0)
        snapshots = rd.SnapshotConfig(interval_s=INTERVAL_S)
        failures = rd.FailureConfig(max_failures=10, delay_s=0.0)
        bound = bound_mib << 20 if bound_mib else None
        config = rd.RunConfig(
            storage_path=str(folder / "job"),
            snapshots=snapshots,
            failures=failures,
            state_memory_bytes=bound,
            spill_directory=str(folder),
            cpus_per_replica=0.01,
        )
        scaling = rd.ScalingConfig(parallelism=2, placement="workers")
        self.job: Any = program(self.gates, folder).submit(config, scaling)
        self.peak_mb: dict[int, float] = {}
        self._over = threading.Event()
        self._watcher = threading.Thread(target=self._watch, daemon=True)
        self._watcher.start()

    def open_to(self, batches: int, *, are_large: bool = True) -> None:
        """Let so many batches of each side come."""
        self.large = batches if are_large else self.large
        for gate in self.gates:
            new = gate.with_suffix(".new")
            new.write_text(f"{batches} {self.large}", encoding="ascii")
            new.replace(gate)
        self.batches = batches

    def await_all(self) -> None:
        """Wait until all that may come has been joined."""
        assert self.job.probe("seen").wait(self.batches - 1, timeout_s=TIMEOUT_S)

    def pids(self) -> list[int]:
        """Of the processes with state."""
        return sorted({pid for name, some in self.job.pids().items() if name == "state" for pid in some})

    def newest(self) -> int:
        """The number of the last snapshot."""
        status = self.job.status().snapshot
        return status.number if status is not None else -1

    def snapshots(self, last: int) -> tuple[float, int, int]:
        """The snapshots behind this one, until one holds all: seconds of the last, bytes that all wrote, bytes that it has."""
        first, written = max(last, self.newest()), 0
        until_s = time.monotonic() + TIMEOUT_S
        while last < first + 2:  # the next one may have begun before
            found = self.job.status().snapshot
            if found is not None and found.number > last:
                last, written = found.number, written + found.written_bytes
            assert time.monotonic() < until_s, "no snapshot was taken"
            time.sleep(0.05)
        return found.took_s, written, found.total_bytes

    @contextmanager
    def going_on(self) -> Iterator[None]:
        """Within the block a small batch comes twenty times a second."""
        over = threading.Event()

        def go() -> None:
            while not over.wait(GOES_ON_S):
                self.open_to(self.batches + 1, are_large=False)

        thread = threading.Thread(target=go, daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    def first_pair_s(self, since_s: float, old: set[int]) -> float:
        """When a process that was not there before has given its first pair, from then on."""
        until_s = time.monotonic() + TIMEOUT_S
        while time.monotonic() < until_s:
            for path in self.folder.glob("pairs-*"):
                if int(path.name.split("-")[1]) not in old:
                    return float(path.read_text(encoding="ascii").split()[0]) - since_s
            time.sleep(0.01)
        raise TimeoutError("no pair came after the kill")

    def close(self) -> None:
        self._over.set()
        self._watcher.join()
        self.job.cancel()

    def _watch(self) -> None:
        while not self._over.wait(0.2):
            try:
                for pid in self.pids():
                    self.peak_mb[pid] = max(self.peak_mb.get(pid, 0.0), anonymous_mb(pid))
            except (rd.DataflowError, OSError, RuntimeError):
                continue  # it recovers


def timed(what: str, do: Callable[[], Any]) -> Any:
    """Do it, and say how long it took."""
    began_s = time.monotonic()
    found = do()
    click.echo(f"{what}: {time.monotonic() - began_s:.1f} s")
    return found


@click.command()
@click.option("--rows", default=3_000_000, show_default=True, help="Of each side.")
@click.option("--bound-mib", default=128, show_default=True, help="RunConfig.state_memory_bytes of each replica, in MiB; 0: none.")
@click.option("--folder", type=click.Path(), help="For the snapshots and the files of state; a temporary one by default.")
def main(rows: int, bound_mib: int, folder: str | None) -> None:
    """Measure."""
    place = Path(tempfile.mkdtemp(prefix="rayad-large-", dir=folder))
    try:
        with own_ray():
            measure(Running(place, bound_mib), rows, place)
    finally:
        shutil.rmtree(place, ignore_errors=True)


def measure(running: Running, rows: int, folder: Path) -> None:
    """All of it, in order."""

    def told(what: str, found: tuple[float, int, int]) -> None:
        took_s, written, total = found
        click.echo(f"{what}: {took_s:.2f} s, {written / 1e6:,.0f} MB written, {total / 1e6:,.0f} MB of state")

    def told_peak() -> None:
        peaks = ", ".join(f"{peak:,.0f}" for peak in running.peak_mb.values())
        click.echo(f"memory that is no page of a file, at most, MB: {peaks}")
        running.peak_mb.clear()

    try:
        since = running.newest()
        running.open_to(max(1, rows // BATCH_ROWS))
        timed(f"{rows:,} rows a side have come", running.await_all)
        told("snapshots of all", running.snapshots(since))
        told_peak()
        since = running.newest()
        running.open_to(running.batches + max(1, running.batches // CHANGED_ONE_IN))
        running.await_all()
        told("snapshots since, of a change of one in a hundred", running.snapshots(since))
        told_peak()
        with running.going_on():
            since, old = running.newest(), set(running.pids())
            began_s = time.time()
            os.kill(min(old), signal.SIGKILL)
            click.echo(f"from a kill to the first pair of a new process: {running.first_pair_s(began_s, old):.1f} s")
            told("snapshots since", running.snapshots(since))
            told_peak()
            since = running.newest()
            report = timed("2 to 3 replicas", lambda: running.job.rescale("state", 3, timeout_s=TIMEOUT_S))
            click.echo(f"{report}")
        running.await_all()
        told("snapshots since", running.snapshots(since))
        told_peak()
    finally:
        running.close()


if __name__ == "__main__":
    main()
