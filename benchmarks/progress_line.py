"""What the line of progress costs a job of the local runtime, which shows it in the thread that works.

stderr is a pseudo-terminal, which a thread reads and drops, so the line is drawn as for somebody who looks. A short job ends before it is
first shown: what it pays is the question between two steps whether it is time. A long one with tiny batches pays for that in each of its
steps, and for looks and drawing five times a second. Jobs with and without the line follow each other in turn; processor time counts.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from operator import itemgetter

import rayad as rd
from benchmarks import rows
from benchmarks.machine import WORKER_NICE
from benchmarks.measurement import Measurement, Ratio
from rayad.actors.status.progress_places import is_terminal

TITLE = "What the line of progress costs"
NEEDS_RAY = False


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured."""

    short_records: int = 40_000
    long_records: int = 2_000_000
    short_repetitions: int = 40
    repetitions: int = 6
    keys: int = 100
    batch_rows: int = 10


FULL = Sizes()
QUICK = Sizes(short_records=500, long_records=1_000, short_repetitions=2, repetitions=1)


def run(sizes: Sizes) -> Measurement:
    """Short and long jobs, with and without the line in turn."""
    out = Measurement("progress_line", TITLE, asdict(sizes))
    table = out.new_table("The jobs", "job", "records", "seconds, median")
    with terminal_as_stderr():
        if not is_terminal(sys.stderr):
            raise RuntimeError("stderr is no terminal: nothing would be drawn")
        for kind, records, repetitions in (
            ("short", sizes.short_records, sizes.short_repetitions),
            ("long", sizes.long_records, sizes.repetitions),
        ):
            names = {progress: f"{kind} job, {'with' if progress else 'without'} the line" for progress in (False, True)}
            cost = {progress: out.new_series(name, "us/record", str(WORKER_NICE)) for progress, name in names.items()}
            took: list[float] = []
            for repetition in range(repetitions):
                for progress in (False, True) if repetition % 2 else (True, False):
                    began_s, used_s = time.perf_counter(), time.process_time()
                    counts = count_of(records, sizes, progress)
                    cost[progress].add((time.process_time() - used_s) / records * 1e6)
                    took.append(time.perf_counter() - began_s)
                    out.check(f"the {kind} job counts all", counts, records)
            out.ratios.append(Ratio(names[True], names[False], "below 1.01"))
            table.add(kind, f"{records:,}", f"{sorted(took)[len(took) // 2]:.2f}")
    return out


def count_of(records: int, sizes: Sizes, progress: bool) -> int:
    """Run a keyed count in small batches; gives the sum of all counts."""
    flow = rd.Dataflow("shown")
    numbers = flow.from_items(range(records), batch_rows=sizes.batch_rows).map(rows.Prepare(sizes.keys))
    numbers.key_by(itemgetter(0)).count(name="count").collect("counts")
    result = flow.run(runtime="local", progress=progress)
    return sum(count for _, (_, count) in result["counts"])


@contextmanager
def terminal_as_stderr() -> Iterator[None]:
    """While the block runs stderr is a terminal that nobody looks at."""
    ours, theirs = os.openpty()
    before, over = sys.stderr, threading.Event()

    def drop() -> None:
        while not over.is_set():
            try:
                os.read(ours, 1 << 16)
            except OSError:
                return

    reader = threading.Thread(target=drop, daemon=True)
    reader.start()
    with open(theirs, "w", encoding="utf-8") as stream:
        sys.stderr = stream
        try:
            yield
        finally:
            over.set()
            sys.stderr = before
    reader.join(1.0)
    os.close(ours)
