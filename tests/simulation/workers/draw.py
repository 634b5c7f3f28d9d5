"""What a seed draws: a program, how wide it is, who shares a process, how snapshots go, how often all is lost."""

from __future__ import annotations

import random
import traceback
from collections import Counter
from dataclasses import dataclass, field

from tests.simulation.harness import FIXED, all_programs
from tests.simulation.workers.run import run

ASK_WHILE_THEY_RUN = frozenset({"live", "live-loop", "sim live", "sim live loop", "sim live log"})
"""Programs that look at probes between two sends: here all is sent before it runs."""


@dataclass(frozen=True)
class Outcome:
    """What became of a seed."""

    seed: int
    program: str
    violation: str = ""
    where: str = ""
    figures: Counter[str] = field(default_factory=Counter)

    @property
    def again(self) -> str:
        """The command that runs it again."""
        return f"python -m tests.simulation.workers --first {self.seed} --seeds 1"


def names() -> list[str]:
    """The programs."""
    return [name for name, program in all_programs().items() if not program.options and name not in ASK_WHILE_THEY_RUN]


def run_seed(seed: int, *, eager: bool = False) -> Outcome:
    """Run what a seed draws; ``eager``: see :class:`tests.simulation.workers.run.Run`."""
    chance = random.Random(~seed)
    program = all_programs()[chance.choice(names())]
    parallelism, placement = chance.choice([1, 2, 2, 3]), chance.choice(["workers", "workers", "vertices", "mixed"])
    mode = chance.choice(["none", "aligned", "aligned", "unaligned", "unaligned", "timeout"])
    if placement == "mixed":
        stages = program.flow().plan(program.parallelism or parallelism).stages
        placement = {stage.name: chance.choice(["workers", "vertices"]) for stage in stages}
    crashes = chance.choice([0, 1, 2, 3]) if mode != "none" else 0
    if eager:
        mode, crashes = "unaligned", 4
    changes = chance.choice([0, 0, 1, 2, 4]) if program.name not in FIXED else 0
    try:
        one = run(seed, program, parallelism, placement, mode=mode, crashes=crashes, changes=changes, eager=eager)
    except Exception as error:
        where = " < ".join(f"{frame.name}:{frame.lineno}" for frame in reversed(traceback.extract_tb(error.__traceback__)[-5:]))
        return Outcome(seed, program.name, f"{type(error).__name__}: {error}"[:600], where)
    return Outcome(seed, program.name, figures=one.figures + Counter(steps=one.steps))


__all__ = ["Outcome", "names", "run_seed"]
