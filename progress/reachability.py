"""Static reachability: the minimal path summaries between locations (Naiad's Psi, section 2.3).

`PathGraph` is a graph of locations with a summary on every edge; it answers "what is the least that can happen to a time between a and b".
Two of them are used: one per scope, where child scopes appear as summarised nodes (validation and projection onto the scope's outputs), and
`FlatReachability` over the whole job with ingress and egress on the edges, which is exactly Naiad's flat could-result-in.

Termination: a summary is only followed further if it is not above one that is known already, and going round a cycle only makes it larger.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from functools import cached_property

from rayad.progress.antichain import Antichain
from rayad.progress.components import components_in_order
from rayad.progress.progress_graph import ChildPort, LocationKind, NodeKind, NodePort, ProgressGraph, ScopeInput, ScopeOutput, Source
from rayad.progress.summary import PathSummary
from rayad.progress.timestamp import Timestamp

Summaries = dict[int, Antichain[PathSummary]]


class PathGraph:
    """Locations of given depths, and edges with summaries.

    >>> graph = PathGraph([1, 1], [(0, 1, PathSummary.identity(1)), (1, 0, PathSummary.feedback(1))])
    >>> [str(summary) for summary in graph.summaries_from(0)[1]]
    ['(e, <c1>)']
    """

    def __init__(self, depths: list[int], edges: Iterable[tuple[int, int, PathSummary]]) -> None:
        self.depths = depths
        self.successors: list[list[tuple[int, PathSummary]]] = [[] for _ in depths]
        self.predecessors: list[list[tuple[int, PathSummary]]] = [[] for _ in depths]
        for source, target, summary in edges:
            if not summary.is_empty:
                self.successors[source].append((target, summary))
                self.predecessors[target].append((source, summary))

    def summaries_from(self, start: int) -> Summaries:
        """Minimal summaries of the paths from `start` to each location it reaches, the empty path included."""
        return self._search(start, None)

    def _search(self, start: int, last: int | None) -> Summaries:
        """Summaries of all paths from `start`; if `last` is given, only through components up to it in topological order."""
        order = self._order if last is not None else None
        found: Summaries = {start: Antichain([PathSummary.identity(self.depths[start])])}
        work = deque((start, summary) for summary in found[start])
        while work:
            location, summary = work.popleft()
            for target, step in self.successors[location]:
                if order is not None and last is not None and order[target] > last:
                    continue
                longer = summary.followed_by(step)
                if longer is not None and found.setdefault(target, Antichain()).insert(longer):
                    work.append((target, longer))
        return {location: summaries for location, summaries in found.items() if len(summaries)}

    def summaries_between(self, start: int, ends: Iterable[int]) -> Summaries:
        """Minimal summaries of the paths from `start` to those of `ends` that it reaches.

        The search goes no further down than the last of them in topological order: behind a start that cannot come back it ends at once.
        """
        wanted = list(ends)
        order = self._order
        last = max((order[end] for end in wanted), default=-1)
        found = self._search(start, last) if order[start] <= last else {}
        return {end: found[end] for end in wanted if end in found}

    @cached_property
    def _order(self) -> list[int]:
        """The place of each location's strongly connected component in a topological order."""
        places = [0] * len(self.depths)
        for place, members in enumerate(components_in_order([[target for target, _ in steps] for steps in self.successors])):
            for member in members:
                places[member] = place
        return places

    def summaries_to(self, end: int) -> Summaries:
        """Minimal summaries of the paths from each location that reaches `end`, the empty path included."""
        found: Summaries = {end: Antichain([PathSummary.identity(self.depths[end])])}
        work = deque((end, summary) for summary in found[end])
        while work:
            location, summary = work.popleft()
            for source, step in self.predecessors[location]:
                longer = step.followed_by(summary)
                if longer is not None and found.setdefault(source, Antichain()).insert(longer):
                    work.append((source, longer))
        return {location: summaries for location, summaries in found.items() if len(summaries)}


