"""Makes a topology easy to disturb: slow barriers, slow parts, slow commits, faults on demand, marks.

Marks are lines in a file, ``<what> <seconds since the epoch> <process>``, that vertices and the coordinator of the job write at certain
points.
"""

from __future__ import annotations

import os
import random
import time
from pathlib import Path
from time import monotonic
from typing import Any, Literal, NamedTuple

import rayad as rd
from rayad.integrations import ParquetSink
from tests.cluster.recovering import Paced
from tests.programs import model
from tests.programs.catalog import TOPOLOGIES

PAUSE_S = 0.03
"""How long each batch of a source takes."""
TARDY_S = 0.25
"""How long a batch of the tardy source takes: its barrier may be late by as much, and the vertices behind it align meanwhile."""
WRITING_S = 0.15
"""How long pickling the state of the watching vertex takes, in the forked copy of its process."""
COMMIT_S = 0.1
RECV_EVERY_S = 0.05
BALLAST_BYTES = 300_000
FAULTS = ("on_recv", "checkpoint", "restore")
"""Methods in which the watching vertex raises, once, when a file ``raise-<where>`` is in the folder of the run."""


class Mark(NamedTuple):
    """One line."""

    what: str
    when_s: float
    pid: int


def mark(folder: str, what: str) -> None:
    """Add a line; one write, so that lines of several processes do not mix."""
    try:
        with open(f"{folder}/marks", "ab", buffering=0) as file:
            file.write(f"{what} {time.time():.4f} {os.getpid()}\n".encode())
    except OSError:
        pass  # a fault limits the size of files


def read_marks(folder: Path, start: int) -> tuple[list[Mark], int]:
    """The whole lines from a position on, and the position behind them."""
    path = folder / "marks"
    if not path.exists():
        return [], start
    with path.open("rb") as file:
        file.seek(start)
        data = file.read()
    whole = data[: data.rfind(b"\n") + 1]
    return [Mark(words[0], float(words[1]), int(words[2])) for words in map(str.split, whole.decode().splitlines())], start + len(whole)


def raise_if_told(folder: str, where: str) -> None:
    """Remove the file, then raise."""
    try:
        os.unlink(f"{folder}/raise-{where}")
    except OSError:
        return
    mark(folder, f"raised-{where}")
    raise RuntimeError(f"told to raise in {where}")


class SlowPickle:
    """An object whose pickling is slow."""

    def __init__(self, data: bytes, pause_s: float) -> None:
        self.data = data
        self.pause_s = pause_s

    def __reduce__(self) -> Any:
        time.sleep(self.pause_s)
        return SlowPickle, (self.data, self.pause_s)


class Watch(rd.Vertex):
    """Sends records on, and writes a mark when they arrive."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.told_s = 0.0
        self.ballast = SlowPickle(os.urandom(BALLAST_BYTES), WRITING_S)

    def on_recv(self, edge: int, batch: Any, time: rd.Timestamp) -> None:
        raise_if_told(self.folder, "on_recv")
        self.send_by(0, batch, time)
        now_s = monotonic()
        if now_s - self.told_s > RECV_EVERY_S:
            self.told_s = now_s
            mark(self.folder, "recv")

    def checkpoint(self) -> Any:
        raise_if_told(self.folder, "checkpoint")
        return {"ballast": self.ballast}

    def restore(self, state: Any) -> None:
        raise_if_told(self.folder, "restore")
        self.ballast = state["ballast"]


class SlowParquet(ParquetSink):
    """A sink with slow commits, which marks their beginning and end."""

    def __init__(self, folder: str) -> None:
        super().__init__(f"{folder}/out", epoch_column="epoch", mode="overwrite")
        self.folder = folder

    def commit(self, snapshot: int, staged: Any) -> Any:
        mark(self.folder, "commit-begins")
        time.sleep(COMMIT_S)
        receipt = super().commit(snapshot, staged)
        time.sleep(COMMIT_S)
        mark(self.folder, "commit-ended")
        return receipt


def tardy_epochs(count: int) -> list[list[Any]]:
    """The input of the tardy source, which ends a little before the others."""
    return [[("tardy", epoch)] for epoch in range(count // 10)]


def disturbed_flow(name: str, seed: int, count: int, folder: str) -> rd.Dataflow:
    """A topology with the watching vertex, the tardy source and the slow sink."""

    def built() -> None:
        mark(folder, "source")

    topology = TOPOLOGIES[name]
    flow, stream = topology.flow("chaos", topology.epochs(seed, count), lambda epochs: Paced(epochs, pause_s=PAUSE_S, built=built))
    tardy = flow.source(Paced(tardy_epochs(count), pause_s=TARDY_S, built=built), name="tardy")
    watched = stream.union(tardy).single().vertex(lambda: Watch(folder), name="watch", parallelism=1)
    watched.collect("out")
    watched.map(lambda record: {"record": repr(record)}).sink(SlowParquet(folder), name="files")
    return flow


def disturbed_model(name: str, seed: int, count: int) -> model.Timed:
    """The right result of :func:`disturbed_flow`."""
    topology = TOPOLOGIES[name]
    return topology.model(topology.epochs(seed, count)) + model.epochs(tardy_epochs(count))


def recovery_of(seed: int) -> Literal["graph", "upstream"]:
    """The kind of recovery of a seed's run."""
    return "upstream" if seed % 2 else "graph"


def run_config(seed: int, folder: str, heartbeat_timeout_s: float, cpus_per_replica: float) -> rd.RunConfig:
    """Each seed has its mode of alignment and of recovery."""
    rng = random.Random(f"config/{seed}")
    snapshots = rd.SnapshotConfig(interval_s=0.4, alignment_timeout_s=rng.choice([None, None, 0, 0.1]), keep=3)
    delays = {"delay_s": 0.1, "delay_max_s": 1.0}  # so many kills are one row
    failures = rd.FailureConfig(max_failures=1000, heartbeat_timeout_s=heartbeat_timeout_s, recovery=recovery_of(seed), **delays)
    options = {"storage_path": folder, "resume": "latest", "cpus_per_replica": cpus_per_replica}
    return rd.RunConfig(snapshots=snapshots, failures=failures, **options)
