"""Scaling decisions from statistics: pure arithmetic, tried on made-up rates and simulated dataflows (docs/design/autoscaling.md).

Read in this order: `statistics` (what replicas count), `samples` (windows between two readings), `graph` (what policies see of the plan),
`decisions` (what they answer), `rates` (the rates a graph needs, loops included), `ds2`, `mpr`, `targets` (policies), `limits` (wrappers),
`policies` (by name, and a user's own), `journal` (saw, expected, got), `autoscaler` (the core that the runtime drives).
"""

if __name__ != "rayad.autoscale":  # pragma: no cover - a second copy would have its own classes
    raise ImportError(
        f"this package is rayad.autoscale, but it was imported as {__name__!r}; "
        "install the project (pip install -e .) and import rayad.autoscale"
    )

from typing import TYPE_CHECKING

from rayad._exports import on_demand

if TYPE_CHECKING:
    from rayad.autoscale.autoscaler import AutoscalerCore
    from rayad.autoscale.decisions import (
        Decision,
        DecisionOutcome,
        Expected,
        Hold,
        Policy,
        Record,
        Rescale,
        ScaleDown,
        ScaleUp,
        ScalingProgress,
        ScalingState,
        Seen,
    )
    from rayad.autoscale.ds2 import DS2
    from rayad.autoscale.journal import Comparison, DecisionJournal
    from rayad.autoscale.limits import Bounds, CoolDown, Hysteresis, MaxStep, WarmUp
    from rayad.autoscale.mpr import MprThresholds
    from rayad.autoscale.policies import FunctionPolicy, policy_for, recommended
    from rayad.autoscale.rates import RequiredRates, solve_rates
    from rayad.autoscale.samples import JobSample, ReplicaSample, VertexSample, sample_between
    from rayad.autoscale.scaling_graph import EdgeView, ScalingGraph, Spread, VertexView, graph_of_plan
    from rayad.autoscale.statistics import BACKPRESSURED, BUSY, IDLE, ReplicaCounters, ReplicaReading
    from rayad.autoscale.targets import LatencyTarget, lag_target

__all__ = [
    "BACKPRESSURED",
    "BUSY",
    "DS2",
    "IDLE",
    "Bounds",
    "Comparison",
    "CoolDown",
    "Decision",
    "EdgeView",
    "Expected",
    "FunctionPolicy",
    "Hold",
    "Hysteresis",
    "JobSample",
    "LatencyTarget",
    "MaxStep",
    "MprThresholds",
    "AutoscalerCore",
    "DecisionJournal",
    "ReplicaCounters",
    "DecisionOutcome",
    "Policy",
    "Record",
    "ReplicaReading",
    "ReplicaSample",
    "RequiredRates",
    "Rescale",
    "ScaleDown",
    "ScaleUp",
    "ScalingGraph",
    "ScalingProgress",
    "ScalingState",
    "Seen",
    "Spread",
    "VertexSample",
    "VertexView",
    "WarmUp",
    "graph_of_plan",
    "lag_target",
    "policy_for",
    "recommended",
    "sample_between",
    "solve_rates",
]

__getattr__, __dir__ = on_demand(
    __name__,
    {
        "rayad.autoscale.autoscaler": ("AutoscalerCore",),
        "rayad.autoscale.decisions": (
            "Decision",
            "DecisionOutcome",
            "Expected",
            "Hold",
            "Policy",
            "Record",
            "Rescale",
            "ScaleDown",
            "ScaleUp",
            "ScalingProgress",
            "ScalingState",
            "Seen",
        ),
        "rayad.autoscale.ds2": ("DS2",),
        "rayad.autoscale.journal": ("Comparison", "DecisionJournal"),
        "rayad.autoscale.limits": ("Bounds", "CoolDown", "Hysteresis", "MaxStep", "WarmUp"),
        "rayad.autoscale.mpr": ("MprThresholds",),
        "rayad.autoscale.policies": ("FunctionPolicy", "policy_for", "recommended"),
        "rayad.autoscale.rates": ("RequiredRates", "solve_rates"),
        "rayad.autoscale.samples": ("JobSample", "ReplicaSample", "VertexSample", "sample_between"),
        "rayad.autoscale.scaling_graph": ("EdgeView", "ScalingGraph", "Spread", "VertexView", "graph_of_plan"),
        "rayad.autoscale.statistics": ("BACKPRESSURED", "BUSY", "IDLE", "ReplicaCounters", "ReplicaReading"),
        "rayad.autoscale.targets": ("LatencyTarget", "lag_target"),
    },
)
