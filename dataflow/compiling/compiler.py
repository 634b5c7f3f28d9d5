"""From the logical graph to the plan. Pure, and deterministic: equal programs give equal plans.

`fusion` finds the heads and what runs fused behind each; here parallelism, the edges and the progress graph follow from that.
"""

from __future__ import annotations

from typing import Any

from rayad.dataflow.compiling.fusion import Path, fuse
from rayad.dataflow.config import ScalingConfig
from rayad.dataflow.logical_graph import LogicalEdge, LogicalGraph, Node, NodeKind, PartitionKind, Program, check_count
from rayad.dataflow.plan import Plan, PlanEdge, SinkSpec, Stage, sinks_of
from rayad.dataflow.records.key_hashing import DEFAULT_KEY_GROUPS
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
    say,
)
from rayad.progress import NodeKind as ProgressKind
from rayad.progress.graph_validation import validate_graph


def compile_plan(flow: Program, scaling: ScalingConfig, *, key_groups: int | None = None) -> Plan:
    """Compile ``flow``. Raises DataflowError, naming operators and the user's lines, where the graph or the parallelism is wrong."""
    _check_graph(flow)
    return _Compiler(flow, scaling, key_groups or DEFAULT_KEY_GROUPS).plan()


def _check_graph(flow: Program) -> None:
    graph = flow.graph
    if not graph.nodes:
        raise DataflowError(f"dataflow {flow.name!r} is empty: begin with flow.from_items(...), flow.input(...) or another source")
    for node in graph.nodes:
        if node.kind is NodeKind.FEEDBACK and not node.inputs:
            raise DataflowError(
                f"the feedback {node.name!r} ({node.where}) of loop {graph.scopes[node.scope].name!r} is not connected: call "
                "feedback.connect(stream) with the stream that shall come round again"
            )
    entered = {n.options["inner"] for n in graph.nodes if n.kind is NodeKind.INGRESS}
    for scope in graph.scopes[1:]:
        if scope.id not in entered:
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
            raise DataflowError(
                f"{node.name!r} ({node.where}) gets no input from any source: its cycle is never entered; union it with loop.enter(stream)"
            )


def _has_columns(node: Node) -> bool:
    """Whether a node certainly reads or makes columns: a source or a function with a schema, or a sink that writes a table."""
    match node.kind:
        case NodeKind.SOURCE:
            return getattr(node.op, "schema", None) is not None
        case NodeKind.STATELESS:
            return node.op.schema_said is not None
        case NodeKind.SINK:
            # What is collected has a schema where it is a table; that of files may be the one of their first records.
            return getattr(node.op, "schema", None) is not None or (node.op.commits and hasattr(node.op, "schema"))
        case _:
            return False


