"""The progress of a whole job: reports in, views out.

Reports are atomic, FIFO per replica and applied exactly once; that is the caller's duty, and all that safety needs (see the design page).
`apply` only notes a report. The first reader after it brings everything up to date in two passes over the scopes that were touched: *up*,
children first, counts change and the net change of each scope's internal work goes to its parent; *down*, parents first, frontiers are
propagated, and where the frontier at a child's input moved, it is pushed into the child. So many reports cost one propagation, and no
reader ever sees half a report.

Completion: a job is complete when no count is left. If counts are left but none is positive, a report was lost, split or applied twice,
since the cause of every pending event is still counted while the event itself may be missing.
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heapify, heappop, heappush
from typing import NamedTuple

from rayad.progress.antichain import MutableAntichain
from rayad.progress.errors import DataflowError, InternalError, ProtocolError
from rayad.progress.graph_validation import validate_graph
from rayad.progress.progress_graph import LocationKind, NodeKind, NodeSpec, Place, ProgressGraph, ScopeSpec
from rayad.progress.reachability import FlatReachability
from rayad.progress.scope import ScopeTracker
from rayad.progress.timestamp import Timestamp

Report = Iterable[tuple[int, Timestamp, int]]
"""(count location, time, change), applied as one indivisible change. A change of 0 at a source: its input has ended at that time."""


class View(NamedTuple):
    """What a node knows of progress: its input frontier, and the minimal pending notifications over all its replicas.

    Both are sorted by `Timestamp.sort_key`. ``end``, when nothing can arrive any more: the latest time that an input upstream of the node
    reached. The frontiers that a node sees depend on timing, this does not. None where no input has reported it, and inside loops.
    """

    input_frontier: tuple[Timestamp, ...]
    notify_frontier: tuple[Timestamp, ...]
    end: Timestamp | None = None


class _Watch(NamedTuple):
    """The parts of a node's view."""

    inputs: MutableAntichain[Timestamp]  # implications at all its inputs
    pending: MutableAntichain[Timestamp]  # counts at N
    held: MutableAntichain[Timestamp]  # counts at C


