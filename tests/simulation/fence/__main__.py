"""``python -m tests.simulation.fence``: thousands of runs of several coordinators at once, with faults inside each step.

``--seeds 1000 --first 0`` runs so many; ``--seed 17`` runs one again and prints its steps. ``--keepers``: of keepers and their processes.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor

from tests.simulation.fence import keepers, world
from tests.simulation.fence.steps import stay_on_one_processor
from tests.simulation.fence.world import Outcome

SEEDS = 20_000
SHOWN = 20


def main() -> int:
    """Parse arguments, run, print; 1 where something did not hold."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.fence", description=__doc__)
    parser.add_argument("--seeds", type=int, default=SEEDS, help="how many runs")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--seed", type=int, help="run this one alone, and print its steps")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--keepers", action="store_true", help="runs of keepers, not of coordinators")
    given = parser.parse_args()
    run = keepers.run if given.keepers else world.run
    if given.seed is not None:
        outcome = run(given.seed)
        for who, what in outcome.told:
            print(f"{who:>8} {what}")
        print(outcome.sink, dict(outcome.figures), outcome.violation or "no violation")
        return bool(outcome.violation)
    began_s, figures, wrong, steps, done = time.monotonic(), Counter[str](), list[Outcome](), 0, 0
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(given.processes, spawn, stay_on_one_processor, (spawn.Value("i", 0),)) as pool:
        for outcome in pool.map(run, range(given.first, given.first + given.seeds), chunksize=16):
            figures += outcome.figures
            steps += outcome.steps
            done += 1
            if outcome.violation:
                wrong.append(outcome)
                if len(wrong) <= SHOWN:
                    print(f"{outcome.again}    # {outcome.sink}: {outcome.violation}", flush=True)
    for what, count in sorted(figures.items()):
        print(f"{count:>10} {what}")
    print(f"{done} runs, {steps} steps; {len(wrong)} violations, {time.monotonic() - began_s:.0f} s")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
