"""The graph that policies see: vertices by name, edges by id, which vertices may be scaled and how far, loops.

A vertex here is what the plan calls a stage: the unit that is placed and scaled. The graph holds only what the arithmetic needs: a policy
can be tried on a graph of four lines. :func:`graph_of_plan` makes one from a compiled plan. It takes the plan by its shape and not by its
class, because this folder imports `progress` alone.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

from rayad.progress import DataflowError

REPLICAS_MOST = 256


class Spread(enum.Enum):
    """How batches on an edge reach the replicas of its receiver."""

    DIVIDED = "divided"
    """Each record goes to one replica (forward, key-groups, rebalance)."""
    COPIED = "copied"
    """Each record goes to all replicas (broadcast): more replicas do not share this work."""
    SINGLE = "single"
    """All records go to one replica."""


@dataclass(frozen=True, slots=True)
class VertexView:
    """One vertex as a policy sees it.

    Args:
        name: the vertex's name.
        least, most: bounds of its replicas, both included.
        is_source: records come into the dataflow here.
        key_groups: number of key-groups over which its keyed input is divided; None if no input is keyed.
        fixed: why it cannot be scaled, in words; None if it can.
        shares: whether its replicas live in workers, where each shares a processor with a replica of every other such vertex.
    """

    name: str
    least: int = 1
    most: int = REPLICAS_MOST
    is_source: bool = False
    key_groups: int | None = None
    fixed: str | None = None
    shares: bool = False

    def __post_init__(self) -> None:
        if not 1 <= self.least <= self.most:
            raise DataflowError(f"bounds of {self.name!r} are {self.least} to {self.most}: 1 <= least <= most must hold")

    def clamp(self, replicas: int) -> int:
        """The nearest count within the bounds.

        >>> VertexView("count", 2, 8).clamp(9)
        8
        """
        return max(self.least, min(self.most, replicas))


@dataclass(frozen=True, slots=True)
class EdgeView:
    """One edge; ``id`` is the plan's edge id, under which replicas count what they send and receive."""

    id: int
    source: str
    target: str
    spread: Spread = Spread.DIVIDED
    is_feedback: bool = False


@dataclass(frozen=True)
class ScalingGraph:
    """Vertices and edges; raises DataflowError if a name is used twice, or an edge begins or ends at an unknown vertex.

    >>> graph = ScalingGraph.of(["in", "step", "out"], [("in", "step"), ("step", "step"), ("step", "out")], sources=["in"])
    >>> graph.components, graph.loops, graph.scalable
    ((('in',), ('step',), ('out',)), (('step',),), ('step', 'out'))
    """

    vertices: tuple[VertexView, ...]
    edges: tuple[EdgeView, ...]

    def __post_init__(self) -> None:
        names = [vertex.name for vertex in self.vertices]
        ids = [str(edge.id) for edge in self.edges]
        for what, values in (("vertex name", names), ("edge id", ids)):
            twice = [value for value, times in Counter(values).items() if times > 1]
            if twice:
                raise DataflowError(f"the {what} {twice[0]!r} is used twice: decisions could not tell them apart")
        known = set(names)
        for edge in self.edges:
            for end in (edge.source, edge.target):
                if end not in known:
                    raise DataflowError(f"edge {edge.id} from {edge.source!r} to {edge.target!r}: there is no vertex {end!r}, only {names}")

    @classmethod
    def of(cls, vertices: Iterable[str | VertexView], edges: Iterable[tuple[str, str]], sources: Collection[str] = ()) -> ScalingGraph:
        """From names and pairs of names; sources are fixed; an edge that closes a cycle is not marked as feedback."""
        views = [v if isinstance(v, VertexView) else _view_of_name(v, v in sources) for v in vertices]
        return cls(tuple(views), tuple(EdgeView(i, source, target) for i, (source, target) in enumerate(edges)))

    @cached_property
    def by_name(self) -> Mapping[str, VertexView]:
        """Vertices by name."""
        return {vertex.name: vertex for vertex in self.vertices}

    @cached_property
    def scalable(self) -> tuple[str, ...]:
        """Names of the vertices that a decision may change."""
        return tuple(vertex.name for vertex in self.vertices if vertex.fixed is None)

    @cached_property
    def sharing(self) -> tuple[str, ...]:
        """Names of the vertices whose replicas share workers."""
        return tuple(vertex.name for vertex in self.vertices if vertex.shares)

    @cached_property
    def outgoing(self) -> Mapping[str, tuple[EdgeView, ...]]:
        """Edges by the vertex that they leave."""
        return self._edges_by(lambda edge: edge.source)

    @cached_property
    def incoming(self) -> Mapping[str, tuple[EdgeView, ...]]:
        """Edges by the vertex that they enter."""
        return self._edges_by(lambda edge: edge.target)

    def _edges_by(self, end: Callable[[EdgeView], str]) -> Mapping[str, tuple[EdgeView, ...]]:
        found: dict[str, list[EdgeView]] = {vertex.name: [] for vertex in self.vertices}
        for edge in self.edges:
            found[end(edge)].append(edge)
        return {name: tuple(edges) for name, edges in found.items()}

    @cached_property
    def components(self) -> tuple[tuple[str, ...], ...]:
        """Strongly connected components in topological order (Kosaraju); without loops each is one vertex."""
        ends: list[str] = []
        seen: set[str] = set()
        on = {n: [e.target for e in edges] for n, edges in self.outgoing.items()}
        back = {n: [e.source for e in edges] for n, edges in self.incoming.items()}
        for vertex in self.vertices:
            _finish(vertex.name, on, seen, ends)
        seen = set()
        found: list[tuple[str, ...]] = []
        place = {vertex.name: i for i, vertex in enumerate(self.vertices)}
        for name in reversed(ends):
            members: list[str] = []
            _finish(name, back, seen, members)
            if members:
                found.append(tuple(sorted(members, key=place.__getitem__)))
        return tuple(found)

    @cached_property
    def loops(self) -> tuple[tuple[str, ...], ...]:
        """The components that hold a cycle."""
        on_itself = {edge.source for edge in self.edges if edge.source == edge.target}
        return tuple(members for members in self.components if len(members) > 1 or members[0] in on_itself)

    def behind(self, names: Iterable[str]) -> frozenset[str]:
        """These vertices, and all that are reached from them.

        >>> sorted(ScalingGraph.of("abc", [("a", "b"), ("b", "c")]).behind(["b"]))
        ['b', 'c']
        """
        pending, reached = list(names), set(names)
        while pending:
            for edge in self.outgoing[pending.pop()]:
                if edge.target not in reached:
                    reached.add(edge.target)
                    pending.append(edge.target)
        return frozenset(reached)


