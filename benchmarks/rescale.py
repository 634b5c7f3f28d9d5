"""Rescaling under load: its effect on the output.

A source gives every key once, then records by the clock, whether the system keeps up or not (an open loop). A keyed vertex
counts them, with a million keys of state, and a sink notes the age of each record. Meanwhile the vertex changes from 1 replica to 4 and to
2:

- *fluid*: ``job.rescale``, a few key-groups at a time; *all at once*: the same with all key-groups that move in one step.
- *restart*: the alternative: a savepoint, the end of the job, and a job that resumes from it with the other number of replicas.

The *gap* is the longest time without any output. The *latency* is that of the records made during a change, beside that of the records made
before the first one. The benchmark fails unless every record is counted exactly once, and in order within its key.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
import uuid
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

import rayad as rd
from benchmarks.machine import settle
from benchmarks.measurement import Measurement, Ratio, Series, WrongResult, quantile
from rayad.actors.job import Job, JobState
from rayad.actors.lead.layouts import RescaleReport

TITLE = "Rescaling under load"
NEEDS_RAY = True
KINDS = ("fluid", "all at once", "restart")


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured.

    Args:
        keys: of the counting vertex; all come at the beginning.
        rate_per_s: records made by the clock.
        batch: records of one batch of the source.
        steady_s: how long is measured before the first change, and between two.
        replicas: of the vertex, one after the other.
        young_s: the job keeps up with its source if records are no older than this in the sink.
    """

    repetitions: int = 3
    keys: int = 1_000_000
    rate_per_s: int = 20_000
    batch: int = 100
    steady_s: float = 6.0
    replicas: tuple[int, ...] = (1, 4, 2)
    young_s: float = 0.05


FULL = Sizes()
QUICK = Sizes(repetitions=1, keys=5_000, rate_per_s=4_000, steady_s=0.3, replicas=(1, 2), young_s=2.0)


class Clocked(rd.Source):
    """Every key once, then records by the clock, until a file appears that ends it."""

    blocks = False

    def __init__(self, sizes: Sizes, folder: str) -> None:
        self.sizes, self.folder = sizes, folder

    def list_parts(self) -> list[int]:
        return [0]

    def build_part(self, part: int, resume: Any | None) -> rd.SourcePart:
        return ClockedPart(self, resume)


class ClockedPart(rd.SourcePart):
    """``(key, number of the record, when it was due)``; the offset is the number of records so far, and the start of the clock."""

    LOADED = 10_000

    def __init__(self, source: Clocked, resume: tuple[int, float] | None) -> None:
        self.sizes, self.end = source.sizes, Path(source.folder) / "enough"
        self.made, self.begin_s = resume or (0, 0.0)
        self.looked_s = 0.0

    def next_batch(self) -> rd.SourceBatch | None:
        sizes, made = self.sizes, self.made
        if made < sizes.keys:
            self.made = min(sizes.keys, made + self.LOADED)
            return rd.SourceBatch(0, [(number, number, 0.0) for number in range(made, self.made)])
        now = time.time()
        if not self.begin_s:
            self.begin_s = now
        if now - self.looked_s > 0.1:
            self.looked_s = now
            if self.end.exists():
                return None
        due = int((now - self.begin_s) * sizes.rate_per_s) - (made - sizes.keys)
        if due < sizes.batch:
            return rd.SourceBatch(0, [])
        self.made += sizes.batch
        begin = made - sizes.keys
        numbers = range(begin, begin + sizes.batch)
        return rd.SourceBatch(0, [(n * 7919 % sizes.keys, sizes.keys + n, self.begin_s + n / sizes.rate_per_s) for n in numbers])

    def epoch_floor(self) -> int:
        return 0

    def offset(self) -> tuple[int, float]:
        return self.made, self.begin_s


def count(state: int, record: tuple[int, int, float]) -> tuple[int, tuple[int, int, float]]:
    """How many times a key has come."""
    return state + 1, (state + 1, record[1], record[2])


class Ages(rd.Sink):
    """When records came and their age, in files of their own, which stay when a job is ended."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def open(self, replica: int, parallelism: int) -> rd.SinkWriter:
        return AgesWriter(self.folder)

    def publish(self, staged: Sequence[Any]) -> dict[str, int]:
        return {"records": sum(part[0] for part in staged), "counts": sum(part[1] for part in staged)}


class AgesWriter(rd.SinkWriter):
    """Of one replica."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.ages: list[tuple[float, float]] = []
        self.records = self.counts = 0
        self.last_s = time.time()

    def write(self, at: rd.Timestamp, batch: Any) -> None:
        now = time.time()
        for _, (seen, _, due_s) in batch:
            self.records += 1
            self.counts += seen
            if due_s:
                self.ages.append((now, now - due_s))
        if now - self.last_s > 0.5:
            self.flush()

    def flush(self) -> None:
        self.last_s = time.time()
        if self.ages:
            np.save(Path(self.folder) / f"{uuid.uuid4().hex}.npy", np.array(self.ages))
            self.ages = []

    def stage(self) -> tuple[int, int]:
        self.flush()
        told, self.records, self.counts = (self.records, self.counts), 0, 0
        return told

    def abort(self) -> None:
        self.flush()


@dataclass(slots=True)
class Run:
    """The outcome of one run: seconds by change, and the latencies before the first change."""

    steady: np.ndarray
    gaps: list[float]
    latencies: list[np.ndarray]
    took: list[float]
    pauses: list[float]
    paused_share: float
    counted: tuple[int, int] | None = None
    """The sum of all counts, and its right value; None in a run whose jobs were ended, since part of the output is lost with them."""


