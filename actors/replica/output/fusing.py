"""Which steps of a stage run as one loop over records, and in which order its combiners flush."""

from __future__ import annotations

from collections.abc import Container, Iterator
from typing import NamedTuple

from rayad.dataflow.operators.stateless import Element
from rayad.dataflow.plan import ApplyStep, ShiftStep, Stage

FUSED_MAX = 64
"""How many row steps run as one loop; each is one more iterator inside the next."""


class Fused(NamedTuple):
    """Steps that run as one loop over records."""

    chains: dict[int, list[ApplyStep]]
    """The steps of each loop, in order, by the number of its first."""
    inside: set[int]
    """The numbers of the other steps of the loops."""


def fused(stage: Stage, alone: Container[int]) -> Fused:
    """The loops of a stage; steps with the numbers in ``alone`` are in none."""
    found = Fused({}, set())
    for number in range(len(stage.steps) - 1, -1, -1):  # parents come later: each chain is found from its beginning
        if number not in found.inside:
            numbers = _row_steps(stage, number, alone)
            if len(numbers) > 1:
                found.chains[number] = [stage.steps[n] for n in numbers]  # type: ignore[misc]
                found.inside.update(numbers[1:])
    return found


def _row_steps(stage: Stage, number: int, alone: Container[int]) -> list[int]:
    """A step and those behind it that can run as one loop over records, perhaps with a combiner at the end; none that is to be alone."""
    chain: list[int] = []
    while isinstance(step := stage.steps[number], ApplyStep) and len(chain) < FUSED_MAX:
        is_lazy = type(step.element).lazily is not Element.lazily
        if not is_lazy and not (chain and step.element.gathers_rows):
            break
        if chain and number in alone:
            break
        chain.append(number)
        if not is_lazy or len(step.children) != 1 or number in alone:
            break
        number = step.children[0]
    return chain


def depth_first(stage: Stage, loops: Fused) -> Iterator[int]:
    """The numbers of a stage's actions, each before those behind it."""
    for numbers in stage.outputs:
        pending = list(reversed(numbers))
        while pending:
            number = pending.pop()
            yield number
            step = loops.chains[number][-1] if number in loops.chains else stage.steps[number]
            if isinstance(step, (ApplyStep, ShiftStep)):
                pending.extend(reversed(step.children))
