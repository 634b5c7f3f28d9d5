"""The plan for people: Mermaid and words. Both depend on the plan alone, so equal programs look equal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rayad.dataflow.graph import Node, NodeKind
from rayad.dataflow.plan import ApplyStep, EdgeStep, Plan, SinkStep, Step

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


_ENTITIES = str.maketrans({c: f"#{ord(c)};" for c in '#&"<>`\\'} | {"\n": " ", "\r": " "})


def _text(text: str) -> str:
    """As the inside of a quoted Mermaid label: what would end the quotes, or be read as HTML or Markdown, becomes an entity."""
    return text.translate(_ENTITIES)


def _label(node: Node, plan: Plan) -> str:
    stage = next((s for s in plan.stages if s.id == node.id), None)
    return _text(node.name) + (f" x{stage.parallelism}" if stage is not None else "")


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
                lines.append(f'{indent}subgraph s{child.id}["loop {_text(child.name)}"]')
                scope_lines(child.id, indent + "  ")
                lines.append(f"{indent}end")

    scope_lines(0, "  ")
    for node in graph.nodes:
        for link in node.inputs:
            arrow = "-.->" if node.kind is NodeKind.FEEDBACK else "-->"
            note = link.partition.describe()
            shown = "" if note == "forward" else f'|"{_text(note)}"|'
            lines.append(f"  n{link.source} {arrow}{shown} n{node.id}")
    lines.extend(f"  style n{stage.id} stroke-width:3px" for stage in plan.stages)
    return "\n".join(lines) + "\n"


def _shown(step: Step, plan: Plan) -> str:
    """A step and what follows: ``a, b -> stage``; where it branches, ``a (b -> stage; => sink)``."""
    if isinstance(step, EdgeStep):
        return f"-> {plan.stage(plan.edges[step.edge].target).name}"
    if isinstance(step, SinkStep):
        return f"=> {next(s.key for s in plan.sinks if s.id == step.sink)}"
    name = step.name if isinstance(step, ApplyStep) else step.kind
    following = [_shown(child, plan) for child in step.children]
    if len(following) > 1:
        return f"{name} ({'; '.join(following)})"
    return name + "".join(f" {text}" if text.startswith(("->", "=>")) else f", {text}" for text in following)


def explain(flow: Dataflow, plan: Plan) -> str:
    """Stages with what is fused into each, and the edges between them."""
    graph = flow.graph
    lines = [
        f"{plan.name}: {len(graph.nodes)} operators in {len(plan.stages)} stages, {plan.replicas} vertex actors, {plan.key_groups} "
        "key-groups"
    ]
    for stage in plan.stages:
        scope = graph.scopes[graph.nodes[stage.id].scope]
        inside = f" in loop {scope.name!r}" if scope.id else ""
        lines.append(f"stage {stage.name!r} x{stage.parallelism} ({stage.kind.value}, {stage.where}){inside}")
        for port, steps in enumerate(stage.outputs):
            if steps:
                lines.append(f"  output {port}: {'; '.join(_shown(step, plan) for step in steps)}")
    for edge in plan.edges:
        how = edge.partition.value if edge.key is None else f"{edge.partition.value} of {edge.key.describe()}"
        what = " (feedback: no credits, spills)" if edge.is_feedback else ""
        counted = plan.progress.describe_location(edge.count_location)
        lines.append(f"edge {edge.id}: {edge.name} port {edge.port}, {how}{what}; counted at {counted}")
    return "\n".join(lines)
