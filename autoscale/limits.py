"""Wrappers around a policy: when, how often and how far it may change a layout. Each is a policy itself; they nest in any order.

A wrapper's memory is the journal in ``state.history``; ``decision.wanted`` there is what the policy itself wanted,
before any wrapper. A wrapper that changes a decision says so at the end of its reason.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rayad.autoscale.decisions import Decision, Hold, Policy, ReplicaCounts, ScalingState, with_target
from rayad.autoscale.samples import JobSample
from rayad.progress import ConfigError, show


@dataclass(frozen=True, slots=True)
class WarmUp:
    """Holds until a layout has been in effect for ``seconds`` and the sample is of that layout alone.

    New replicas load code, fill caches and catch up: what is measured meanwhile, or across the change, says nothing about the new layout.
    """

    policy: Policy
    seconds: float

    def __post_init__(self) -> None:
        _at_least("WarmUp.seconds", self.seconds, 0.0)

    def __call__(self, samples: JobSample, state: ScalingState, now_s: float) -> Decision:
        """Hold, or what the policy says."""
        begin = state.changed_s + self.seconds
        if samples.since_s < begin:
            early_s = begin - samples.since_s
            early = f"the sample begins {early_s:.4g} s too early: samples count from {self.seconds:g} s after a change of layout"
            return Hold(reason=f"warming up: {early}")
        return self.policy(samples, state, now_s)


@dataclass(frozen=True, slots=True)
class CoolDown:
    """After a change, adds no replicas for ``up_s`` seconds and removes none for ``down_s`` seconds."""

    policy: Policy
    up_s: float
    down_s: float

    def __post_init__(self) -> None:
        _at_least("CoolDown.up_s", self.up_s, 0.0)
        _at_least("CoolDown.down_s", self.down_s, 0.0)

    def __call__(self, samples: JobSample, state: ScalingState, now_s: float) -> Decision:
        """The policy's decision without changes that come too soon; the job's start is no change."""
        decision = self.policy(samples, state, now_s)
        if not any(record.changed_s is not None for record in state.history):
            return decision
        since_s = now_s - state.changed_s
        target = dict(decision.changes)
        for name, count in decision.changes.items():
            if since_s < (self.up_s if count > state.layout[name] else self.down_s):
                del target[name]
        return with_target(decision, state.layout, target, f"cooling down: the last change was {since_s:.6g} s ago")


@dataclass(frozen=True, slots=True)
class Hysteresis:
    """Changes a vertex only after the policy has wanted it in the same direction for several rounds in a row.

    Of the counts that the policy wanted in these rounds it takes the one nearest to the present count: an outlier decides nothing.

    Args:
        policy: whose decisions are counted.
        up_rounds, down_rounds: how many rounds, including the present one; 1: at once.
    """

    policy: Policy
    up_rounds: int = 1
    down_rounds: int = 3

    def __post_init__(self) -> None:
        _at_least("Hysteresis.up_rounds", self.up_rounds, 1)
        _at_least("Hysteresis.down_rounds", self.down_rounds, 1)

    def __call__(self, samples: JobSample, state: ScalingState, now_s: float) -> Decision:
        """The policy's decision, as far as it has been wanted for long enough."""
        decision = self.policy(samples, state, now_s)
        target: dict[str, int] = {}
        for name, count in decision.changes.items():
            now = state.layout[name]
            rounds = self.up_rounds if count > now else self.down_rounds
            wishes = [count, *_wishes(name, state, rounds - 1)]
            if len(wishes) < rounds:
                continue
            if count > now and min(wishes) > now:
                target[name] = min(wishes)
            elif count < now and max(wishes) < now:
                target[name] = max(wishes)
        return with_target(decision, state.layout, target, "the rest has not been wanted for enough rounds in a row")


def _wishes(name: str, state: ScalingState, rounds: int) -> list[int]:
    """What was wanted for a vertex in the last rounds at this layout, latest first, back to the first round in which nothing was wanted."""
    found: list[int] = []
    for record in reversed(state.history):
        wish = record.decision.wanted.get(name)
        if len(found) == rounds or wish is None or record.layout != state.layout or record.decided_s < state.changed_s:
            break
        found.append(wish)
    return found


