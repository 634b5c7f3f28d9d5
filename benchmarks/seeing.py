"""What it costs a job to be seen: a page that a browser looks at, and the looks that metrics are made of.

One endless job of Python records keeps both processors busy. Another process has opened the job's page; it stays for the whole run, since
a driver that joins a cluster makes Ray start workers. Blocks of some seconds follow each other in turn: nobody looks at the page (its
actor asks for the status once in five seconds); that process reads its frames, as a browser does (once a second, frames are made and
sent); it asks for the status itself, ten times a second. The processor time of all processes below this one counts, those of Ray and of
the page too, less that of the process that looks: a browser is on another machine. Processor time a record says more than the rate, which
other work on the machine disturbs more than a look does.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from operator import itemgetter
from typing import Any
from urllib.request import urlopen

import psutil
import ray

import rayad as rd
from benchmarks import rows
from benchmarks.machine import ROOT, WORKER_NICE, python_path, ray_address
from benchmarks.measurement import Measurement, Ratio
from benchmarks.sources import Generated

TITLE = "What it costs to be seen"
NEEDS_RAY = True
NAME = "seen"
READY_S_MAX = 60.0
LOOKS_A_SECOND = 10
METRICS_EVERY_S = 5.0
NOBODY, PAGE, LOOKS = "nobody looks", "a browser on the page", f"{LOOKS_A_SECOND} looks a second"
SEES = "sees\n"


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured."""

    repetitions: int = 30
    block_s: float = 4.0
    settle_s: float = 1.0
    keys: int = 1_000
    batch_rows: int = 4_096
    batches_an_epoch: int = 64


FULL = Sizes()
QUICK = Sizes(repetitions=1, block_s=1.0, settle_s=0.0, batches_an_epoch=4)


class Drop(rd.Sink):
    """Keeps nothing."""

    def open(self, replica: int, parallelism: int) -> rd.SinkWriter:
        return Dropped()

    def publish(self, staged: Sequence[Any]) -> int:
        return sum(staged)


class Dropped(rd.SinkWriter):
    """Counts what it is given."""

    def __init__(self) -> None:
        self.rows = 0

    def write(self, time_of_batch: rd.Timestamp, batch: Any) -> None:
        self.rows += len(batch)

    def stage(self) -> int:
        return self.rows


