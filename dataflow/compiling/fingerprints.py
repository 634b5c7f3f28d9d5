"""What a run's input consists of: asked of each source on the driver, kept with snapshots, compared when another run resumes from one."""

from __future__ import annotations

import dataclasses
import json

from rayad.dataflow.logical_graph import NodeKind
from rayad.dataflow.plan import Plan, Stage
from rayad.progress import DataflowError, say, show


def with_fingerprints(plan: Plan) -> Plan:
    """The plan with what each source says of its input. Raises DataflowError, naming the source, where it fails or is no plain data."""
    stages = tuple(_asked(stage) if stage.kind is NodeKind.SOURCE else stage for stage in plan.stages)
    return dataclasses.replace(plan, stages=stages)


def _asked(stage: Stage) -> Stage:
    place = f"source {stage.name!r} ({stage.where})"
    try:
        found = stage.op.fingerprint(stage.parts)
    except Exception as error:
        raise DataflowError(f"{place} failed in fingerprint: {type(error).__name__}: {say(error)}") from error
    try:
        plain = json.loads(json.dumps(found))
    except (TypeError, ValueError) as error:
        raise DataflowError(f"{place} gave a fingerprint that is no plain JSON: {error}; give numbers, texts, dicts of these") from error
    if plain is not None and not isinstance(plain, dict):
        raise DataflowError(f"{place} gave {show(found, 60)} as fingerprint: it must be a dict, or None")
    return dataclasses.replace(stage, input=plain)


__all__ = ["with_fingerprints"]