def _view_of_name(name: str, is_source: bool) -> VertexView:
    return VertexView(name, is_source=is_source, fixed="it is a source" if is_source else None)


def _finish(start: str, following: Mapping[str, Sequence[str]], seen: set[str], ends: list[str]) -> None:
    """Depth-first from ``start``; appends each vertex after all its successors."""
    if start in seen:
        return
    seen.add(start)
    stack = [(start, iter(following[start]))]
    while stack:
        name, rest = stack[-1]
        for after in rest:
            if after not in seen:
                seen.add(after)
                stack.append((after, iter(following[after])))
                break
        else:
            ends.append(name)
            stack.pop()


class StageShape(Protocol):
    """What is read of a plan's stage."""

    @property
    def id(self) -> int: ...
    @property
    def name(self) -> str: ...
    @property
    def kind(self) -> Any: ...
    @property
    def parts(self) -> tuple[Any, ...]: ...


class EdgeShape(Protocol):
    """What is read of a plan's edge."""

    @property
    def id(self) -> int: ...
    @property
    def source(self) -> int: ...
    @property
    def target(self) -> int: ...
    @property
    def partition(self) -> Any: ...
    @property
    def is_feedback(self) -> bool: ...


class PlanShape(Protocol):
    """What is read of a plan: ``rayad.dataflow.plan.Plan`` has it."""

    @property
    def stages(self) -> Sequence[StageShape]: ...
    @property
    def edges(self) -> Sequence[EdgeShape]: ...
    @property
    def key_groups(self) -> int: ...


def graph_of_plan(
    plan: PlanShape,
    *,
    bounds: Mapping[str, tuple[int, int]] | None = None,
    fixed: Mapping[str, str] | None = None,
    movable: Collection[str] = (),
    shared: Collection[str] = (),
) -> ScalingGraph:
    """The graph of a compiled plan.

    Fixed are: live inputs (one replica), sources (their parts are shared out when the job starts), vertices whose every input is single,
    and vertices without a keyed input (nothing says how their state would be divided). All other vertices have at most as many replicas as
    there are key-groups, if an input is keyed.

    Args:
        plan: as `rayad.dataflow.compiling.compiler.compile_plan` gives it.
        bounds: least and most replicas by vertex; equal ones fix it.
        fixed: further vertices that cannot be scaled, each with the reason.
        movable: vertices that can be scaled although the rules above say no: a source whose parts can move (then at most as many replicas
            as parts), a vertex without state.
        shared: vertices whose replicas live in workers.
    """
    names = {stage.id: stage.name for stage in plan.stages}
    unknown = {*(bounds or {}), *(fixed or {}), *movable} - set(names.values())
    if unknown:
        raise DataflowError(f"there is no vertex {min(unknown)!r} in the plan, only {sorted(names.values())}")
    edges = tuple(
        EdgeView(edge.id, names[edge.source], names[edge.target], _SPREAD.get(edge.partition.value, Spread.DIVIDED), edge.is_feedback)
        for edge in plan.edges
    )
    views = []
    for stage in plan.stages:
        kinds = {edge.partition.value for edge in plan.edges if edge.target == stage.id}
        keyed = "keys" in kinds
        least, most = (bounds or {}).get(stage.name, (1, REPLICAS_MOST))
        reason = (fixed or {}).get(stage.name) or (f"its bounds are {least} to {most}" if least == most else None)
        if reason is None and stage.name not in movable:
            reason = _reason_to_stay(stage.kind.value, keyed, kinds)
        if stage.kind.value == "source":
            most = min(most, max(1, len(stage.parts)))
        if keyed:
            most = min(most, plan.key_groups)
        views.append(
            VertexView(
                stage.name,
                min(least, most),
                most,
                stage.kind.value in _SOURCES,
                plan.key_groups if keyed else None,
                reason,
                shares=stage.name in shared,
            )
        )
    return ScalingGraph(tuple(views), edges)


_SPREAD = {"broadcast": Spread.COPIED, "single": Spread.SINGLE}
_SOURCES = ("source", "input")


def _reason_to_stay(kind: str, keyed: bool, partitions: Collection[str]) -> str | None:
    if kind == "input":
        return "a live input has one replica"
    if kind == "source":
        return "its parts are shared out over its replicas when the job starts"
    if partitions == {"single"}:
        return "all its input goes to one replica"
    if kind == "vertex" and not keyed:
        return "no input is keyed: nothing says how its state would be divided"
    return None
