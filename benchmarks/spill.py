"""A loop whose backlog does not fit into memory: it spills, and its result is right.

Each record of a round makes several in the next, in batches of their own, so the backlog of the feedback edge grows until the
last round. With a small and with a large ``spill_memory_bytes`` the result must be the same; with the small one batches go through the
disk.
"""

from __future__ import annotations

import os
import resource
from dataclasses import asdict, dataclass
from functools import partial
from operator import itemgetter
from typing import Any

import rayad as rd
from benchmarks import machine
from benchmarks.measurement import Measurement, Ratio

TITLE = "A loop that spills"
NEEDS_RAY = True
MODULUS = 1 << 61


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured."""

    repetitions: int = 3
    children: int = 8
    rounds: int = 5
    record_bytes: int = 4_096
    small_bytes: int = 4 << 20
    large_bytes: int = 1 << 30
    replicas: int = 2


FULL = Sizes()
QUICK = Sizes(repetitions=1, children=4, rounds=5, record_bytes=64, small_bytes=1 << 12)


class Grow(rd.Vertex):
    """A record makes ``children`` of the next round; in the last round they are counted."""

    def __init__(self, sizes: Sizes) -> None:
        self.sizes = sizes
        self.leaves = self.checksum = 0

    def on_recv(self, edge: int, batch: Any, at: rd.Timestamp) -> None:
        children, eighths = self.sizes.children, self.sizes.record_bytes // 8
        if at.counters[-1] < self.sizes.rounds:
            for number, _ in batch:
                numbers = range(children * number + 1, children * number + children + 1)
                self.send_by(0, [(n, n.to_bytes(8, "little") * eighths) for n in numbers], at)  # all different, so that pickle stores each
            return
        if not self.leaves:
            self.notify_at(at)
        self.leaves += len(batch)
        self.checksum = (self.checksum + sum(mixed(number) for number, _ in batch)) % MODULUS

    def on_notify(self, at: rd.Timestamp) -> None:
        peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        self.send_by(1, [(self.leaves, self.checksum, peak_mib, os.nice(0))], at)


def mixed(number: int) -> int:
    """A hash of a record, to check which ones came."""
    return number * number + 1


def program(sizes: Sizes) -> rd.Dataflow:
    """One record enters; its descendants of the last round are counted."""
    flow = rd.Dataflow("spill")

    def body(inner: rd.Stream) -> tuple[rd.Stream, rd.Stream]:
        again, out = inner.key_by(itemgetter(0)).vertex(partial(Grow, sizes), outputs=2, name="grow")
        return again, out

    flow.from_items([(0, b"")], name="root").iterate(body, name="growth").collect("leaves")
    return flow


def leaves_of(sizes: Sizes) -> tuple[int, int]:
    """The same in plain Python: the numbers of the last generation of a tree are consecutive."""
    first, count = 0, 1
    for _ in range(sizes.rounds):
        first, count = sizes.children * first + 1, count * sizes.children
    return count, sum(mixed(number) for number in range(first, first + count)) % MODULUS


@dataclass(frozen=True, slots=True)
class Run:
    """One run."""

    leaves: int
    checksum: int
    peak_mib: float
    nice: int
    statistics: Any


def run_once(sizes: Sizes, memory_bytes: int, **options: Any) -> Run:
    """Run the program once."""
    result = program(sizes).run(rd.RunConfig(spill_memory_bytes=memory_bytes), parallelism=sizes.replicas, **options)
    told = [record for _, record in result["leaves"]]
    peak = max(entry[2] for entry in told)
    return Run(sum(e[0] for e in told), sum(e[1] for e in told) % MODULUS, peak, told[0][3], result.statistics)


def run(sizes: Sizes) -> Measurement:
    """Small bound and large bound, in turn."""
    out = Measurement("spill", TITLE, asdict(sizes))
    small, large = out.new_series("bound small: run", "s", "?"), out.new_series("bound large: run", "s", "?")
    table = out.new_table(
        "Spilling, most over the replicas", "spill_memory_bytes", "peak of the queue in memory, bytes", "spilled batches", "peak RSS, MiB"
    )
    for _ in range(sizes.repetitions):
        for series, memory_bytes in ((small, sizes.small_bytes), (large, sizes.large_bytes)):
            machine.settle()
            done = run_once(sizes, memory_bytes)
            counts = done.statistics.stages["grow"]
            out.check("the last round had every record, once", (done.leaves, done.checksum), leaves_of(sizes))
            out.check("with the small bound it spilled, with the large one it did not", counts["spilled_batches"] > 0, series is small)
            series.add(done.statistics.run_s)
            series.nice = str(done.nice)
            table.add(memory_bytes, counts["spill_memory_bytes_peak"], counts["spilled_batches"], done.peak_mib)
    out.ratios = [Ratio(small.name, large.name)]
    return out
