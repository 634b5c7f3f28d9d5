"""The plan: the logical graph as stages, edges between them, and the progress graph. Pure.

A stage is a head (source, live input, stateful vertex, or a pass-through where data must be exchanged) with the tree of fused steps behind it. See
docs/design/engine.md for why, and for where batches are counted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rayad.dataflow.config import ScalingConfig
from rayad.dataflow.graph import KeySelector, Link, MutableGraph, Node, NodeKind, PartitionKind, check_parallelism
from rayad.dataflow.hashing import DEFAULT_KEY_GROUPS
from rayad.dataflow.vertex import EndVertex, Vertex
from rayad.progress import (
    ChildPort,
    DataflowError,
    EdgeSpec,
    NodePort,
    NodeSpec,
    ProgressGraph,
    ScopeInput,
    ScopeOutput,
    ScopeSpec,
    Timestamp,
)
from rayad.progress import NodeKind as ProgressKind

if TYPE_CHECKING:
    from rayad.dataflow.flow import Dataflow

HEADS = frozenset({NodeKind.SOURCE, NodeKind.INPUT, NodeKind.VERTEX, NodeKind.EXCHANGE})
_SHIFTS = {NodeKind.INGRESS: "enter", NodeKind.EGRESS: "leave", NodeKind.FEEDBACK: "feedback"}


@dataclass(frozen=True, slots=True)
class ApplyStep:
    """Run a stateless operator; its output goes to every child."""

    name: str
    where: str
    element: Any
    children: tuple[Step, ...]


@dataclass(frozen=True, slots=True)
class ShiftStep:
    """Change the time: ``enter``, ``leave`` or ``feedback``."""

    kind: str
    max_rounds: int | None
    children: tuple[Step, ...]


@dataclass(frozen=True, slots=True)
class EdgeStep:
    """Send to the replicas of another stage (or of this one)."""

    edge: int


@dataclass(frozen=True, slots=True)
class SinkStep:
    """Write to a sink."""

    sink: int


Step = ApplyStep | ShiftStep | EdgeStep | SinkStep


@dataclass(frozen=True, slots=True)
class SinkSpec:
    """A sink and the key under which its result appears."""

    id: int
    key: str
    name: str
    where: str
    sink: Any


@dataclass(frozen=True, slots=True)
class PlanEdge:
    """Batches of one stage on their way to an input port of another; counted at ``count_location``, at the time's first ``count_depth`` counters."""

    id: int
    source: int
    target: int
    port: int
    partition: PartitionKind
    key: KeySelector | None
    is_feedback: bool
    count_location: int
    count_depth: int
    name: str


@dataclass(frozen=True, slots=True)
class Stage:
    """One head and what is fused behind it; ``id`` is the head's node id in the logical and the progress graph."""

    id: int
    name: str
    where: str
    kind: NodeKind
    op: Any
    parts: tuple[Any, ...]
    inputs: int
    parallelism: int
    depth: int
    outputs: tuple[tuple[Step, ...], ...]
    notify_location: int
    capability_location: int


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything the runtimes need."""

    name: str
    stages: tuple[Stage, ...]
    edges: tuple[PlanEdge, ...]
    sinks: tuple[SinkSpec, ...]
    progress: ProgressGraph
    probes: dict[str, int]
    inputs: dict[str, int]
    key_groups: int

    def stage(self, stage_id: int) -> Stage:
        """The stage of that id."""
        return next(stage for stage in self.stages if stage.id == stage_id)

    @property
    def replicas(self) -> int:
        """How many vertex actors this takes."""
        return sum(stage.parallelism for stage in self.stages)


@dataclass(frozen=True, slots=True)
class _Path:
    """What lies between a head's output and a consumer."""

    head: int
    port: int
    hops: tuple[int, ...] = ()

    def then(self, node: int) -> _Path:
        return _Path(self.head, self.port, (*self.hops, node))


class _FusedCycle(Exception):
    def __init__(self, head: int) -> None:
        self.head = head


def compile_plan(flow: Dataflow, scaling: ScalingConfig, *, key_groups: int | None = None) -> Plan:
    """Compile ``flow``. Raises DataflowError, naming operators and the user's lines, where the graph or the parallelism is wrong."""
    _check_graph(flow)
    forced: set[int] = set()
    while True:
        try:
            return _Compiler(flow, scaling, key_groups or DEFAULT_KEY_GROUPS, frozenset(forced)).plan()
        except _FusedCycle as cycle:
            forced.add(cycle.head)


