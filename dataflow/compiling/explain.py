"""The plan for people: Mermaid and words. Both depend on the plan alone, so equal programs look equal."""

from __future__ import annotations

from rayad.dataflow.logical_graph import Node, NodeKind, Program, ScopeInfo
from rayad.dataflow.operators.state.live import tables_of, told_tables
from rayad.dataflow.plan import ApplyStep, EdgeStep, Plan, SinkStep, Stage

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


def _label(node: Node, replicas: dict[int, int]) -> str:
    return _text(node.name) + (f" x{replicas[node.id]}" if node.id in replicas else "")


def to_mermaid(flow: Program, plan: Plan) -> str:
    """A Mermaid flowchart: loop contexts are boxes, stages (processes) have a thick border, edges carry their partitioning."""
    graph = flow.graph
    lines = ["flowchart LR"]

    replicas = plan.layout.replicas
    inside: dict[int, list[Node]] = {}
    for node in graph.nodes:
        inside.setdefault(node.options["inner"] if node.kind is NodeKind.INGRESS else node.scope, []).append(node)
    loops: dict[int, list[ScopeInfo]] = {}
    for scope in graph.scopes[1:]:
        loops.setdefault(scope.parent or 0, []).append(scope)
    pending: list[tuple[ScopeInfo | None, str]] = [(graph.scopes[0], "  ")]
    while pending:
        scope_or_end, indent = pending.pop()
        if scope_or_end is None:
            lines.append(f"{indent}end")
            continue
        within = indent
        if scope_or_end.id:
            lines.append(f'{indent}subgraph s{scope_or_end.id}["loop {_text(scope_or_end.name)}"]')
            pending.append((None, indent))
            within = indent + "  "
        for node in inside.get(scope_or_end.id, ()):
            left, right = _SHAPES.get(node.kind, ("(", ")"))
            lines.append(f'{within}n{node.id}{left}"{_label(node, replicas)}"{right}')
        pending.extend((child, within) for child in reversed(loops.get(scope_or_end.id, [])))
    for node in graph.nodes:
        for edge in node.inputs:
            arrow = "-.->" if node.kind is NodeKind.FEEDBACK else "-->"
            note = edge.partition.describe()
            shown = "" if note == "forward" else f'|"{_text(note)}"|'
            lines.append(f"  n{edge.source} {arrow}{shown} n{node.id}")
    lines.extend(f"  style n{stage.id} stroke-width:3px" for stage in plan.stages)
    return "\n".join(lines) + "\n"


def _shown(stage: Stage, plan: Plan) -> list[str]:
    """Each of a stage's steps with what follows: ``a, b -> stage``; where it branches, ``a (b -> stage; => sink)``."""
    keys = {sink.id: sink.key for sink in plan.sinks}
    names = {other.id: other.name for other in plan.stages}
    shown: list[str] = []
    for step in stage.steps:  # children come first
        if isinstance(step, EdgeStep):
            shown.append(f"-> {names[plan.edges[step.edge].target]}")
            continue
        if isinstance(step, SinkStep):
            shown.append(f"=> {keys[step.sink]}")
            continue
        name = step.name if isinstance(step, ApplyStep) else step.kind
        following = [shown[child] for child in step.children]
        for child in step.children:  # each has one parent; what would be kept grows with the square of a chain's length
            shown[child] = ""
        if len(following) > 1:
            shown.append(f"{name} ({'; '.join(following)})")
        else:
            shown.append(name + "".join(f" {text}" if text.startswith(("->", "=>")) else f", {text}" for text in following))
    return shown


def explain(flow: Program, plan: Plan) -> str:
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
        op = graph.nodes[stage.id].op
        if hasattr(getattr(op, "cls", None), "keeps"):
            vertex = op()
            lines.append(f"  keeps {vertex.keeps()}")
            lines.extend(f"  {told}" for told in [vertex.beyond_memory()] if told)
        told = told_tables(stage.name, tables_of(op, stage.depth))
        if told:
            lines.append(f"  read by {told}")
        shown = _shown(stage, plan)
        for port, steps in enumerate(stage.outputs):
            if steps:
                lines.append(f"  output {port}: {'; '.join(shown[step] for step in steps)}")
    for edge in plan.edges:
        how = edge.partition.value if edge.key is None else f"{edge.partition.value} of {edge.key.describe()}"
        what = " (feedback: no credits, spills)" if edge.is_feedback else ""
        counted = plan.progress.describe_location(edge.count_location)
        lines.append(f"edge {edge.id}: {edge.name} port {edge.port}, {how}{what}; counted at {counted}")
    return "\n".join(lines)
