"""What is submitted to Ray: a planned dataflow, with its configurations."""

from __future__ import annotations

from dataclasses import dataclass

from rayad.dataflow.config import RunConfig, ScalingConfig
from rayad.dataflow.plan import Plan


@dataclass(frozen=True, slots=True)
class Program:
    """What is submitted.

    Args:
        name: the job's.
        plan, config, scaling: what runs, and how.
        asked_s: when its first process was asked for, by ``time.time()``.
    """

    name: str
    plan: Plan
    config: RunConfig
    scaling: ScalingConfig
    asked_s: float


__all__ = ["Program"]