@dataclass(frozen=True, slots=True)
class MaxStep:
    """Bounds one decision: a vertex gets at most ``up_factor`` times its replicas, and keeps at least ``1 / down_factor`` of them.

    Fractions are rounded towards the present count, but a change by one replica is always allowed.
    """

    policy: Policy
    up_factor: float = 4.0
    down_factor: float = 2.0

    def __post_init__(self) -> None:
        _at_least("MaxStep.up_factor", self.up_factor, 1.0)
        _at_least("MaxStep.down_factor", self.down_factor, 1.0)

    def __call__(self, samples: JobSample, state: ScalingState, now_s: float) -> Decision:
        """The policy's decision, cut to the step."""
        decision = self.policy(samples, state, now_s)
        target = {}
        for name, count in decision.changes.items():
            now = state.layout[name]
            most = max(now + 1, int(now * self.up_factor))
            least = min(now - 1, -int(-now // self.down_factor))
            target[name] = max(least, min(most, count))
        return with_target(decision, state.layout, target, "no further in one step")


@dataclass(frozen=True, slots=True)
class Bounds:
    """Keeps each vertex, and all of them together, within bounds. A layout that is already outside the bounds is brought inside.

    Args:
        policy: whose decisions are bounded.
        least, most: by vertex name; the graph's own bounds apply too.
        total_most: replicas of all vertices together, fixed ones included. Where more are wanted, they are assigned one by one to the
            vertex that would be furthest behind: that gives the highest throughput for so many replicas.
    """

    policy: Policy
    least: Mapping[str, int] | None = None
    most: Mapping[str, int] | None = None
    total_most: int | None = None

    def __call__(self, samples: JobSample, state: ScalingState, now_s: float) -> Decision:
        """The policy's decision, brought within the bounds."""
        decision = self.policy(samples, state, now_s)
        layout = {**state.layout, **decision.changes}
        least, most = self._bounds(state)
        target = {name: max(least[name], min(most[name], layout[name])) for name in state.graph.scalable}
        decision = with_target(decision, state.layout, target, "brought within the bounds")
        if self.total_most is None:
            return decision
        others = sum(count for name, count in state.layout.items() if name not in target)
        shared = share_out(target, least, self.total_most - others)
        return with_target(decision, state.layout, shared, f"there may be {self.total_most} replicas in all")

    def _bounds(self, state: ScalingState) -> tuple[dict[str, int], dict[str, int]]:
        graph = state.graph
        unknown = {*(self.least or {}), *(self.most or {})} - set(graph.by_name)
        if unknown:
            raise ConfigError(f"Bounds names {sorted(unknown)}: the vertices are {sorted(graph.by_name)}")
        least = {n: max(graph.by_name[n].least, (self.least or {}).get(n, 1)) for n in graph.scalable}
        most = {n: min(graph.by_name[n].most, (self.most or {}).get(n, graph.by_name[n].most)) for n in graph.scalable}
        crossed = [n for n in graph.scalable if least[n] > most[n]]
        if crossed:
            raise ConfigError(f"the bounds of {crossed[0]!r} are {least[crossed[0]]} to {most[crossed[0]]}: least must not exceed most")
        return least, most


def share_out(wanted: ReplicaCounts, least: ReplicaCounts, replicas: int) -> dict[str, int]:
    """At most ``replicas`` for all vertices together (but never fewer than ``least`` of each), in proportion to what is wanted.

    >>> share_out({"parse": 2, "count": 8}, {"parse": 1, "count": 1}, 5)
    {'parse': 1, 'count': 4}
    >>> share_out({"parse": 2, "count": 2}, {"parse": 1, "count": 1}, 9)
    {'parse': 2, 'count': 2}
    """
    if sum(wanted.values()) <= replicas:
        return dict(wanted)
    given = {name: min(count, least[name]) for name, count in wanted.items()}
    for _ in range(max(0, replicas - sum(given.values()))):
        behind = max(given, key=lambda name: wanted[name] / given[name])
        given[behind] += 1
    return given


def _at_least(what: str, value: float, least: float) -> None:
    if not value >= least:
        raise ConfigError(f"{what} is {show(value)}: it must be at least {least:g}")
