"""Python records through source, map, key exchange, keyed sum and sink, beside plain Python doing the same in one process.

Two programs: ``sum`` adds up the records of a batch before the exchange, as Rayad's own operators do; ``every record exchanged``
sends each record to the replica of its key and adds up there, as a user's own vertex does. The plain peer runs at this process'
nice level and at that of Ray's workers. Its time does not include the start of the interpreter; Rayad's not that of its actors.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import partial
from operator import itemgetter
from typing import Any

import rayad as rd
from benchmarks.machine import WORKER_NICE, in_process, settle
from benchmarks.measurement import Measurement, Ratio
from benchmarks.sources import Generated, in_one_epoch

TITLE = "A keyed sum over Python records"
NEEDS_RAY = True
PARTS = 2


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured."""

    repetitions: int = 5
    records: int = 1_000_000
    keys: int = 1_000
    batch_rows: int = 4_096
    replicas: int = 2


FULL = Sizes()
QUICK = Sizes(repetitions=2, records=20_000, keys=100, batch_rows=512)


def batches_of(part: int, sizes: Sizes) -> Iterator[list[int]]:
    """The records of one part: numbers, made on the fly."""
    share = sizes.records // PARTS
    end = sizes.records if part == PARTS - 1 else (part + 1) * share
    for start in range(part * share, end, sizes.batch_rows):
        yield list(range(start, min(end, start + sizes.batch_rows)))


def numbers(sizes: Sizes) -> rd.Source:
    """All parts of the records."""
    return Generated(PARTS, lambda part: in_one_epoch(batches_of(part, sizes)))


class Prepare:
    """``number -> (key, value)``: some arithmetic, the same for all compared programs."""

    def __init__(self, keys: int) -> None:
        self.keys = keys

    def __call__(self, number: int) -> tuple[int, int]:
        return (number * 2_654_435_761) % self.keys, number & 1023


class Adder(rd.Vertex):
    """A user's own keyed sum."""

    def __init__(self) -> None:
        self.totals: dict[int, int] = {}

    def on_recv(self, edge: int, batch: Any, at: rd.Timestamp) -> None:
        totals = self.totals
        if not totals:
            self.notify_at(at)
        for key, value in batch:
            totals[key] = totals.get(key, 0) + value

    def on_notify(self, at: rd.Timestamp) -> None:
        self.send_by(0, list(self.totals.items()), at)


def program(sizes: Sizes, *, combined: bool) -> rd.Dataflow:
    """The dataflow: with the operator ``sum``, or with a vertex to which every record is sent."""
    flow = rd.Dataflow("rows")
    pairs = flow.source(numbers(sizes), name="numbers").map(Prepare(sizes.keys)).key_by(itemgetter(0))
    totals = pairs.sum(itemgetter(1), name="sum") if combined else pairs.vertex(Adder, name="adder")
    totals.collect("totals")
    return flow


def run_once(sizes: Sizes, *, combined: bool, **options: Any) -> tuple[dict[int, int], Any]:
    """The totals, and the statistics of the run."""
    result = program(sizes, combined=combined).run(parallelism=sizes.replicas, **options)
    return dict(record for _, record in result["totals"]), result.statistics


def plain(sizes: Sizes) -> dict[int, int]:
    """The same in one process, as a user would write it."""
    prepare, totals = Prepare(sizes.keys), dict[int, int]()
    for part in range(PARTS):
        for batch in batches_of(part, sizes):
            for number in batch:
                key, value = prepare(number)
                totals[key] = totals.get(key, 0) + value
    return totals


def digest(totals: dict[int, int]) -> int:
    """One number for all totals."""
    return sum((key + 1) * value for key, value in totals.items())


def run(sizes: Sizes) -> Measurement:
    """Both programs and the plain peer at two priorities, interleaved."""
    out = Measurement("rows", TITLE, asdict(sizes))
    own = os.nice(0)
    names = {own: f"plain Python, nice {own}", WORKER_NICE: f"plain Python, nice {WORKER_NICE}"}
    peers = {nice: out.new_series(name, "rows/s", str(nice)) for nice, name in names.items()}
    operator = out.new_series(f"Rayad sum, {sizes.replicas} replicas", "rows/s", str(WORKER_NICE))
    vertex = out.new_series(f"Rayad every record exchanged, {sizes.replicas} replicas", "rows/s", str(WORKER_NICE))
    wanted = digest(plain(sizes))

    def peer(nice: int) -> tuple[int, float]:
        told = in_process("rows", json.dumps(asdict(sizes)), nice=nice)
        return told["digest"], told["seconds"]

    def rayad(combined: bool) -> tuple[int, float]:
        totals, statistics = run_once(sizes, combined=combined)
        return digest(totals), statistics.run_s

    todo = [(series, partial(peer, nice)) for nice, series in peers.items()]
    todo += [(operator, partial(rayad, True)), (vertex, partial(rayad, False))]
    for repetition in range(sizes.repetitions):
        for series, measure in todo if repetition % 2 == 0 else reversed(todo):
            settle()
            found, seconds = measure()
            out.check("plain Python and both programs gave the same totals", found, wanted)
            series.add(sizes.records / seconds)
    out.ratios = [Ratio(ours.name, name) for ours in (operator, vertex) for name in names.values()]
    return out


def main() -> None:
    """The plain peer: sizes as JSON in, seconds and digest as JSON out."""
    sizes = Sizes(**json.loads(sys.argv[1]))
    began = time.perf_counter()
    totals = plain(sizes)
    print(json.dumps({"seconds": time.perf_counter() - began, "digest": digest(totals)}))


if __name__ == "__main__":
    main()
