"""What sources and live inputs are told of the vertices behind them, so that they do not run far ahead. Pure.

A source is told which epochs are complete at all those vertices. It needs to know when it may be near its bound, so it is told then, and
not once for each epoch. See docs/design/collections.md, "Inputs that run ahead".

Nobody waits for ever: of the sources the one in the least epoch goes on. What holds back a vertex behind it is then itself, or work that is
under way, or a right to send that another vertex keeps until some later epoch has come, which is not known. Sources before such a vertex
are free as long as it does. (The right of an EndVertex follows its input.)
"""

from __future__ import annotations

from collections.abc import Iterator

from rayad.dataflow.logical_graph import NodeKind
from rayad.dataflow.pacing import Ahead, Paced, paced
from rayad.dataflow.plan import Plan
from rayad.progress import JobTracker

Told = tuple[int, bool]
"""All epochs before this one are complete; and whether it may begin any number beyond it."""


class Pacing:
    """What each of them was told last.

    Args:
        plan: the dataflow.
        ahead: how far they may run ahead.
    """

    def __init__(self, plan: Plan, ahead: Ahead) -> None:
        self._ahead = ahead.epochs or 1
        self._paced = paced(plan, ahead)
        self._live = {stage.id for stage in plan.stages if stage.kind is NodeKind.INPUT}
        self._told: dict[int, Told] = {}

    def forget(self) -> None:
        """Replicas have been replaced: they know nothing."""
        self._told.clear()

    def news(self, tracker: JobTracker) -> Iterator[tuple[int, Told]]:
        """What to tell now, by stage."""
        for stage, of in self._paced.items():
            told = self._told.get(stage, (0, False))
            epochs = tracker.epochs_counted(stage)
            if epochs is None or 2 * (epochs[1] - told[0]) < self._ahead:
                continue
            now = self._now(tracker, stage, of)
            if now != told:
                self._told[stage] = now
                yield stage, now

    def _now(self, tracker: JobTracker, stage: int, of: Paced) -> Told:
        incomplete = min((epoch for at in of.pacing if (epoch := tracker.least_epoch(at)) is not None), default=0)
        if stage in self._live and any((epochs := tracker.epochs_counted(at)) and epochs[0] <= incomplete for at in of.others):
            return incomplete, True  # one program may feed both, this one first
        return incomplete, any(tracker.right_passed(at) >= self._ahead for at in of.between)


__all__ = ["Pacing", "Told"]
