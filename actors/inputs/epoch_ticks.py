"""When live inputs with ``epoch_s`` are due to advance: the rule that the local runtime and the driver's thread share."""

from __future__ import annotations

from collections.abc import Mapping

from rayad.dataflow.items import LiveInput
from rayad.dataflow.plan import Plan


def lengths_of(plan: Plan) -> dict[str, float]:
    """The live inputs that advance by themselves, by name, with the length of their epochs in seconds."""
    ops = {name: plan.stage(stage).op for name, stage in plan.inputs.items()}
    return {name: op.epoch_s for name, op in ops.items() if isinstance(op, LiveInput) and op.epoch_s is not None}


class EpochTicks:
    """Each input is due a length after it was due last, or after now where that has passed: what was missed is not made up for.

    >>> ticks = EpochTicks({"x": 2.0}, now_s=0.0)
    >>> ticks.due_in_s(0.5), ticks.take_due(1.0), ticks.take_due(2.5), ticks.due_in_s(2.5), ticks.take_due(9.0), ticks.due_in_s(9.0)
    (1.5, [], ['x'], 1.5, ['x'], 2.0)
    """

    def __init__(self, lengths_s: Mapping[str, float], now_s: float) -> None:
        self._lengths_s = lengths_s
        self._due_s = {name: now_s + length_s for name, length_s in lengths_s.items()}

    def take_due(self, now_s: float) -> list[str]:
        """The inputs that are due; each is due again later."""
        due = [name for name, due_s in self._due_s.items() if due_s <= now_s]
        for name in due:
            following_s = self._due_s[name] + self._lengths_s[name]
            self._due_s[name] = following_s if following_s > now_s else now_s + self._lengths_s[name]
        return due

    def due_in_s(self, now_s: float) -> float | None:
        """Seconds until the next one is due, 0 where one is; None: none ever will be."""
        return max(0.0, min(self._due_s.values()) - now_s) if self._due_s else None

    def drop(self, name: str) -> None:
        """This input is closed."""
        self._due_s.pop(name, None)


__all__ = ["EpochTicks", "lengths_of"]