class JobTracker:
    """The global frontiers of a job, kept from the reports of all replicas.

    >>> from rayad.progress import EdgeSpec, NodePort, NodeSpec, ScopeSpec
    >>> source = NodeSpec(0, 0, "lines", 0, 1, initial=((Timestamp(0), 1),))
    >>> edge = EdgeSpec(0, NodePort(0, 0), NodePort(1, 0))
    >>> graph = ProgressGraph((ScopeSpec(0, None, "root", 0, 0),), (source, NodeSpec(1, 0, "count", 1, 0)), (edge,))
    >>> tracker = JobTracker(graph)
    >>> tracker.subscribe(1)
    >>> tracker.views()[1]
    View(input_frontier=(Timestamp(0),), notify_frontier=(), end=None)
    >>> tracker.apply([(graph.notify_location(0), Timestamp(0), -1), (graph.notify_location(0), Timestamp(1), +1)])
    >>> tracker.views()[1].input_frontier
    (Timestamp(1),)
    >>> tracker.apply([(graph.notify_location(0), Timestamp(1), -1), (graph.notify_location(0), Timestamp(1), 0)])
    >>> tracker.views()[1], tracker.is_complete()
    (View(input_frontier=(), notify_frontier=(), end=Timestamp(1)), True)
    """

    def __init__(self, graph: ProgressGraph) -> None:
        validate_graph(graph)
        self.graph = graph
        self._scopes: dict[int, ScopeTracker] = {}
        root = self._build_scope(graph.scope_by_id[0])
        root.set_external_summary([], [])
        self._down_order = sorted(self._scopes, key=lambda scope: graph.depth_by_scope[scope])
        self._place = {scope: place for place, scope in enumerate(self._down_order)}
        self._nonzero = self._positive = 0  # slots with a count, with a positive count, in all scopes
        self._depths = {location.id: graph.location_depth(location.id) for location in graph.locations}
        self._routes = {
            location.id: (location.scope, self._scopes[location.scope].slot_of_location[location.id]) for location in graph.locations
        }
        self._watches = {node: self._watch(spec) for node, spec in graph.node_by_id.items()}
        self._noted: list[tuple[int, Timestamp, int]] = []
        self._subscribed: set[int] = set()
        self._changed: set[int] = set()  # nodes to look at in the next `views`
        self._unpublished: set[int] = set(graph.node_by_id)  # nodes whose view changed while nothing waited there
        self._published: dict[int, View] = {}
        self._ends: dict[Place, Timestamp] = {}  # by place: the latest time at which a replica of a source before it has ended
        self._reachability: FlatReachability | None = None
        for scope in self._down_order:  # set_external_summary has pushed the initial frontiers all the way down
            self._nonzero += self._scopes[scope].tracker.nonzero_slots
            self._positive += self._scopes[scope].tracker.positive_slots
            self._scopes[scope].tracker.propagate()
            self._collect_changed(scope)

    def _build_scope(self, spec: ScopeSpec) -> ScopeTracker:
        children = {child.id: self._build_scope(child) for child in self.graph.children(spec.id)}
        self._scopes[spec.id] = ScopeTracker(self.graph, spec, children)
        return self._scopes[spec.id]

    def _watch(self, spec: NodeSpec) -> _Watch:
        scope = self._scopes[spec.scope]
        joined = scope.topology.joined_of[spec.id]
        inputs: MutableAntichain[Timestamp] = MutableAntichain() if joined is None else scope.tracker.implications[joined]
        if spec.kind is not NodeKind.OPERATOR:
            return _Watch(inputs, MutableAntichain(), MutableAntichain())
        slots = [scope.slot_of_location[place(spec.id)] for place in (self.graph.notify_location, self.graph.capability_location)]
        return _Watch(inputs, scope.tracker.pointstamps[slots[0]], scope.tracker.pointstamps[slots[1]])

    def apply(self, report: Report) -> None:
        """Note a report. Either all of it takes effect or, if an entry is wrong, nothing."""
        entries = list(report)
        depths = self._depths
        has_ends = False
        for location, time, change in entries:
            if depths.get(location) != len(time[1]):
                raise self._wrong_entry(location, time, entries)
            if not change:
                has_ends = True
        if has_ends:
            self._note_ends(entries)
            entries = [entry for entry in entries if entry[2]]
        self._noted += entries

    def _note_ends(self, entries: list[tuple[int, Timestamp, int]]) -> None:
        for location, time, change in entries:
            if change:
                continue
            pending: list[Place] = [("node", self.graph.locations[location].owner, 0)]
            while pending:  # each place once for each later end: sources that end together cost one walk
                place = pending.pop()
                if place not in self._ends or self._ends[place] < time:
                    self._ends[place] = time
                    pending.extend(self.graph.places_after.get(place, ()))

    def _view_of(self, node: int, inputs: MutableAntichain[Timestamp], pending: MutableAntichain[Timestamp]) -> View:
        frontier = _sorted(inputs.frontier)
        return View(frontier, _sorted(pending.frontier), None if frontier or not self._ends else self._end_before(node))

    def _end_before(self, node: int) -> Timestamp | None:
        """The latest end of the sources before a node, all of which have ended."""
        return None if self.graph.node_by_id[node].scope else self._ends.get(("node", node, 0))

    def _wrong_entry(self, location: int, time: Timestamp, entries: list[tuple[int, Timestamp, int]]) -> ProtocolError:
        depth = self._depths.get(location)
        known = "it is not in this graph" if depth is None else f"its times have depth {depth}"
        return ProtocolError(
            f"report entry at location {location} ({self.graph.describe_location(location)}), time {time}: {known}; nothing of the "
            f"report {entries} was applied; do all processes use the same graph?",
            location=location,
            time=time,
        )

    def _flush(self) -> None:
        """Bring all frontiers up to date."""
        noted = self._noted
        if not noted:
            return
        self._noted = []
        scopes, routes = self._scopes, self._routes
        touched: set[int] = set()
        for location, time, delta in noted:
            scope, slot = routes[location]
            touched.add(scope)
            if delta:
                scopes[scope].tracker.update(slot, time, delta)
        self._pass_up(touched)
        self._pass_down(touched)

    def _pass_up(self, touched: set[int]) -> None:
        """Children first; adds to `touched` the parents that had something to absorb."""
        waiting = [-self._place[scope] for scope in touched]
        heapify(waiting)
        while waiting:
            scope = self._down_order[-heappop(waiting)]
            tracker = self._scopes[scope]
            nonzero, positive = tracker.tracker.nonzero_slots, tracker.tracker.positive_slots
            progress = tracker.pull_internal_progress()
            self._nonzero += tracker.tracker.nonzero_slots - nonzero
            self._positive += tracker.tracker.positive_slots - positive
            parent = tracker.spec.parent
            if parent is not None and (progress.internal or progress.consumed or progress.produced):
                self._scopes[parent].absorb(scope, progress)
                if parent not in touched:
                    touched.add(parent)
                    heappush(waiting, -self._place[parent])

    def _pass_down(self, touched: set[int]) -> None:
        """Parents first; goes on to the children whose inputs have another frontier now."""
        waiting = [self._place[scope] for scope in touched]
        heapify(waiting)
        while waiting:
            scope = self._down_order[heappop(waiting)]
            tracker = self._scopes[scope]
            tracker.tracker.propagate()
            self._collect_changed(scope)
            if tracker.tracker.has_exports():
                for child, external in tracker.take_external_progress():
                    self._scopes[child].push_external_progress(external)
                    if child not in touched:
                        touched.add(child)
                        heappush(waiting, self._place[child])

    def _collect_changed(self, scope: int) -> None:
        self._changed |= self._scopes[scope].tracker.take_changed_owners()  # type: ignore[arg-type]  # owners are node ids here

    def views(self) -> dict[int, View]:
        """The views that changed since the last call, of the nodes that are subscribed or have something pending at N or C.

        A node that gets its first pending count, or is subscribed, is given what it missed.
        """
        self._flush()
        self._check_leftovers()
        changed = self._changed
        if not changed:
            return {}
        self._changed = set()
        fresh: dict[int, View] = {}
        for node in changed:
            inputs, pending, held = self._watches[node]
            if pending.is_empty() and held.is_empty() and node not in self._subscribed:
                self._unpublished.add(node)
                continue
            self._unpublished.discard(node)
            view = self._view_of(node, inputs, pending)
            if self._published.get(node) != view:
                self._published[node] = fresh[node] = view
        return fresh

    def subscribe(self, node: int) -> None:
        """Publish the views of `node` also when it has nothing pending; its present view comes with the next `views`."""
        self._known(node)
        self._subscribed.add(node)
        self._changed.add(node)

    def _known(self, node: int) -> NodeSpec:
        spec = self.graph.node_by_id.get(node)
        if spec is None:
            raise DataflowError(f"there is no node {node}; the nodes are {sorted(self.graph.node_by_id)}")
        return spec

    def view(self, node: int) -> View:
        """The present view of `node`."""
        self._known(node)
        self._flush()
        inputs, pending, _ = self._watches[node]
        return self._view_of(node, inputs, pending)

    def frontier_at(self, node: int, port: int) -> tuple[Timestamp, ...]:
        """The times that may still arrive at input `port` of `node`."""
        self.graph.target_location(node, port)  # refuses what does not exist
        self._flush()
        scope = self._scopes[self.graph.node_by_id[node].scope]
        return _sorted(scope.tracker.implications[scope.topology.target_of[node, port]].frontier)

    def epochs_counted(self, node: int) -> tuple[int, int] | None:
        """The least and the furthest epoch that is counted at a node itself: in which the replicas of a source are. None: in none."""
        self._flush()
        counts = self._watches[node].pending.counts()
        epochs = [time[0] for time, count in counts if count > 0]
        return (min(epochs), max(epochs)) if epochs else None

    def least_epoch(self, node: int) -> int | None:
        """The least epoch that is not complete at a node: of which something may come, or a notification waits. None: all are."""
        self._flush()
        inputs, pending, _ = self._watches[node]
        return min((time[0] for frontier in (inputs.frontier, pending.frontier) for time in frontier), default=None)

    def right_passed(self, node: int) -> int:
        """How many epochs the inputs of a node are beyond the least for which it keeps a right to send until they come to a later one."""
        self._flush()
        inputs, _, held = self._watches[node]
        if not inputs.frontier or not held.frontier:
            return 0
        return min(time[0] for time in inputs.frontier) - min(time[0] for time in held.frontier)

    def is_complete(self) -> bool:
        """Is every count of every location zero? ProtocolError if only negative ones are left."""
        self._flush()
        self._check_leftovers()
        return not self._nonzero

    def _check_leftovers(self) -> None:
        if self._positive:
            return
        if self._nonzero:
            left = [(self.graph.describe_location(location), str(time), count) for location, time, count in self.counts()]
            raise ProtocolError(
                f"no positive count is left, but these are: {left}; every pending event has a counted cause, so a report "
                "was lost, split, or applied twice; recover from the last snapshot",
                left=left,
            )

    def counts(self) -> list[tuple[int, Timestamp, int]]:
        """All non-zero counts, negative ones included, as (location, time, count)."""
        self._flush()
        found: list[tuple[int, Timestamp, int]] = []
        for location, (scope, slot) in self._routes.items():
            counts = self._scopes[scope].tracker.pointstamps[slot].counts()
            found += sorted(((location, time, count) for time, count in counts), key=lambda entry: entry[1].sort_key())
        return found

    def active(self) -> list[tuple[int, Timestamp, int]]:
        """The active pointstamps: all positive counts, as (location, time, count)."""
        return [entry for entry in self.counts() if entry[2] > 0]

    def blockers(self, node: int, time: Timestamp) -> list[tuple[int, Timestamp, int]]:
        """The active pointstamps that hold back a notification of `node` at `time`, as (location, time, count)."""
        if self._reachability is None:
            self._reachability = FlatReachability(self.graph)
        could_result_in = self._reachability.could_result_in
        inputs = [location.id for location in self.graph.locations if location.kind is LocationKind.TARGET and location.owner == node]
        held: list[tuple[int, Timestamp, int]] = []
        for location, pending, count in self.active():
            place = self.graph.locations[location]
            is_earlier = place.kind is LocationKind.NOTIFY and place.owner == node and pending < time
            if is_earlier or any(could_result_in(pending, location, time, target) for target in inputs):
                held.append((location, pending, count))
        return held

    def scope_updates(self) -> dict[int, int]:
        """How many changes each scope has processed so far."""
        self._flush()
        return {scope: tracker.tracker.changes_processed for scope, tracker in self._scopes.items()}

    def check_invariants(self) -> None:
        """Raise InternalError unless every scope is at its fixed point."""
        self._flush()
        for scope in self._scopes.values():
            scope.check_invariants()
        slots = [(scope.tracker.nonzero_slots, scope.tracker.positive_slots) for scope in self._scopes.values()]
        if (self._nonzero, self._positive) != (sum(nonzero for nonzero, _ in slots), sum(positive for _, positive in slots)):
            raise InternalError(f"{self._nonzero} slots are non-zero and {self._positive} positive on record, the scopes have {slots}")


def _sorted(frontier: tuple[Timestamp, ...]) -> tuple[Timestamp, ...]:
    return frontier if len(frontier) < 2 else tuple(sorted(frontier, key=Timestamp.sort_key))
