"""The cost of snapshots in a running job, and how soon it produces output again after a kill.

- Throughput with a snapshot every second, beside the same job without, one after the other, each first in turn: a keyed sum over a million
  keys, as columns and as rows, and a loop whose records are always in flight. Also a replica's longest pause, and the size of an
  increment beside the whole state when few keys change.
- The time from ``kill -9`` of a replica to the first new output, beside the time from the start of the job to its first output.
"""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

import rayad as rd
from benchmarks.machine import settle
from benchmarks.measurement import Measurement, Ratio

TITLE = "What snapshots and recovery cost"
NEEDS_RAY = True


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured.

    Args:
        keys: of the keyed sums.
        column_rows, row_rows: rows of a run.
        epoch_rows: rows of an epoch, which is one batch.
        tokens, rounds: records of the loop, and how many times each goes round.
        interval_s: from one snapshot to the next.
        few_keys: how many keys change between two snapshots, to measure increments.
        kills: how many times a replica is killed.
    """

    repetitions: int = 7
    keys: int = 1_000_000
    column_rows: int = 60_000_000
    row_rows: int = 10_000_000
    epoch_rows: int = 100_000
    tokens: int = 20_000
    rounds: int = 600
    interval_s: float = 1.0
    few_keys: int = 10_000
    kills: int = 5


FULL = Sizes()
QUICK = Sizes(
    repetitions=1,
    keys=2_000,
    column_rows=400_000,
    row_rows=100_000,
    epoch_rows=10_000,
    tokens=200,
    rounds=50,
    interval_s=0.1,
    few_keys=50,
    kills=1,
)


class Rows(rd.Source):
    """Epochs of random keys: one batch each, the same whenever they are read. With ``pause_s`` each comes at its time; after a failure
    epochs whose time is over come at once."""

    blocks = False

    def __init__(self, epochs: int, rows: int, keys: int, *, columnar: bool, pause_s: float = 0.0, first_all: bool = False) -> None:
        self.epochs, self.rows, self.keys = epochs, rows, keys
        self.columnar, self.pause_s, self.first_all = columnar, pause_s, first_all
        self.begin_s = time.time()

    def list_parts(self) -> list[int]:
        return [0]

    def build_part(self, part: int, resume: int | None) -> rd.SourcePart:
        return RowsPart(self, resume or 0)


class RowsPart(rd.SourcePart):
    """Reads :class:`Rows` from an epoch on."""

    VARIANTS = 8

    def __init__(self, source: Rows, epoch: int) -> None:
        self.source, self.epoch = source, epoch
        random = np.random.default_rng(5)
        self.keys = [random.integers(0, source.keys, source.rows) for _ in range(self.VARIANTS)]

    def next_batch(self) -> rd.SourceBatch | None:
        source, epoch = self.source, self.epoch
        if epoch >= source.epochs:
            return None
        if source.pause_s and time.time() < source.begin_s + epoch * source.pause_s:
            return rd.SourceBatch(epoch, [])
        keys = np.arange(source.keys) if source.first_all and not epoch else (self.keys[epoch % self.VARIANTS] + epoch) % source.keys
        self.epoch += 1
        if source.columnar:
            return rd.SourceBatch(epoch, pa.record_batch({"key": keys, "value": np.ones(len(keys), dtype=np.int64)}))
        return rd.SourceBatch(epoch, [(key, 1) for key in keys.tolist()])

    def epoch_floor(self) -> int:
        return self.epoch

    def offset(self) -> int:
        return self.epoch


def count_rows(batch: Any) -> list[int]:
    """Keep only the number of results."""
    return [batch.num_rows if isinstance(batch, pa.RecordBatch) else len(batch)]


def keyed(source: Rows) -> rd.Dataflow:
    """Running sums by key."""
    flow = rd.Dataflow("keyed")
    rows = flow.source(source, name="rows")
    by_key = rows.key_by("key") if source.columnar else rows.key_by(lambda row: row[0])
    sums = by_key.sum("value", name="sums") if source.columnar else by_key.sum(lambda row: row[1], name="sums")
    out = sums.map_batches(count_rows, name="counted")
    out.probe(name="out")
    out.collect("results")
    return flow


def step(record: tuple[int, int]) -> tuple[int, int]:
    """One round of a token: it gets another key."""
    return (record[0] * 48_271 + 11) % 2_147_483_647, record[1] - 1


def looping(tokens: int, rounds: int) -> rd.Dataflow:
    """Tokens that go round, each round to the replica of another key."""
    flow = rd.Dataflow("looping")

    def body(inner: rd.Stream) -> tuple[rd.Stream, rd.Stream]:
        stepped = inner.key_by(lambda record: record[0]).stateful_map(pass_on, initial=0, name="pass").map(lambda pair: pair[1])
        return stepped.filter(lambda record: record[1] > 0), stepped.filter(lambda record: record[1] == 0)

    flow.from_items([(key, rounds) for key in range(tokens)], name="tokens").iterate(body).collect("results")
    return flow


def pass_on(state: int, record: tuple[int, int]) -> tuple[None, tuple[int, int]]:
    """Keep nothing: the records in flight are the state."""
    return None, step(record)


@contextmanager
def storage() -> Iterator[str]:
    """A temporary folder for snapshots."""
    folder = tempfile.mkdtemp(prefix="rayad-bench-")
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def run_job(flow: rd.Dataflow, interval_s: float | None) -> tuple[Any, Any]:
    """Run it, with snapshots or without; gives results and statistics."""
    settle()
    if interval_s is None:
        result = flow.run(parallelism=2)
        return result, result.statistics
    with storage() as folder:
        config = rd.RunConfig(storage_path=folder, snapshots=rd.SnapshotConfig(interval_s=interval_s))
        result = flow.run(config, parallelism=2)
        return result, result.statistics


def run(sizes: Sizes) -> Measurement:
    """With and without in turn; then increments; then kills."""
    out = Measurement("snapshot_cost", TITLE, asdict(sizes))
    programs = {
        "columns": (sizes.column_rows, partial(_keyed, sizes, sizes.column_rows, columnar=True)),
        "rows": (sizes.row_rows, partial(_keyed, sizes, sizes.row_rows, columnar=False)),
        "loop": (sizes.tokens * sizes.rounds, partial(looping, sizes.tokens, sizes.rounds)),
    }
    for name, (units, build) in programs.items():
        without = out.new_series(f"{name}, without snapshots", "records/s", "?")
        with_them = out.new_series(f"{name}, a snapshot every {sizes.interval_s:g} s", "records/s", "?")
        pauses = out.new_series(f"{name}, longest pause of a replica", "ms", "?")
        for repetition in range(sizes.repetitions):
            both = [None, sizes.interval_s] if repetition % 2 == 0 else [sizes.interval_s, None]  # the machine's speed drifts
            done = {interval_s: run_job(build(), interval_s) for interval_s in both}
            (plain, statistics), (kept, with_statistics) = done[None], done[sizes.interval_s]
            without.add(units / statistics.run_s)
            with_them.add(units / with_statistics.run_s)
            taken = [one for one in with_statistics.snapshots if one.kind == "snapshot"]
            out.check(f"{name}: the results are the same", _total(kept), _total(plain))
            pauses.add(max((1000 * one.pause_s for one in taken), default=0.0))
        out.ratios.append(Ratio(with_them.name, without.name, "at least 0.97"))
    _increments(out, sizes)
    _recovery(out, sizes)
    return out


def _keyed(sizes: Sizes, rows: int, *, columnar: bool) -> rd.Dataflow:
    return keyed(Rows(max(1, rows // sizes.epoch_rows), sizes.epoch_rows, sizes.keys, columnar=columnar))


def _total(result: Any) -> int:
    return sum(record if isinstance(record, int) else record[1] + 1 for _, record in result["results"])


def _increments(out: Measurement, sizes: Sizes) -> None:
    """All keys once, then few keys: the bytes that a snapshot then writes, beside the whole state."""
    for name, columnar in (("columns", True), ("rows", False)):
        source = Rows(60, sizes.few_keys, sizes.keys, columnar=columnar, pause_s=sizes.interval_s / 5, first_all=True)
        with storage() as folder:
            config = rd.RunConfig(storage_path=folder, snapshots=rd.SnapshotConfig(interval_s=sizes.interval_s))
            taken = keyed(source).run(config, parallelism=2).statistics.snapshots
        wanted = [one for one in taken if one.kind == "snapshot" and one.total_bytes]
        # The snapshot with nearly all keys may itself be an increment (on one with few), so it is found by its bytes.
        whole = max(wanted, key=lambda one: one.written_bytes, default=None)
        few = [one for one in wanted if whole is not None and one.number > whole.number and one.incremental_replicas == 2]
        if few and whole:
            full = out.new_series(f"{name}, whole state of {sizes.keys:,} keys", "bytes", "?")
            part = out.new_series(f"{name}, increment, about {5 * sizes.few_keys:,} keys changed", "bytes", "?")
            pause = out.new_series(f"{name}, longest pause for an increment", "ms", "?")
            part.add(*(one.written_bytes for one in few))
            pause.add(*(1000 * one.pause_s for one in few))
            full.add(whole.written_bytes)
            out.ratios.append(Ratio(part.name, full.name))


def _recovery(out: Measurement, sizes: Sizes) -> None:
    """Kill a replica of the sums several times, and measure when the next epoch is complete."""
    source = Rows(1_000_000, 1_000, sizes.keys, columnar=True, pause_s=0.01, first_all=True)
    starting = out.new_series("from the start of a job to its first output", "s", "?")
    back = out.new_series("from kill -9 to the first new output", "s", "?")
    with storage() as folder:
        snapshots, failures = rd.SnapshotConfig(interval_s=sizes.interval_s), rd.FailureConfig(max_failures=sizes.kills, delay_s=0)
        config = rd.RunConfig(storage_path=folder, snapshots=snapshots, failures=failures)
        began_s = time.monotonic()
        job = keyed(source).submit(config, parallelism=2)
        probe = job.probe("out")
        probe.wait(0, 120)
        starting.add(time.monotonic() - began_s)
        took_s = []
        try:
            for _ in range(sizes.kills):
                time.sleep(3 * sizes.interval_s)
                victim = job.pids()["sums"][0]
                epoch = int((time.time() - source.begin_s) / source.pause_s) + 2
                os.kill(victim, signal.SIGKILL)
                probe.wait(epoch, 120)
                took_s.append(time.time() - (source.begin_s + epoch * source.pause_s))
        finally:
            job.cancel()
    back.add(*took_s)
    out.ratios.append(Ratio(back.name, starting.name))
