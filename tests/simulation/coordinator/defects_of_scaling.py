"""Mistakes planted in the autoscaler's loop: the seeds with an autoscaler have to find them."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from contextlib import ExitStack
from typing import Any

from rayad.actors.scaling.loop import ScalingLoop
from tests.simulation.defects import around

DEFECTS_OF_SCALING: dict[str, Callable[[ExitStack], None]] = {}


def defect(plant: Callable[[ExitStack], None]) -> Callable[[ExitStack], None]:
    """Register a defect under its function's name."""
    DEFECTS_OF_SCALING[plant.__name__.replace("_", " ")] = plant
    return plant


@defect
def the_answer_to_a_change_is_not_looked_at(stack: ExitStack) -> None:
    around(stack, ScalingLoop, "_settle", lambda real, self: None)


@defect
def a_refusal_is_taken_for_a_change(stack: ExitStack) -> None:
    def settle(real: Any, self: Any) -> None:
        if self._pending is not None and self._pending.done() and self._pending.exception() is not None:
            self._pending = Future[Any]()
            self._pending.set_result(None)
        real(self)

    around(stack, ScalingLoop, "_settle", settle)


@defect
def a_decision_is_told_twice(stack: ExitStack) -> None:
    def report(real: Any, self: Any, record: Any) -> None:
        real(self, record)
        real(self, record)

    around(stack, ScalingLoop, "_report", report)


@defect
def a_change_under_way_is_forgotten(stack: ExitStack) -> None:
    def round_(real: Any, self: Any) -> Any:
        decision = real(self)
        self._pending = None
        return decision

    around(stack, ScalingLoop, "round", round_)


__all__ = ["DEFECTS_OF_SCALING"]
