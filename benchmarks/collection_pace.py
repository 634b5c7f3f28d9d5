"""What it does that inputs of collections run at most so far ahead: `python -m benchmarks.collection_pace [--epochs N] [--repetitions N]
[--ahead N ...] [--ray]`.

Many epochs of one record go through a count, with any number of epochs ahead and with so many, by turns: seconds of a processor in the
local runtime, seconds on Ray with ``--ray``. Then a source, of 100 records an epoch, stands beside a live input that does not advance: how
many epochs the source has begun when nothing more happens, and how many MiB the process has grown by.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import rayad as rd
from benchmarks.machine import own_ray

KEYS, RECORDS = 50, 100
PAGE_BYTES, MEBIBYTE = 4096, 1 << 20


def counted(epochs: int) -> rd.Dataflow:
    """One record an epoch, counted by key."""
    flow = rd.Dataflow("paced")
    records = flow.from_epochs([[(epoch % KEYS, epoch)] for epoch in range(epochs)]).as_collection()
    records.keyed().count().changes().collect("out")
    return flow


def seconds(epochs: int, ahead: int | None, **where: Any) -> float:
    """Of a run; of a processor in the local runtime."""
    clock = time.process_time if where.get("runtime") == "local" else time.perf_counter
    began_s = clock()
    result = counted(epochs).run(rd.RunConfig(epochs_ahead=ahead), **where)
    took_s = clock() - began_s
    assert len(result["out"]) == 2 * epochs - min(epochs, KEYS), "it counts wrongly"
    return took_s


def by_turns(epochs: int, choices: list[int | None], repetitions: int, **where: Any) -> Iterator[str]:
    """The medians of runs, beside that with any number of epochs ahead."""
    taken: dict[int | None, list[float]] = {ahead: [] for ahead in choices}
    for _ in range(repetitions):
        for ahead in choices:
            taken[ahead].append(seconds(epochs, ahead, **where))
    free_s = statistics.median(taken[None])
    for ahead, some in taken.items():
        took_s = statistics.median(some)
        yield f"{epochs} epochs, {told(ahead)} ahead: {took_s:.2f} s, {took_s / free_s:.2f} of any number"


def told(ahead: int | None) -> str:
    """How many, in words."""
    return "any number" if ahead is None else str(ahead)


def beside(epochs: int, ahead: int | None) -> tuple[int, float]:
    """A source beside an input that does not advance: the epochs that the source has given, and MiB that the process has grown by."""
    given: set[int] = set()

    def records(epoch: int) -> list[tuple[int, tuple[int, int]]]:
        given.add(epoch)
        return [(epoch % KEYS, (epoch, number)) for number in range(RECORDS)]

    flow = rd.Dataflow("beside")
    fast = flow.from_epochs([[epoch] for epoch in range(epochs)]).flat_map(records).as_collection().keyed()
    fast.join(flow.collection("slow").keyed(), "semi").changes().collect("out")
    job = flow.submit(rd.RunConfig(epochs_ahead=ahead), runtime="local")
    before = _resident_bytes()
    for _ in range(4 * epochs):
        job.step()
    grown = (_resident_bytes() - before) / MEBIBYTE
    job.cancel()
    return len(given), grown


def _resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * PAGE_BYTES


def main(given: list[str] | None = None) -> None:
    """Measure and print."""
    asked = argparse.ArgumentParser(prog="python -m benchmarks.collection_pace", description="Inputs that run ahead")
    asked.add_argument("--epochs", type=int, default=20_000)
    asked.add_argument("--repetitions", type=int, default=3)
    asked.add_argument("--ahead", type=int, nargs="+", default=[16, 64, 256])
    asked.add_argument("--ray", action="store_true")
    args = asked.parse_args(given)
    choices = [None, *args.ahead]
    if args.ray:
        with own_ray(4), rd.session(workers=2):
            for line in by_turns(args.epochs, choices, args.repetitions, runtime="ray"):
                print(f"on Ray, {line}", flush=True)
        return
    for line in by_turns(args.epochs, choices, args.repetitions, runtime="local"):
        print(line, flush=True)
    for ahead in choices:
        with ProcessPoolExecutor(1) as pool:
            begun, grown = pool.submit(beside, args.epochs // 2, ahead).result()
        print(f"beside an input that stands still, {told(ahead)} ahead: {begun} epochs begun, {grown:.0f} MiB", flush=True)


if __name__ == "__main__":
    main()
