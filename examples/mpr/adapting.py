"""Rescale a running application: at given seconds, or as a policy decides (MPR: Löff, PUCRS 2023, chapter 7).

`mpr` is exactly MPR's policy: thresholds on throughput over a goal (a step of 4 that would exceed the maximum is not taken at all).
`ds2` computes the replicas for the goal from true rates. Both begin with one replica. Without a policy the job is only
measured. The autoscaler's journal is drawn: throughput, goal, replicas over time.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import rayad as rd
from rayad.scaling_plot import plot_journal

POLICIES = ("mpr", "ds2")


@dataclass(frozen=True, slots=True)
class Adapting:
    """How the number of replicas changes while the job runs.

    Args:
        policy: one of POLICIES; None: only ``changes``.
        goal_per_s: items a second that the computing vertex shall produce. Without a goal ``ds2`` takes the rate at which items come.
        interval_s: from one decision to the next.
        journal: file of measurements and decisions.
        changes: ``(seconds after it was submitted, replicas)``.
        changed: the reports of these changes, in order; filled while the job runs.
    """

    policy: str | None = None
    goal_per_s: float | None = None
    interval_s: float = 1.0
    journal: str | None = None
    changes: tuple[tuple[float, int], ...] = ()
    changed: list[Any] = field(default_factory=list)

    def scaling(self, flow: rd.Dataflow, vertex: str, replicas: int) -> rd.ScalingConfig:
        """The configuration: ``replicas`` of the vertex, or with a policy at most so many."""
        if self.policy is None:
            if self.journal is None:
                return rd.ScalingConfig(parallelism={vertex: replicas})
            options: dict[str, Any] = {"report_interval_s": self.interval_s, "journal": self.journal}
            return rd.ScalingConfig(parallelism={vertex: replicas}, policy="observe", **options)
        alone = {stage.name: (1, 1) for stage in flow.plan().stages}
        return rd.ScalingConfig(
            parallelism={**alone, vertex: (1, replicas)},
            policy=self._policy(vertex, replicas),
            report_interval_s=self.interval_s,
            window_s=self.interval_s if self.policy == "mpr" else 3 * self.interval_s,
            warm_up_s=0.0 if self.policy == "mpr" else self.interval_s,
            journal=self.journal,
        )

    def _policy(self, vertex: str, replicas: int) -> Any:
        if self.policy == "mpr":
            if self.goal_per_s is None:
                raise ValueError("the policy 'mpr' compares with a goal: give one")
            return rd.autoscale.MprThresholds(vertex, self.goal_per_s, below=replicas + 1)
        rates = {} if self.goal_per_s is None else {"source": self.goal_per_s}
        model = rd.autoscale.DS2(source_rates=rates, utilization=0.9, down_margin=0.1)
        seconds = self.interval_s
        return rd.autoscale.recommended(model, warm_up_s=seconds, up_cool_down_s=2 * seconds, down_cool_down_s=5 * seconds, down_rounds=2)

    def wait(self, job: Any, vertex: str) -> Any:
        """Make the changes while the job runs, and give its result."""
        began_s = time.monotonic()
        for at_s, replicas in self.changes:
            try:
                return job.wait(timeout_s=max(0.0, began_s + at_s - time.monotonic()))
            except TimeoutError:
                try:
                    told = job.rescale(vertex, replicas)
                except rd.RescaleRefused as refused:
                    print(refused)  # perhaps the job is complete
                    continue
                self.changed.append(told)
                after_s, still_ms = time.monotonic() - began_s, 1000 * told.paused_s
                print(f"{replicas} replicas after {after_s:.1f} s: it took {told.took_s:.2f} s; a replica stood still {still_ms:.1f} ms")
        return job.wait()

    def draw(self, picture: Path, vertex: str, title: str) -> None:
        """Draw the journal, and print a summary."""
        assert self.journal is not None
        goals = {vertex: self.goal_per_s} if self.goal_per_s is not None else None
        (drawn,) = plot_journal(self.journal, picture, vertices=[vertex], goals=goals, title=title)
        print(f"replicas over time: {counts_in_words(drawn.replicas)}; {drawn.mean_throughput:,.1f} items/s on the average; {picture}")


def counts_in_words(replicas: Sequence[int]) -> str:
    """Each change of a count.

    >>> counts_in_words([1, 1, 3, 3, 2])
    '1, 3, 2'
    """
    return ", ".join(str(count) for i, count in enumerate(replicas) if i == 0 or count != replicas[i - 1])