def endless(part: int, sizes: Sizes) -> Iterator[rd.SourceBatch]:
    """Numbers without end, some batches an epoch."""
    at = batch = 0
    while True:
        yield rd.SourceBatch(batch // sizes.batches_an_epoch, list(range(at, at + sizes.batch_rows)))
        at, batch = at + sizes.batch_rows, batch + 1


def program(sizes: Sizes) -> rd.Dataflow:
    """A keyed sum of each epoch."""
    flow = rd.Dataflow(NAME)
    numbers = flow.source(Generated(rows.PARTS, lambda part: endless(part, sizes)), name="numbers")
    pairs = numbers.map(rows.Prepare(sizes.keys)).key_by(itemgetter(0))
    pairs.window(rd.windows.per_epoch()).sum(itemgetter(1), name="sum").sink(Drop(), name="drop")
    return flow


@dataclass(frozen=True, slots=True)
class Block:
    """What happened in some seconds: records that were consumed, and processor time."""

    records_s: float
    cpu_s: float
    records: int

    @property
    def cpu_us(self) -> float:
        """Microseconds of the processors a record."""
        return self.cpu_s / self.records * 1e6


def run(sizes: Sizes) -> Measurement:
    """One job; blocks of the three kinds in turn, each kind first as often as the others."""
    out = Measurement("seeing", TITLE, asdict(sizes))
    kinds = (NOBODY, PAGE, LOOKS)
    cost = {kind: out.new_series(f"processor time, {kind}", "us/record", str(WORKER_NICE)) for kind in kinds}
    rate = {kind: out.new_series(f"rate, {kind}", "records/s", str(WORKER_NICE)) for kind in kinds}
    job = program(sizes).submit(scaling=rd.ScalingConfig(parallelism=2))
    try:
        _await_flow(job)
        with viewer() as other:
            for repetition in range(sizes.repetitions):
                for kind in kinds[repetition % 3 :] + kinds[: repetition % 3]:
                    block = measured(job, other, kind, sizes)
                    cost[kind].add(block.cpu_us)
                    rate[kind].add(block.records_s)
        out.check("the job ran on, and nobody failed", job.progress().failures, 0)
    finally:
        job.cancel()
    out.ratios = [
        Ratio(cost[PAGE].name, cost[NOBODY].name, "below 1.02"),
        Ratio(rate[PAGE].name, rate[NOBODY].name, "above 0.98"),
        Ratio(cost[LOOKS].name, cost[NOBODY].name),
    ]
    each = (cost[LOOKS].median / cost[NOBODY].median - 1) / LOOKS_A_SECOND / METRICS_EVERY_S
    table = out.new_table("The metrics look once in five seconds: their share of the processor time, from that of the many looks", "share")
    table.add(f"{max(0.0, each):.3%}")
    return out


def measured(job: Any, other: subprocess.Popen[str], kind: str, sizes: Sizes) -> Block:
    """One block, while the process that looks does it in that way."""
    assert other.stdin is not None
    assert other.stdout is not None
    print(kind, file=other.stdin, flush=True)
    if other.stdout.readline() != SEES:
        raise RuntimeError(f"the process that looks ({kind}) ended: see its error above")
    time.sleep(sizes.settle_s)
    began, first, before = time.perf_counter(), _consumed(job), _cpu_s(other.pid)
    time.sleep(sizes.block_s)
    seconds, records, now = time.perf_counter() - began, _consumed(job) - first, _cpu_s(other.pid)
    return Block(records / seconds, sum(used - before.get(pid, 0.0) for pid, used in now.items()), records)


@contextmanager
def viewer() -> Iterator[subprocess.Popen[str]]:
    """The process that looks; it is told how, and answers when it has seen something."""
    command = [sys.executable, "-m", "benchmarks.seeing", ray_address()]
    environment = {**os.environ, "PYTHONPATH": python_path()}
    with subprocess.Popen(command, cwd=ROOT, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()  # Ray would print a stack at SIGTERM


def _consumed(job: Any) -> int:
    return sum(stage.records_in for stage in job.progress().stages)


def _await_flow(job: Any) -> None:
    deadline_s = time.monotonic() + READY_S_MAX
    while not _consumed(job):
        if time.monotonic() > deadline_s:
            raise RuntimeError(f"the job consumed nothing within {READY_S_MAX:g} s: {job.explain_stuck()}")
        time.sleep(0.1)


def _cpu_s(without: int | None) -> dict[int, float]:
    """Processor time of each process below this one."""
    found = {}
    for process in psutil.Process().children(recursive=True):
        if process.pid == without:
            continue
        try:
            times = process.cpu_times()
        except psutil.NoSuchProcess:
            continue
        found[process.pid] = times.user + times.system
    return found


class Looking(threading.Thread):
    """Looks in one way until it is stopped."""

    def __init__(self, job: Any, kind: str, url: str) -> None:
        super().__init__(daemon=True)
        self._job, self._kind, self._url = job, kind, url
        self.has_seen = threading.Event()
        self.stopped = threading.Event()

    def run(self) -> None:
        if self._kind == PAGE:
            with urlopen(f"{self._url}events") as stream:
                for line in stream:
                    if line.startswith(b"data: "):
                        self.has_seen.set()
                    if self.stopped.is_set():
                        return
        while self._kind == LOOKS and not self.stopped.wait(1 / LOOKS_A_SECOND):
            self._job.status()
            self.has_seen.set()
        self.has_seen.set()


def main() -> None:
    """The process that looks: the address of Ray in; then lines that say how to look, each answered when something has been seen."""
    ray.init(address=sys.argv[1], logging_level="ERROR", log_to_driver=False)
    job = rd.attach(NAME)
    url = job.page()
    looking = Looking(job, NOBODY, url)
    for line in sys.stdin:
        looking.stopped.set()
        looking = Looking(job, line.strip(), url)
        looking.start()
        looking.has_seen.wait(READY_S_MAX)
        print(SEES, end="", flush=True)


if __name__ == "__main__":
    main()
