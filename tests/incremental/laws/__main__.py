"""``python -m tests.incremental.laws --runs 10000``: random programs with loops in loops, each over two cuts of one random history, with
kills, restores and changes of layout between any two moments, against recomputation; prints how many runs were right, and what struck.

Half of these are in rows, half in columns or in both. Every fourth program is one of forms that forget by a ``lateness`` (``late/``), in
rows and in columns; ``--only late`` runs those alone, ``--only loops`` the others. ``--ray`` runs programs of loops (``--only late``: those
that forget) on Ray instead, one after the other: each is fed live, and compared after each epoch. ``--seed 17`` runs one again and prints
its program. ``--planted`` plants each wrong rule instead, and prints the first of so many seeds that finds it: undisturbed, or, where it is
about moves, disturbed. ``--first`` is the first seed, ``--processes`` how many run at once.
Ends with 1 if a run, or a rule, is amiss.
"""

from __future__ import annotations

import argparse
import gc
import logging
import random
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial

from tests.incremental.laws import runs
from tests.incremental.laws.late import programs as late_programs
from tests.incremental.laws.late import runs as late_runs
from tests.incremental.laws.late.times import times_of
from tests.incremental.laws.late.wrong_lateness import WRONG_LATE_MOVES, WRONG_LATENESS
from tests.incremental.wrong_rules import OF_WHOLE_NUMBERS, WRONG_MOVES, WRONG_RULES
from tests.unsynced import leave_files_unsynced

TOLD = 20
"""Runs that are wrong, of which the errors are printed."""


def is_late(seed: int) -> bool:
    """Whether the program of a seed is one of forms that forget."""
    return seed % 4 == 3


def disturbed(seed: int) -> Counter[str]:
    """The run of a seed."""
    return late_runs.disturbed(seed) if is_late(seed) else runs.disturbed(seed)


def drawn(seed: int, only: str | None) -> object:
    """The program of a seed."""
    late, chance = is_late(seed) if only is None else only == "late", random.Random(seed)
    return (times_of(seed), late_programs.drawn(chance, times_of(seed))) if late else runs.drawn(chance)


DISTURBED: dict[str | None, Callable[[int], Counter[str]]] = {"late": late_runs.disturbed, "loops": runs.disturbed, None: disturbed}


def run(seed: int, how: Callable[[int], Counter[str]] = disturbed) -> tuple[int, Counter[str], str]:
    """One run: what has struck, and the error if it was wrong."""
    logging.getLogger("rayad").setLevel(logging.CRITICAL)  # failures are asked for
    leave_files_unsynced()
    try:
        return seed, how(seed), ""
    except Exception:
        return seed, Counter(runs=1), traceback.format_exc()


def planted(seeds: range, only: str | None) -> int:
    """Print what finds each wrong rule; gives how many nothing finds."""
    missed = 0
    logging.getLogger("rayad").setLevel(logging.CRITICAL)
    in_rows, in_columns = partial(runs.quick, form="rows"), partial(runs.quick, form="columns")
    of_loops = ((WRONG_RULES, in_rows), (OF_WHOLE_NUMBERS, in_columns), (WRONG_MOVES, partial(runs.disturbed, form="rows")))
    of_late = ((WRONG_LATENESS, late_runs.quick), (WRONG_LATE_MOVES, late_runs.disturbed))
    for rules, how in (*(of_loops if only != "late" else ()), *(of_late if only != "loops" else ())):
        for name, plant in rules.items():
            found = runs.first_found(plant, seeds, how)
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
    asked.add_argument("--ray", action="store_true")
    asked.add_argument("--only", choices=("late", "loops"))
    args = asked.parse_args(given)
    seeds = range(args.first, args.first + args.runs)
    if args.planted:
        return min(1, planted(seeds, args.only))
    if args.seed is not None:
        print(drawn(args.seed, args.only or "loops" if args.ray else args.only))
        seeds = range(args.seed, args.seed + 1)
    if args.ray:
        from tests.incremental.laws.on_ray import cluster, disturbed_on_ray, of_late, of_loops

        draw = of_late if args.only == "late" else of_loops
        with cluster():
            return told((run(seed, partial(disturbed_on_ray, draw=draw)) for seed in seeds), len(seeds), every=20)
    with ProcessPoolExecutor(args.processes, initializer=collect_seldom) as pool:
        return told(pool.map(partial(run, how=DISTURBED[args.only]), seeds, chunksize=4), len(seeds), every=100)


def collect_seldom() -> None:
    """Python's collector takes a tenth of the time of such runs, which leave little behind."""
    gc.freeze()
    gc.set_threshold(100_000, 20, 100)


def told(outcomes: Iterable[tuple[int, Counter[str], str]], runs: int, every: int) -> int:
    """Print what is wrong, and the sums after ``every`` so many runs; gives 1 where something is wrong."""
    began, seen, wrong = time.monotonic(), Counter[str](), 0
    for done, (seed, one, error) in enumerate(outcomes, 1):
        seen += one
        if error:
            wrong += 1
            if wrong <= TOLD:
                print(f"seed {seed}:\n{error}", flush=True)
        if done % every == 0 or done == runs:
            print(f"{done} runs, {wrong} wrong, {time.monotonic() - began:.0f} s; {dict(sorted(seen.items()))}", flush=True)
    return min(1, wrong)


if __name__ == "__main__":
    sys.exit(main())
