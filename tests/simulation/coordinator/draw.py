"""What a seed draws: a program, its width, who shares a process, how it recovers, and what happens to its processes."""

from __future__ import annotations

import random
import traceback
from collections import Counter
from dataclasses import dataclass, field

from tests.simulation.coordinator.run import Plan, run
from tests.simulation.coordinator.world import STEPS_MAX, Stuck
from tests.simulation.harness import FIXED, all_programs

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
        return f"python -m tests.simulation.coordinator --first {self.seed} --seeds 1"


def names() -> list[str]:
    """The programs."""
    return [name for name, program in all_programs().items() if not program.options and name not in ASK_WHILE_THEY_RUN]


def run_seed(seed: int, steps_max: int = STEPS_MAX, *, is_scaled: bool = False) -> Outcome:
    """Run what a seed draws; it is stuck when it is not over after ``steps_max`` events. ``is_scaled``: an autoscaler asks for changes."""
    chance = random.Random(~seed)
    program = all_programs()[chance.choice(names())]
    parallelism, placement = chance.choice([1, 2, 2, 3]), chance.choice(["workers", "workers", "vertices", "vertices", "mixed"])
    mode = chance.choice(["none", *("aligned", "aligned", "unaligned", "unaligned", "timeout") * 2])
    recovery = "graph"
    if placement == "vertices" and chance.random() < 0.6 and not is_scaled:
        recovery = "upstream"
    if placement == "mixed":
        stages = program.flow().plan(program.parallelism or parallelism).stages
        placement = {stage.name: chance.choice(["workers", "vertices"]) for stage in stages}
    todo = Plan()
    if mode != "none":
        todo = Plan(*(chance.choice(counts) for counts in ([0, 1, 1, 2, 3], [0, 0, 0, 1, 2], [0, 0, 1, 1, 2])))
        todo.savepoints, todo.store_away, todo.busy = (chance.choice([0, 0, 1, 2]) for _ in range(3))
    nodes, is_tight = chance.choice([1, 1, 2, 3]), False
    if mode != "none" and nodes > 1:
        todo.drains, todo.lost_nodes, todo.stopped_nodes = (chance.choice([0, 0, 1, 2]) for _ in range(3))
    if program.name not in FIXED:
        todo.changes = chance.choice([0, 0, 1, 2, 3]) if not is_scaled else 0
    is_tight = nodes > 1 and not todo.changes and not is_scaled and chance.random() < 0.4
    span = chance.choice([200, 600, 600, 1500])
    try:
        one = run(
            seed,
            program,
            parallelism,
            placement,
            recovery=recovery,
            mode=mode,
            todo=todo,
            span=span,
            nodes=nodes,
            is_tight=is_tight,
            steps_max=steps_max,
            is_scaled=is_scaled and program.name not in FIXED,
        )
    except (Exception, Stuck) as error:
        where = " < ".join(f"{frame.name}:{frame.lineno}" for frame in reversed(traceback.extract_tb(error.__traceback__)[-5:]))
        told = f"{recovery}, {mode}, {todo}: {type(error).__name__}: {error}"
        return Outcome(seed, program.name, told[:2500], where)
    return Outcome(seed, program.name, figures=one.figures + Counter(steps=one.world.steps))


__all__ = ["Outcome", "run_seed"]
