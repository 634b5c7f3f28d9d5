"""The plan: the logical graph as stages, edges between them, and the progress graph. Plain frozen values.

A stage is a head (source, live input, stateful vertex, or a pass-through where data must be exchanged) with the trees of fused steps
behind its outputs. A tree is kept as a flat tuple of steps that name each other by number, so that a program of thousands of operators
in a row is planned, pickled and shown without recursion. `compiler` makes it; docs/design/engine.md says why, and where batches are
counted.
"""

from __future__ import annotations

import re
import weakref
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from operator import attrgetter
from typing import Any

from rayad.dataflow.logical_graph import NodeKind, PartitionKind
from rayad.dataflow.records.key_hashing import replica_of_group, replicas_of_groups
from rayad.dataflow.records.selectors import KeySelector
from rayad.dataflow.resources import Need, Resources
from rayad.progress import DataflowError, ProgressGraph


@dataclass(frozen=True, slots=True)
class ApplyStep:
    """Run a stateless operator; its output goes to every child, a number in :attr:`Stage.steps`."""

    name: str
    where: str
    element: Any
    children: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ShiftStep:
    """Change the time: ``enter``, ``leave`` or ``feedback``."""

    kind: str
    max_rounds: int | None
    children: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class EdgeStep:
    """Send to the replicas of another stage (or of this one)."""

    edge: int


@dataclass(frozen=True, slots=True)
class SinkStep:
    """Write to a sink."""

    sink: int


Step = ApplyStep | ShiftStep | EdgeStep | SinkStep


@dataclass(frozen=True, slots=True)
class SinkSpec:
    """A sink, the key under which its result appears, and the stages that write to it."""

    id: int
    key: str
    name: str
    where: str
    sink: Any
    stages: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class PlanEdge:
    """Batches of one stage on their way to an input port of another; counted at ``count_location``, at the time's first
    ``count_depth`` counters."""

    id: int
    source: int
    target: int
    port: int
    partition: PartitionKind
    key: KeySelector | None
    is_feedback: bool
    count_location: int
    count_depth: int
    name: str
    buffer: int | None = None
    """How many batches a receiver may have at once, where they are given out on demand; None: the window of the job."""
    keeps_batches: bool = False
    """Whether batches that are given out on demand are neither cut nor joined."""
    is_rebalanced: bool = False
    """Whether a forward edge is one no longer: its ends have been rescaled."""

    @property
    def routing(self) -> PartitionKind:
        """How its batches are distributed in the present layout."""
        return PartitionKind.REBALANCE if self.is_rebalanced else self.partition

    @property
    def is_on_demand(self) -> bool:
        """Whether batches are given to whichever receiver has room first, cut and joined by how long they take."""
        return self.buffer is not None and self.partition is PartitionKind.REBALANCE and not self.is_feedback


@dataclass(frozen=True, slots=True)
class Stage:
    """One head and what is fused behind it; ``id`` is the head's node id in the logical and the progress graph.

    ``steps`` holds what is fused, each step behind its children; ``outputs`` are the steps that each output port goes to, by number.
    """

    id: int
    name: str
    where: str
    kind: NodeKind
    op: Any
    parts: tuple[Any, ...]
    inputs: int
    parallelism: int
    depth: int
    steps: tuple[Step, ...]
    outputs: tuple[tuple[int, ...], ...]
    notify_location: int
    capability_location: int
    input: dict[str, Any] | None = None
    """Of a source, for a run that keeps snapshots: what :meth:`rayad.dataflow.source.Source.fingerprint` says."""
    resources: Resources | None = None
    """What each replica asks for; None: as the run says for all."""
    paces_inputs: bool = False
    sequential: bool = False
    """Of its vertex: see :class:`rayad.Vertex`."""
    owners: tuple[int, ...] | None = None
    """The replica that owns each key-group; None: contiguous ranges, as at the beginning (docs/design/rescaling.md)."""


@dataclass(frozen=True, slots=True)
class Layout:
    """Where a plan's vertices run: what changes while a job does.

    Args:
        replicas: of each stage, by id.
        owners: of the stages whose key-groups are not in contiguous ranges.
        rebalanced: edges whose ends had the same replicas at the beginning and no longer have: any receiver may take a batch.
    """

    replicas: dict[int, int]
    owners: dict[int, tuple[int, ...]] = field(default_factory=dict)
    rebalanced: frozenset[int] = frozenset()


