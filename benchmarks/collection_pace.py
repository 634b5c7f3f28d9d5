"""What it does that inputs of collections run at most so far ahead: `python -m benchmarks.collection_pace [--epochs N] [--repetitions N]
[--ahead N ...] [--together N ...] [--ray]`.

Many epochs of one record go through a count, with any number of epochs ahead and with so many, and with so many taken together, by turns:
seconds of a processor in the local runtime, seconds on Ray with ``--ray``. Then a source, of 100 records an epoch, stands beside a live
input that does not advance: how many epochs the source has begun when nothing more happens, and how many MiB the process has grown by.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import rayad as rd
from benchmarks.machine import own_ray
from rayad.dataflow.config import RunConfig

KEYS, RECORDS = 50, 100
PAGE_BYTES, MEBIBYTE = 4096, 1 << 20


class How(NamedTuple):
    """How epochs are taken: at most so many ahead, None: any number; and so many together."""

    ahead: int | None
    together: int = 1

    def __str__(self) -> str:
        return f"{told(self.ahead)} ahead" if self.together == 1 else f"{self.together} together"


ANY = How(None)


def counted(epochs: int, together: int) -> rd.Dataflow:
    """One record an epoch, counted by key."""
    flow = rd.Dataflow("paced", epochs_together=together)
    records = flow.from_epochs([[(epoch % KEYS, epoch)] for epoch in range(epochs)]).as_collection()
    records.keyed().count().changes().collect("out")
    return flow


def changes(epochs: int, together: int) -> int:
    """How many changes that has: in epochs that are taken together a count changes once."""
    seen: set[int] = set()
    found = 0
    for first in range(0, epochs, together):
        keys = {epoch % KEYS for epoch in range(first, min(epochs, first + together))}
        found += 2 * len(keys) - len(keys - seen)
        seen |= keys
    return found


def seconds(epochs: int, how: How, **where: Any) -> float:
    """Of a run; of a processor in the local runtime."""
    clock = time.process_time if where.get("runtime") == "local" else time.perf_counter
    began_s = clock()
    result = counted(epochs, how.together).run(rd.RunConfig(epochs_ahead=how.ahead), **where)
    took_s = clock() - began_s
    assert len(result["out"]) == changes(epochs, how.together), "it counts wrongly"
    return took_s


def by_turns(epochs: int, choices: list[How], repetitions: int, **where: Any) -> Iterator[str]:
    """The medians of runs, beside that with any number of epochs ahead."""
    taken: dict[How, list[float]] = {how: [] for how in choices}
    for _ in range(repetitions):
        for how in choices:
            taken[how].append(seconds(epochs, how, **where))
    free_s = statistics.median(taken[ANY])
    for how, some in taken.items():
        took_s = statistics.median(some)
        yield f"{epochs} epochs, {how}: {took_s:.2f} s, {took_s / free_s:.2f} of any number"


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
    asked.add_argument("--together", type=int, nargs="*", default=[16, 256])
    asked.add_argument("--ray", action="store_true")
    args = asked.parse_args(given)
    choices = [ANY, *map(How, args.ahead), *(How(RunConfig().epochs_ahead, together) for together in args.together)]
    if args.ray:
        with own_ray(4), rd.session(workers=2):
            for line in by_turns(args.epochs, choices, args.repetitions, runtime="ray"):
                print(f"on Ray, {line}", flush=True)
        return
    for line in by_turns(args.epochs, choices, args.repetitions, runtime="local"):
        print(line, flush=True)
    for ahead in (None, *args.ahead):
        with ProcessPoolExecutor(1) as pool:
            begun, grown = pool.submit(beside, args.epochs // 2, ahead).result()
        print(f"beside an input that stands still, {told(ahead)} ahead: {begun} epochs begun, {grown:.0f} MiB", flush=True)


if __name__ == "__main__":
    main()
