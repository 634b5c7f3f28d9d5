"""Hierarchical progress: the protocol between a scope and its parent (McSherry, "Timely dataflow: core concepts", 2014), and the
implementation for a scope of nodes and child scopes.

A scope shows its parent only: (1) once, what it can do to times between its inputs and outputs, and its initial work; (2) in every pull,
the net change of its *internal* work as projected onto its outputs, what it *consumed* at its inputs and what it *produced* at its
outputs. The three come in one `ScopeProgress`, because consumption creates internal work and production retires it: apart they would
show, for a moment, a scope with nothing left to do. Inner rounds that change nothing at the outputs give an empty pull, and cost the
parent nothing.

Only internal work is projected. The frontier pushed in from outside is not: it is the parent's own knowledge, and round an outer
loop it would come back as its own support.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from typing import NamedTuple

from rayad.progress.antichain import Antichain
from rayad.progress.counted.change_batch import ChangeBatch
from rayad.progress.counted.staircase import counted_times
from rayad.progress.errors import DataflowError, InternalError
from rayad.progress.progress_graph import ChildPort, NodePort, ProgressGraph, ScopeOutput, ScopeSpec
from rayad.progress.reachability import PathGraph
from rayad.progress.summary import PathSummary
from rayad.progress.timestamp import Timestamp
from rayad.progress.topology import ScopeSummary, ScopeTopology
from rayad.progress.tracker import ReachabilityTracker

PortChanges = list[tuple[int, list[tuple[Timestamp, int]]]]
"""Changes by port: only ports that have some."""


class ScopeProgress(NamedTuple):
    """What a scope tells its parent, all at once; times are the parent's."""

    internal: PortChanges  # by output: net change of the work that may still produce there
    consumed: PortChanges  # by input: messages consumed, as positive numbers
    produced: PortChanges  # by output: messages produced, as positive numbers


NO_PROGRESS = ScopeProgress([], [], [])


class Scope(ABC):
    """Anything that a parent scope can hold as a node: it consumes and produces messages with the parent's times."""

    @property
    @abstractmethod
    def inputs(self) -> int:
        """How many inputs it has."""

    @property
    @abstractmethod
    def outputs(self) -> int:
        """How many outputs it has."""

    @abstractmethod
    def get_internal_summary(self) -> tuple[ScopeSummary, PortChanges]:
        """Minimal summaries [input][output], and the initial internal work by output."""

    @abstractmethod
    def set_external_summary(self, summaries: ScopeSummary, external: PortChanges) -> None:
        """Minimal summaries [output][input] of the paths outside, and the initial frontier at each input. Called once."""

    @abstractmethod
    def push_external_progress(self, external: PortChanges) -> None:
        """Changes of the frontier at the inputs."""

    @abstractmethod
    def pull_internal_progress(self) -> ScopeProgress:
        """Everything since the last pull, as one indivisible change."""


