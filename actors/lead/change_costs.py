"""What a change of layout has cost so far, how large its next step may be, and its report. Pure."""

from __future__ import annotations

from collections.abc import Collection

from rayad.actors.lead import layouts
from rayad.actors.lead.layouts import RescaleReport
from rayad.actors.replica.migration import StepCost
from rayad.dataflow.plan import Plan


class ChangeCosts:
    """Of one change.

    Args:
        groups: how many key-groups each step moves; None: as many as ``pause_s`` allows.
        pause_s: how long a step may keep a replica; None: all moves in one step.
    """

    def __init__(self, *, groups: int | None, pause_s: float | None) -> None:
        self._fixed_groups = groups
        self._pause_s = pause_s
        self._groups = 0
        self._step_s = 0.0
        self._steps: list[tuple[int, float]] = []  # groups of each settled step, and the longest that it kept a replica
        self._replicas: list[StepCost] = []
        self.prepared_s = 0.0
        """Seconds until all were prepared."""

    def begin_step(self, plan: Plan, stages: Collection[int]) -> int:
        """How many key-groups the next step moves."""
        self._step_s = 0.0
        self._groups = self._groups_of_next_step(plan, stages)
        return self._groups

    def _groups_of_next_step(self, plan: Plan, stages: Collection[int]) -> int:
        if all(stage not in plan.layout.owners for stage in stages):
            return plan.key_groups
        if self._fixed_groups is not None:
            return self._fixed_groups
        if self._pause_s is None:
            return plan.key_groups
        return layouts.groups_of_next_step(self._steps, self._pause_s) if self._steps else layouts.FIRST_STEP_GROUPS

    def on_step(self, cost: StepCost | None) -> None:
        """What the step under way has cost one replica, if it had a part in it."""
        if cost is not None:
            self._step_s = max(self._step_s, cost.state_s)

    def end_step(self) -> None:
        """All replicas have settled the step."""
        self._steps.append((self._groups, self._step_s))

    def on_replica(self, cost: StepCost) -> None:
        """What the whole change has cost one replica."""
        self._replicas.append(cost)

    def report(self, before: Plan, after: Plan, took_s: float) -> RescaleReport:
        """The figures of the change, which is over."""
        total = StepCost.total(self._replicas)
        return RescaleReport(
            layouts.asked_of(before),
            layouts.asked_of(after),
            len(self._steps),
            total.groups,
            total.state_bytes,
            total.passed_on,
            total.held,
            self.prepared_s,
            took_s,
            total.longest_pause_s,
            max((cost.pause_s for cost in self._replicas), default=0.0),
        )
