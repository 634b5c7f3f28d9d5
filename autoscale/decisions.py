"""What a policy answers: hold, scale up, scale down, or both at once; each with its reason in words and the figures behind it.

A policy is any callable ``(samples, state, now_s) -> Decision``. It keeps nothing between two calls: its memory is ``state.history``, the
journal of decisions. So an autoscaler that replaces a dead one resumes from the journal, and a test of a policy is a table of arguments
and answers.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from rayad.autoscale.samples import JobSample
from rayad.autoscale.scaling_graph import ScalingGraph
from rayad.progress import ConfigError

ReplicaCounts = Mapping[str, int]
"""Replicas by vertex name."""


@dataclass(frozen=True, slots=True)
class Expected:
    """What a policy expects of one vertex after its decision.

    Args:
        rate: items a second that the vertex will have to consume.
        capacity: items a second that it will be able to consume.
    """

    rate: float
    capacity: float

    @property
    def utilization(self) -> float:
        """The share of time in which its replicas will be busy; above 1 it cannot keep up."""
        return self.rate / self.capacity if self.capacity > 0 else float("inf")


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """Common to all decisions.

    Args:
        reason: in words, with the figures that decided.
        figures: the figures behind it, by name (``"count.required_per_s"``).
        wanted: the replicas that the policy itself wants, before cool-down, hysteresis and the like; empty: none in particular.
        expected: what it expects, by vertex.
        correction: the measured need over the model's (see `ds2`); None: not determined.
    """

    reason: str
    figures: Mapping[str, float] = field(default_factory=dict)
    wanted: ReplicaCounts = field(default_factory=dict)
    expected: Mapping[str, Expected] = field(default_factory=dict)
    correction: float | None = None

    @property
    def changes(self) -> ReplicaCounts:
        """New replicas of the vertices that change."""
        return {}

    def as_json(self) -> dict[str, Any]:
        """For the journal and `job.progress()`."""
        return {
            "decision": type(self).__name__,
            "reason": self.reason,
            "changes": dict(self.changes),
            "wanted": dict(self.wanted),
            "figures": dict(self.figures),
            "expected": {name: {"rate": e.rate, "capacity": e.capacity} for name, e in self.expected.items()},
            "correction": self.correction,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Hold(Decision):
    """Everything stays as it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Change(Decision):
    replicas: ReplicaCounts

    @property
    def changes(self) -> ReplicaCounts:
        """New replicas of the vertices that change."""
        return self.replicas


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaleUp(_Change):
    """All vertices that change get more replicas."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaleDown(_Change):
    """All vertices that change get fewer replicas."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rescale(_Change):
    """Some vertices get more replicas and some fewer, in one change."""


def decision_for(layout: ReplicaCounts, target: ReplicaCounts, decision: Decision) -> Decision:
    """The decision that leads from ``layout`` to ``target``, with all else as in ``decision``. Vertices that ``target`` does not name stay.

    >>> decision_for({"a": 1, "b": 3}, {"a": 2, "b": 3}, Hold(reason="twice the load")).changes
    {'a': 2}
    """
    changes = {name: count for name, count in target.items() if count != layout[name]}
    up = any(count > layout[name] for name, count in changes.items())
    down = any(count < layout[name] for name, count in changes.items())
    common: dict[str, Any] = {name: getattr(decision, name) for name in ("reason", "figures", "wanted", "expected", "correction")}
    if not changes:
        return Hold(**common)
    kind = Rescale if up and down else ScaleUp if up else ScaleDown
    return kind(**common, replicas=changes)


def with_target(decision: Decision, layout: ReplicaCounts, target: ReplicaCounts, note: str) -> Decision:
    """The decision changed to another target, with a note at the end of its reason; the same decision if the target is the same."""
    if {**layout, **target} == {**layout, **decision.changes}:
        return decision
    return decision_for(layout, target, replace(decision, reason=f"{decision.reason}; {note}"))


class DecisionOutcome(enum.Enum):
    """What became of a decision."""

    HELD = "held"
    ASKED = "asked"
    """The runtime was asked to change the layout, and has not answered yet."""
    APPLIED = "applied"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Seen:
    """One vertex as a decision saw it, or as it was after the change: rates in items a second, shares of time, items."""

    parallelism: int
    observed_rate: float
    true_rate: float | None
    busy_share: float
    backpressured_share: float
    queue_items: int
    latency_s: float | None = None


@dataclass(frozen=True, slots=True)
class Record:
    """One entry of the journal: what the decision saw, what it expected, and what came of it."""

    number: int
    decided_s: float
    layout: ReplicaCounts
    saw: Mapping[str, Seen]
    decision: Decision
    outcome: DecisionOutcome
    changed_s: float | None = None
    answer: str = ""
    got: Mapping[str, Seen] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """Plain dicts and numbers; `DecisionJournal.from_json` reads them."""
        return {
            "number": self.number,
            "decided_s": self.decided_s,
            "layout": dict(self.layout),
            "saw": {name: asdict(seen) for name, seen in self.saw.items()},
            **self.decision.as_json(),
            "outcome": self.outcome.value,
            "changed_s": self.changed_s,
            "answer": self.answer,
            "got": {name: asdict(seen) for name, seen in self.got.items()},
        }


@dataclass(frozen=True, slots=True)
class ScalingState:
    """What a policy may know besides the samples.

    Args:
        graph: vertices, edges, bounds.
        layout: replicas by vertex, now.
        changed_s: when this layout began; at first the job's start.
        history: the latest entries of the journal, oldest first, without the present one.
    """

    graph: ScalingGraph
    layout: ReplicaCounts
    changed_s: float
    history: tuple[Record, ...] = ()

    def __post_init__(self) -> None:
        names = set(self.graph.by_name)
        if set(self.layout) != names:
            raise ConfigError(f"the layout names {sorted(self.layout)}, the graph has {sorted(names)}: each vertex needs its replicas")


@dataclass(frozen=True, slots=True)
class ScalingProgress:
    """What an autoscaler has seen and done.

    Args:
        layout: replicas by vertex, as far as it knows.
        decisions: for each vertex the newest decision that changed it or tried to, with its reason and its outcome.
        latest: the newest decision of all; most are holds.
        sample: the sample of that decision.
        changes: how many decisions were applied.
        refused: and how many were refused.
    """

    layout: Mapping[str, int]
    decisions: Mapping[str, Record]
    latest: Record | None = None
    sample: JobSample | None = None
    changes: int = 0
    refused: int = 0

    def as_json(self) -> dict[str, Any]:
        """Plain dicts, lists and numbers."""
        return {
            "layout": dict(self.layout),
            "decisions": {name: record.as_json() for name, record in self.decisions.items()},
            "latest": self.latest.as_json() if self.latest is not None else None,
            "sample": self.sample.as_json() if self.sample is not None else None,
            "changes": self.changes,
            "refused": self.refused,
        }


Policy = Callable[[JobSample, ScalingState, float], Decision]
"""``policy(samples, state, now_s)``; pure: the same arguments give the same decision."""
