"""Recovery of a failed vertex and what is upstream of it, while the rest lives on. Source: seed 001, section 4 (partial graph recovery).

The seed lets receivers that live on drop repeated records by sequence number, which takes senders that repeat themselves exactly: the same
batches in the same order. Ours do not: batches are cut and merged by chance. What they do repeat is the records of each time. So with
``FailureConfig(recovery="upstream")`` a batch waits at its receiver until its time is complete there. Then what has been consumed is
always all of a time, and a receiver drops by time: what is of a time that was complete is a repetition, all else it has not seen.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import Any

from rayad.actors.replica.parked import Parked
from rayad.dataflow.logical_graph import PartitionKind
from rayad.dataflow.plan import Plan
from rayad.dataflow.source import Source
from rayad.progress import JobTracker, Timestamp
from rayad.progress.components import components_in_order

Changes = list[tuple[int, Timestamp, int]]


@dataclass(frozen=True, slots=True)
class Region:
    """What is restarted.

    Args:
        stages: the failed ones and all from which they are reached.
        edges: from them to stages that live on.
        zeroed: locations of the progress graph whose counts are of them alone.
    """

    stages: frozenset[int]
    edges: frozenset[int]
    zeroed: frozenset[int]


def gated_edges(plan: Plan) -> frozenset[int]:
    """The edges on which a batch waits for its time to be complete: all but those inside loops, where that would never be."""
    place = {stage.id: index for index, stage in enumerate(plan.stages)}
    successors = [[place[edge.target] for edge in plan.edges_from(stage.id)] for stage in plan.stages]
    component = {plan.stages[member].id: index for index, some in enumerate(components_in_order(successors)) for member in some}
    return frozenset(edge.id for edge in plan.edges if component[edge.source] != component[edge.target])


def region_of(plan: Plan, failed: Collection[int]) -> Region | str:
    """What has to be restarted when these stages have failed; a string: why the whole graph has to be."""
    stages = frozenset(_reached(plan, set(failed), backwards=True))
    if len(stages) == len(plan.stages):
        return "everything is upstream of the failure"
    for stage in plan.stages:
        if stage.id in stages and isinstance(stage.op, Source) and not stage.op.same_epochs:
            return f"{stage.name!r} may read the same records in other epochs"
    edges = frozenset(edge.id for edge in plan.edges if edge.source in stages and edge.target not in stages)
    for edge in plan.edges:
        if edge.id in edges and edge.partition is PartitionKind.REBALANCE and plan.stage(edge.target).parallelism > 1:
            # A repeated record may go to another replica, which has come further than the first one had.
            return f"batches on {edge.name} go to whichever replica has room"
    zeroed = {location for stage in plan.stages if stage.id in stages for location in (stage.notify_location, stage.capability_location)}
    zeroed.update(edge.count_location for edge in plan.edges if edge.source in stages)
    living = {place for stage in plan.stages if stage.id not in stages for place in (stage.notify_location, stage.capability_location)}
    living.update(edge.count_location for edge in plan.edges if edge.source not in stages)
    if zeroed & living:
        shared = sorted(plan.progress.describe_location(location) for location in zeroed & living)
        return f"batches of stages that failed and of stages that live on are counted together at {shared[0]}"
    return Region(stages, edges, frozenset(zeroed))


def zeroing(plan: Plan, tracker: JobTracker, region: Region) -> Changes:
    """What takes everything of a region out of the progress core, as before its replicas register: sources stand at epoch 0."""
    changes = [(location, time, -count) for location, time, count in tracker.counts() if location in region.zeroed]
    initial = {node.id: node.initial for node in plan.progress.nodes}
    for stage in plan.stages:
        if stage.id in region.stages:
            changes.extend((stage.notify_location, time, count) for time, count in initial[stage.id])
    return changes


def _reached(plan: Plan, start: set[int], *, backwards: bool) -> set[int]:
    found = set(start)
    queue = list(start)
    while queue:
        current = queue.pop()
        for edge in plan.edges:
            here, there = (edge.target, edge.source) if backwards else (edge.source, edge.target)
            if here == current and there not in found:
                found.add(there)
                queue.append(there)
    return found


class Gate:
    """Batches of one replica that wait for their time to be complete, and which times have been.

    >>> gate = Gate(frozenset({7}))
    >>> gate.hold(7, Timestamp(3), ["batch"]); list(gate.release((Timestamp(3),))), list(gate.release((Timestamp(4),)))
    ([], [(7, Timestamp(3), ['batch'])])
    >>> gate.rolled_back({7}, (Timestamp(4),)), gate.repeats(Timestamp(3)), gate.repeats(Timestamp(4))
    ([], True, False)

    Args:
        edges: whose batches wait.
        waiting: where.
    """

    def __init__(self, edges: frozenset[int], waiting: Parked | None = None) -> None:
        self.edges = edges
        self.in_order = False
        """Whether the vertex takes times in lexicographic order. Then a time that is complete waits while one before it may come, and has
        not been consumed."""
        self.waiting = Parked() if waiting is None else waiting
        self.passed: list[tuple[Timestamp, ...]] = []
        """The frontiers that it had come to when something upstream, however far, was rolled back: then frontiers go back."""

    def hold(self, edge: int, time: Timestamp, batch: Any) -> None:
        """A batch waits."""
        self.waiting.add(time, edge, batch)

    def release(
        self, frontier: Collection[Timestamp], in_turn: Callable[[Timestamp], bool] | None = None
    ) -> Iterator[tuple[int, Timestamp, Any]]:
        """The batches of times at or before which nothing can arrive any more, in the order of times; of times that are ``in_turn``."""
        if in_turn is None:
            for time, edge, batch in self.waiting.take_below(frontier):
                yield edge, time, batch
            return
        while (first := self.waiting.first()) is not None and not any(front <= first for front in frontier) and in_turn(first):
            for edge, batch in self.waiting.take(first):
                yield edge, first, batch

    def repeats(self, time: Timestamp) -> bool:
        """Whether this replica has consumed all of a time before senders were rolled back."""
        if self.in_order:
            mark = time.sort_key()
            return any(all(mark < front.sort_key() for front in frontier) for frontier in self.passed)
        return any(not any(front <= time for front in frontier) for frontier in self.passed)

    def rolled_back(self, edges: Collection[int], frontier: Collection[Timestamp] | None) -> list[Timestamp]:
        """The senders on these edges begin anew, from an earlier time, while this replica has come to ``frontier`` (None: nowhere yet).

        What waits of theirs is forgotten; gives its times, one for each batch.
        """
        gone = self.waiting.drop(edges)
        if frontier is not None and tuple(frontier) not in self.passed:
            self.passed.append(tuple(frontier))
        return gone


__all__ = ["Changes", "Gate", "Region", "gated_edges", "region_of", "zeroing"]
