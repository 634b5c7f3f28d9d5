"""Run seeds: the coordinator that ships, around processes that die. Or find which of them catch the planted defects."""

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
from tests.simulation.coordinator.planted import caught_by


def main() -> int:
    """Parse arguments, run, print; 1 if there was a violation, or a defect that nothing catches."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.coordinator", description=__doc__)
    parser.add_argument("--seeds", type=int, default=200, help="how many runs")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--defects", action="store_true", help="print which seeds catch which planted defects")
    given = parser.parse_args()
    console, began_s = Console(width=140), time.monotonic()
    with ProcessPoolExecutor(given.processes, multiprocessing.get_context("spawn")) as pool:
        look = _look_for_defects if given.defects else _look_for_violations
        wrong = look(pool, range(given.first, given.first + given.seeds), console)
    console.print(f"{time.monotonic() - began_s:.0f} s")
    return 1 if wrong else 0


def _look_for_violations(pool: ProcessPoolExecutor, seeds: range, console: Console) -> int:
    figures, violations = Counter[str](), 0
    for outcome in pool.map(run_seed, seeds, chunksize=8):
        figures.update(outcome.figures)
        if outcome.violation:
            violations += 1
            console.print(f"{outcome.again}    # {outcome.program}: {outcome.violation}; {outcome.where}", markup=False)
    for what, count in sorted(figures.items()):
        console.print(f"{count:>10} {what}")
    console.print(f"{len(seeds)} runs, {violations} violations")
    return violations


def _look_for_defects(pool: ProcessPoolExecutor, seeds: range, console: Console) -> int:
    """The fewest seeds that catch all that these catch, one after the other by how much each adds."""
    catches, missing = {}, set[str]()
    for seed, (caught, missed) in zip(seeds, pool.map(caught_by, seeds), strict=True):
        catches[seed] = caught
        missing |= caught | missed
    while any(found & missing for found in catches.values()):
        best = max(catches, key=lambda seed: len(catches[seed] & missing))
        for name in sorted(catches[best] & missing):
            console.print(f'    "{name}": {best},', markup=False, highlight=False)
        missing -= catches[best]
    for name in sorted(missing):
        console.print(f"{name!r} is caught by none", markup=False)
    return len(missing)


if __name__ == "__main__":
    sys.exit(main())