def _check_graph(flow: Dataflow) -> None:
    graph = flow.graph
    if not graph.nodes:
        raise DataflowError(f"dataflow {flow.name!r} is empty: begin with flow.from_items(...), flow.input(...) or another source")
    for node in graph.nodes:
        if node.kind is NodeKind.FEEDBACK and not node.inputs:
            raise DataflowError(
                f"the feedback {node.name!r} ({node.where}) of loop {graph.scopes[node.scope].name!r} is not connected: call "
                "feedback.connect(stream) with the stream that shall come round again"
            )
    for scope in graph.scopes[1:]:
        inside = [n for n in graph.nodes if n.kind is NodeKind.INGRESS and n.options["inner"] == scope.id]
        if not inside:
            raise DataflowError(f"nothing enters the loop {scope.name!r} ({scope.where}): call loop.enter(stream)")
    consumers = graph.consumers()
    reached = {n.id for n in graph.nodes if n.kind in (NodeKind.SOURCE, NodeKind.INPUT)}
    queue = list(reached)
    while queue:
        current = queue.pop()
        for port in range(max(1, graph.nodes[current].outputs)):
            for consumer, _ in consumers.get((current, port), ()):
                if consumer.id not in reached:
                    reached.add(consumer.id)
                    queue.append(consumer.id)
    for node in graph.nodes:
        if node.id not in reached:
            raise DataflowError(f"{node.name!r} ({node.where}) gets no input from any source: its cycle is never entered; union it with loop.enter(stream)")


