"""The matrix of faults and phases, and how a run's faults are drawn from it."""

from __future__ import annotations

import random
from dataclasses import dataclass

SNAPSHOT = ("aligning", "logging", "writing", "publishing", "committing")
"""A replica waits for barriers; it has captured and logs; it writes; all parts are written but not the manifest; sinks have to commit."""
RUNNING = ("steady", *SNAPSHOT)
ALWAYS = (*RUNNING, "recovering")
PHASES = (*ALWAYS, "finishing")
"""Finishing: the dataflow is complete, its last snapshot and the results are not."""
CHANGING = ("waiting", "moving", "leaving")
"""A change of layout waits for the snapshot under way; key-groups move; replicas retire."""

DAMAGES = ("truncated", "flipped", "missing")
MATRIX: dict[str, tuple[str, ...]] = {
    "crash all": ALWAYS,
    "crash replica": ALWAYS,
    "crash progress": ALWAYS,
    "crash coordinator": ALWAYS,
    "driver death": PHASES,
    "second coordinator": ALWAYS,
    "slow disk": ("writing", "publishing", "committing"),
    "full disk": ("writing", "publishing", "recovering", "finishing"),
    "torn write": ("writing", "publishing", "recovering", "finishing"),
    "store away": ("publishing", "committing"),
    "lost answer": ("publishing", "recovering", "finishing"),
    **dict.fromkeys(DAMAGES, ALWAYS),
    "error in on_recv": RUNNING,
    "error in checkpoint": ("aligning",),
    "error in restore": ("recovering",),
    "error in commit": ("committing", "recovering", "finishing"),
    "given up": ("aligning", "logging", "writing", "publishing"),
    "late acknowledgement": RUNNING,
}
CELLS = [(kind, phase) for kind, phases in MATRIX.items() for phase in phases]

CHANGES = ("rescale up", "rescale down", "rescale several")
MATRIX_OF_CHANGES: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(CHANGES, RUNNING),
    **dict.fromkeys(("crash all", "crash replica", "crash progress", "crash coordinator"), CHANGING),
    **dict.fromkeys(("driver death", "second coordinator"), CHANGING),
    **dict.fromkeys(DAMAGES, CHANGING),
    **dict.fromkeys(("slow disk", "full disk", "torn write", "given up"), ("waiting",)),
    "error in on_recv": CHANGING,
    "error in give": ("moving",),
    "error in take": ("moving",),
    "error in a newcomer": ("waiting",),
    "another change": CHANGING,
}
"""Further faults, in runs with changes of layout."""
CELLS_OF_CHANGES = [(kind, phase) for kind, phases in MATRIX_OF_CHANGES.items() for phase in phases]


@dataclass(frozen=True)
class Fault:
    """One fault; it strikes when the job has been in ``phase`` for ``delay`` steps."""

    kind: str
    phase: str
    delay: int


def faults_of(seed: int, count: int, *, rescales: bool = False) -> list[Fault]:
    """The faults of a run, with ``rescales`` also changes of layout: consecutive seeds go through all, each time in another order."""
    cells = CELLS + CELLS_OF_CHANGES if rescales else CELLS
    first = seed * count
    out = []
    for at in range(first, first + count):
        turn, place = divmod(at, len(cells))
        order = list(cells)
        random.Random(turn).shuffle(order)
        out.append(order[place])
    rng = random.Random(seed)
    longest = {"steady": 30, "aligning": 8, "logging": 8, "writing": 4, "waiting": 4, "moving": 20, "leaving": 3}
    faults = [Fault(kind, phase, rng.randint(0, longest.get(phase, 0))) for kind, phase in out]
    return sorted(faults, key=lambda fault: fault.phase == "finishing")