class ScopeTracker(Scope):
    """The scope `spec` of a graph: nodes that report counts, and child scopes behind the `Scope` protocol."""

    def __init__(self, graph: ProgressGraph, spec: ScopeSpec, children: Mapping[int, Scope]) -> None:
        self.spec = spec
        self._graph = graph
        self._children = dict(children)
        told = {identifier: child.get_internal_summary() for identifier, child in children.items()}
        self.topology = ScopeTopology(spec, graph, {identifier: summary for identifier, (summary, _) in told.items()})
        self._paths = self.topology.paths()
        self._egress = PathSummary.egress(self.topology.depth) if spec.parent is not None else None
        self.tracker = self._build_tracker()
        self.slot_of_location = self.topology.slot_of_location
        self._child_of_location = {location: key for key, location in self.topology.child_inputs.items()}
        self._consumed: list[ChangeBatch[Timestamp]] = [ChangeBatch() for _ in range(spec.inputs)]
        self._produced: list[ChangeBatch[Timestamp]] = [ChangeBatch() for _ in range(spec.outputs)]
        self._crossed = False  # is there something in the two above?
        self._outside: Callable[[], ScopeSummary] = list  # nothing, so far
        for node in graph.nodes_by_scope[spec.id]:
            for time, count in node.initial:
                self.update(graph.notify_location(node.id), time, count)
        for identifier, (_, initial) in told.items():
            self.absorb(identifier, ScopeProgress(initial, [], []))
        self._initial: PortChanges = self.tracker.commit()

    def _build_tracker(self) -> ReachabilityTracker[Timestamp]:
        topology = self.topology
        projections: list[list[tuple[int, PathSummary]]] = [[] for _ in topology.slots]
        for output, end in enumerate(topology.outputs):
            reaching = self._paths.summaries_to(end)
            for slot, location in enumerate(topology.slots):
                if location is not None:
                    projections[slot] += [(output, self._leave(summary)) for summary in reaching.get(location, ())]
        return ReachabilityTracker(
            locations=len(topology.names),
            edges=topology.tracked_edges(),
            slots=topology.slots,
            projections=projections,
            outputs=self.spec.outputs,
            slot_owners=topology.slot_owners,
            location_owners=topology.location_owners,
            exports=topology.child_inputs.values(),
            sort_key=Timestamp.sort_key,
            counted=partial(counted_times, topology.depth),
            counted_outside=partial(counted_times, topology.depth - 1),
        )

    def _leave(self, summary: PathSummary) -> PathSummary:
        """A path to an output of this scope, continued into the parent's times."""
        assert self._egress is not None, "the root has no outputs"
        left = summary.followed_by(self._egress)
        assert left is not None, "a path with results has results after an egress"
        return left

    @property
    def inputs(self) -> int:
        return self.spec.inputs

    @property
    def outputs(self) -> int:
        return self.spec.outputs

    def get_internal_summary(self) -> tuple[ScopeSummary, PortChanges]:
        summaries: ScopeSummary = []
        for start in self.topology.inputs:
            reached = self._paths.summaries_from(start)
            row: list[Antichain[PathSummary]] = []
            for end in self.topology.outputs:
                entered = (PathSummary.ingress(self.topology.depth - 1).followed_by(summary) for summary in reached.get(end, ()))
                row.append(Antichain(self._leave(summary) for summary in entered if summary is not None))
            summaries.append(row)
        return summaries, self._initial

    def set_external_summary(self, summaries: ScopeSummary, external: PortChanges) -> None:
        """Set the path summaries outside of this scope, and pass each child its surroundings. Refuses a cycle through the outside that does
        not advance time."""
        self._check_external(summaries)
        self.set_outside(lambda: summaries, external)

    def set_outside(self, outside: Callable[[], ScopeSummary], external: PortChanges) -> None:
        """As :meth:`set_external_summary` for a graph that has been validated: it asks what is outside only when somebody wants to know.

        N loops in one loop are N searches round that one, and no search is needed to track them.
        """
        self._outside = outside
        self.push_external_progress(external)
        self.tracker.propagate()
        initial = dict(self.take_external_progress())
        for identifier, child in self._children.items():
            if isinstance(child, ScopeTracker):
                child.set_outside(partial(self._around, identifier), initial.get(identifier, []))
            else:
                child.set_external_summary(self._around(identifier), initial.get(identifier, []))

    @cached_property
    def external_summary(self) -> ScopeSummary:
        """Minimal summaries [output][input] of the paths outside."""
        return self._outside()

    def _around(self, child: int) -> ScopeSummary:
        """The paths from the outputs of a child back to its inputs."""
        inputs, outputs = self._children[child].inputs, self._children[child].outputs
        ends = [self.topology.child_inputs[child, port] for port in range(inputs)]
        reached = [self._with_outside.summaries_between(self.topology.child_outputs[child, port], ends) for port in range(outputs)]
        return [[Antichain(row.get(end, ())) for end in ends] for row in reached]

    def _check_external(self, summaries: ScopeSummary) -> None:
        internal, _ = self.get_internal_summary()
        for output, by_input in enumerate(summaries):
            for port, outside in enumerate(by_input):
                for out in outside:
                    for inner in internal[port][output]:
                        cycle = out.followed_by(inner)
                        if cycle is not None and not cycle.strictly_advances:
                            raise DataflowError(
                                f"scope {self.spec.name!r}: from output {output} outside to input {port} ({out}) and back through "
                                f"it ({inner}) a time may result in itself ({cycle}); put a feedback on the way"
                            )

    @cached_property
    def _with_outside(self) -> PathGraph:
        """The scope's static graph, closed by the paths outside it (egress, outside, ingress)."""
        edges = list(self.topology.edges)
        for output, by_input in enumerate(self.external_summary):
            for port, outside in enumerate(by_input):
                for summary in outside:
                    entered = self._leave_and_return(summary)
                    if entered is not None:
                        edges.append((self.topology.outputs[output], self.topology.inputs[port], entered))
        return PathGraph([self.topology.depth] * len(self.topology.names), dict.fromkeys(edges))

    def _leave_and_return(self, outside: PathSummary) -> PathSummary | None:
        assert self._egress is not None, "the root has no outside"
        left = self._egress.followed_by(outside)
        return None if left is None else left.followed_by(PathSummary.ingress(self.topology.depth - 1))

    def update(self, location: int, time: Timestamp, delta: int) -> None:
        """Note a change of the count at a location of the graph that this scope counts."""
        self.tracker.update(self.slot_of_location[location], time, delta)

    def record_consumed(self, port: int, time: Timestamp, messages: int) -> None:
        """Messages consumed at an input; `time` is the parent's. Goes up with the next pull."""
        self._consumed[port].update(time, messages)
        self._crossed = True

    def record_produced(self, port: int, time: Timestamp, messages: int) -> None:
        """Messages produced at an output; `time` is the parent's. Goes up with the next pull."""
        self._produced[port].update(time, messages)
        self._crossed = True

    def absorb(self, child: int, progress: ScopeProgress) -> None:
        """Note what a child told: internal work at its outputs, messages consumed at its inputs, messages produced on its edges."""
        tracker, topology = self.tracker, self.topology
        for port, changes in progress.internal:
            slot = topology.child_output_slots[child, port]
            for time, delta in changes:
                tracker.update(slot, time, delta)
        for port, changes in progress.consumed:
            for time, messages in changes:
                self.update(self._graph.child_input_location(child, port), time, -messages)
        for port, changes in progress.produced:
            for target in self._graph.targets_of(self.spec.id, ChildPort(child, port)):
                self._deliver(target, changes)

    def _deliver(self, target: NodePort | ChildPort | ScopeOutput, messages: Sequence[tuple[Timestamp, int]]) -> None:
        """Count messages that a child produced at the end of the edge they travel on."""
        for time, count in messages:
            match target:
                case NodePort(node, port):
                    self.update(self._graph.target_location(node, port), time, count)
                case ChildPort(child, port):
                    self.update(self._graph.child_input_location(child, port), time, count)
                case ScopeOutput(port):
                    self.record_produced(port, time.leave(), count)

    def push_external_progress(self, external: PortChanges) -> None:
        for port, changes in external:
            self.tracker.push_boundary(self.topology.inputs[port], [(time.enter(), delta) for time, delta in changes])

    def pull_internal_progress(self) -> ScopeProgress:
        internal = self.tracker.commit()
        if not self._crossed:
            return ScopeProgress(internal, [], []) if internal else NO_PROGRESS
        self._crossed = False
        consumed = [(port, batch.drain()) for port, batch in enumerate(self._consumed) if not batch.is_empty()]
        produced = [(port, batch.drain()) for port, batch in enumerate(self._produced) if not batch.is_empty()]
        return ScopeProgress(internal, consumed, produced)

    def take_external_progress(self) -> list[tuple[int, PortChanges]]:
        """Net changes of the frontiers at the inputs of child scopes since the last call: (child, changes by port)."""
        by_child: dict[int, PortChanges] = {}
        for location, changes in self.tracker.take_exports():
            child, port = self._child_of_location[location]
            by_child.setdefault(child, []).append((port, changes))
        return list(by_child.items())

    def check_invariants(self) -> None:
        """Raise InternalError unless the tracker is at its fixed point and the projection is that of the internal work."""
        self.tracker.check_invariants()
        expected: list[ChangeBatch[Timestamp]] = [ChangeBatch() for _ in range(self.spec.outputs)]
        for output, end in enumerate(self.topology.outputs):
            for location, summaries in self._paths.summaries_to(end).items():
                for slot, fed in enumerate(self.topology.slots):
                    if fed == location:
                        for summary in map(self._leave, summaries):
                            for time in self.tracker.pointstamps[slot].frontier:
                                result = summary.results_in(time)
                                if result is not None:
                                    expected[output].update(result, 1)
            projected = dict(self.tracker.output_frontiers[output].counts())
            due = dict(expected[output].drain())
            if projected != due:
                raise InternalError(f"output {output} of {self.spec.name!r}: projected {projected}, but its internal work gives {due}")
