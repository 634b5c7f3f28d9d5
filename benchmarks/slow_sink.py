"""Memory stays bounded when a sink is slower than its source.

An endless source makes a batch each millisecond; the sink needs ten milliseconds for each. The driver reads the memory of every actor
process while the job runs, then cancels the job. The same runs with a sink that needs no time. The batches in flight (read but not
yet consumed) must stay bounded, and with them memory.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import rayad as rd
from benchmarks.machine import actor_processes, resident_mib, settle
from benchmarks.measurement import Measurement, Ratio, Table

TITLE = "A sink slower than its source"
NEEDS_RAY = True
SOURCE_BATCH_S = 0.001
SLOWER = 10
READY_S_MAX = 60.0


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured."""

    repetitions: int = 3
    seconds: float = 20.0
    sample_s: float = 0.5
    batch_rows: int = 64
    row_bytes: int = 1_000
    window_batches: int = 64


FULL = Sizes()
QUICK = Sizes(repetitions=1, seconds=1.5, sample_s=0.25, window_batches=16)


def leave_mark(folder: str, what: str) -> None:
    """Tell the driver the process of this role; the driver reads its memory."""
    (Path(folder) / f"{what}.{os.getpid()}").touch()


class Endless(rd.Source):
    """Batches of fresh bytes without end, one a millisecond."""

    interleave = True

    def __init__(self, sizes: Sizes, folder: str) -> None:
        self.sizes, self.folder = sizes, folder

    def list_parts(self) -> range:
        return range(1)

    def build_part(self, part: int, resume: Any | None) -> rd.SourcePart:
        return EndlessPart(self.sizes, self.folder)


