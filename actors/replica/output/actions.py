"""The compiled steps of one replica as a tree of functions, and how a batch flows through it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rayad.progress import Timestamp

Emit = Callable[[Timestamp, Any], Sequence[tuple[Timestamp, Any]] | None]
"""What a compiled step does with a batch; it gives what its children get."""


class Action:
    """A step, or several fused into one, compiled; and the actions that get what it gives."""

    __slots__ = ("backwards", "children", "run")

    def __init__(self, run: Emit, children: tuple[Action, ...]) -> None:
        self.run = run
        self.children = children
        self.backwards = children[::-1]


def flow(actions: tuple[Action, ...], time: Timestamp, batch: Any) -> None:
    """Run actions and all that is behind them, depth first, on a stack of its own: there may be thousands of steps in a row."""
    pending = [(action, time, batch) for action in reversed(actions)]
    while pending:
        action, when, what = pending.pop()
        leaving = action.run(when, what)
        if leaving:
            for following in reversed(leaving):
                pending.extend((child, *following) for child in action.backwards)
