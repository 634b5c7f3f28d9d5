"""Find seeds that catch planted defects: a change of the order in which things happen makes those in the tests' tables stale.

python -m tests.simulation.find_seeds recoveries asking     # all defects of these groups, each with its first seeds
python -m tests.simulation.find_seeds --stale --seeds 500   # looks for new ones where those in the table catch nothing, and writes them
python -m tests.simulation.find_seeds coordinator --only "a worker is over" --seeds 500
python -m tests.simulation.find_seeds --struck --seeds 420  # cheap runs in which every fault strikes, for test_changes.SEEDS
"""

from __future__ import annotations

import argparse
import logging
import tempfile
import time
from collections.abc import Callable
from functools import partial
from multiprocessing import get_context
from multiprocessing.pool import Pool
from pathlib import Path

import rayad as rd
from tests.programs.catalog import PROGRAMS
from tests.simulation import test_upstream
from tests.simulation.__main__ import Tally
from tests.simulation.caught_by import all_caught, caught_by, write
from tests.simulation.coordinator import draw
from tests.simulation.coordinator.planted import DEFECTS as DEFECTS_OF_COORDINATORS
from tests.simulation.coordinator.planted import bound, with_defect
from tests.simulation.defects import DEFECTS, TICKS_WITH_A_DEFECT, Plant, first_violation, planted
from tests.simulation.defects_of_asking import DEFECTS_OF_ASKING
from tests.simulation.defects_of_changes import DEFECTS_OF_CHANGES
from tests.simulation.defects_of_channels import DEFECTS_OF_CHANNELS, IN_CHANGES
from tests.simulation.defects_of_recoveries import DEFECTS_OF_RECOVERIES
from tests.simulation.harness import run
from tests.simulation.test_changes import CELLS_OF_CHANGES

Catches = Callable[[str, int], bool]
"""Whether a seed shows a defect, and nothing without it."""


def _in_runs(defects: dict[str, Plant], rescales: Callable[[str], bool]) -> Catches:
    def catches(name: str, seed: int) -> bool:
        with_changes = rescales(name)
        is_seen = first_violation(defects[name], range(seed, seed + 1), rescales=with_changes) is not None
        return is_seen and not run(seed, rescales=with_changes, ticks_max=TICKS_WITH_A_DEFECT).violation

    return catches


def _upstream(name: str, seed: int) -> bool:
    program = next(one for one in PROGRAMS if one.name == test_upstream.PROGRAM_OF[name])
    with tempfile.TemporaryDirectory() as folder:
        try:
            with planted(DEFECTS_OF_RECOVERIES[name]):
                test_upstream.run_with_failures(program, seed, Path(folder) / "with")
        except (AssertionError, rd.RayadError):
            test_upstream.run_with_failures(program, seed, Path(folder) / "without")
            return True
    return False


def _coordinator(name: str, seed: int) -> bool:
    without = draw.run_seed(seed)
    return not without.violation and bool(with_defect(name, seed, bound(without)).violation)


GROUPS: dict[str, tuple[list[str], Catches]] = {
    "cores": ([*DEFECTS], _in_runs(DEFECTS, lambda name: False)),
    "changes": ([*DEFECTS_OF_CHANGES], _in_runs(DEFECTS_OF_CHANGES, lambda name: True)),
    "channels": ([*DEFECTS_OF_CHANNELS], _in_runs(DEFECTS_OF_CHANNELS, lambda name: name in IN_CHANGES)),
    "recoveries": ([*DEFECTS_OF_RECOVERIES], _in_runs(DEFECTS_OF_RECOVERIES, lambda name: False)),
    "asking": ([*DEFECTS_OF_ASKING], _in_runs(DEFECTS_OF_ASKING, lambda name: True)),
    "coordinator": ([*DEFECTS_OF_COORDINATORS], _coordinator),
    "upstream": ([*test_upstream.CAUGHT_BY], _upstream),
}


def _first(group: str, name: str, seeds: range, pool: Pool) -> int | None:
    """The first of the seeds that catches a defect."""
    caught = pool.imap(partial(_catches, group, name), seeds)
    return next((seed for seed, is_caught in zip(seeds, caught, strict=False) if is_caught), None)


def _catches(group: str, name: str, seed: int) -> bool:
    return GROUPS[group][1](name, seed)


def _stale(group: str, pool: Pool) -> list[str]:
    """Defects of a group whose seed in the table does not catch them."""
    table = caught_by(group)
    return [name for name, is_caught in zip(table, pool.starmap(partial(_catches, group), table.items()), strict=True) if not is_caught]


def _struck(seed: int) -> tuple[int, float, set[tuple[str, str]]]:
    """The seconds of a processor that a run with changes takes, and the faults that strike in it."""
    began_s = time.process_time()
    outcome = run(seed, rescales=True)
    took_s = time.process_time() - began_s
    tally = Tally()
    tally.add(outcome)
    return seed, took_s, {cell for cell in CELLS_OF_CHANGES if tally.cells[cell]}


def cheapest(runs: dict[int, tuple[float, set[tuple[str, str]]]]) -> list[int]:
    """Runs that have every fault between them that all runs have: always the one that has most of those that are missing for its time."""
    missing = set().union(*(struck for _, struck in runs.values()))
    chosen: list[int] = []
    while missing:
        best = max(runs, key=lambda seed: len(runs[seed][1] & missing) / runs[seed][0])
        chosen.append(best)
        missing -= runs[best][1]
    return sorted(chosen)


def main() -> None:
    """Print the first seed that catches each defect."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("groups", nargs="*", choices=[*GROUPS, []], help="all, if none is given")
    parser.add_argument("--seeds", type=int, default=60, help="how many seeds are tried for each")
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--only", default="", help="defects whose name has this text; several with |")
    parser.add_argument("--stale", action="store_true", help="those that their seed in the table does not catch any more; rewrites it")
    parser.add_argument("--struck", action="store_true", help="instead: seeds with changes in which every fault strikes")
    parser.add_argument("--processes", type=int, default=2)
    options = parser.parse_args()
    seeds = range(options.first, options.first + options.seeds)
    logging.disable(logging.CRITICAL)
    if options.struck:
        with get_context("fork").Pool(options.processes) as pool:
            runs = {seed: (took_s, struck) for seed, took_s, struck in pool.imap_unordered(_struck, seeds)}
        chosen = cheapest(runs)
        never = set(CELLS_OF_CHANGES).difference(*(struck for _, struck in runs.values()))
        print(f"{sum(runs[seed][0] for seed in chosen):.1f} s, never struck {sorted(never)}: {', '.join(map(str, chosen))}")
        return
    for group in options.groups or (all_caught() if options.stale else GROUPS):
        with get_context("fork").Pool(options.processes) as pool:
            names = _stale(group, pool) if options.stale else GROUPS[group][0]
        for name in names:
            if any(text in name for text in options.only.split("|")):
                with get_context("fork").Pool(options.processes) as pool:  # when it ends, so do the seeds after the one that was found
                    found = _first(group, name, seeds, pool)
                print(f"{group}: {name!r}: {found}", flush=True)
                if options.stale and found is not None:
                    table = all_caught()
                    table[group][name] = found
                    write(table)


if __name__ == "__main__":
    main()
