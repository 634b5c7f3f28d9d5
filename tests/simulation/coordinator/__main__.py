"""Run seeds: the coordinator that ships, around processes that die."""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor

from rich.console import Console

from tests.simulation.coordinator.draw import run_seed


def main() -> int:
    """Parse arguments, run, print; 1 if there was a violation."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.coordinator", description=__doc__)
    parser.add_argument("--seeds", type=int, default=200, help="how many runs")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    given = parser.parse_args()
    console, figures, violations, began_s = Console(width=140), Counter[str](), 0, time.monotonic()
    seeds = range(given.first, given.first + given.seeds)
    with ProcessPoolExecutor(given.processes, multiprocessing.get_context("spawn")) as pool:
        for outcome in pool.map(run_seed, seeds, chunksize=8):
            figures.update(outcome.figures)
            if outcome.violation:
                violations += 1
                console.print(f"{outcome.again}    # {outcome.program}: {outcome.violation}; {outcome.where}", markup=False)
    for what, count in sorted(figures.items()):
        console.print(f"{count:>10} {what}")
    console.print(f"{given.seeds} runs, {violations} violations, {time.monotonic() - began_s:.0f} s")
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