def flat_path_graph(graph: ProgressGraph) -> PathGraph:
    """The whole job as one graph of count locations: `T_i -> N -> C -> edges`, with ingress, egress and feedback as edge summaries."""
    edges: list[tuple[int, int, PathSummary]] = []
    outgoing: dict[tuple[int, Source], list[tuple[int, PathSummary]]] = {}

    def targets_of(scope: int, source: Source) -> list[tuple[int, PathSummary]]:
        """Where a message leaving `source` in `scope` is counted next, and what happens to its time before."""
        key = (scope, source)
        if key in outgoing:
            return outgoing[key]
        depth = graph.depth_by_scope[scope]
        reached: list[tuple[int, PathSummary]] = []
        for target in graph.targets_of(scope, source):
            match target:
                case NodePort(node, port):
                    reached.append((graph.target_location(node, port), PathSummary.identity(depth)))
                case ChildPort(child, port):
                    reached.append((graph.child_input_location(child, port), PathSummary.identity(depth)))
                case ScopeOutput(port):
                    parent = graph.scope_by_id[scope].parent
                    assert parent is not None, "validated: the root has no outputs"
                    for location, step in targets_of(parent, ChildPort(scope, port)):
                        combined = PathSummary.egress(depth).followed_by(step)
                        assert combined is not None, "an egress followed by an unlimited path leads somewhere"
                        reached.append((location, combined))
        outgoing[key] = reached
        return reached

    for location in graph.locations:
        depth = graph.location_depth(location.id)
        if location.kind is LocationKind.CHILD_INPUT:
            step, sources, scope = PathSummary.ingress(depth), [ScopeInput(location.port)], location.owner
            edges += _after(location.id, step, targets_of(scope, sources[0]))
            continue
        node = graph.node_by_id[location.owner]
        if location.kind is LocationKind.TARGET and node.kind is NodeKind.OPERATOR:
            edges.append((location.id, graph.notify_location(node.id), PathSummary.identity(depth)))
        elif location.kind is LocationKind.NOTIFY:
            edges.append((location.id, graph.capability_location(node.id), PathSummary.identity(depth)))
        else:
            feedback = node.kind is NodeKind.FEEDBACK
            step = PathSummary.feedback_bound_below(depth, node.max_rounds) if feedback else PathSummary.identity(depth)
            for port in range(node.outputs):
                edges += _after(location.id, step, targets_of(node.scope, NodePort(node.id, port)))
    return PathGraph([graph.location_depth(location.id) for location in graph.locations], dict.fromkeys(edges))


def _after(source: int, step: PathSummary, targets: list[tuple[int, PathSummary]]) -> list[tuple[int, int, PathSummary]]:
    """Edges from `source` that first take `step`."""
    combined = ((target, step.followed_by(rest)) for target, rest in targets)
    return [(source, target, summary) for target, summary in combined if summary is not None]


class FlatReachability:
    """Naiad's could-result-in over all locations of a job; summaries are computed for a location when first asked for.

    It holds if and only if some path leads from the first location to the second and turns the first time into one <= the second, where
    bounds on the rounds of inner loops do not count (see `summary`).
    """

    def __init__(self, graph: ProgressGraph) -> None:
        self.graph = graph
        self.paths = flat_path_graph(graph)
        self._from: dict[int, Summaries] = {}

    def summaries_from(self, location: int) -> Summaries:
        """Psi[location, *]: minimal summaries to every location that can be reached."""
        if location not in self._from:
            self._from[location] = self.paths.summaries_from(location)
        return self._from[location]

    def could_result_in(self, time1: Timestamp, location1: int, time2: Timestamp, location2: int) -> bool:
        """Could an event at (time1, location1) result in one at (time2, location2)? Reflexive."""
        for summary in self.summaries_from(location1).get(location2, ()):
            result = summary.results_in(time1)
            if result is not None and result <= time2:
                return True
        return False

    def blocks_itself(self, node: int, guarantee: Timestamp, capability: Timestamp) -> bool:
        """Would a notification of `node` wait for ever, because what it may send could come back round a loop at its guarantee or before?

        Never if guarantee <= capability. Then no set of notifications can block each other either: "A holds back B" means that A's
        capability could result in B's guarantee, hence in B's capability, so a ring of them would be a cycle that does not advance time.
        """
        if guarantee <= capability:
            return False
        start = self.graph.capability_location(node)
        inputs = range(self.graph.node_by_id[node].inputs)
        return any(self.could_result_in(capability, start, guarantee, self.graph.target_location(node, port)) for port in inputs)
