"""``python -m tests.fuzz``: random programs against a sequential model, with crashes, changes of layout and resumes.

``--runs 10000 --seed 5`` runs the seeds from 5 on, in several processes, and prints the seed of each violation; ``--only 17`` repeats one
seed and shows its program; ``--shrink 17`` looks for a smaller case with a violation.
"""

from __future__ import annotations

import argparse
import logging
import multiprocessing
import os
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from pprint import pformat

from tests.fuzz.grammar import OPERATORS
from tests.fuzz.runs import Outcome, case_of, run, run_seed, shrink

SHOWN_EVERY_S = 60.0


def run_all(seeds: Iterable[int], processes: int) -> Iterator[Outcome]:
    """Run seeds, in several processes."""
    if processes == 1:
        yield from map(run_seed, seeds)
        return
    quiet = (logging.disable, (logging.WARNING,))  # each crash logs a warning
    with ProcessPoolExecutor(processes, multiprocessing.get_context("spawn"), *quiet) as pool:
        yield from pool.map(run_seed, seeds, chunksize=16)


def summary(outcomes: list[Outcome]) -> str:
    """The last line."""
    crashed, rescaled, resumed = (sum(bool(getattr(o, name)) for o in outcomes) for name in ("crashes", "rescales", "resumes"))
    violations = sum(bool(outcome.violation) for outcome in outcomes)
    return (
        f"{len(outcomes)} runs, {crashed} with crashes, {rescaled} rescales, {resumed} resumes with other parallelism: "
        f"{violations} violations"
    )


def main(arguments: list[str] | None = None) -> int:
    """Parse arguments, run, show; the exit code is 1 if there was a violation."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--runs", type=int, default=10_000, help="how many")
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    parser.add_argument("--only", type=int, help="run this seed alone, and show its program")
    parser.add_argument("--shrink", type=int, help="find a smaller case of this seed's violation")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    given = parser.parse_args(arguments)
    if given.only is not None or given.shrink is not None:
        case = case_of(given.only if given.only is not None else given.shrink)
        case, outcome = shrink(case) if given.shrink is not None else (case, run(case))
        print(pformat(case, width=140))
        print(outcome.violation or "no violation")
        return 1 if outcome.violation else 0
    began_s = last_s = time.monotonic()
    outcomes: list[Outcome] = []
    kinds: Counter[str] = Counter()
    for outcome in run_all(range(given.seed, given.seed + given.runs), given.processes):
        outcomes.append(outcome)
        kinds.update(outcome.kinds)
        if outcome.violation:
            print(f"seed {outcome.seed}: {outcome.violation:.400}    # python -m tests.fuzz --shrink {outcome.seed}", flush=True)
        if time.monotonic() - last_s > SHOWN_EVERY_S:
            last_s = time.monotonic()
            print(f"{len(outcomes)} runs in {last_s - began_s:.0f} s", flush=True)
    print("programs with each operator: " + ", ".join(f"{kind} {kinds[kind]}" for kind in OPERATORS if kind != "same"))
    print(summary(outcomes))
    return 1 if any(outcome.violation for outcome in outcomes) else 0


if __name__ == "__main__":
    sys.exit(main())
