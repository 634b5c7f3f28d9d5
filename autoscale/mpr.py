"""MPR's self-adaptive algorithm (Löff, PUCRS 2023, listings 7.1 and 7.2) and its files (listings 5.11 and 5.12), by the letter.

One vertex, one goal: items produced a second. Thresholds on the quotient of throughput and goal say how many replicas are added or removed.
It is kept as it was published, oscillation included, as the yardstick and as the interface for controllers in any language; to run a job,
use `ds2`.

Where text and listing of the seed disagree, the listing counts: "100% lower" is below half of the goal (line 12), "25% lower" below three
quarters. Line 16 compares with ``<``, so 48 is never reached; line 9 with ``>``, so one replica always stays.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rayad.autoscale.decisions import Decision, Expected, Hold, ScalingState, decision_for
from rayad.autoscale.samples import JobSample, VertexSample
from rayad.autoscale.scaling_graph import ScalingGraph
from rayad.progress import ConfigError

REPLICAS_BELOW = 48
ABOVE = ((2.0, 4), (1.5, 2), (1.25, 1))
"""Listing 7.2, lines 5 to 7: above so many times the goal, remove so many."""
BELOW = ((0.5, 4), (0.75, 2), (0.9375, 1))
"""Lines 12 to 14: below so many times the goal, add so many."""


def thresholds(replicas: int, throughput: float, goal: float, below: int = REPLICAS_BELOW) -> int:
    """Listing 7.2: how many replicas it shall be.

    Args:
        replicas: how many there are.
        throughput, goal: items a second.
        below: the count stays below this.

    >>> [thresholds(10, rate, 100.0) for rate in (201.0, 200.0, 150.1, 126.0, 125.0, 100.0, 93.75, 93.0, 74.0, 49.0)]
    [6, 8, 8, 9, 10, 10, 10, 11, 12, 14]
    >>> thresholds(4, 500.0, 100.0), thresholds(44, 10.0, 100.0)
    (4, 44)
    """
    if throughput > goal:
        factor = next((step for ratio, step in ABOVE if throughput / goal > ratio), 0)
        return replicas - factor if replicas > factor else replicas
    if throughput < goal:
        factor = next((step for ratio, step in BELOW if throughput / goal < ratio), 0)
        return replicas + factor if replicas + factor < below else replicas
    return replicas


@dataclass(frozen=True, slots=True)
class MprThresholds:
    """The policy of listing 7.2 for one vertex (MPR, PUCRS 2023).

    The loop around it is listing 7.1: throughput is what all replicas produced since the last look, divided by the time since then, even if
    replicas were added or removed in between. The first look only records the counts; the autoscaler has no sample then and holds.

    Args:
        vertex: whose throughput is compared, and which is scaled.
        goal_per_s: items a second that it should produce.
        below: the count stays below this.
    """

    vertex: str
    goal_per_s: float
    below: int = REPLICAS_BELOW

    def __post_init__(self) -> None:
        if not self.goal_per_s > 0.0:
            raise ConfigError(f"MprThresholds.goal_per_s is {self.goal_per_s!r}: it must be above 0")

    def __call__(self, samples: JobSample, state: ScalingState, now_s: float) -> Decision:
        """Compare, and answer with the vertex's new replicas."""
        if self.vertex not in state.graph.scalable:
            raise ConfigError(f"MprThresholds is for {self.vertex!r}: the vertices that can be scaled are {list(state.graph.scalable)}")
        sample = samples.vertices.get(self.vertex)
        if sample is None or samples.duration_s <= 0.0:
            return Hold(reason=f"nothing was measured of {self.vertex}")
        now = state.layout[self.vertex]
        rate = sample.items_out / samples.duration_s
        target = thresholds(now, rate, self.goal_per_s, self.below)
        ratio = rate / self.goal_per_s
        reason = f"{self.vertex} produces {rate:.6g}/s, {ratio:.4g} times the goal of {self.goal_per_s:.6g}/s: {now} -> {target}"
        figures = {f"{self.vertex}.throughput_per_s": rate, f"{self.vertex}.goal_per_s": self.goal_per_s, f"{self.vertex}.ratio": ratio}
        expected = {self.vertex: Expected(self.goal_per_s, rate * target / now)}
        return decision_for(
            state.layout, {self.vertex: target}, Hold(reason=reason, figures=figures, wanted={self.vertex: target}, expected=expected)
        )


