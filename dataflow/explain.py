"""The plan for people: Mermaid and words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rayad.dataflow.graph import Node, NodeKind
from rayad.dataflow.plan import ApplyStep, EdgeStep, Plan, ShiftStep, Step

if TYPE_CHECKING:
    from rayad.dataflow.flow import Dataflow

_SHAPES = {
    NodeKind.SOURCE: ("([", "])"),
    NodeKind.INPUT: ("([", "])"),
    NodeKind.VERTEX: ("[", "]"),
    NodeKind.EXCHANGE: ("[", "]"),
    NodeKind.SINK: ("[/", "/]"),
    NodeKind.PROBE: ("{{", "}}"),
}


def _label(node: Node, plan: Plan) -> str:
    stage = next((s for s in plan.stages if s.id == node.id), None)
    text = node.name.replace('"', "'")
    if stage is not None:
        text += f" x{stage.parallelism}"
    return text


def to_mermaid(flow: Dataflow, plan: Plan) -> str:
    """A Mermaid flowchart: loop contexts are boxes, stages (processes) have a thick border, edges carry their partitioning."""
    graph = flow.graph
    lines = ["flowchart LR"]

    def scope_lines(scope: int, indent: str) -> None:
        for node in graph.nodes:
            inside = node.options["inner"] if node.kind is NodeKind.INGRESS else node.scope
            if inside == scope:
                left, right = _SHAPES.get(node.kind, ("(", ")"))
                lines.append(f'{indent}n{node.id}{left}"{_label(node, plan)}"{right}')
        for child in graph.scopes[1:]:
            if child.parent == scope:
                lines.append(f'{indent}subgraph s{child.id}["loop {child.name}"]')
                scope_lines(child.id, indent + "  ")
                lines.append(f"{indent}end")

    scope_lines(0, "  ")
    for node in graph.nodes:
        for link in node.inputs:
            arrow = "-.->" if node.kind is NodeKind.FEEDBACK else "-->"
            note = link.partition.describe().replace('"', "'")
            shown = "" if note == "forward" else f'|"{note}"|'
            lines.append(f"  n{link.source} {arrow}{shown} n{node.id}")
    for stage in plan.stages:
        lines.append(f"  style n{stage.id} stroke-width:3px")
    return "\n".join(lines) + "\n"


def _fused(steps: tuple[Step, ...], plan: Plan) -> list[str]:
    out: list[str] = []
    for step in steps:
        if isinstance(step, ApplyStep):
            out.append(step.name)
            out.extend(_fused(step.children, plan))
        elif isinstance(step, ShiftStep):
            out.append(step.kind)
            out.extend(_fused(step.children, plan))
        elif isinstance(step, EdgeStep):
            edge = plan.edges[step.edge]
            out.append(f"-> {plan.stage(edge.target).name}")
        else:
            out.append(f"=> {next(s.key for s in plan.sinks if s.id == step.sink)}")
    return out


def explain(flow: Dataflow, plan: Plan) -> str:
    """Stages with what is fused into each, and the edges between them."""
    graph = flow.graph
    lines = [f"{plan.name}: {len(graph.nodes)} operators in {len(plan.stages)} stages, {plan.replicas} vertex actors, {plan.key_groups} key-groups"]
    for stage in plan.stages:
        scope = graph.scopes[graph.nodes[stage.id].scope]
        inside = f" in loop {scope.name!r}" if scope.id else ""
        lines.append(f"stage {stage.name!r} x{stage.parallelism} ({stage.kind.value}, {stage.where}){inside}")
        for port, steps in enumerate(stage.outputs):
            parts = _fused(steps, plan)
            if parts:
                lines.append(f"  output {port}: {', '.join(parts)}")
    for edge in plan.edges:
        how = edge.partition.value if edge.key is None else f"{edge.partition.value} of {edge.key.describe()}"
        what = " (feedback: no credits, spills)" if edge.is_feedback else ""
        lines.append(f"edge {edge.id}: {edge.name} port {edge.port}, {how}{what}; counted at {plan.progress.describe_location(edge.count_location)}")
    return "\n".join(lines)