class EndlessPart(rd.SourcePart):
    """The one part."""

    def __init__(self, sizes: Sizes, folder: str) -> None:
        self.sizes = sizes
        self.made = 0
        leave_mark(folder, "source")

    def next_batch(self) -> rd.SourceBatch:
        time.sleep(SOURCE_BATCH_S)
        self.made += 1
        return rd.SourceBatch(0, [self.made.to_bytes(8, "little") * (self.sizes.row_bytes // 8) for _ in range(self.sizes.batch_rows)])

    def offset(self) -> int:
        return self.made


class PacedSink(rd.Sink):
    """Waits for each batch, and keeps nothing."""

    def __init__(self, pause_s: float, folder: str) -> None:
        self.pause_s, self.folder = pause_s, folder

    def open(self, replica: int, parallelism: int) -> rd.SinkWriter:
        leave_mark(self.folder, "sink")
        return PacedWriter(self.pause_s)

    def publish(self, staged: Sequence[Any]) -> int:
        return sum(staged)


class PacedWriter(rd.SinkWriter):
    """Of one replica."""

    def __init__(self, pause_s: float) -> None:
        self.pause_s = pause_s
        self.rows = 0

    def write(self, time_of_batch: rd.Timestamp, batch: Any) -> None:
        if self.pause_s:
            time.sleep(self.pause_s)
        self.rows += len(batch)

    def stage(self) -> int:
        return self.rows


def program(sizes: Sizes, pause_s: float, folder: str) -> rd.Dataflow:
    """Source, exchange, sink: two vertex actors."""
    flow = rd.Dataflow("slow-sink")
    flow.source(Endless(sizes, folder), name="source").rebalance().sink(PacedSink(pause_s, folder), name="sink")
    return flow


@dataclass(slots=True)
class Watched:
    """Observations of one run: by process, resident MiB over time; batches read and consumed; how the job ended."""

    at_s: list[float] = field(default_factory=list)
    resident: dict[str, list[float]] = field(default_factory=dict)
    under_way: list[int] = field(default_factory=list)
    read: int = 0
    consumed: int = 0
    seconds: float = 0.0
    cancel_s: float = 0.0
    left_over: int = 0


def names_of(folder: str) -> dict[int, str]:
    """Process of each role, from the marks, then the job's own actors."""
    marked = {int(path.suffix[1:]): path.stem for path in Path(folder).iterdir()}
    others = {pid: kind for pid, kind in actor_processes().items() if kind not in ("VertexActor", "WorkerActor")}
    return {**marked, **others}


def watch(sizes: Sizes, pause_s: float) -> Watched:
    """Start a job, look at it for some time, cancel it."""
    with tempfile.TemporaryDirectory() as folder:
        job = program(sizes, pause_s, folder).submit(rd.RunConfig(window_batches=sizes.window_batches), rd.ScalingConfig(parallelism=1))
        try:
            _await_flow(job)
            seen = Watched()
            names = names_of(folder)
            began = time.perf_counter()
            first = _counts(job)
            while (elapsed := time.perf_counter() - began) < sizes.seconds:
                read, consumed = _counts(job)
                seen.at_s.append(round(elapsed, 2))
                seen.under_way.append(read - consumed)
                for pid, name in names.items():
                    seen.resident.setdefault(name, []).append(round(resident_mib(pid) or 0.0, 2))
                time.sleep(sizes.sample_s)
            read, consumed = _counts(job)
            seen.seconds = time.perf_counter() - began
            seen.read, seen.consumed = read - first[0], consumed - first[1]
        finally:
            began = time.perf_counter()
            job.cancel()
        seen.cancel_s = time.perf_counter() - began
        seen.left_over = _await_end(set(names))
    return seen


def _counts(job: Any) -> tuple[int, int]:
    """Batches that the source has read and that the sink's replica has consumed."""
    stages = job.progress().stages
    return stages[0].batches_in, stages[-1].batches_in


def _await_flow(job: Any) -> None:
    deadline_s = time.monotonic() + READY_S_MAX
    while not (job.progress().stages and _counts(job)[1]):
        if time.monotonic() > deadline_s:
            raise TimeoutError(f"nothing reached the sink within {READY_S_MAX} s: {job.explain_stuck()}")
        time.sleep(0.05)


def _await_end(pids: set[int], timeout_s: float = 10.0) -> int:
    """Wait until the processes have ended, which Ray does a moment after the job; gives how many are left."""
    deadline_s = time.monotonic() + timeout_s
    while (left := len(pids & set(actor_processes()))) and time.monotonic() < deadline_s:
        time.sleep(0.05)
    return left


def run(sizes: Sizes) -> Measurement:
    """Slow and fast sink, in turn."""
    out = Measurement("slow_sink", TITLE, asdict(sizes))
    out.notes.append(
        f"Batch: {sizes.batch_rows} records of {sizes.row_bytes} bytes. Window: {sizes.window_batches} batches. "
        "The worker that an actor is in has loaded Ray and pyarrow before: the first figure of each process is mostly that."
    )
    pauses = {"slow sink": SLOWER * SOURCE_BATCH_S, "fast sink": 0.0}
    speed = {name: out.new_series(f"{name}: read", "batches/s", "15") for name in pauses}
    used = {name: out.new_series(f"{name}: consumed", "batches/s", "15") for name in pauses}
    cancel = out.new_series("cancel", "s", "0")
    times = ("first", "at 1/4", "at 1/2", "at 3/4", "last", "most")
    memory = out.new_table("Resident memory in MiB", "run", "process", *times, "most batches under way", "MiB read")
    for repetition in range(sizes.repetitions):
        for name, pause_s in pauses.items():
            settle()
            seen = watch(sizes, pause_s)
            out.check("no actor process was left after cancel", seen.left_over, 0)
            speed[name].add(seen.read / seen.seconds)
            used[name].add(seen.consumed / seen.seconds)
            cancel.add(seen.cancel_s)
            _add_rows(memory, f"{name} {repetition + 1}", seen, sizes)
            if pause_s:
                bound = 3 * sizes.window_batches
                out.check(f"batches under way stayed below {bound}", max(seen.under_way) < bound, True)
    out.ratios = [Ratio(used["slow sink"].name, speed["slow sink"].name, "1: the source is held to the sink's pace")]
    return out


def _add_rows(table: Table, name: str, seen: Watched, sizes: Sizes) -> None:
    read_mib = round(seen.read * sizes.batch_rows * sizes.row_bytes / (1 << 20), 1)
    for process, values in sorted(seen.resident.items()):
        quarters = [values[round(share * (len(values) - 1))] for share in (0, 0.25, 0.5, 0.75, 1)]
        table.add(name, process, *quarters, max(values), max(seen.under_way), read_mib)
