"""What the author of a Pregel program writes, and what it is given. See :func:`rayad.graphs.pregel`.

Source: Malewicz et al., "Pregel: a system for large-scale graph processing" (SIGMOD 2010), section 3.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any, ClassVar


class ProgramVertex:
    """The node that a program is computing: look, do not change.

    Attributes:
        id: the node.
        superstep: 0, 1, ... within the epoch.
        epoch: the epoch.
        edges: outgoing edges, ``{target: value}``; the value is None for edges ``(u, v)`` without one.
    """

    __slots__ = ("edges", "epoch", "id", "superstep")

    def __init__(self, node: Any, superstep: int, epoch: int, edges: dict[Any, Any]) -> None:
        self.id = node
        self.superstep = superstep
        self.epoch = epoch
        self.edges = edges

    def to_neighbours(self, message: Any) -> list[tuple[Any, Any]]:
        """The messages that send ``message`` along every outgoing edge.

        >>> ProgramVertex("a", 0, 0, {"b": None, "c": None}).to_neighbours(7)
        [('b', 7), ('c', 7)]
        """
        return [(target, message) for target in self.edges]


class VertexProgram(ABC):
    """Think like a vertex. One instance serves all nodes of a replica and is given to every replica: keep state in the
    nodes, not in ``self``.

    >>> class Nearest(VertexProgram):                      # shortest paths from "a"; edges are (u, v, length)
    ...     def init(self, node):
    ...         return float("inf")
    ...     def compute(self, vertex, state, messages):
    ...         best = min([0.0 if vertex.id == "a" else state, *messages])
    ...         if best == state and messages:
    ...             return state, ()                       # silent: nothing new
    ...         return best, [(target, best + length) for target, length in vertex.edges.items() if best < float("inf")]
    ...     def combine(self, left, right):
    ...         return min(left, right)
    >>> Nearest().compute(ProgramVertex("a", 0, 0, {"b": 2.5}), float("inf"), [])
    (0.0, [('b', 2.5)])
    """

    state_version: ClassVar[int] = 1
    """The version of the nodes' states, kept with snapshots beside the class's name: raise it when earlier states mean something else."""

    @abstractmethod
    def init(self, node: Any) -> Any:
        """The state of a node that is new to the graph (with ``restart``: of every node in every epoch)."""

    @abstractmethod
    def compute(self, vertex: ProgramVertex, state: Any, messages: list[Any]) -> tuple[Any, Iterable[tuple[Any, Any]] | None]:
        """One superstep of one node: ``(new state, [(target, message), ...])``; None or nothing for no messages.

        ``messages`` are those sent to this node in the superstep before, in the order of their senders' nodes; a single
        one if there is a combiner. Return a new state instead of changing the old one in place: that is how a change is
        noticed.
        """

    combine: Any = None
    """Override with ``def combine(self, left, right)``, associative and commutative, to merge messages to one node before they travel."""

    def result(self, state: Any) -> Any:
        """What is emitted for a node in this state; by default the state."""
        return state
