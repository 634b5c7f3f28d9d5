"""Checks of a progress graph: its structure, and that every cycle strictly advances time.

Rule for cycles: let S be the outermost scope that a cycle touches. Whatever the cycle does inside the children of S is lost when it
leaves them (egress drops the counter, ingress starts again at 0), so it must pass a feedback that belongs directly to S. Hence: take S
with everything inside it, remove the feedbacks of S, and no cycle may be left through a location of S itself. Cycles that stay deeper are
judged at their own scope. The test runs on the flat graph, so the error names the whole path, also through child scopes and around
outside.
"""

from __future__ import annotations

from collections import Counter, deque

from rayad.progress.components import components_in_order
from rayad.progress.errors import DataflowError
from rayad.progress.progress_graph import (
    ChildPort,
    EdgeSpec,
    LocationKind,
    NodeKind,
    NodePort,
    NodeSpec,
    ProgressGraph,
    ScopeInput,
    ScopeOutput,
)
from rayad.progress.reachability import flat_path_graph


def validate_graph(graph: ProgressGraph) -> None:
    """Raise DataflowError with the first rule that the graph breaks. One that has passed is not looked at again: it does not change."""
    if graph.is_valid:
        return
    _check_scopes(graph)
    for node in graph.nodes:
        _check_node(graph, node)
    for edge in graph.edges:
        _check_edge(graph, edge)
    _check_cycles(graph)
    object.__setattr__(graph, "is_valid", True)


def _check_scopes(graph: ProgressGraph) -> None:
    for kind, identifiers in (("scope", [s.id for s in graph.scopes]), ("node", [n.id for n in graph.nodes])):
        repeated = [identifier for identifier, times in Counter(identifiers).items() if times > 1]
        if repeated:
            raise DataflowError(f"{kind} ids {repeated} occur more than once; every {kind} needs an id of its own")
    roots = [scope for scope in graph.scopes if scope.parent is None]
    if len(roots) != 1 or roots[0].id != 0 or roots[0].inputs or roots[0].outputs:
        raise DataflowError(f"the scopes without a parent are {roots}; there must be exactly one, with id 0, no inputs and no outputs")
    for scope in graph.scopes:
        if scope.inputs < 0 or scope.outputs < 0:
            raise DataflowError(f"scope {scope.name!r} has {scope.inputs} inputs and {scope.outputs} outputs; both must be >= 0")
    if len(graph.depth_by_scope) != len(graph.scopes):
        raise DataflowError(f"the parents of the scopes {graph.scopes} do not lead to the root")


def _check_node(graph: ProgressGraph, node: NodeSpec) -> None:
    if node.scope not in graph.scope_by_id:
        raise DataflowError(f"node {node.name!r} ({node.id}) is in scope {node.scope}, but the scopes are {sorted(graph.scope_by_id)}")
    if node.inputs < 0 or node.outputs < 0:
        raise DataflowError(f"node {node.name!r} has {node.inputs} inputs and {node.outputs} outputs; both must be >= 0")
    depth = graph.depth_by_scope[node.scope]
    if node.kind is NodeKind.FEEDBACK:
        if node.inputs != 1 or node.outputs != 1:
            raise DataflowError(f"feedback {node.name!r} has {node.inputs} inputs and {node.outputs} outputs; it needs one of each")
        if node.max_rounds is not None and (node.max_rounds < 1 or depth == 0):
            raise DataflowError(f"feedback {node.name!r} at depth {depth} has max_rounds={node.max_rounds}; it must be >= 1, in a loop")
    elif node.max_rounds is not None:
        raise DataflowError(f"node {node.name!r} is a {node.kind.value} with max_rounds={node.max_rounds}; only a feedback bounds rounds")
    if node.initial and node.kind is not NodeKind.OPERATOR:
        raise DataflowError(f"node {node.name!r} is a {node.kind.value} with initial counts {node.initial}; only an operator has them")
    for time, count in node.initial:
        if time.depth != depth or count < 1:
            raise DataflowError(f"node {node.name!r} starts with count {count} at {time}; it needs a count >= 1 at depth {depth}")


