"""Which sources and live inputs do not run ahead of what is behind them as they like: docs/design/collections.md."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple

from rayad.dataflow.config import RunConfig
from rayad.dataflow.logical_graph import NodeKind
from rayad.dataflow.plan import Plan


class Ahead(NamedTuple):
    """How far inputs may run ahead, and of what.

    Args:
        epochs: ``RunConfig.epochs_ahead``.
        of_all: of all vertices that take times in order, and put aside what comes before its turn: where state has a bound on memory, that
            has one, too. Else of collections alone.
    """

    epochs: int | None = None
    of_all: bool = False

    @classmethod
    def of_run(cls, config: RunConfig) -> Ahead:
        """As a run says."""
        return cls(config.epochs_ahead, config.state_memory_bytes is not None)


FREE = Ahead()
"""As they like."""


@dataclass(frozen=True, slots=True)
class Paced:
    """What the pace of a source or live input depends on, by ids of stages.

    Args:
        pacing: those behind it of which it must not run ahead.
        between: these, and all on the way to them.
        others: the other live inputs before them.
    """

    pacing: tuple[int, ...]
    between: tuple[int, ...]
    others: tuple[int, ...]


def paced(plan: Plan, ahead: Ahead) -> dict[int, Paced]:
    """The sources and live inputs that are paced."""
    pacing = {stage.id for stage in plan.stages if stage.paces_inputs or (ahead.of_all and stage.sequential)}
    if ahead.epochs is None or not pacing:
        return {}

    def back(at: int) -> Iterable[int]:
        return (edge.source for edge in plan.edges_into(at))

    def forth(at: int) -> Iterable[int]:
        return (edge.target for edge in plan.edges_from(at))

    before = _reached(pacing, back)
    live = {stage.id for stage in plan.stages if stage.kind is NodeKind.INPUT}
    found = {}
    for stage in plan.stages:
        if stage.id in before and stage.kind in (NodeKind.SOURCE, NodeKind.INPUT):
            behind = _reached({stage.id}, forth) - {stage.id}
            mine = behind & pacing
            others = live & _reached(mine, back) - {stage.id}
            found[stage.id] = Paced(*(tuple(sorted(ids)) for ids in (mine, behind & before, others)))
    return found


def _reached(begin: set[int], ahead: Callable[[int], Iterable[int]]) -> set[int]:
    found, waiting = set(begin), list(begin)
    while waiting:
        for stage in ahead(waiting.pop()):
            if stage not in found:
                found.add(stage)
                waiting.append(stage)
    return found


__all__ = ["FREE", "Ahead", "Paced", "paced"]
