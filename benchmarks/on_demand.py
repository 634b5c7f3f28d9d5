"""Uneven work on demand: its time over the shortest possible time, and the share of time that replicas idle.

The work is waiting (sleep), so that more replicas than cores can be compared. Each workload runs with ``rebalance()``, and with up
to 64 batches queued at each replica, dealt out in turn, of one item and of many. The shortest possible time is that of the longest
item, or all of the work divided by the replicas if that is more. Source: MPR (Löff, PUCRS 2023), 5.4.8 and 6.3.
"""

from __future__ import annotations

import os
import random
import time
from dataclasses import asdict, dataclass
from typing import Any

import rayad as rd
from benchmarks import machine
from benchmarks.measurement import Measurement, Ratio

TITLE = "Uneven work on demand"
NEEDS_RAY = True
QUEUED = 64
ON_DEMAND, ONES, MANY = "on demand", "64 queued, one item each", "64 queued, batches of the source"
MODES = (ON_DEMAND, ONES, MANY)


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured; durations are multiplied by ``scale``."""

    repetitions: int = 3
    replicas: int = 4
    batch_rows: int = 16
    few: int = 24
    rare: int = 1_000
    every: int = 400
    tiny: int = 50_000
    scale: float = 1.0


FULL = Sizes()
QUICK = Sizes(repetitions=1, replicas=2, few=6, rare=60, every=12, tiny=300, scale=0.05)


def workloads(sizes: Sizes) -> dict[str, list[float]]:
    """Seconds of each item, by workload."""
    chance = random.Random(7)
    return {
        "few long items": [sizes.scale * chance.choice((0.05, 0.1, 0.4)) for _ in range(sizes.few)],
        "1 in 50 is 50 times as long": [sizes.scale * (0.1 if i % 50 == 7 else 0.002) for i in range(sizes.rare)],
        "1 in 4 is long": [sizes.scale * (0.02 if i % 4 == 0 else 0.001) for i in range(sizes.every)],
        "tiny items": [0.0] * sizes.tiny,
    }


class Work:
    """``(item, process, when it began, when it ended)`` for each item."""

    def __init__(self, items_s: list[float]) -> None:
        self.items_s = items_s

    def __call__(self, item: int) -> tuple[int, int, float, float]:
        began_s = time.time()
        if self.items_s[item]:
            time.sleep(self.items_s[item])
        return item, os.getpid(), began_s, time.time()


def program(items_s: list[float], mode: str, sizes: Sizes) -> rd.Dataflow:
    """A source of one replica, and the work behind an exchange."""
    flow = rd.Dataflow("on-demand")
    items = flow.from_items(range(len(items_s)), batch_rows=1 if mode == ONES else sizes.batch_rows, name="items")
    spread = items.rebalance() if mode == ON_DEMAND else items.rebalance(buffer=QUEUED, keep_batches=True)
    spread.map(Work(items_s)).collect("done")
    return flow


@dataclass(frozen=True, slots=True)
class Run:
    """One run: from the beginning of the first item to the end of the last; the shortest possible; the share that replicas idled."""

    items: list[int]
    makespan_s: float
    ideal_s: float
    idle_share: float
    batches: int


def run_once(items_s: list[float], mode: str, sizes: Sizes, **options: Any) -> Run:
    """Run it once."""
    result = program(items_s, mode, sizes).run(parallelism=sizes.replicas, **options)
    done = [record for _, record in result["done"]]
    busy_s = sum(end_s - begin_s for _, _, begin_s, end_s in done)
    makespan_s = max(end_s for _, _, _, end_s in done) - min(begin_s for _, _, begin_s, _ in done)
    ideal_s = max(busy_s / sizes.replicas, max(end_s - begin_s for _, _, begin_s, end_s in done))
    idle_share = 1.0 - busy_s / (sizes.replicas * makespan_s)
    return Run(sorted(item for item, *_ in done), makespan_s, ideal_s, idle_share, result.statistics.stages["rebalance"]["batches_in"])


def run(sizes: Sizes) -> Measurement:
    """Every workload in every mode, in turn."""
    out = Measurement("on_demand", TITLE, asdict(sizes))
    kinds = workloads(sizes)
    series = {(kind, mode): out.new_series(f"{kind}: {mode}", "s", "?") for kind in kinds for mode in MODES}
    table = out.new_table(
        "Each run", "workload", "mode", "time, s", "over the shortest possible", "idle share of the replicas", "batches to the replicas"
    )
    for _ in range(sizes.repetitions):
        for (kind, mode), one in series.items():
            machine.settle()
            done = run_once(kinds[kind], mode, sizes)
            out.check("every item was done, once", done.items, list(range(len(kinds[kind]))))
            one.add(done.makespan_s)
            one.nice = str(os.nice(0))
            table.add(kind, mode, done.makespan_s, done.makespan_s / done.ideal_s, done.idle_share, done.batches)
    out.ratios = [Ratio(f"{kind}: {mode}", f"{kind}: {ON_DEMAND}") for kind in kinds for mode in (ONES, MANY)]
    return out