def start(sizes: Sizes, folder: str, replicas: int, *, kind: str, resume: str | None = None) -> Job:
    """Start the job, with a store if it will have to be started again."""
    flow = rd.Dataflow("rescaled")
    records = flow.source(Clocked(sizes, folder), name="clock")
    records.key_by(lambda record: record[0]).stateful_map(count, 0, name="count").sink(Ages(folder), "ages")
    store = f"{folder}/store" if kind == "restart" else None
    run = rd.RunConfig(storage_path=store, resume=resume, rescale_pause_s=None if kind == "all at once" else 0.015)
    return flow.submit(run, rd.ScalingConfig(parallelism={"count": replicas}))


def measure_run(sizes: Sizes, kind: str) -> Run:
    """One run through all numbers of replicas."""
    folder = tempfile.mkdtemp(prefix="rayad-rescale-")
    try:
        job = start(sizes, folder, sizes.replicas[0], kind=kind)
        until_steady(job, folder, sizes.young_s)
        changes: list[tuple[float, float]] = []
        pauses: list[RescaleReport] = []
        running_s = time.time()
        time.sleep(sizes.steady_s)
        for replicas in sizes.replicas[1:]:
            began_s = time.time()
            if kind == "restart":
                path = job.savepoint()
                job.cancel()
                job = start(sizes, folder, replicas, kind=kind, resume=path)
                while job.progress().state.value != "running":
                    time.sleep(0.01)
            else:
                pauses.append(job.rescale("count", replicas))
            changes.append((began_s, time.time()))
            time.sleep(sizes.steady_s)
        (Path(folder) / "enough").touch()
        share = sum(change.paused_s for change in pauses) / (time.time() - running_s)
        told = job.wait(120)["ages"]
        found = summed(folder, changes, [change.pause_s for change in pauses], share)
        if kind != "restart":
            often = np.bincount(np.arange(told["records"] - sizes.keys) * 7919 % sizes.keys, minlength=sizes.keys) + 1
            found.counted = told["counts"], int((often * (often + 1) // 2).sum())
        return found
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def until_steady(job: Job, folder: str, young_s: float, timeout_s: float = 120.0) -> None:
    """Wait until the job keeps up: records by the clock are young in the sink."""
    deadline_s = time.monotonic() + timeout_s
    while time.monotonic() < deadline_s:
        files = sorted(Path(folder).glob("*.npy"), key=os.path.getmtime)
        if files and float(np.load(files[-1])[-1, 1]) < young_s:
            return
        if job.state is JobState.FAILED:
            job.wait()
        time.sleep(0.1)
    raise WrongResult(f"the job did not keep up with its source within {timeout_s} s")


def summed(folder: str, changes: list[tuple[float, float]], pauses: list[float], share: float) -> Run:
    """Gaps and latencies of each change, and before the first."""
    ages = np.concatenate([np.load(path) for path in Path(folder).glob("*.npy")])
    ages = ages[np.argsort(ages[:, 0], kind="stable")]
    came, old = ages[:, 0], ages[:, 1]
    made = came - old
    steady = old[(came < changes[0][0]) & (came > changes[0][0] - 5.0)]
    gaps, latencies = [], []
    for began_s, ended_s in changes:
        around = came[(came > began_s - 1.0) & (came < ended_s + 2.0)]
        gaps.append(float(np.diff(around).max()))
        latencies.append(old[(made >= began_s) & (made <= ended_s)])
    return Run(steady, gaps, latencies, [ended - began for began, ended in changes], pauses, share)


def run(sizes: Sizes) -> Measurement:
    """All kinds in turn."""
    out = Measurement("rescale", TITLE, asdict(sizes))
    steps = [f"{a} to {b}" for a, b in zip(sizes.replicas, sizes.replicas[1:], strict=False)]
    series: dict[str, Series] = {}
    shares: dict[str, list[float]] = {}

    def add(name: str, value_s: float) -> None:
        if name not in series:
            series[name] = out.new_series(name, "ms", "15")
        series[name].add(1e3 * value_s)

    for _ in range(sizes.repetitions):
        for kind in KINDS:
            settle()
            found = measure_run(sizes, kind)
            if found.counted is not None:
                out.check("each record is counted once", *found.counted)
            add(f"{kind}: latency before, 99th percentile", quantile(found.steady.tolist(), 0.99))
            for step, gap, latency, took in zip(steps, found.gaps, found.latencies, found.took, strict=True):
                add(f"{kind}, {step}: longest gap in the output", gap)
                add(f"{kind}, {step}: latency meanwhile, 99th percentile", quantile(latency.tolist(), 0.99))
                add(f"{kind}, {step}: latency meanwhile, longest", float(latency.max()))
                add(f"{kind}, {step}: from the call to its end", took)
            for step, pause in zip(steps, found.pauses, strict=False):
                add(f"{kind}, {step}: longest pause of a replica", pause)
            if found.pauses:
                shares.setdefault(kind, []).append(100 * found.paused_share)
    for kind, percent in shares.items():
        share = out.new_series(f"{kind}: share of the run in which a replica stood still for changes", "%", "15")
        for value in percent:
            share.add(value)
    for step in steps:
        for kind in KINDS[1:]:
            out.ratios.append(Ratio(f"{kind}, {step}: longest gap in the output", f"fluid, {step}: longest gap in the output", "above 1"))
        meanwhile = f"fluid, {step}: latency meanwhile, 99th percentile"
        out.ratios.append(Ratio(meanwhile, "fluid: latency before, 99th percentile", ""))
    return out
