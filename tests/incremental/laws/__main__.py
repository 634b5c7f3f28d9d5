"""``python -m tests.incremental.laws --runs 10000``: random programs with loops in loops, each over two cuts of one random history, with
kills, restores and changes of layout between any two moments, against recomputation; prints how many runs were right, and what struck.

``--seed 17`` runs one again and prints its program. ``--planted`` plants each wrong rule instead, and prints the first of so many seeds
that finds it: undisturbed, or, where it is about moves, disturbed. ``--first`` is the first seed, ``--processes`` how many run at once.
Ends with 1 if a run, or a rule, is amiss.
"""

from __future__ import annotations

import argparse
import logging
import random
import sys
import time
import traceback
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor

from tests.incremental.laws.programs import drawn
from tests.incremental.laws.runs import disturbed, first_found, quick
from tests.incremental.wrong_rules import WRONG_MOVES, WRONG_RULES

TOLD = 20
"""Runs that are wrong, of which the errors are printed."""


def run(seed: int) -> tuple[int, Counter[str], str]:
    """One run: what has struck, and the error if it was wrong."""
    logging.getLogger("rayad").setLevel(logging.CRITICAL)  # failures are asked for
    try:
        return seed, disturbed(seed), ""
    except Exception:
        return seed, Counter(runs=1), traceback.format_exc()


def planted(seeds: range) -> int:
    """Print what finds each wrong rule; gives how many nothing finds."""
    missed = 0
    logging.getLogger("rayad").setLevel(logging.CRITICAL)
    for name, plant in (WRONG_RULES | WRONG_MOVES).items():
        found = first_found(plant, seeds, quick if name in WRONG_RULES else disturbed)
        missed += found is None
        print(f"{name}: {'not found' if found is None else f'found by seed {found}'}", flush=True)
    return missed


def main(given: Sequence[str] | None = None) -> int:
    """Run and print."""
    asked = argparse.ArgumentParser(prog="python -m tests.incremental.laws", description="Laws of collections")
    for name, default in (("runs", 1000), ("first", 0), ("processes", 1)):
        asked.add_argument(f"--{name}", type=int, default=default)
    asked.add_argument("--seed", type=int)
    asked.add_argument("--planted", action="store_true")
    args = asked.parse_args(given)
    seeds = range(args.first, args.first + args.runs)
    if args.planted:
        return min(1, planted(seeds))
    if args.seed is not None:
        print(drawn(random.Random(args.seed)))
        _, seen, error = run(args.seed)
        print(error or dict(seen))
        return 1 if error else 0
    began, seen, wrong = time.monotonic(), Counter[str](), 0
    with ProcessPoolExecutor(args.processes) as pool:
        for done, (seed, one, error) in enumerate(pool.map(run, seeds, chunksize=4), 1):
            seen += one
            if error:
                wrong += 1
                if wrong <= TOLD:
                    print(f"seed {seed}:\n{error}", flush=True)
            if done % 100 == 0 or done == len(seeds):
                print(f"{done} runs, {wrong} wrong, {time.monotonic() - began:.0f} s; {dict(sorted(seen.items()))}", flush=True)
    return min(1, wrong)


if __name__ == "__main__":
    sys.exit(main())
