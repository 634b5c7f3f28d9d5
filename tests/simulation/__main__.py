"""``python -m tests.simulation``: thousands of simulated runs, the faults by phase, and whether each run gave the right results.

``--seeds 1000`` runs so many; ``--seed 17`` runs one again and prints more. Runs of odd seeds have changes of layout;
``--rescales``: every run has them, ``--no-rescales``: none.
"""

from __future__ import annotations

import argparse
import logging
import multiprocessing
import os
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor

from rich.console import Console
from rich.table import Table

from tests.simulation.changes import COUNTED
from tests.simulation.faults import CELLS, CELLS_OF_CHANGES, CHANGING, MATRIX, MATRIX_OF_CHANGES, PHASES, faults_of
from tests.simulation.harness import FAULTS, Outcome, run, run_drawn

SEEDS = 10_000
SHOWN = 20


class Tally:
    """The outcome of many runs."""

    def __init__(self) -> None:
        self.runs = self.rescaled = 0
        self.cells: Counter[tuple[str, str]] = Counter()
        self.figures: Counter[str] = Counter()
        self.violations: list[Outcome] = []

    def add(self, outcome: Outcome) -> None:
        """One more run."""
        self.runs += 1
        self.rescaled += outcome.rescales
        self.cells += outcome.cells
        self.figures += outcome.figures
        if outcome.violation:
            self.violations.append(outcome)

    def wrong(self, cells: Sequence[tuple[str, str]] | None = None) -> list[str]:
        """What is wrong with the runs together, or did not happen in any of them; empty if nothing. ``cells``: the required faults and
        phases, by default all."""
        out = [f"{len(self.violations)} runs gave something else than they must"] if self.violations else []
        if cells is None:
            cells = CELLS + (CELLS_OF_CHANGES if self.rescaled else [])
        out += [f"{kind!r} while {phase} never struck" for kind, phase in cells if not self.cells[kind, phase]]
        needed = ["logged on feedback edges", "logged on other edges", "waiting at the sender", "parked", "notifications", "increments"]
        needed += ["superseded", "refused", "held up", "spilled at the sender", "spilled at the receiver"]
        if self.rescaled < self.runs:
            needed.append("recovered upstream alone")
        if self.rescaled:
            needed += ["changes asked for again", "changes of 2 vertices or more", *(f"changes: {name}" for name in COUNTED)]
        return out + [f"there was nothing {what}" for what in needed if not self.figures[what]]


def run_all(seeds: Iterable[int], processes: int, *, rescales: bool | None = False) -> Iterator[Outcome]:
    """Run seeds, in several processes; ``rescales`` None: those of odd seeds with changes of layout."""
    runs = [(seed, seed % 2 == 1 if rescales is None else rescales) for seed in seeds]
    if processes == 1:
        yield from map(run_drawn, runs)
        return
    # The function for the processes is in another module, because this one is __main__ here and has another name there.
    quiet = (logging.disable, (logging.WARNING,))  # each fault logs a warning
    with ProcessPoolExecutor(processes, multiprocessing.get_context("spawn"), *quiet) as pool:
        yield from pool.map(run_drawn, runs, chunksize=16)


def run_until_all_struck(seeds: Iterable[int], cells: Sequence[tuple[str, str]], *, rescales: bool = False) -> Tally:
    """Run seeds, in this process, until each of these faults has struck in its phase, or until there is a violation. For tests."""
    tally = Tally()
    for seed in seeds:
        tally.add(run(seed, rescales=rescales))
        if tally.violations or not tally.wrong(cells):
            break
    return tally


def show(tally: Tally, console: Console, took_s: float) -> None:
    """Print faults by phase, figures, violations."""
    table = Table(title=f"Faults that struck in {tally.runs} runs, by kind and phase")
    shown = (*PHASES, *CHANGING) if tally.rescaled else PHASES
    matrix = {kind: set(phases) for kind, phases in MATRIX.items()}
    for kind, phases in MATRIX_OF_CHANGES.items() if tally.rescaled else ():
        matrix.setdefault(kind, set()).update(phases)
    table.add_column("fault")
    for phase in shown:
        table.add_column(phase, justify="right")
    for kind, mine in matrix.items():
        table.add_row(kind, *(str(tally.cells[kind, phase]) if phase in mine else "" for phase in shown))
    table.add_section()
    table.add_row("all", *(str(sum(n for (_, of), n in tally.cells.items() if of == phase)) for phase in shown))
    console.print(table)
    for what, count in sorted(tally.figures.items()):
        console.print(f"{count:>10} {what}")
    console.print(f"{tally.runs} runs, in {tally.rescaled} of which replicas come and go; {sum(tally.cells.values())} faults and changes")
    console.print(f"{len(tally.violations)} violations, {took_s:.0f} s")
    for outcome in tally.violations[:SHOWN]:
        console.print(f"{outcome.again}    # {outcome.program}: {outcome.violation}")
    for why in tally.wrong():
        console.print(f"WRONG: {why}")


def main() -> int:
    """Parse arguments, run, print; 1 if something was wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seeds", type=int, default=SEEDS, help="how many runs")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--seed", type=int, help="run this one alone, and print more")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    flag = argparse.BooleanOptionalAction
    parser.add_argument("--rescales", action=flag, help="replicas come and go in every run, or in none; by default in every second one")
    given = parser.parse_args()
    console = Console(width=None if sys.stdout.isatty() else 140)
    if given.seed is not None:
        rescales = given.seed % 2 == 1 if given.rescales is None else given.rescales
        outcome = run(given.seed, rescales=rescales)
        for fault in faults_of(given.seed, FAULTS, rescales=rescales):
            console.print(str(fault))
        console.print(outcome)
        return 1 if outcome.violation else 0
    began_s = time.monotonic()
    tally = Tally()
    for outcome in run_all(range(given.first, given.first + given.seeds), given.processes, rescales=given.rescales):
        tally.add(outcome)
        if outcome.violation and len(tally.violations) <= SHOWN:
            console.print(f"{outcome.again}    # {outcome.program}: {outcome.violation}")
    show(tally, console, time.monotonic() - began_s)
    return 1 if tally.wrong() else 0


if __name__ == "__main__":
    sys.exit(main())
