"""Which nodes are heads of stages, and what runs fused behind each of them.

Walks from each head through the stateless nodes behind it and copies them into a tree of steps: what is reached from two heads runs in
both. Two things make a union a head of its own (a pass-through stage): a cycle without any other head, and too many paths that meet in
it. Then only what was walked through that union is walked again. The walk keeps its own stack and a tree is a flat list, so that
thousands of operators may stand in a row.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import takewhile
from operator import ne

from rayad.dataflow.logical_graph import LogicalGraph, Node, NodeKind
from rayad.dataflow.operators.order.ordered import WithoutNumbers, carries_numbers, takes_numbers
from rayad.dataflow.plan import ApplyStep, EdgeStep, ShiftStep, SinkStep, Step

HEADS = frozenset({NodeKind.SOURCE, NodeKind.INPUT, NodeKind.VERTEX, NodeKind.EXCHANGE})
COPIES_MAX = 8
"""How often a union may be copied into one stage; each further union doubles what is behind it."""
_SHIFTS = {NodeKind.INGRESS: "enter", NodeKind.EGRESS: "leave", NodeKind.FEEDBACK: "feedback"}

Consumers = Mapping[tuple[int, int], list[tuple[Node, int]]]
"""(node id, output port) -> the nodes and input ports that it feeds."""


@dataclass(frozen=True, slots=True)
class Path:
    """What lies between a head's output and a consumer: the nodes that change the time."""

    head: int
    port: int
    hops: tuple[int, ...] = ()

    def then(self, node: int) -> Path:
        """The path one such node further."""
        return Path(self.head, self.port, (*self.hops, node))


@dataclass(frozen=True, slots=True)
class Fusion:
    """What was found.

    Args:
        steps: by head, in the order of the program: what is fused behind it, children first.
        outputs: by head: the numbers of the steps that each output port goes to.
        links: the edges between stages, by number: path, receiver, and the receiver's input.
        probes: the paths that end in a probe, and its node.
        forced: unions that are heads of their own.
    """

    steps: dict[int, tuple[Step, ...]]
    outputs: dict[int, tuple[tuple[int, ...], ...]]
    links: list[tuple[Path, Node, int]]
    probes: list[tuple[Path, int]]
    forced: frozenset[int]


def fuse(graph: LogicalGraph, consumers: Consumers) -> Fusion:
    """The heads of a graph's stages, and the trees of steps behind them. Equal graphs give equal answers."""
    forced: set[int] = set()
    trees: dict[int, _Tree] = {}
    walked_by: dict[int, set[int]] = {}
    waiting = [node.id for node in graph.nodes if node.kind in HEADS]  # sorted, so a heap
    while waiting:
        head = heapq.heappop(waiting)
        needed = _needed_behind(graph, consumers, forced, graph.nodes[head])
        if not needed:
            tree = trees[head] = _Tree(graph, consumers, forced, graph.nodes[head])
            tree.grow()
            for node in tree.walked:
                walked_by.setdefault(node, set()).add(head)
            continue
        forced |= needed
        others = {other for union in needed for other in walked_by.pop(union, ()) if other in trees}
        for again in {head} | needed | others:
            trees.pop(again, None)
            heapq.heappush(waiting, again)
    return _numbered(trees, frozenset(forced))


def _needed_behind(graph: LogicalGraph, consumers: Consumers, forced: set[int], head: Node) -> set[int]:
    """The unions that must become heads before what is behind ``head`` can be fused. Visits each node once."""

    def behind(node: int, ports: int) -> Iterator[Node]:
        for port in range(ports):
            for consumer, _ in consumers.get((node, port), ()):
                if consumer.kind not in HEADS and consumer.id not in forced and consumer.id not in needed:
                    yield consumer

    needed: set[int] = set()
    finished: dict[int, None] = {}
    trail: dict[int, Iterator[Node]] = {head.id: behind(head.id, head.outputs)}
    while trail:
        here = next(reversed(trail))
        node = next(trail[here], None)
        if node is None:
            del trail[here]
            finished[here] = None
        elif node.id in trail:
            closing = takewhile(partial(ne, node.id), reversed(trail))  # back to where the cycle begins
            cycle = [node.id, *reversed(list(closing))]
            union = next((i for i in cycle if graph.nodes[i].kind is NodeKind.UNION), cycle[0])
            needed.add(union)
            while trail.popitem()[0] != union:  # the walk goes on before the new head; others may be needed, too
                pass
        elif node.id not in finished:
            trail[node.id] = behind(node.id, 1)
    if needed:
        return needed
    copies = {head.id: 1}
    for here in reversed(finished):  # each before those behind it
        if copies.get(here, 0) > COPIES_MAX and graph.nodes[here].kind is NodeKind.UNION:
            needed.add(here)
            continue
        for node in behind(here, head.outputs if here == head.id else 1):
            copies[node.id] = copies.get(node.id, 0) + copies.get(here, 0)
    return needed