@dataclass(frozen=True)
class Plan:
    """Everything the runtimes need.

    What is looked up by id lies in caches: each replica asks, and a plan may have many stages and edges.
    """

    name: str
    stages: tuple[Stage, ...]
    edges: tuple[PlanEdge, ...]
    sinks: tuple[SinkSpec, ...]
    progress: ProgressGraph
    probes: dict[str, int]
    inputs: dict[str, int]
    key_groups: int
    has_columns: bool = False
    """Whether columns of Arrow are certain to be read or made; they may be where it is False, too."""
    epochs_together: int = 1
    """How many epochs collections take together."""

    def __getstate__(self) -> dict[str, Any]:
        return {each.name: getattr(self, each.name) for each in fields(self)}  # without the caches

    def stage(self, stage_id: int) -> Stage:
        """The stage of that id."""
        return self._stage_by_id[stage_id]

    @cached_property
    def _stage_by_id(self) -> dict[int, Stage]:
        return {stage.id: stage for stage in self.stages}

    @cached_property
    def edge_by_id(self) -> dict[int, PlanEdge]:
        """The edges by their ids; not to be changed."""
        return {edge.id: edge for edge in self.edges}

    @cached_property
    def sink_by_id(self) -> dict[int, SinkSpec]:
        """The sinks by their ids; not to be changed."""
        return {sink.id: sink for sink in self.sinks}

    def edges_into(self, stage_id: int) -> tuple[PlanEdge, ...]:
        """The edges that end at a stage."""
        return self._edges_into.get(stage_id, ())

    def edges_from(self, stage_id: int) -> tuple[PlanEdge, ...]:
        """The edges that begin at a stage."""
        return self._edges_from.get(stage_id, ())

    def reached(self, start: Iterable[int], *, backwards: bool = False) -> set[int]:
        """These stages, and those that get something from them; or, backwards, from which they do."""
        found = set(start)
        queue = list(found)
        while queue:
            stage = queue.pop()
            near = (edge.source for edge in self.edges_into(stage)) if backwards else (edge.target for edge in self.edges_from(stage))
            fresh = set(near) - found
            found |= fresh
            queue += fresh
        return found

    @cached_property
    def _edges_into(self) -> dict[int, tuple[PlanEdge, ...]]:
        return _grouped(self.edges, attrgetter("target"))

    @cached_property
    def _edges_from(self) -> dict[int, tuple[PlanEdge, ...]]:
        return _grouped(self.edges, attrgetter("source"))

    @cached_property
    def edge_names(self) -> dict[int, str]:
        """A name for each edge that stays when vertices elsewhere come and go: source, target, port, and a number among those alike."""
        names: dict[int, str] = {}
        seen: dict[str, int] = {}
        for edge in self.edges:
            name = f"{self.stage(edge.source).name} -> {self.stage(edge.target).name}:{edge.port}"
            count = seen[name] = seen.get(name, 0) + 1
            names[edge.id] = name if count == 1 else f"{name} #{count}"
        return names

    def title(self, stage_id: int, replica: int) -> str:
        """The name of a replica in messages."""
        return f"{self.called(stage_id)!r}[{replica}]"

    def called(self, stage_id: int) -> str:
        """What the user calls a stage. Exchanges have names of ours, and stand for their loop or the first step behind them."""
        return self._titles[stage_id]

    @cached_property
    def _titles(self) -> dict[int, str]:
        return {stage.id: self._title(stage) for stage in self.stages}

    @cached_property
    def _names(self) -> frozenset[str]:
        return frozenset(stage.name for stage in self.stages)

    def _title(self, stage: Stage) -> str:
        if stage.kind not in (NodeKind.EXCHANGE, NodeKind.UNION) or not _OUR_NAME.fullmatch(stage.name):
            return stage.name
        if any(edge.is_feedback for edge in self.edges_into(stage.id)):
            name = self.progress.scope_by_id[self.progress.node_by_id[stage.id].scope].name
            return name if name.startswith("loop") else f"loop {name}"
        return next((step for step in self.steps_shown(stage) if not step.startswith("=> ")), stage.name)

    def steps_shown(self, stage: Stage) -> tuple[str, ...]:
        """What is fused to a stage, in the order that records go through it, without what an operator or the compiler puts in by itself;
        sinks as ``=> key``."""
        vertices = self._names
        found: list[str] = []
        ahead = [step for port in stage.outputs for step in port][::-1]
        while ahead:
            step = stage.steps[ahead.pop()]
            if isinstance(step, ApplyStep) and not _is_ours(step.name, vertices):
                found.append(step.name)
            elif isinstance(step, SinkStep):
                found.append(f"=> {self.sink_by_id[step.sink].key}")
            if isinstance(step, ApplyStep | ShiftStep):
                ahead.extend(reversed(step.children))
        return tuple(found)

    def owners(self, stage: Stage) -> tuple[int, ...]:
        """The replica that owns each key-group of a stage."""
        return replicas_of_groups(stage.parallelism, self.key_groups) if stage.owners is None else stage.owners

    def owner(self, stage: Stage, group: int) -> int:
        """The replica that owns a key-group of a stage."""
        return replica_of_group(group, stage.parallelism, self.key_groups) if stage.owners is None else stage.owners[group]

    @cached_property
    def layout(self) -> Layout:
        """Where the vertices run; not to be changed."""
        return Layout(
            {stage.id: stage.parallelism for stage in self.stages},
            {stage.id: stage.owners for stage in self.stages if stage.owners is not None},
            frozenset(edge.id for edge in self.edges if edge.is_rebalanced),
        )

    def laid_out(self, layout: Layout) -> Plan:
        """This plan with the replicas and owners of ``layout``. All replicas of a process ask for the same one after another, and get one
        plan; stages and edges that are no others are the same objects."""
        if layout == self.layout:
            return self
        last = self._laid_out_last[0]
        found = None if last is None else last()
        if found is None or found.layout != layout:
            found = replace(
                self,
                stages=tuple(_with(s, parallelism=layout.replicas[s.id], owners=layout.owners.get(s.id)) for s in self.stages),
                edges=tuple(_with(edge, is_rebalanced=edge.id in layout.rebalanced) for edge in self.edges),
            )
            self._laid_out_last[0] = weakref.ref(found)
        return found

    @cached_property
    def _laid_out_last(self) -> list[weakref.ref[Plan] | None]:
        return [None]

    def needing(self, resources: Mapping[str, Resources]) -> Plan:
        """This plan with ``resources`` by vertex name in place of what the program says. Raises DataflowError for names that it lacks."""
        names = {stage.name for stage in self.stages}
        for name in resources:
            if name not in names:
                raise DataflowError(f"RunConfig.resources names {name!r}: the vertices of {self.name!r} are {sorted(names)}")
        stages = (replace(s, resources=resources[s.name].over(s.resources)) if s.name in resources else s for s in self.stages)
        return replace(self, stages=tuple(stages))

    def needs(self, cpus: float) -> list[Need]:
        """What the replicas of each vertex need; ``cpus`` where a vertex says nothing of them."""
        return [Need(s.name, s.parallelism, (s.resources or Resources()).by_name(cpus)) for s in self.stages]

    def writer(self, sink: SinkSpec, stage: Stage, replica: int) -> tuple[int, int]:
        """The number of a replica among the writers of a sink, and a bound: two stages may write to one sink, and each may be rescaled."""
        most = max(self.stage(writing).parallelism for writing in sink.stages)
        return replica * len(sink.stages) + sink.stages.index(stage.id), most * len(sink.stages)

    @property
    def replicas(self) -> int:
        """How many vertex actors this takes."""
        return sum(stage.parallelism for stage in self.stages)


def sinks_of(steps: Iterable[Step]) -> set[int]:
    """The sinks that steps write to."""
    return {step.sink for step in steps if isinstance(step, SinkStep)}


_OUR_NAME = re.compile(rf"({'|'.join(kind.value for kind in [*PartitionKind, NodeKind.UNION])})(-\d+)?")
"""Of exchanges and unions that the user has not named."""


def _is_ours(step: str, vertices: Collection[str]) -> bool:
    """Whether an operator, or the compiler, has put this step in by itself."""
    return step.rpartition(".")[0] in vertices or re.fullmatch(r"as_records(-\d+)?", step) is not None


def _with(part: Any, **changed: Any) -> Any:
    """A part of a plan with these values, itself where it has them."""
    return part if all(getattr(part, name) == value for name, value in changed.items()) else replace(part, **changed)


def _grouped(edges: tuple[PlanEdge, ...], by: Callable[[PlanEdge], int]) -> dict[int, tuple[PlanEdge, ...]]:
    grouped: dict[int, list[PlanEdge]] = {}
    for edge in edges:
        grouped.setdefault(by(edge), []).append(edge)
    return {stage: tuple(some) for stage, some in grouped.items()}
