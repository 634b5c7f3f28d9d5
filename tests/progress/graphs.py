"""Progress graphs for tests: named small ones, and a hypothesis strategy for valid random ones with nested scopes and loops."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st

from rayad.progress import (
    ChildPort,
    EdgeSpec,
    NodeKind,
    NodePort,
    NodeSpec,
    ProgressGraph,
    ScopeInput,
    ScopeOutput,
    ScopeSpec,
    Timestamp,
)

ROOT = ScopeSpec(0, None, "root", 0, 0)


def chain(length: int, replicas: int = 1) -> ProgressGraph:
    """source -> n1 -> ... -> n(length - 1)."""
    source = NodeSpec(0, 0, "source", 0, 1, initial=((Timestamp(0), replicas),))
    rest = [NodeSpec(i, 0, f"n{i}", 1, int(i < length - 1)) for i in range(1, length)]
    return ProgressGraph((ROOT,), (source, *rest), tuple(EdgeSpec(0, NodePort(i, 0), NodePort(i + 1, 0)) for i in range(length - 1)))


def loop(max_rounds: int | None = None, replicas: int = 1) -> ProgressGraph:
    """source (0) -> [body (1) <-> feedback (2)] -> sink (3); body: input 0 enters, input 1 is fed back; output 0 loops, 1 leaves."""
    return ProgressGraph(
        (ROOT, ScopeSpec(1, 0, "loop", 1, 1)),
        (
            NodeSpec(0, 0, "source", 0, 1, initial=((Timestamp(0), replicas),)),
            NodeSpec(1, 1, "body", 2, 2),
            NodeSpec(2, 1, "feedback", 1, 1, NodeKind.FEEDBACK, max_rounds),
            NodeSpec(3, 0, "sink", 1, 0),
        ),
        (
            EdgeSpec(0, NodePort(0, 0), ChildPort(1, 0)),
            EdgeSpec(1, ScopeInput(0), NodePort(1, 0)),
            EdgeSpec(1, NodePort(1, 0), NodePort(2, 0)),
            EdgeSpec(1, NodePort(2, 0), NodePort(1, 1)),
            EdgeSpec(1, NodePort(1, 1), ScopeOutput(0)),
            EdgeSpec(0, ChildPort(1, 0), NodePort(3, 0)),
        ),
    )


def nested_loops() -> ProgressGraph:
    """source (0) -> outer[ head (1) -> inner[ body (2) <-> feedback (3) ] -> tail (4) -> feedback (5) -> head ] -> sink (6)."""
    return ProgressGraph(
        (ROOT, ScopeSpec(1, 0, "outer", 1, 1), ScopeSpec(2, 1, "inner", 1, 1)),
        (
            NodeSpec(0, 0, "source", 0, 1, initial=((Timestamp(0), 1),)),
            NodeSpec(1, 1, "head", 2, 1),
            NodeSpec(2, 2, "body", 2, 2),
            NodeSpec(3, 2, "inner feedback", 1, 1, NodeKind.FEEDBACK),
            NodeSpec(4, 1, "tail", 1, 2),
            NodeSpec(5, 1, "outer feedback", 1, 1, NodeKind.FEEDBACK),
            NodeSpec(6, 0, "sink", 1, 0),
        ),
        (
            EdgeSpec(0, NodePort(0, 0), ChildPort(1, 0)),
            EdgeSpec(1, ScopeInput(0), NodePort(1, 0)),
            EdgeSpec(1, NodePort(1, 0), ChildPort(2, 0)),
            EdgeSpec(2, ScopeInput(0), NodePort(2, 0)),
            EdgeSpec(2, NodePort(2, 0), NodePort(3, 0)),
            EdgeSpec(2, NodePort(3, 0), NodePort(2, 1)),
            EdgeSpec(2, NodePort(2, 1), ScopeOutput(0)),
            EdgeSpec(1, ChildPort(2, 0), NodePort(4, 0)),
            EdgeSpec(1, NodePort(4, 0), NodePort(5, 0)),
            EdgeSpec(1, NodePort(5, 0), NodePort(1, 1)),
            EdgeSpec(1, NodePort(4, 1), ScopeOutput(0)),
            EdgeSpec(0, ChildPort(1, 0), NodePort(6, 0)),
        ),
    )


@dataclass
class _Drawing:
    """A graph that is being drawn: in each scope, members only take edges from earlier ones, and feedbacks close loops anywhere."""

    draw: Any
    scopes: list[ScopeSpec] = field(default_factory=list)
    nodes: list[NodeSpec] = field(default_factory=list)
    edges: list[EdgeSpec] = field(default_factory=list)
    next_scope: int = 0

    def number(self, low: int, high: int) -> int:
        value: int = self.draw(st.integers(low, high))
        return value

    def pick(self, options: list[Any]) -> Any:
        return options[self.number(0, len(options) - 1)]

    def scope(self, parent: int | None, depth: int, inputs: int, outputs: int) -> int:
        identifier = self.next_scope
        self.next_scope += 1
        self.scopes.append(ScopeSpec(identifier, parent, f"s{identifier}", inputs, outputs))
        available: list[Any] = [ScopeInput(port) for port in range(inputs)]
        targets: list[Any] = []
        if parent is None:
            source = self.node(identifier, depth, (0, 1), NodeKind.OPERATOR)
            available.append(NodePort(source, 0))
        for _ in range(self.number(1, 3)):
            if depth < 2 and self.number(0, 2) == 0:
                size = self.number(0, 2), self.number(0, 2)
                child = self.scope(identifier, depth + 1, *size)
                ins: list[Any] = [ChildPort(child, port) for port in range(size[0])]
                outs: list[Any] = [ChildPort(child, port) for port in range(size[1])]
            else:
                size = self.number(0, 2), self.number(0, 2)
                kind = NodeKind.PROBE if self.number(0, 5) == 0 else NodeKind.OPERATOR
                node = self.node(identifier, depth, size, kind)
                ins = [NodePort(node, port) for port in range(size[0])]
                outs = [NodePort(node, port) for port in range(size[1])]
            for target in ins:
                for _ in range(self.number(0, 2) if available else 0):
                    self.edges.append(EdgeSpec(identifier, self.pick(available), target))
            targets += ins
            available += outs
        for _ in range(self.number(0, 2) if available and targets else 0):
            bound = self.number(1, 4) if depth and self.number(0, 2) == 0 else None
            feedback = len(self.nodes)
            self.nodes.append(NodeSpec(feedback, identifier, f"f{feedback}", 1, 1, NodeKind.FEEDBACK, bound))
            self.edges.append(EdgeSpec(identifier, self.pick(available), NodePort(feedback, 0)))
            self.edges.append(EdgeSpec(identifier, NodePort(feedback, 0), self.pick(targets)))
        for port in range(outputs if available else 0):
            self.edges.append(EdgeSpec(identifier, self.pick(available), ScopeOutput(port)))
        return identifier

    def node(self, scope: int, depth: int, size: tuple[int, int], kind: NodeKind) -> int:
        identifier = len(self.nodes)
        initial: tuple[tuple[Timestamp, int], ...] = ()
        if kind is NodeKind.OPERATOR and (size[0] == 0 or self.number(0, 3) == 0):
            counters = tuple(self.number(0, 1) for _ in range(depth))
            initial = ((Timestamp(self.number(0, 1), counters), self.number(1, 2)),)
        self.nodes.append(NodeSpec(identifier, scope, f"n{identifier}", *size, kind, initial=initial))
        return identifier


@st.composite
def progress_graphs(draw: Any) -> ProgressGraph:
    """Valid graphs of up to three levels, with feedbacks (bounded or not) at any level, the root included."""
    drawing = _Drawing(draw)
    drawing.scope(None, 0, 0, 0)
    return ProgressGraph(tuple(drawing.scopes), tuple(drawing.nodes), tuple(drawing.edges))