def _numbered(trees: Mapping[int, _Tree], forced: frozenset[int]) -> Fusion:
    """Give the edges of all trees their numbers; paths that differ in nothing but stateless steps share one."""
    found = Fusion({}, {}, [], [], forced)
    numbers: dict[tuple[Path, int, int], int] = {}
    for head in sorted(trees):
        tree = trees[head]
        edges = []
        for path, target, index in tree.links:
            number = numbers.setdefault((path, target.id, 0 if target.id in forced else index), len(found.links))
            if number == len(found.links):
                found.links.append((path, target, index))
            edges.append(number)
        found.steps[head] = tuple(replace(step, edge=edges[step.edge]) if isinstance(step, EdgeStep) else step for step in tree.steps)
        found.outputs[head] = tuple(tree.outputs)
        found.probes.extend(tree.probes)
    return found


@dataclass(slots=True)
class _Visit:
    """A node that is being walked through: which consumers are left, and the numbers of the steps made of those before."""

    node: Node
    path: Path
    consumers: Iterator[tuple[Node, int]]
    made: list[int] = field(default_factory=list)


class _Tree:
    """The steps behind one head. Its edges are numbered by their place in ``links``."""

    def __init__(self, graph: LogicalGraph, consumers: Consumers, forced: set[int], head: Node) -> None:
        self.steps: list[Step] = []
        self.outputs: list[tuple[int, ...]] = []
        self.links: list[tuple[Path, Node, int]] = []
        self.probes: list[tuple[Path, int]] = []
        self.walked: set[int] = set()
        self._graph = graph
        self._consumers = consumers
        self._forced = forced
        self._head = head

    def grow(self) -> None:
        """Walk through what is behind the head."""
        for port in range(self._head.outputs):
            root = _Visit(self._head, Path(self._head.id, port), self._behind(self._head.id, port))
            stack = [root]
            while stack:
                here = stack[-1]
                following = next(here.consumers, None)
                if following is None:
                    stack.pop()
                    if stack:
                        self._finish(here, stack[-1])
                    continue
                node, index = following
                deeper = self._visit(here, node, index)
                if deeper is not None:
                    stack.append(deeper)
            self.outputs.append(tuple(root.made))

    def _behind(self, node: int, port: int) -> Iterator[tuple[Node, int]]:
        return iter(self._consumers.get((node, port), ()))

    def _visit(self, here: _Visit, node: Node, index: int) -> _Visit | None:
        """Step onto a consumer of ``here``: a visit where what is behind it runs in the same stage."""
        if node.kind in HEADS or node.id in self._forced:
            self.links.append((here.path, node, index))
            self._hand_up(here, node, [self._append(EdgeStep(len(self.links) - 1))])
            return None
        if node.kind is NodeKind.PROBE:
            self.probes.append((here.path, node.id))
            return None
        if node.kind is NodeKind.SINK:
            self._hand_up(here, node, [self._append(SinkStep(node.id))])
            return None
        self.walked.add(node.id)
        return _Visit(node, here.path.then(node.id) if node.kind in _SHIFTS else here.path, self._behind(node.id, 0))

    def _finish(self, visit: _Visit, before: _Visit) -> None:
        node, made = visit.node, visit.made
        if node.kind is NodeKind.STATELESS:
            made = [self._append(ApplyStep(node.options.get("called", node.name), node.where, node.op, tuple(made)))]
        elif node.kind is not NodeKind.UNION:
            bound = node.op if node.kind is NodeKind.FEEDBACK else None
            made = [self._append(ShiftStep(_SHIFTS[node.kind], bound, tuple(made)))]
        self._hand_up(before, node, made)

    def _hand_up(self, to: _Visit, consumer: Node, made: list[int]) -> None:
        """What was made of a consumer belongs behind ``to``."""
        if made and carries_numbers(to.node) and not takes_numbers(consumer):
            made = [self._append(ApplyStep("drop numbers", consumer.where, WithoutNumbers(), tuple(made)))]
        to.made.extend(made)

    def _append(self, step: Step) -> int:
        self.steps.append(step)
        return len(self.steps) - 1
