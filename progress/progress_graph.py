"""The progress graph: scopes, nodes and edges as the tracker sees them, and the numbering of its locations.

A node stands for a stage (all its replicas), a feedback or a probe; a child scope is a node of its parent. Paths through an operator lead
`T_i -> N -> C -> every outgoing edge`, without changing the time: `T_i` messages at input port i, `N` pending notifications, `C`
capabilities. Feedbacks and probes have only `T_i`. A message that enters a child scope is counted in the parent, at the child's input
location.

Location ids are dense integers that depend on nothing but the graph, so every process of a job computes the same ones.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property

from rayad.progress.errors import DataflowError
from rayad.progress.timestamp import Timestamp


class NodeKind(Enum):
    """The kinds of nodes: their effect on times, and what is counted at them."""

    OPERATOR = "operator"  # identity; messages, notifications and capabilities are counted
    FEEDBACK = "feedback"  # adds 1 to the innermost counter; only messages are counted
    PROBE = "probe"  # identity; only watches


class LocationKind(Enum):
    """What a location counts."""

    TARGET = "T"
    NOTIFY = "N"
    CAPABILITY = "C"
    CHILD_INPUT = "entry"


@dataclass(frozen=True, slots=True)
class ScopeSpec:
    """A scope: the root (id 0, no parent) or a loop context inside `parent`."""

    id: int
    parent: int | None
    name: str
    inputs: int
    outputs: int


@dataclass(frozen=True, slots=True)
class NodeSpec:
    """A node of `scope`; `initial` are counts at N before anything runs (a source: one per replica at its first epoch)."""

    id: int
    scope: int
    name: str
    inputs: int
    outputs: int
    kind: NodeKind = NodeKind.OPERATOR
    max_rounds: int | None = None
    initial: tuple[tuple[Timestamp, int], ...] = ()


@dataclass(frozen=True, slots=True)
class NodePort:
    """An output port of a node (as a source) or an input port (as a target)."""

    node: int
    port: int


@dataclass(frozen=True, slots=True)
class ChildPort:
    """A port of a child scope as its parent sees it: an output as a source, an input as a target."""

    scope: int
    port: int


@dataclass(frozen=True, slots=True)
class ScopeInput:
    """An input of the scope as seen from inside: a source."""

    port: int


@dataclass(frozen=True, slots=True)
class ScopeOutput:
    """An output of the scope as seen from inside: a target."""

    port: int


Source = NodePort | ChildPort | ScopeInput
Target = NodePort | ChildPort | ScopeOutput


Place = tuple[str, int, int]
"""A node, or an input or output port of a scope."""


def _place(scope: int, end: Source | Target, child_port: str) -> Place:
    if isinstance(end, NodePort):
        return "node", end.node, 0
    if isinstance(end, ChildPort):
        return child_port, end.scope, end.port
    return "input" if isinstance(end, ScopeInput) else "output", scope, end.port


@dataclass(frozen=True, slots=True)
class EdgeSpec:
    """An edge of `scope`, between two endpoints that belong directly to it."""

    scope: int
    source: Source
    target: Target


@dataclass(frozen=True, slots=True)
class Location:
    """A place where counts are kept. `scope` is the scope that counts it; `owner` a node id, or a child scope id for CHILD_INPUT."""

    id: int
    kind: LocationKind
    scope: int
    owner: int
    port: int


@dataclass(frozen=True)
class ProgressGraph:
    """Scopes, nodes and edges; see `graph_validation.validate_graph` before using one that was built from a user's program.

    >>> nodes = (NodeSpec(0, 0, "lines", 0, 1), NodeSpec(1, 0, "count", 1, 0))
    >>> graph = ProgressGraph((ScopeSpec(0, None, "root", 0, 0),), nodes, (EdgeSpec(0, NodePort(0, 0), NodePort(1, 0)),))
    >>> graph.notify_location(0), graph.target_location(1, 0), graph.describe_location(2)
    (0, 2, "input 0 of 'count' (node 1)")
    """

    scopes: tuple[ScopeSpec, ...]
    nodes: tuple[NodeSpec, ...]
    edges: tuple[EdgeSpec, ...]
    is_valid: bool = field(default=False, init=False, repr=False, compare=False)
    """It has been validated."""

    def __post_init__(self) -> None:
        for name in ("scopes", "nodes", "edges"):
            object.__setattr__(self, name, tuple(getattr(self, name)))

    def __getstate__(self) -> dict[str, object]:
        return {"scopes": self.scopes, "nodes": self.nodes, "edges": self.edges}  # without the caches

    @cached_property
    def scope_by_id(self) -> dict[int, ScopeSpec]:
        """The scopes in the order of their ids."""
        return {scope.id: scope for scope in sorted(self.scopes, key=lambda scope: scope.id)}

    @cached_property
    def node_by_id(self) -> dict[int, NodeSpec]:
        """The nodes in the order of their ids."""
        return {node.id: node for node in sorted(self.nodes, key=lambda node: node.id)}

    @cached_property
    def edges_by_scope(self) -> dict[int, list[EdgeSpec]]:
        """Distinct edges of each scope."""
        edges: dict[int, list[EdgeSpec]] = {scope.id: [] for scope in self.scopes}
        for edge in dict.fromkeys(self.edges):
            edges[edge.scope].append(edge)
        return edges

    @cached_property
    def depth_by_scope(self) -> dict[int, int]:
        """The nesting depth of each scope; the root has 0."""
        depths: dict[int, int] = {}
        for scope in self.scopes:
            chain: list[int] = []
            current: int | None = scope.id
            while current is not None and current not in depths:
                if current in chain or current not in self.scope_by_id:
                    parents = [*chain, current]
                    raise DataflowError(f"scope {scope.name!r} ({scope.id}): its chain of parents {parents} does not end at the root")
                chain.append(current)
                current = self.scope_by_id[current].parent
            depth = -1 if current is None else depths[current]
            for identifier in reversed(chain):
                depth += 1
                depths[identifier] = depth
        return depths

    @cached_property
    def nodes_by_scope(self) -> dict[int, list[NodeSpec]]:
        """The nodes of each scope in the order of their ids."""
        nodes: dict[int, list[NodeSpec]] = {scope.id: [] for scope in self.scopes}
        for node in self.node_by_id.values():
            nodes[node.scope].append(node)
        return nodes

    @cached_property
    def _targets(self) -> dict[tuple[int, Source], list[Target]]:
        targets: dict[tuple[int, Source], list[Target]] = {}
        for edge in dict.fromkeys(self.edges):
            targets.setdefault((edge.scope, edge.source), []).append(edge.target)
        return targets

    def targets_of(self, scope: int, source: Source) -> list[Target]:
        """Where the edges of `scope` from `source` lead."""
        return self._targets.get((scope, source), [])

    @cached_property
    def places_after(self) -> dict[Place, list[Place]]:
        """Where the edges from a place lead; a port of a scope is one place, seen from inside and from outside.

        >>> nodes = (NodeSpec(0, 0, "lines", 0, 1), NodeSpec(1, 0, "count", 1, 0))
        >>> edges = (EdgeSpec(0, NodePort(0, 0), NodePort(1, 0)),)
        >>> ProgressGraph((ScopeSpec(0, None, "root", 0, 0),), nodes, edges).places_after
        {('node', 0, 0): [('node', 1, 0)]}
        """
        out: dict[Place, list[Place]] = {}
        for edge in self.edges:
            after = _place(edge.scope, edge.target, "input")
            out.setdefault(_place(edge.scope, edge.source, "output"), []).append(after)
        return out

    @cached_property
    def _children(self) -> dict[int | None, list[ScopeSpec]]:
        children: dict[int | None, list[ScopeSpec]] = {}
        for child in self.scope_by_id.values():
            children.setdefault(child.parent, []).append(child)
        return children

    def children(self, scope: int) -> list[ScopeSpec]:
        """The scopes directly inside `scope`."""
        return self._children.get(scope, [])

    @cached_property
    def locations(self) -> tuple[Location, ...]:
        """All count locations; position = id."""
        locations: list[Location] = []

        def add(kind: LocationKind, scope: int, owner: int, port: int) -> None:
            locations.append(Location(len(locations), kind, scope, owner, port))

        for node in self.node_by_id.values():
            for port in range(node.inputs):
                add(LocationKind.TARGET, node.scope, node.id, port)
            if node.kind is NodeKind.OPERATOR:
                add(LocationKind.NOTIFY, node.scope, node.id, 0)
                add(LocationKind.CAPABILITY, node.scope, node.id, 0)
        for scope in self.scope_by_id.values():
            if scope.parent is not None:
                for port in range(scope.inputs):
                    add(LocationKind.CHILD_INPUT, scope.parent, scope.id, port)
        return tuple(locations)

    @cached_property
    def _location_ids(self) -> dict[tuple[LocationKind, int, int], int]:
        return {(location.kind, location.owner, location.port): location.id for location in self.locations}

    def target_location(self, node: int, port: int) -> int:
        """Where messages at input `port` of `node` are counted."""
        return self._find(LocationKind.TARGET, node, port, f"node {node} has no input port {port}")

    def notify_location(self, node: int) -> int:
        """Where pending notifications of `node` are counted."""
        return self._find(LocationKind.NOTIFY, node, 0, f"node {node} is no operator, so it has no notifications")

    def capability_location(self, node: int) -> int:
        """Where capabilities of `node` other than notifications are counted."""
        return self._find(LocationKind.CAPABILITY, node, 0, f"node {node} is no operator, so it has no capabilities")

    def child_input_location(self, scope: int, port: int) -> int:
        """Where messages that enter child scope `scope` at input `port` are counted, in its parent's times."""
        return self._find(LocationKind.CHILD_INPUT, scope, port, f"scope {scope} is no child scope with an input port {port}")

    def _find(self, kind: LocationKind, owner: int, port: int, problem: str) -> int:
        found = self._location_ids.get((kind, owner, port))
        if found is None:
            known = ", ".join(f"{node.id} {node.name!r} ({node.kind.value}, {node.inputs} inputs)" for node in self.node_by_id.values())
            raise DataflowError(f"{problem}; nodes are {known}; scopes are {sorted(self.scope_by_id)}")
        return found

    def location_depth(self, location: int) -> int:
        """The depth of the times that are counted at `location`."""
        return self.depth_by_scope[self.locations[location].scope]

    def describe_location(self, location: int) -> str:
        """A location in words, for messages to people."""
        if not 0 <= location < len(self.locations):
            return f"unknown location {location} (there are {len(self.locations)})"
        found = self.locations[location]
        if found.kind is LocationKind.CHILD_INPUT:
            return f"entry {found.port} of scope {self.scope_by_id[found.owner].name!r} ({found.owner})"
        what = {LocationKind.TARGET: f"input {found.port}", LocationKind.NOTIFY: "notifications", LocationKind.CAPABILITY: "capabilities"}
        return f"{what[found.kind]} of {self.node_by_id[found.owner].name!r} (node {found.owner})"
