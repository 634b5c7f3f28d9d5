"""The shape of a plan as plain data: what a snapshot stores of the graph, and the channels that barriers travel on."""

from __future__ import annotations

from typing import Any

from rayad.dataflow.compiling.state_identity import of_class, state_of
from rayad.dataflow.logical_graph import PartitionKind
from rayad.dataflow.plan import Plan, PlanEdge, Stage

Channel = tuple[int, int]
"""An edge's id and a replica: of its source for channels in, of its target for channels out."""


def edge_names(plan: Plan) -> dict[int, str]:
    """See :attr:`rayad.dataflow.plan.Plan.edge_names`."""
    return plan.edge_names


def graph_shape(plan: Plan) -> dict[str, Any]:
    """Vertices, edges, sinks, and what the sources' input is made of, by name, for :func:`rayad.snapshots.resume_point.misfits`."""
    vertices: dict[str, dict[str, Any]] = {}
    for stage in plan.stages:
        where = {"replicas": stage.parallelism, "depth": stage.depth}
        vertices[stage.name] = {"kind": stage.kind.name.lower(), **where, "state": state_of(stage)}
        if stage.parts:
            vertices[stage.name]["parts"] = len(stage.parts)
    names = edge_names(plan)
    edges = {names[edge.id]: {"partition": edge.partition.name.lower(), "is_feedback": edge.is_feedback} for edge in plan.edges}
    sinks = {sink.key: {"kind": type(sink.sink).__name__, "state": of_class(type(sink.sink))} for sink in plan.sinks}
    inputs = {stage.name: stage.input for stage in plan.stages if stage.input is not None}
    writers = {sink.key: sorted(plan.stage(stage).name for stage in sink.stages) for sink in plan.sinks}
    return {"vertices": vertices, "edges": edges, "sinks": sinks, "inputs": inputs, "writers": writers}


def channels_in(plan: Plan, stage: Stage, replica: int) -> tuple[list[Channel], list[Channel]]:
    """``(edge, source replica)`` of every channel on which batches can come: regular ones, and those of feedback edges."""
    regular: list[Channel] = []
    feedback: list[Channel] = []
    for edge in plan.edges_into(stage.id):
        sources = range(plan.stage(edge.source).parallelism)
        into = feedback if edge.is_feedback else regular
        into.extend((edge.id, source) for source in sources if replica in targets_of(plan, edge, source))
    return regular, feedback


def channels_out(plan: Plan, stage: Stage, replica: int) -> list[Channel]:
    """``(edge, target replica)`` of every channel on which a replica can send."""
    return [(edge.id, target) for edge in plan.edges_from(stage.id) for target in targets_of(plan, edge, replica)]


def channels_to_mark(before: Plan, after: Plan, stage: int, replica: int) -> list[Channel]:
    """The channels on which a replica sends a marker when the layout changes: all that it has in the old layout and in the new one.

    The new one is included, and stages that do not change: so no replica gets a batch routed by a layout that it does not know yet.
    """
    return list(dict.fromkeys([*channels_out(before, before.stage(stage), replica), *channels_out(after, after.stage(stage), replica)]))


def targets_of(plan: Plan, edge: PlanEdge, source: int) -> range:
    """The replicas of an edge's target to which one replica of its source can send."""
    if edge.routing in (PartitionKind.KEYS, PartitionKind.BROADCAST, PartitionKind.REBALANCE):
        return range(plan.stage(edge.target).parallelism)
    target = source if edge.routing is PartitionKind.FORWARD else 0
    return range(target, min(target + 1, plan.stage(edge.target).parallelism))
