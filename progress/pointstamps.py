"""Naiad's single-threaded progress tracking (section 2.3): active pointstamps with occurrence and precursor counts.

A pointstamp is active while its occurrence count is positive. Its precursor count is the number of other active pointstamps that
could-result-in it; those with none are the frontier. Simple and quadratic: the independent oracle for the incremental trackers, on the
flat graph.
"""

from __future__ import annotations

from rayad.progress.errors import InternalError
from rayad.progress.progress_graph import ProgressGraph
from rayad.progress.reachability import FlatReachability
from rayad.progress.timestamp import Timestamp

Pointstamp = tuple[int, Timestamp]
"""(location, time)."""


class PointstampCounter:
    """Occurrence and precursor counts of all pointstamps of a job.

    >>> from rayad.progress import EdgeSpec, NodePort, NodeSpec, ScopeSpec
    >>> nodes = (NodeSpec(0, 0, "lines", 0, 1), NodeSpec(1, 0, "count", 1, 0))
    >>> graph = ProgressGraph((ScopeSpec(0, None, "root", 0, 0),), nodes, (EdgeSpec(0, NodePort(0, 0), NodePort(1, 0)),))
    >>> counter = PointstampCounter(graph)
    >>> counter.update(graph.notify_location(0), Timestamp(0), 1)
    >>> counter.update(graph.notify_location(1), Timestamp(0), 1)
    >>> counter.frontier() == [(graph.notify_location(0), Timestamp(0))]
    True
    """

    def __init__(self, graph: ProgressGraph) -> None:
        self.graph = graph
        self._reachability = FlatReachability(graph)
        self._occurrences: dict[Pointstamp, int] = {}
        self._precursors: dict[Pointstamp, int] = {}  # of the active ones

    def update(self, location: int, time: Timestamp, delta: int) -> None:
        """Change the occurrence count of a pointstamp; it may be negative for a while, and is then not active."""
        point = (location, time)
        old = self._occurrences.get(point, 0)
        new = old + delta
        self._occurrences[point] = new
        if not new:
            del self._occurrences[point]
        if old <= 0 < new:
            self._precursors[point] = sum(self._precedes(other, point) for other in self._precursors)
            self._add_to_successors(point, 1)
        elif new <= 0 < old:
            del self._precursors[point]
            self._add_to_successors(point, -1)

    def _add_to_successors(self, point: Pointstamp, delta: int) -> None:
        for other in self._precursors:
            if other != point and self._precedes(point, other):
                self._precursors[other] += delta

    def _precedes(self, first: Pointstamp, second: Pointstamp) -> bool:
        return self._reachability.could_result_in(first[1], first[0], second[1], second[0])

    def frontier(self) -> list[Pointstamp]:
        """The active pointstamps that nothing else could result in."""
        return [point for point, precursors in self._precursors.items() if precursors == 0]

    def active(self) -> list[tuple[int, Timestamp, int]]:
        """The active pointstamps with their occurrence counts."""
        return [(location, time, self._occurrences[location, time]) for location, time in self._precursors]

    def precursors_of(self, location: int, time: Timestamp) -> list[Pointstamp]:
        """The active pointstamps, other than this one, that could result in it (active or not)."""
        point = (location, time)
        return [other for other in self._precursors if other != point and self._precedes(other, point)]

    def check_invariants(self) -> None:
        """Raise InternalError unless exactly the positive ones are active, with the right precursor counts."""
        positive = {point for point, count in self._occurrences.items() if count > 0}
        if positive != set(self._precursors):
            raise InternalError(f"active pointstamps are {set(self._precursors)}, but {positive} have positive counts")
        for point, precursors in self._precursors.items():
            due = len(self.precursors_of(*point))
            if due != precursors:
                raise InternalError(f"pointstamp {point} has precursor count {precursors}, but {due} active ones could result in it")