def _check_edge(graph: ProgressGraph, edge: EdgeSpec) -> None:
    if edge.scope not in graph.scope_by_id:
        raise DataflowError(f"{edge} is in an unknown scope; the scopes are {sorted(graph.scope_by_id)}")
    scope = graph.scope_by_id[edge.scope]
    for endpoint, is_source in ((edge.source, True), (edge.target, False)):
        match endpoint:
            case NodePort(node, port):
                spec = graph.node_by_id.get(node)
                known, home = spec is not None, spec.scope if spec else None
                ports = (spec.outputs if is_source else spec.inputs) if spec else 0
            case ChildPort(child, port):
                inner = graph.scope_by_id.get(child)
                known, home = inner is not None, inner.parent if inner else None
                ports = (inner.outputs if is_source else inner.inputs) if inner else 0
            case ScopeInput(port) if is_source:
                known, home, ports = True, edge.scope, scope.inputs
            case ScopeOutput(port) if not is_source:
                known, home, ports = True, edge.scope, scope.outputs
            case _:
                raise DataflowError(f"{edge} uses {endpoint} as a {'source' if is_source else 'target'}; it is the other end of edges")
        if not known:
            raise DataflowError(f"{edge} has the unknown endpoint {endpoint}")
        if home != edge.scope:
            raise DataflowError(
                f"{edge} of scope {edge.scope} has the endpoint {endpoint}, which is directly inside scope {home}; "
                "an edge joins endpoints of one scope, use the child's ports or the scope's own inputs and outputs to cross"
            )
        if not 0 <= port < ports:
            has_inputs = is_source == isinstance(endpoint, ScopeInput)
            raise DataflowError(f"{edge} uses port {port} of {endpoint}, which has {ports} {'inputs' if has_inputs else 'outputs'}")


def _check_cycles(graph: ProgressGraph) -> None:
    flat = flat_path_graph(graph)
    own_by_scope: dict[int, list[int]] = {scope: [] for scope in graph.scope_by_id}
    for location in graph.locations:
        own_by_scope[location.scope].append(location.id)
    for scope in graph.scope_by_id.values():
        own = set(own_by_scope[scope.id])
        inside = [place for place in _within(graph, scope.id, own_by_scope) if not (place in own and _is_feedback(graph, place))]
        number = {place: index for index, place in enumerate(inside)}
        successors = [[number[target] for target, _ in flat.successors[place] if target in number] for place in inside]
        for members in components_in_order(successors):
            start = next((member for member in members if inside[member] in own), None)
            if start is not None and (len(members) > 1 or start in successors[start]):
                names = _names(graph, [inside[place] for place in _find_cycle(successors, start)])
                raise DataflowError(
                    f"the cycle {' -> '.join(names)} does not advance time: it passes no feedback of {scope.name!r}, the outermost scope "
                    f"it touches, so a message could result in itself; put a feedback of {scope.name!r} on it",
                    cycle=names,
                )


def _within(graph: ProgressGraph, scope: int, own_by_scope: dict[int, list[int]]) -> list[int]:
    """The locations of a scope and of all scopes inside it."""
    found: list[int] = []
    work = [scope]
    while work:
        current = work.pop()
        found += own_by_scope[current]
        work += [child.id for child in graph.children(current)]
    return sorted(found)


def _is_feedback(graph: ProgressGraph, place: int) -> bool:
    location = graph.locations[place]
    return location.kind is not LocationKind.CHILD_INPUT and graph.node_by_id[location.owner].kind is NodeKind.FEEDBACK


def _find_cycle(successors: list[list[int]], start: int) -> list[int]:
    """A shortest path from `start`, which lies on a cycle, back to itself."""
    came_from: dict[int, int] = {}
    work = deque([start])
    while start not in came_from:
        location = work.popleft()
        for target in successors[location]:
            if target not in came_from:
                came_from[target] = location
                work.append(target)
    path = [start, came_from[start]]
    while path[-1] != start:
        path.append(came_from[path[-1]])
    return path[::-1]


def _names(graph: ProgressGraph, cycle: list[int]) -> list[str]:
    """Names of the nodes and scopes on a cycle of locations, one for each stay."""
    names: list[str] = []
    previous: tuple[bool, int] | None = None
    for identifier in cycle:
        location = graph.locations[identifier]
        is_scope = location.kind is LocationKind.CHILD_INPUT
        name = graph.scope_by_id[location.owner].name if is_scope else graph.node_by_id[location.owner].name
        if (is_scope, location.owner) != previous:
            names.append(name)
        previous = (is_scope, location.owner)
    return names if len(names) > 1 else [*names, *names]
