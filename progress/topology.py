"""One scope of a progress graph, laid out as the locations, slots and edges of a `ReachabilityTracker`.

Why fewer locations than the graph has: paths `T_i -> N -> C -> edges` are identities, so an operator needs one location per input, one
that joins several inputs (shown in its views), and one for everything that leaves it, fed by N and C. An operator without outgoing edges
has none of the last kind. Feedbacks and probes are one location. A child scope is one location per input and per output, joined by its
internal summary.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import InitVar, dataclass, field

from rayad.progress.antichain import Antichain
from rayad.progress.progress_graph import ChildPort, NodeKind, NodePort, NodeSpec, ProgressGraph, ScopeInput, ScopeOutput, ScopeSpec
from rayad.progress.reachability import PathGraph
from rayad.progress.summary import PathSummary

ScopeSummary = list[list[Antichain[PathSummary]]]
"""For each input of a scope (or output, from outside) the minimal summaries to each output (or input)."""


@dataclass(slots=True)
class ScopeTopology:
    """Numbering of one scope, with its child scopes as nodes of the given internal summaries; it is only read."""

    scope: ScopeSpec
    graph: InitVar[ProgressGraph]
    child_summaries: InitVar[Mapping[int, ScopeSummary]]
    depth: int = field(init=False)
    names: list[str] = field(default_factory=list)
    edges: list[tuple[int, int, PathSummary]] = field(default_factory=list)
    slots: list[int | None] = field(default_factory=list)
    slot_owners: list[int | None] = field(default_factory=list)
    location_owners: list[int | None] = field(default_factory=list)
    slot_of_location: dict[int, int] = field(default_factory=dict)  # by global count location
    target_of: dict[tuple[int, int], int] = field(default_factory=dict)  # local location of a node's input port
    joined_of: dict[int, int | None] = field(default_factory=dict)  # local location of all inputs of a node
    leaving: dict[int, int] = field(default_factory=dict)  # local location of all that leaves a node
    child_inputs: dict[tuple[int, int], int] = field(default_factory=dict)
    child_outputs: dict[tuple[int, int], int] = field(default_factory=dict)
    child_output_slots: dict[tuple[int, int], int] = field(default_factory=dict)
    inputs: list[int] = field(default_factory=list)
    outputs: list[int] = field(default_factory=list)  # they are reached, but track nothing
    slot_ends: list[int | None] = field(default_factory=list)  # where a slot's paths start, for the projection

    def __post_init__(self, graph: ProgressGraph, child_summaries: Mapping[int, ScopeSummary]) -> None:
        scope = self.scope
        self.depth = graph.depth_by_scope[scope.id]
        with_edges = {edge.source.node for edge in graph.edges_by_scope[scope.id] if isinstance(edge.source, NodePort)}
        self.inputs = [self._location(f"input {port} of {scope.name!r}") for port in range(scope.inputs)]
        for node in graph.nodes_by_scope[scope.id]:
            self._add_node(graph, node, node.id in with_edges)
        for child in graph.children(scope.id):
            self._add_child(graph, child, child_summaries[child.id])
        self.outputs = [self._location(f"output {port} of {scope.name!r}") for port in range(scope.outputs)]
        self._add_edges(graph)

    def _location(self, name: str, owner: int | None = None) -> int:
        self.names.append(name)
        self.location_owners.append(owner)
        return len(self.names) - 1

    def _slot(self, location: int | None, owner: int | None = None) -> int:
        self.slots.append(location)
        self.slot_owners.append(owner)
        return len(self.slots) - 1

    def _join(self, source: int, target: int) -> None:
        self.edges.append((source, target, PathSummary.identity(self.depth)))

    def _add_node(self, graph: ProgressGraph, node: NodeSpec, has_edges: bool) -> None:
        watched = node.id if node.inputs == 1 else None
        targets = [self._location(f"input {port} of {node.name!r}", watched) for port in range(node.inputs)]
        for port, target in enumerate(targets):
            self.target_of[node.id, port] = target
            self.slot_of_location[graph.target_location(node.id, port)] = self._slot(target)
        joined = targets[0] if targets else None
        if len(targets) > 1:
            joined = self._location(f"all inputs of {node.name!r}", node.id)
            for target in targets:
                self._join(target, joined)
        self.joined_of[node.id] = joined
        if node.kind is not NodeKind.OPERATOR:
            if joined is not None:
                self.leaving[node.id] = joined
            return
        leaving: int | None = None
        if has_edges:
            leaving = self.leaving[node.id] = self._location(f"what leaves {node.name!r}")
            if joined is not None:
                self._join(joined, leaving)
        self.slot_of_location[graph.notify_location(node.id)] = self._slot(leaving, node.id)
        self.slot_of_location[graph.capability_location(node.id)] = self._slot(leaving, node.id)

    def _add_child(self, graph: ProgressGraph, child: ScopeSpec, summaries: ScopeSummary) -> None:
        for port in range(child.inputs):
            entry = self.child_inputs[child.id, port] = self._location(f"input {port} of {child.name!r}")
            self.slot_of_location[graph.child_input_location(child.id, port)] = self._slot(entry)
        for port in range(child.outputs):
            exit_ = self.child_outputs[child.id, port] = self._location(f"output {port} of {child.name!r}")
            self.child_output_slots[child.id, port] = self._slot(exit_)
        for source, by_output in enumerate(summaries):
            for target, antichain in enumerate(by_output):
                for summary in antichain:
                    self.edges.append((self.child_inputs[child.id, source], self.child_outputs[child.id, target], summary))

    def _add_edges(self, graph: ProgressGraph) -> None:
        source = target = 0
        for edge in graph.edges_by_scope[self.scope.id]:
            summary = PathSummary.identity(self.depth)
            match edge.source:
                case NodePort(node, _):
                    if node not in self.leaving:
                        continue  # a probe without inputs: nothing ever leaves it
                    source = self.leaving[node]
                    spec = graph.node_by_id[node]
                    if spec.kind is NodeKind.FEEDBACK:
                        summary = PathSummary.feedback_bound_below(self.depth, spec.max_rounds)
                case ChildPort(child, port):
                    source = self.child_outputs[child, port]
                case ScopeInput(port):
                    source = self.inputs[port]
            match edge.target:
                case NodePort(node, port):
                    target = self.target_of[node, port]
                case ChildPort(child, port):
                    target = self.child_inputs[child, port]
                case ScopeOutput(port):
                    target = self.outputs[port]
            if not summary.is_empty:
                self.edges.append((source, target, summary))

    def paths(self) -> PathGraph:
        """The scope as a static graph of summaries."""
        return PathGraph([self.depth] * len(self.names), dict.fromkeys(self.edges))

    def tracked_edges(self) -> list[tuple[int, int, PathSummary]]:
        """The edges without those to the scope's outputs, which track nothing."""
        ends = set(self.outputs)
        return [edge for edge in dict.fromkeys(self.edges) if edge[1] not in ends]