def statistics_entry(sample: VertexSample, now_ms: int) -> dict[str, Any]:
    """What MPR adds to ``stats_<vertex>.json`` (listing 5.11): the counts of one window under its time in milliseconds.

    >>> from rayad.autoscale.samples import ReplicaSample
    >>> replica = ReplicaSample("stage2", 0, 0.0, 2.0, 1.0, 0.0, 0.0, 81347, 0, 81348, 0)
    >>> statistics_entry(VertexSample("stage2", (replica,)), 1675563904635)
    {'1675563904635': {'Compute0': {'ItemsConsumed': 81347, 'ItemsProduced': 81348, 'averageItemsProduced': 40674.0}}}
    """
    return {
        str(now_ms): {
            f"Compute{r.replica}": {
                "ItemsConsumed": r.items_in,
                "ItemsProduced": r.items_out,
                "averageItemsProduced": r.items_out / r.duration_s if r.duration_s > 0 else 0.0,
            }
            for r in sample.replicas
        }
    }


def throughput_since(stage: Mapping[str, Mapping[str, Mapping[str, float]]], last: str | None) -> tuple[float | None, str | None]:
    """Listing 7.1: items a second produced since ``last``, and the file's latest time, which is ``last`` in the next call.

    Args:
        stage: the file's entry for the vertex.
        last: the time that the previous call gave; None at the first look, which gives no throughput.

    >>> stage = {"1000": {"Compute0": {"ItemsProduced": 7}}, "3000": {"Compute0": {"ItemsProduced": 50}, "Compute1": {"ItemsProduced": 30}}}
    >>> throughput_since(stage, None), throughput_since(stage, "1000"), throughput_since(stage, "3000")
    ((None, '3000'), (40.0, '3000'), (None, '3000'))
    """
    if not stage:
        return None, last
    latest = max(stage, key=int)
    if last is None or int(latest) <= int(last):
        return None, latest
    produced = sum(replica["ItemsProduced"] for time, replicas in stage.items() if int(time) > int(last) for replica in replicas.values())
    return produced / ((int(latest) - int(last)) / 1000), latest


def layout_of_parameters(parameters: Mapping[str, Any], graph: ScalingGraph, layout: Mapping[str, int]) -> dict[str, int]:
    """The changes that a ``parameters.json`` (listing 5.12) asks for, against the layout; several vertices at once, unlike MPR.

    Raises ConfigError where it names an unknown or fixed vertex, or a count that is no int within the bounds.

    >>> graph = ScalingGraph.of(["stage1", "stage2"], [("stage1", "stage2")], sources=["stage1"])
    >>> layout_of_parameters({"stage1": 1, "stage2": 64}, graph, {"stage1": 1, "stage2": 1})
    {'stage2': 64}
    """
    changes = {}
    for name, count in parameters.items():
        vertex = graph.by_name.get(name)
        if vertex is None:
            raise ConfigError(f"parameters.json names {name!r}: the vertices are {sorted(graph.by_name)}")
        if isinstance(count, bool) or not isinstance(count, int):
            raise ConfigError(f"parameters.json asks for {count!r} replicas of {name!r}: it must be an int")
        if count == layout[name]:
            continue
        if vertex.fixed is not None:
            raise ConfigError(f"parameters.json asks for {count} replicas of {name!r}, which stays at {layout[name]}: {vertex.fixed}")
        if vertex.clamp(count) != count:
            raise ConfigError(f"parameters.json asks for {count} replicas of {name!r}: it can have {vertex.least} to {vertex.most}")
        changes[name] = count
    return changes
