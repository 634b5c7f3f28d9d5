"""Incremental frontiers of one scope (timely dataflow's `progress/reachability.rs`).

Every *slot* counts pointstamps (messages, notifications, capabilities, the internal work of a child scope). Its frontier - the minimal
times with a positive count - flows along the edges: each location keeps, counted, the *implications* of all that reaches it, and passes
on only changes of its own frontier. The work is proportional to the frontiers that change, not to the size of the graph or of the counts.

Invariant (after `propagate`): the implications at a location are exactly the frontiers of its slots, plus what came in over its boundary,
plus the frontiers of its predecessors moved along the edges. Two levels are needed: a negative count must not cancel what a predecessor
implies.

Order of work: locations are grouped into strongly connected components, taken in topological order. Outside cycles a location is visited
once, with all its changes. On a cycle the changes are taken from a heap by (sort key of the time, topological rank without the advancing
edges), as every step leads to a larger pair: so a (time, location) is final when it is first visited, contributions that a time receives
round the loop are cancelled before anyone acts on them, and nothing runs round the loop for ever.

Boundary locations (the scope's inputs) take changes from outside. They take no part in the projection onto the scope's outputs:
the outside would otherwise support itself through this scope and round an outer loop, and never advance.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from heapq import heappop, heappush
from typing import Generic, Protocol, TypeVar

from rayad.progress.antichain import MutableAntichain, PartiallyOrdered
from rayad.progress.components import components_in_order, order_without
from rayad.progress.counted.change_batch import ChangeBatch
from rayad.progress.errors import InternalError

T = TypeVar("T", bound=PartiallyOrdered)
S_contra = TypeVar("S_contra", contravariant=True)
S_co = TypeVar("S_co", covariant=True)


class Summary(Protocol[S_contra, S_co]):
    """A path summary as the tracker needs it."""

    @property
    def is_identity(self) -> bool: ...

    @property
    def strictly_advances(self) -> bool: ...

    def results_in(self, time: S_contra, /) -> S_co | None: ...


Changes = list[tuple[T, int]]
Step = Callable[[T], T | None]


class ReachabilityTracker(Generic[T]):
    """Counts at slots, frontiers at locations, and the scope's internal work projected onto its outputs.

    Locations, slots and outputs are numbered from 0.

    - `edges`: (source, target, summary) between locations.
    - `slots`: the location that a slot feeds, or None if it only counts.
    - `projections`: for each slot, the (output, summary) of its minimal paths to the scope's outputs.
    - `slot_owners`, `location_owners`: who is to be named in `take_changed_owners` when the frontier there (or the emptiness of the slot)
      changes; None for nobody.
    - `counted`, `counted_outside`: make what counts times of this scope, and of its parent: a form of `MutableAntichain` for their order.
    - `exports`: locations whose changes are collected for `take_exports` (inputs of child scopes).
    """

    def __init__(
        self,
        *,
        locations: int,
        edges: Iterable[tuple[int, int, Summary[T, T]]],
        slots: Sequence[int | None],
        projections: Sequence[Sequence[tuple[int, Summary[T, T]]]] = (),
        outputs: int = 0,
        slot_owners: Sequence[Hashable | None] = (),
        location_owners: Sequence[Hashable | None] = (),
        exports: Iterable[int] = (),
        sort_key: Callable[[T], object] = lambda time: time,
        counted: Callable[[], MutableAntichain[T]] = MutableAntichain,
        counted_outside: Callable[[], MutableAntichain[T]] = MutableAntichain,
    ) -> None:
        edges = list(dict.fromkeys(edges))
        self._sort_key = sort_key
        self._slots = tuple(slots)
        self._slot_owners = tuple(slot_owners) or (None,) * len(self._slots)
        self._location_owners = tuple(location_owners) or (None,) * locations
        self._projections = tuple(tuple((output, _step(summary)) for output, summary in paths) for paths in projections)
        self._projections = self._projections or ((),) * len(self._slots)
        self._exports = frozenset(exports)
        self._order(locations, edges)
        self._counted = counted
        self.pointstamps: list[MutableAntichain[T]] = [counted() for _ in self._slots]
        self.implications: list[MutableAntichain[T]] = [counted() for _ in range(locations)]
        self.output_frontiers: list[MutableAntichain[T]] = [counted_outside() for _ in range(outputs)]
        self._boundary: dict[int, MutableAntichain[T]] = {}
        self._slot_changes: list[Changes[T] | None] = [None] * len(self._slots)
        self._changed_slots: list[int] = []
        self._location_changes: list[Changes[T] | None] = [None] * locations
        self._ready: list[int] = []  # heap of components with work
        self._entered: list[list[int]] = [[] for _ in self._solo]  # locations with work, of components that are cycles
        self._changed_owners: set[Hashable] = set()
        self._exported: dict[int, Changes[T]] = {}
        self.nonzero_slots = 0  # slots with a count other than zero
        self.positive_slots = 0  # slots with a positive count
        self.changes_processed = 0

    def _order(self, locations: int, edges: list[tuple[int, int, Summary[T, T]]]) -> None:
        """Number components and ranks, and compile the edges."""
        successors: list[list[int]] = [[] for _ in range(locations)]
        for source, target, _ in edges:
            successors[source].append(target)
        self._component = [0] * locations
        self._solo: list[int | None] = []  # the location of a component without a cycle
        for index, members in enumerate(components_in_order(successors)):
            for member in members:
                self._component[member] = index
            is_cycle = len(members) > 1 or members[0] in successors[members[0]]
            self._solo.append(None if is_cycle else members[0])
        self._rank = order_without(locations, [(s, t) for s, t, summary in edges if not summary.strictly_advances])
        self._location_of_rank = sorted(range(locations), key=self._rank.__getitem__)
        compiled: list[list[tuple[int, Step[T] | None]]] = [[] for _ in range(locations)]
        for source, target, summary in edges:
            compiled[source].append((target, _step(summary)))
        self._successors = tuple(tuple(steps) for steps in compiled)

    def update(self, slot: int, time: T, delta: int) -> None:
        """Note a change of a count; it takes effect in `commit`."""
        changes = self._slot_changes[slot]
        if changes is None:
            self._slot_changes[slot] = [(time, delta)]
            self._changed_slots.append(slot)
        else:
            changes.append((time, delta))

    def push_boundary(self, location: int, changes: Changes[T]) -> None:
        """Note changes of the frontier outside, at a boundary location; they take effect in `propagate`."""
        if changes:
            if location not in self._boundary:
                self._boundary[location] = self._counted()
            self._boundary[location].update_many(changes)
            self.changes_processed += len(changes)
            self._enqueue(location, changes)

    def commit(self) -> list[tuple[int, Changes[T]]]:
        """Apply the noted counts; return the net changes (output, changes) of the internal work as seen at the scope's outputs."""
        projected: dict[int, Changes[T]] = {}
        pointstamps = self.pointstamps
        for slot in self._changed_slots:
            changes = self._slot_changes[slot]
            self._slot_changes[slot] = None
            assert changes is not None, "a changed slot has changes"
            self.changes_processed += len(changes)
            counts = pointstamps[slot]
            was_empty = counts.is_empty()
            was_clear = not counts.frontier
            moved = counts.update_many(changes) if len(changes) > 1 else counts.update(*changes[0])
            if counts.is_empty() is not was_empty:
                self.nonzero_slots += 1 if was_empty else -1
            elif not moved:
                continue
            owner = self._slot_owners[slot]
            if owner is not None:
                self._changed_owners.add(owner)
            if moved:
                if was_clear or not counts.frontier:
                    self.positive_slots += 1 if was_clear else -1
                location = self._slots[slot]
                if location is not None:
                    self._enqueue(location, moved)
                for output, step in self._projections[slot]:
                    projected.setdefault(output, []).extend(moved if step is None else _moved(moved, step))
        self._changed_slots.clear()
        if not projected:
            return []
        net = ((output, self.output_frontiers[output].update_many(changes)) for output, changes in projected.items())
        return [(output, changes) for output, changes in net if changes]

    def propagate(self) -> None:
        """Let everything noted since the last call take effect at all locations."""
        ready = self._ready
        while ready:
            component = heappop(ready)
            location = self._solo[component]
            if location is None:
                self._settle_cycle(component)
                continue
            changes = self._location_changes[location]
            self._location_changes[location] = None
            assert changes is not None, "a ready location has changes"
            self.changes_processed += len(changes)
            implied = self.implications[location]
            moved = implied.update_many(changes)
            if not moved:
                continue
            owner = self._location_owners[location]
            if owner is not None:
                self._changed_owners.add(owner)
            if location in self._exports:
                self._exported.setdefault(location, []).extend(moved)
            for target, step in self._successors[location]:
                self._enqueue(target, moved if step is None else _moved(moved, step))

    def _enqueue(self, location: int, changes: Changes[T]) -> None:
        """Add to the changes that wait at `location`; the list is shared and never changed in place."""
        waiting = self._location_changes[location]
        if waiting is not None:
            self._location_changes[location] = waiting + changes
            return
        if not changes:
            return
        self._location_changes[location] = changes
        component = self._component[location]
        if self._solo[component] is None:
            entered = self._entered[component]
            entered.append(location)
            if len(entered) > 1:
                return
        heappush(self._ready, component)

    def _settle_cycle(self, component: int) -> None:
        """Bring the locations of a cycle to their fixed point, in the order of (time, rank)."""
        heap: list[tuple[object, int, T, int]] = []
        sort_key, rank = self._sort_key, self._rank
        for location in self._entered[component]:
            for time, delta in self._location_changes[location] or ():
                heappush(heap, (sort_key(time), rank[location], time, delta))
            self._location_changes[location] = None
        self._entered[component].clear()
        components = self._component
        while heap:
            key, place, time, delta = heappop(heap)
            self.changes_processed += 1
            while heap and heap[0][1] == place and heap[0][0] == key:
                delta += heappop(heap)[3]
                self.changes_processed += 1
            if not delta:
                continue
            location = self._location_of_rank[place]
            moved = self.implications[location].update(time, delta)
            if not moved:
                continue
            owner = self._location_owners[location]
            if owner is not None:
                self._changed_owners.add(owner)
            if location in self._exports:
                self._exported.setdefault(location, []).extend(moved)
            for target, step in self._successors[location]:
                reached = moved if step is None else _moved(moved, step)
                if components[target] == component:
                    target_rank = rank[target]
                    for new_time, new_delta in reached:
                        heappush(heap, (sort_key(new_time), target_rank, new_time, new_delta))
                else:
                    self._enqueue(target, reached)

    def take_changed_owners(self) -> set[Hashable]:
        """Owners of the slots and locations that changed since the last call; some may have changed back."""
        changed = self._changed_owners
        self._changed_owners = set()
        return changed

    def has_exports(self) -> bool:
        """Is there something for `take_exports`?"""
        return bool(self._exported)

    def take_exports(self) -> list[tuple[int, Changes[T]]]:
        """Net changes (location, changes) of the exported locations since the last call."""
        exported = self._exported
        self._exported = {}
        net = ((location, ChangeBatch(changes).drain()) for location, changes in exported.items())
        return [(location, changes) for location, changes in net if changes]

    def check_invariants(self) -> None:
        """Raise InternalError unless every frontier is exactly what counts and edges imply. Call after `propagate`."""
        if self._ready or self._changed_slots:
            raise InternalError("check_invariants before commit() and propagate(): changes are still waiting; call both first")
        expected: list[ChangeBatch[T]] = [ChangeBatch() for _ in self.implications]
        for slot, location in enumerate(self._slots):
            self.pointstamps[slot].check_invariants()
            if location is not None:
                expected[location].extend((time, 1) for time in self.pointstamps[slot].frontier)
        for location, outside in self._boundary.items():
            outside.check_invariants()
            expected[location].extend(outside.counts())
        for location, implied in enumerate(self.implications):
            implied.check_invariants()
            for target, step in self._successors[location]:
                moved: Changes[T] = [(time, 1) for time in implied.frontier]
                expected[target].extend(moved if step is None else _moved(moved, step))
        for location, implied in enumerate(self.implications):
            due = dict(expected[location].drain())
            if due != dict(implied.counts()):
                raise InternalError(f"location {location}: its implications are {dict(implied.counts())}, but its inputs imply {due}")
        nonzero = sum(not counts.is_empty() for counts in self.pointstamps)
        positive = sum(bool(counts.frontier) for counts in self.pointstamps)
        if (nonzero, positive) != (self.nonzero_slots, self.positive_slots):
            raise InternalError(
                f"{nonzero} slots are non-zero and {positive} positive, but {self.nonzero_slots} and {self.positive_slots} are on record"
            )


def _step(summary: Summary[T, T]) -> Step[T] | None:
    """The function of a summary; None for the identity, so that the hot path can skip it."""
    return None if summary.is_identity else summary.results_in


def _moved(changes: Changes[T], step: Step[T]) -> Changes[T]:
    """The changes after one step; those that result in nothing are gone."""
    return [(reached, delta) for time, delta in changes if (reached := step(time)) is not None]