class _Compiler:
    def __init__(self, flow: Program, scaling: ScalingConfig, key_groups: int) -> None:
        self.flow = flow
        self.graph: LogicalGraph = flow.graph
        self.scaling = scaling
        self.key_groups = key_groups
        self.consumers = self.graph.consumers()
        self.fusion = fuse(self.graph, self.consumers)
        self.forced = self.fusion.forced
        self.links = self.fusion.links
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

    def plan(self) -> Plan:
        heads = [self.graph.nodes[head] for head in self.fusion.steps]
        self._check_names(heads)
        self._set_parallelism(heads)
        progress = self._progress_graph(heads)
        validate_graph(progress)
        edges = tuple(self._edge(i, path, target, port, progress) for i, (path, target, port) in enumerate(self.links))
        stages = tuple(self._stage(head, progress) for head in heads)
        written: dict[int, list[int]] = {}
        for stage in stages:
            for sink in sinks_of(stage.steps):
                written.setdefault(sink, []).append(stage.id)
        sinks = tuple(
            SinkSpec(n.id, str(n.options["key"]), n.name, n.where, n.op, tuple(written.get(n.id, ())))
            for n in self.graph.nodes
            if n.kind is NodeKind.SINK
        )
        probes = {n.name: n.id for n in self.graph.nodes if n.kind is NodeKind.PROBE}
        inputs = {n.name: n.id for n in self.graph.nodes if n.kind is NodeKind.INPUT}
        has_columns = any(_has_columns(node) for node in self.graph.nodes)
        together = self.graph.epochs_together
        return Plan(self.flow.name, stages, edges, sinks, progress, probes, inputs, self.key_groups, has_columns, together)

    # -- parallelism -----------------------------------------------------------
    def _check_names(self, heads: list[Node]) -> None:
        """Parallelism is given by names of stages; another name would be ignored silently."""
        if isinstance(self.scaling.parallelism, int):
            return
        names = {head.name: head for head in heads}
        nodes = {node.name: node for node in self.graph.nodes}
        for name in self.scaling.parallelism:
            what = f"parallelism names {name!r},"
            if name not in nodes:
                raise DataflowError(f"{what} which is not in {self.flow.name!r}: its vertices are {sorted(names)}")
            if name not in names:
                raise DataflowError(
                    f"{what} a {nodes[name].kind.value} operator ({nodes[name].where}) without a process of its own: it runs in the "
                    "vertices before it; "
                    f"the vertices of {self.flow.name!r} are {sorted(names)}"
                )
            if names[name].kind is NodeKind.INPUT:
                raise DataflowError(
                    f"{what} a live input ({names[name].where}): it has one replica; call rebalance() behind it to spread its records"
                )

    def _set_parallelism(self, heads: list[Node]) -> None:
        incoming: dict[int, list[tuple[Path, int]]] = {}
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
                keyed = any(edge.partition.kind is PartitionKind.KEYS for edge in head.inputs)
                spread = any(edge.partition.kind in (PartitionKind.REBALANCE, PartitionKind.BROADCAST) for edge in head.inputs)
                single = all(edge.partition.kind is PartitionKind.SINGLE for edge in head.inputs)
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
            if len(later) == len(pending):  # a cycle of unkeyed vertices: decided by what is known so far
                head = later[0]
                sources = {path.head for path, _ in incoming.get(head.id, ())}
                known = [self.parallelism[s] for s in sources if s in self.parallelism]
                self.parallelism[head.id] = max(known, default=self.scaling.otherwise)
                later = later[1:]
            pending = later
        for head in heads:
            count = self.parallelism[head.id]
            if count > self.key_groups and any(edge.partition.kind is PartitionKind.KEYS for edge in head.inputs):
                raise DataflowError(
                    f"{head.name!r} ({head.where}) has {count} replicas but there are only {self.key_groups} key-groups: a replica "
                    "without a key-group "
                    "would get nothing; lower the parallelism or raise RunConfig(key_groups=...)"
                )

    def _asked(self, head: Node) -> int | None:
        if head.parallelism is not None:
            return check_count(head.parallelism, f"parallelism of {head.name!r}")
        return self.scaling.of(head.name)

    def _of_source(self, head: Node) -> int:
        try:
            parts = tuple(head.op.list_parts())
        except Exception as error:
            what = f"{type(error).__name__}: {say(error)}"
            raise DataflowError(f"source {head.name!r} ({head.where}) failed in list_parts: {what}") from error
        self.parts[head.id] = parts
        if head.kind is NodeKind.INPUT:
            return 1
        asked = self._asked(head)
        return max(1, min(len(parts), asked if asked is not None else self.scaling.otherwise))

    # -- progress graph ----------------------------------------------------------
    def _trace(self, path: Path, end: NodePort) -> None:
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
        for path, probe in self.fusion.probes:
            self._trace(path, NodePort(probe, 0))
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

    def _edge(self, number: int, path: Path, target: Node, index: int, progress: ProgressGraph) -> PlanEdge:
        edge: LogicalEdge = target.inputs[index]
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
        kind, key = edge.partition.kind, edge.partition.key
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
            edge.partition.buffer,
            edge.partition.keeps_batches,
        )

    def _stage(self, head: Node, progress: ProgressGraph) -> Stage:
        depth = self.graph.scopes[head.scope].depth
        cls = getattr(head.op, "cls", head.op)
        if depth and isinstance(cls, type) and issubclass(cls, EndVertex):
            raise DataflowError(
                f"{head.name!r} ({head.where}) is an EndVertex inside loop {self.graph.scopes[head.scope].name!r}: it keeps the "
                "right to send until its "
                "input ends, so the loop could never end; put it outside the loop"
            )
        if isinstance(head.op, Vertex):
            raise DataflowError(
                f"{head.name!r} ({head.where}) was given an instance of {type(head.op).__name__}: give the class, so that each "
                "replica has its own"
            )
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
            self.fusion.steps[head.id],
            self.fusion.outputs[head.id],
            progress.notify_location(head.id),
            progress.capability_location(head.id),
            resources=head.resources,
            paces_inputs=head.kind is NodeKind.VERTEX and getattr(cls, "paces_inputs", False),
            sequential=head.kind is NodeKind.VERTEX and getattr(cls, "sequential", False),
        )
