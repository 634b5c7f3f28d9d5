"""Arrangements: one side of several joins, kept once.

The joins that share one are outputs of one vertex, which keeps the shared side once and each other side for itself. It can be so for joins
that do not feed each other: where one does, a second vertex keeps the side again, since a vertex may not wait for its own results outside
of a loop. Source: McSherry et al., *Shared Arrangements* (VLDB 2020), for what is gained; there several operators read one index, which
replicas of a vertex that are moved one by one (docs/design/rescaling.md) cannot.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from rayad.dataflow.logical_graph import Node, NodeKind
from rayad.dataflow.operators.keys.keyed import PAIRS
from rayad.dataflow.streams.keyed_stream import KeyedStream, input_edge
from rayad.dataflow.streams.loops import Loop
from rayad.dataflow.streams.making import Make
from rayad.dataflow.streams.stream import Stream
from rayad.incremental.columns.joining import SharedJoinColumns
from rayad.incremental.fixed_points import brought_into
from rayad.incremental.joins.kinds import Side
from rayad.incremental.moment_vertex import Arrived, MomentVertex
from rayad.incremental.moments import join
from rayad.incremental.reads import Shown
from rayad.incremental.steps import has_key
from rayad.incremental.traces import Kept, Trace, add
from rayad.progress import Timestamp

if TYPE_CHECKING:
    from rayad.incremental.collection import KeyedCollection


class SharedJoin(MomentVertex):
    """Joins of one side, the first input, with each of the others; output ``i`` gives ``(key, (left, right))`` of other side ``i``.

    Args:
        sides: of each other side.
    """

    adds_up = False
    why_unreadable = ""

    def __init__(self, *sides: Side) -> None:
        self.inputs = 1 + len(sides)
        super().__init__(SharedJoinColumns(sides, lambda port, batch, at: self.send_by(port, batch, at)))
        self.shared = Trace(self.epochs.is_over)
        self.others = tuple(Trace(self.epochs.is_over) for _ in sides)
        self._sides = sides

    def kept(self) -> dict[str, Kept]:
        """See there."""
        return {"shared": self.shared, **{f"other {i}": other for i, other in enumerate(self.others)}}

    def keeps(self) -> str:
        """See there."""
        joins = len(self.others)
        if not joins:
            return "the records of the arranged side"
        return f"the records of the arranged side once, for {joins} join{'s' if joins > 1 else ''}, and those of each other side"

    def shown(self) -> Shown | None:
        """See there."""
        return Shown()

    @property
    def gives_kept(self) -> bool:
        """See there."""
        return True

    def results_of(self, key: Any, there: Sequence[Any]) -> Iterable[tuple[Any, int]]:
        """The records of the arranged side: the same for all joins."""
        return (there[0] or {}).items()

    def on_moment(self, time: Timestamp, arrived: list[Arrived], scheduled: Collection[Any]) -> None:
        """Each change of a side meets what the other one has; those of the same moment meet once."""
        moment, (changes, *of_others) = time.counters, arrived
        out: dict[tuple[Timestamp, int], dict[Any, int]] = {}

        def meet(port: int, some: Arrived, kept: Trace, *, is_left: bool) -> None:
            for (key, value), weight in some.items():
                for met, at, count in kept.changes(key) if has_key((key, value, weight)) else ():
                    both = (key, (value, met) if is_left else (met, value))
                    add(out.setdefault((Timestamp.of(time.epoch, join(moment, at)), port), {}), both, weight * count)

        for port, (other, side) in enumerate(zip(self.others, self._sides, strict=True)):
            meet(port, changes, other, is_left=not side.is_left)
        for (key, value), weight in changes.items():
            self.shared.add(key, value, time, weight)
        for port, (other, side, some) in enumerate(zip(self.others, self._sides, of_others, strict=True)):
            meet(port, some, self.shared, is_left=side.is_left)
            for (key, value), weight in some.items():
                other.add(key, value, time, weight)
                if side.is_alone:
                    add(out.setdefault((time, port), {}), (key, (value, None)), weight)
        for at, port in sorted(out, key=lambda to: (to[0].sort_key(), to[1])):
            if out[at, port]:
                self.send_by(port, list(out[at, port].items()), at)


class Arrangement:
    """A keyed collection as a side of joins, in whatever loops these are.

    Args:
        keyed: the collection.
        name: of the vertices.
    """

    def __init__(self, keyed: KeyedCollection, name: str | None) -> None:
        self._keyed = keyed
        self._name = name
        self._within: dict[tuple[Loop, ...], tuple[Node, KeyedCollection]] = {}
        self._vertices: dict[tuple[Loop, ...], list[Node]] = {}
        self._derived: dict[Hashable, tuple[Node, KeyedCollection]] = {}
        if name is not None and not keyed.loops:
            self._made(_make(), [], name)  # others can read it, though nothing is joined with it

    def within(self, loops: tuple[Loop, ...]) -> KeyedCollection:
        """The collection inside these loops, into which it comes once."""
        if loops == self._keyed.loops:
            return self._keyed
        return self._once(self._within, loops, lambda: type(self._keyed)(brought_into(self._keyed, loops), loops, self))

    def derived(self, what: Hashable, make: Callable[[KeyedCollection], KeyedCollection]) -> KeyedCollection:
        """Another arrangement that follows from this one, made once."""
        return self._once(self._derived, what, lambda: make(self._keyed))

    def joined(self, other: KeyedCollection, side: Side) -> Stream:
        """The matches with another collection, which is in the same loops or inside of them."""
        graph, loops = other.stream.flow.graph, other.loops
        vertices = self._vertices.setdefault(loops, [])
        vertices[:] = [node for node in vertices if _is_there(other, node)]
        theirs = other if side.is_alone else other.not_null()
        edge = input_edge(other.stream.flow, KeyedStream(theirs.stream, PAIRS))
        for node in vertices:
            if not _depends(other, edge.source, node):
                make = _make(*node.op.args, side)
                make.shows = self._keyed.shows
                port = graph.grow(node, edge, make)
                return Stream(other.stream.flow, node.id, port)
        name = self._name if self._name is not None and graph.is_free(self._name) else None
        node = self._made(_make(side), [KeyedStream(theirs.stream, PAIRS)], name, loops)
        return Stream(other.stream.flow, node.id, 0)

    def _made(self, make: Make, others: list[KeyedStream], name: str | None, loops: tuple[Loop, ...] = ()) -> Node:
        """A vertex that keeps the collection inside these loops, for one join or for none."""
        keyed = self.within(loops)
        graph = keyed.stream.flow.graph
        inputs = [KeyedStream(keyed.not_null().stream, PAIRS), *others]
        make.shows = self._keyed.shows
        keyed.stream.flow.vertex(make, inputs=inputs, outputs=len(others), name=name)
        node = graph.nodes[-1]
        self._vertices.setdefault(loops, []).append(node)
        return node

    def _once(self, kept: dict[Any, tuple[Node, KeyedCollection]], of: Any, make: Callable[[], KeyedCollection]) -> KeyedCollection:
        """What was made before, unless the body of a loop that failed has taken it back."""
        if of not in kept or not _is_there(self._keyed, kept[of][0]):
            made = make()
            kept[of] = made.stream.flow.graph.nodes[made.stream.node], made
        return kept[of][1]


def _make(*sides: Side) -> Make:
    make = Make(SharedJoin, *sides)
    make.__name__ = "shared-join"
    return make


def _is_there(keyed: KeyedCollection, node: Node) -> bool:
    nodes = keyed.stream.flow.graph.nodes
    return node.id < len(nodes) and nodes[node.id] is node


def _depends(keyed: KeyedCollection, start: int, on: Node) -> bool:
    """Whether a node waits for another one in the same round of all loops around that one."""
    graph = keyed.stream.flow.graph
    around, scope = {on.scope}, graph.scopes[on.scope]
    while scope.parent is not None:
        around.add(scope.parent)
        scope = graph.scopes[scope.parent]
    seen, waiting = {start}, [start]
    while waiting:
        node = graph.nodes[waiting.pop()]
        if node is on:
            return True
        if node.kind is NodeKind.FEEDBACK and node.scope in around:
            continue
        before = {edge.source for edge in node.inputs} - seen
        seen |= before
        waiting.extend(before)
    return False


__all__ = ["Arrangement", "SharedJoin"]