class _Compiler:
    def __init__(self, flow: Dataflow, scaling: ScalingConfig, key_groups: int, forced: frozenset[int]) -> None:
        self.flow = flow
        self.graph: MutableGraph = flow.graph
        self.scaling = scaling
        self.key_groups = key_groups
        self.forced = forced
        self.consumers = self.graph.consumers()
        self.links: list[tuple[_Path, Node, int]] = []
        self.progress_edges: dict[EdgeSpec, None] = {}
        self.parts: dict[int, tuple[Any, ...]] = {}
        self.parallelism: dict[int, int] = {}
        self.ingress_port: dict[int, int] = {}
        self.egress_port: dict[int, int] = {}
        self._number_ports()

    def _number_ports(self) -> None:
        counts: dict[tuple[str, int], int] = {}
        for node in self.graph.nodes:
            if node.kind is NodeKind.INGRESS:
                key = ("in", int(node.options["inner"]))
                self.ingress_port[node.id] = counts.get(key, 0)
                counts[key] = counts.get(key, 0) + 1
            elif node.kind is NodeKind.EGRESS:
                key = ("out", node.scope)
                self.egress_port[node.id] = counts.get(key, 0)
                counts[key] = counts.get(key, 0) + 1
        self.port_counts = counts

    def is_head(self, node: Node) -> bool:
        return node.kind in HEADS or node.id in self.forced

    def plan(self) -> Plan:
        heads = [node for node in self.graph.nodes if self.is_head(node)]
        trees: dict[int, tuple[tuple[Step, ...], ...]] = {}
        for head in heads:
            trees[head.id] = tuple(self._steps(head, port, _Path(head.id, port), ()) for port in range(head.outputs))
        self._set_parallelism(heads)
        progress = self._progress_graph(heads)
        progress.validate()
        edges = tuple(self._edge(i, path, target, port, progress) for i, (path, target, port) in enumerate(self.links))
        stages = tuple(self._stage(head, trees[head.id], progress) for head in heads)
        sinks = tuple(
            SinkSpec(n.id, str(n.options["key"]), n.name, n.where, n.op) for n in self.graph.nodes if n.kind is NodeKind.SINK
        )
        probes = {n.name: n.id for n in self.graph.nodes if n.kind is NodeKind.PROBE}
        inputs = {n.name: n.id for n in self.graph.nodes if n.kind is NodeKind.INPUT}
        unknown = set(self.scaling.parallelism) - {n.name for n in self.graph.nodes} if not isinstance(self.scaling.parallelism, int) else ()
        if unknown:
            names = sorted(stage.name for stage in stages)
            raise DataflowError(f"parallelism names {sorted(unknown)}, which are not in {self.flow.name!r}: its vertices are {names}")
        return Plan(self.flow.name, stages, edges, sinks, progress, probes, inputs, self.key_groups)

    def _steps(self, node: Node, port: int, path: _Path, trail: tuple[int, ...]) -> tuple[Step, ...]:
        """What happens to batches at an output: one step, or several, for each consumer."""
        steps: list[Step] = []
        for consumer, index in self.consumers.get((node.id, port), ()):
            steps.extend(self._consumer_steps(consumer, index, path, trail))
        return tuple(steps)

    def _consumer_steps(self, node: Node, index: int, path: _Path, trail: tuple[int, ...]) -> tuple[Step, ...]:
        if self.is_head(node):
            self.links.append((path, node, index))
            return (EdgeStep(len(self.links) - 1),)
        if node.id in trail:
            cycle = trail[trail.index(node.id) :]
            head = next((i for i in cycle if self.graph.nodes[i].kind is NodeKind.UNION), cycle[0])
            raise _FusedCycle(head)
        trail = (*trail, node.id)
        if node.kind is NodeKind.STATELESS:
            children = self._steps(node, 0, path, trail)
            return (ApplyStep(node.name, node.where, node.op, children),)
        if node.kind is NodeKind.UNION:
            return self._steps(node, 0, path, trail)
        if node.kind in _SHIFTS:
            inside = path.then(node.id)
            children = self._steps(node, 0, inside, trail)
            return (ShiftStep(_SHIFTS[node.kind], node.op if node.kind is NodeKind.FEEDBACK else None, children),)
        if node.kind is NodeKind.PROBE:
            self._trace(path, NodePort(node.id, 0))
            return ()
        return (SinkStep(node.id),)

    # -- parallelism -----------------------------------------------------------
    def _set_parallelism(self, heads: list[Node]) -> None:
        incoming: dict[int, list[tuple[_Path, int]]] = {}
        for path, target, index in self.links:
            incoming.setdefault(target.id, []).append((path, index))
        for head in heads:
            if head.kind in (NodeKind.SOURCE, NodeKind.INPUT):
                self.parallelism[head.id] = self._of_source(head)
        pending = [h for h in heads if h.id not in self.parallelism]
        while pending:
            later = []
            for head in pending:
                asked = self._asked(head)
                keyed = any(link.partition.kind is PartitionKind.KEYS for link in head.inputs)
                spread = any(link.partition.kind in (PartitionKind.REBALANCE, PartitionKind.BROADCAST) for link in head.inputs)
                single = all(link.partition.kind is PartitionKind.SINGLE for link in head.inputs)
                sources = {path.head for path, _ in incoming.get(head.id, ())} - {head.id}
                known = [self.parallelism[s] for s in sources if s in self.parallelism]
                if asked is not None:
                    self.parallelism[head.id] = asked
                elif single and head.kind is not NodeKind.UNION:
                    self.parallelism[head.id] = 1
                elif keyed or spread or head.id in self.forced:
                    self.parallelism[head.id] = self.scaling.otherwise
                elif len(known) == len(sources) and known:
                    self.parallelism[head.id] = max(known)
                else:
                    later.append(head)
            if len(later) == len(pending):  # a cycle of unkeyed vertices: what is known so far decides
                head = later[0]
                sources = {path.head for path, _ in incoming.get(head.id, ())}
                known = [self.parallelism[s] for s in sources if s in self.parallelism]
                self.parallelism[head.id] = max(known, default=self.scaling.otherwise)
                later = later[1:]
            pending = later
        for head in heads:
            count = self.parallelism[head.id]
            if count > self.key_groups and any(link.partition.kind is PartitionKind.KEYS for link in head.inputs):
                raise DataflowError(
                    f"{head.name!r} ({head.where}) has {count} replicas but there are only {self.key_groups} key-groups: a replica without a key-group "
                    "would get nothing; lower the parallelism or raise RunConfig(key_groups=...)"
                )

    def _asked(self, head: Node) -> int | None:
        if head.parallelism is not None:
            return check_parallelism(head.parallelism, f"parallelism of {head.name!r}")
        return self.scaling.of(head.name)

    def _of_source(self, head: Node) -> int:
        parts = tuple(head.op.list_parts())
        self.parts[head.id] = parts
        if head.kind is NodeKind.INPUT:
            return 1
        asked = self._asked(head)
        return max(1, min(len(parts), asked if asked is not None else self.scaling.otherwise))

    # -- progress graph ----------------------------------------------------------
    def _trace(self, path: _Path, end: NodePort) -> None:
        """Add the progress edges of one path."""
        scope = self.graph.nodes[path.head].scope
        here: Any = NodePort(path.head, path.port)
        for hop in path.hops:
            node = self.graph.nodes[hop]
            if node.kind is NodeKind.INGRESS:
                inner, port = int(node.options["inner"]), self.ingress_port[hop]
                self.progress_edges[EdgeSpec(scope, here, ChildPort(inner, port))] = None
                scope, here = inner, ScopeInput(port)
            elif node.kind is NodeKind.EGRESS:
                port = self.egress_port[hop]
                self.progress_edges[EdgeSpec(scope, here, ScopeOutput(port))] = None
                here = ChildPort(scope, port)
                scope = self.graph.scope_of_output(node)
            else:
                self.progress_edges[EdgeSpec(scope, here, NodePort(hop, 0))] = None
                here = NodePort(hop, 0)
        self.progress_edges[EdgeSpec(scope, here, end)] = None

    def _progress_graph(self, heads: list[Node]) -> ProgressGraph:
        for path, target, index in self.links:
            self._trace(path, NodePort(target.id, 0 if target.id in self.forced else index))
        scopes = tuple(
            ScopeSpec(s.id, s.parent, s.name, self.port_counts.get(("in", s.id), 0), self.port_counts.get(("out", s.id), 0))
            for s in self.graph.scopes
        )
        nodes = []
        for head in heads:
            started = head.kind in (NodeKind.SOURCE, NodeKind.INPUT)
            initial = ((Timestamp(0), self.parallelism[head.id]),) if started else ()
            nodes.append(
                NodeSpec(head.id, head.scope, head.name, self._inputs_of(head), head.outputs, ProgressKind.OPERATOR, None, initial)
            )
        for node in self.graph.nodes:
            if node.kind is NodeKind.FEEDBACK:
                nodes.append(NodeSpec(node.id, node.scope, node.name, 1, 1, ProgressKind.FEEDBACK, node.op))
            elif node.kind is NodeKind.PROBE:
                nodes.append(NodeSpec(node.id, node.scope, node.name, 1, 0, ProgressKind.PROBE))
        return ProgressGraph(scopes, tuple(nodes), tuple(self.progress_edges))

    def _inputs_of(self, head: Node) -> int:
        return 1 if head.id in self.forced else len(head.inputs)

    def _edge(self, number: int, path: _Path, target: Node, index: int, progress: ProgressGraph) -> PlanEdge:
        link: Link = target.inputs[index]
        port = 0 if target.id in self.forced else index
        source = self.graph.nodes[path.head]
        entered = 0
        for hop in reversed(path.hops):
            if self.graph.nodes[hop].kind is not NodeKind.INGRESS:
                break
            entered += 1
        if entered:
            outermost = path.hops[len(path.hops) - entered]
            location = progress.child_input_location(int(self.graph.nodes[outermost].options["inner"]), self.ingress_port[outermost])
        else:
            location = progress.target_location(target.id, port)
        kind, key = link.partition.kind, link.partition.key
        if kind is PartitionKind.FORWARD and self.parallelism[source.id] != self.parallelism[target.id]:
            kind = PartitionKind.REBALANCE
        return PlanEdge(
            number,
            source.id,
            target.id,
            port,
            kind,
            key,
            any(self.graph.nodes[hop].kind is NodeKind.FEEDBACK for hop in path.hops),
            location,
            self.graph.scopes[target.scope].depth - entered,
            f"{source.name}->{target.name}",
        )

    def _stage(self, head: Node, outputs: tuple[tuple[Step, ...], ...], progress: ProgressGraph) -> Stage:
        depth = self.graph.scopes[head.scope].depth
        cls = getattr(head.op, "cls", head.op)
        if depth and isinstance(cls, type) and issubclass(cls, EndVertex):
            raise DataflowError(
                f"{head.name!r} ({head.where}) is an EndVertex inside loop {self.graph.scopes[head.scope].name!r}: it keeps the right to send until its "
                "input ends, so the loop could never end; put it outside the loop"
            )
        if isinstance(head.op, Vertex):
            raise DataflowError(f"{head.name!r} ({head.where}) was given an instance of {type(head.op).__name__}: give the class, so that each replica has its own")
        return Stage(
            head.id,
            head.name,
            head.where,
            NodeKind.EXCHANGE if head.id in self.forced else head.kind,
            None if head.id in self.forced else head.op,
            self.parts.get(head.id, ()),
            self._inputs_of(head),
            self.parallelism[head.id],
            depth,
            outputs,
            progress.notify_location(head.id),
            progress.capability_location(head.id),
        )
