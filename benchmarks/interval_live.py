"""The interval that a job chooses itself, beside fixed ones, on real Ray with real kills: the share of time that becomes committed work.

A job with unlimited input sums by key; replicas are killed at random times, the same for every choice of interval. The measure is the
committed work at the end, as a share of what the job does in the same time without snapshots and failures: the utilization of
Jayasekara et al. (FGCS 2020).
The model's figures are computed from measurements of the run itself: cost and duration of a snapshot, and the time to resume.
There are two: for the long run at that rate of failures, and for exactly these kills (the process of the model, step by step, with the same
choice of interval).
"""

from __future__ import annotations

import os
import random
import signal
import statistics
import time
from collections import Counter
from dataclasses import asdict, dataclass, field
from typing import Any

import rayad as rd
from benchmarks.interval_simulation import Regime, ScheduledInterval, run_job
from benchmarks.machine import settle
from benchmarks.measurement import Measurement, Ratio
from benchmarks.snapshot_cost import Rows, keyed, storage
from rayad.snapshots.attempts import FIRST_SOON
from rayad.snapshots.interval import IntervalEstimator, optimal_interval_s, utilization

TITLE = "The interval a job chooses itself, with kills"
NEEDS_RAY = True
ENDLESS = 10_000_000
REPLICAS = 2
LOOK_S = 0.2


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured.

    Args:
        keys, epoch_rows: of the keyed sum.
        seconds: how long each job runs.
        failure_every_s: mean time between kills.
        fixed_s: intervals that are tried beside the automatic one.
    """

    repetitions: int = 3
    keys: int = 100_000
    epoch_rows: int = 50_000
    seconds: float = 150.0
    failure_every_s: float = 15.0
    fixed_s: tuple[float, ...] = (30.0,)


FULL = Sizes()
QUICK = Sizes(repetitions=1, keys=1_000, epoch_rows=2_000, seconds=8.0, failure_every_s=4.0, fixed_s=(2.0,))


@dataclass(slots=True)
class Run:
    """One job: epochs in its last snapshot, and its measurements."""

    epochs: int = 0
    failures: int = 0
    away_s: list[float] = field(default_factory=list)
    intervals_s: list[float] = field(default_factory=list)
    snapshots: dict[int, Any] = field(default_factory=dict)

    def watch(self, job: Any, until_s: float) -> None:
        """Look at the job until ``until_s``."""
        while True:
            progress = job.progress()
            self.failures = progress.failures
            self.intervals_s.append(progress.snapshot_interval_s)
            if progress.snapshot is not None:
                self.snapshots[progress.snapshot.number] = progress.snapshot
            left_s = until_s - time.monotonic()
            if left_s <= 0.0:
                return
            time.sleep(min(LOOK_S, left_s))

    def of_snapshots(self, figure: str) -> float:
        """The mean of one figure over the snapshots; 0 when there was none."""
        return mean([getattr(one, figure) for one in self.snapshots.values()])


def kill_times(sizes: Sizes) -> list[float]:
    """Seconds after the start: exponential gaps, as in the model."""
    draw, out, at = random.Random(11), [], 0.0
    while (at := at + max(1.0, draw.expovariate(1.0 / sizes.failure_every_s))) < sizes.seconds - 1.0:
        out.append(at)
    return out


def run_once(sizes: Sizes, interval_s: Any, kills: list[float]) -> Run:
    """Run a job for ``seconds``, kill replicas, and see how much it has committed."""
    settle()
    with storage() as folder:
        snapshots, failures = rd.SnapshotConfig(interval_s=interval_s), rd.FailureConfig(max_failures=len(kills) + 5, delay_s=0)
        config = rd.RunConfig(storage_path=folder, snapshots=snapshots, failures=failures)
        job = sums(sizes, f"{folder}/out").submit(config, parallelism=REPLICAS)
        probe = job.probe("out")
        probe.wait(0, 120)
        began_s, run = time.monotonic(), Run()
        try:
            for at in kills:
                run.watch(job, began_s + at)
                run.away_s.append(kill(job))
            run.watch(job, began_s + sizes.seconds)
            run.epochs = committed_epochs(f"{folder}/out")
            return run
        finally:
            job.cancel()


def kill(job: Any) -> float:
    """Kill a replica of the sums; gives the seconds until the job runs again."""
    killed_s = time.monotonic()
    failures = job.progress().failures
    processes = job.pids().get("sums", [])
    if processes:
        os.kill(processes[0], signal.SIGKILL)
        while job.progress().failures == failures or not job.pids():
            time.sleep(0.02)
    return time.monotonic() - killed_s


def sums(sizes: Sizes, out: str) -> rd.Dataflow:
    """Running sums by key; the number of results of each epoch is committed."""
    flow = rd.Dataflow("sums")
    rows = flow.source(Rows(ENDLESS, sizes.epoch_rows, sizes.keys, columnar=True), name="rows")
    counted = rows.key_by("key").sum("value", name="sums").map_batches(lambda batch: [{"results": batch.num_rows}], name="counted")
    counted.probe(name="out")
    counted.write_parquet(out, epoch_column="epoch")
    return flow


def committed_epochs(out: str) -> int:
    """How many whole epochs a reader of the output sees, from the first on; -1 when one is there twice, or is missing before another."""
    try:
        if not rd.committed_files(out).files:
            return 0
    except rd.RayadError:  # nothing yet
        return 0
    found = Counter(rd.read_committed(out).to_table(columns=["epoch"]).column("epoch").to_pylist())
    whole = [epoch for epoch, times in found.items() if times == REPLICAS]  # each replica writes a row for each epoch
    is_right = max(found.values()) <= REPLICAS and sorted(whole) == list(range(len(whole)))
    return len(whole) if is_right else -1


def run_free(sizes: Sizes, kills: list[float]) -> float:
    """Epochs a second without snapshots and failures."""
    epochs = max(10, round(sizes.seconds * 15))
    settle()
    statistics_of = keyed(Rows(epochs, sizes.epoch_rows, sizes.keys, columnar=True)).run(parallelism=REPLICAS).statistics
    return float(epochs / statistics_of.run_s)


def run(sizes: Sizes) -> Measurement:
    """One job after another, with kills at the same times."""
    out = Measurement("interval_live", TITLE, asdict(sizes))
    kills = kill_times(sizes)
    free = out.new_series("without snapshots and failures", "epochs/s", "?")
    choices: dict[str, Any] = {"auto": "auto", **{f"{seconds:g} s": seconds for seconds in sizes.fixed_s}}
    series = {name: out.new_series(f"interval {name}: committed", "epochs/s", "?") for name in choices}
    table = out.new_table(
        "Measured and modelled",
        *("interval", "failures", "measured utilization", "the model, these kills", "the model, long run"),
        *("cost, s", "taken after, s", "away a failure, s", "interval used, s", "T*, s"),
    )
    for _ in range(sizes.repetitions):
        free.add(run_free(sizes, kills))
        for name, interval_s in choices.items():
            done = run_once(sizes, interval_s, kills)
            out.check("every committed epoch is there once, from the first on", done.epochs >= 0, True)
            series[name].add(done.epochs / sizes.seconds)
            measured = done.epochs / sizes.seconds / free.repetitions[-1][0]
            figures = (measured, *modelled(sizes, done, interval_s, kills))
            table.rows.append([name, str(done.failures), *(f"{figure:.3g}" for figure in figures)])
    out.ratios = [Ratio(series["auto"].name, series[f"{seconds:g} s"].name, "above 1") for seconds in sizes.fixed_s]
    return out


def modelled(sizes: Sizes, done: Run, interval_s: Any, kills: list[float]) -> tuple[float, ...]:
    """The model's utilization for these kills and in the long run, and the measurements that it was computed from."""
    rate, cost_s, restart_s = max(done.failures, 1) / sizes.seconds, max(done.of_snapshots("cost_s"), 1e-4), mean(done.away_s)
    lag_s, used_s = done.of_snapshots("took_s"), mean(done.intervals_s)
    regime = Regime(duration_s=sizes.seconds, failures_per_s=rate, cost_s=cost_s, restart_s=restart_s)
    choice = IntervalEstimator(FIRST_SOON) if interval_s == "auto" else ScheduledInterval((sizes.seconds, interval_s))
    replayed = run_job([regime], kills, choice, lag_s=lag_s).utilization
    in_the_long_run = utilization(max(used_s, cost_s), cost_s, rate, restart_s, depth=2, hop_delay_s=lag_s)
    return replayed, in_the_long_run, cost_s, lag_s, restart_s, used_s, optimal_interval_s(cost_s, rate)


def mean(values: list[float]) -> float:
    """Their mean; 0 for none."""
    return statistics.fmean(values) if values else 0.0
