"""Recovery of a failed vertex and what is upstream of it; the rest keeps running. Source: Carbone et al., 2015, 5.

The paper lets the receivers that keep running drop repeated records by sequence number. That needs senders that repeat exactly the same
batches in the same order. Rayad's do not, as batches are cut and merged by timing. What they do repeat is the records of each time. So with
``FailureConfig(recovery="upstream")`` a batch waits at its receiver until its time is complete there. Then a receiver
has always consumed either all of a time or nothing, and drops by time: a batch of a time that was complete is a repetition, others are new.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import Any

from rayad.actors.replica.waiting_batches import Parked
from rayad.dataflow.logical_graph import PartitionKind
from rayad.dataflow.operators.processing_time import EpochClock
from rayad.dataflow.plan import Plan
from rayad.dataflow.source import Source
from rayad.progress import JobTracker, Timestamp
from rayad.progress.components import components_in_order

Changes = list[tuple[int, Timestamp, int]]


@dataclass(frozen=True, slots=True)
class Region:
    """What is restarted.

    Args:
        stages: the failed ones and all that are upstream of them.
        edges: from them to stages that keep running.
        zeroed: locations of the progress graph whose counts come from these stages alone.
    """

    stages: frozenset[int]
    edges: frozenset[int]
    zeroed: frozenset[int]

    def with_(self, other: Region) -> Region:
        """Both."""
        return Region(self.stages | other.stages, self.edges | other.edges, self.zeroed | other.zeroed)


def gated_edges(plan: Plan) -> frozenset[int]:
    """The edges on which a batch waits for its time to be complete: all but those inside loops, where it would never become complete."""
    place = {stage.id: index for index, stage in enumerate(plan.stages)}
    successors = [[place[edge.target] for edge in plan.edges_from(stage.id)] for stage in plan.stages]
    component = {plan.stages[member].id: index for index, some in enumerate(components_in_order(successors)) for member in some}
    return frozenset(edge.id for edge in plan.edges if component[edge.source] != component[edge.target])


def region_of(plan: Plan, failed: Collection[int]) -> Region | str:
    """What has to be restarted when these stages have failed; a string: why the whole graph has to be."""
    stages = frozenset(plan.reached(failed, backwards=True))
    if len(stages) == len(plan.stages):
        return "everything is upstream of the failure"
    for stage in plan.stages:
        if stage.id in stages and isinstance(stage.op, Source) and not stage.op.same_epochs:
            return f"{stage.name!r} may read the same records in other epochs"
        if stage.id in stages and getattr(stage.op, "cls", None) is EpochClock:
            return f"{stage.name!r} would give records that come again other moments"
    edges = frozenset(edge.id for edge in plan.edges if edge.source in stages and edge.target not in stages)
    for edge in plan.edges:
        if edge.id in edges and edge.partition is PartitionKind.REBALANCE and plan.stage(edge.target).parallelism > 1:
            # A repeated record may go to another replica, which is further on than the first one was.
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
    """The changes that reset a region in the progress core to the state before its replicas register: sources are at epoch 0."""
    changes = [(location, time, -count) for location, time, count in tracker.counts() if location in region.zeroed]
    initial = {node.id: node.initial for node in plan.progress.nodes}
    for stage in plan.stages:
        if stage.id in region.stages:
            changes.extend((stage.notify_location, time, count) for time, count in initial[stage.id])
    return changes


class Gate:
    """Batches of one replica that wait for their time to be complete, and which times have been.

    >>> gate = Gate(frozenset({7}))
    >>> gate.hold(7, Timestamp(3), ["batch"]); list(gate.release((Timestamp(3),))), list(gate.release((Timestamp(4),)))
    ([], [(7, Timestamp(3), ['batch'])])
    >>> gate.rolled_back({7}, (Timestamp(4),)), gate.repeats(Timestamp(3)), gate.repeats(Timestamp(4))
    ([], True, False)

    Args:
        edges: whose batches wait.
        waiting: the place where they wait.
    """

    def __init__(self, edges: frozenset[int], waiting: Parked | None = None) -> None:
        self.edges = edges
        self.in_order = False
        """Whether the vertex takes times in lexicographic order. Then a time that is complete waits while one before it may come, and has
        not been consumed."""
        self.waiting = Parked() if waiting is None else waiting
        self.passed: list[tuple[Timestamp, ...]] = []
        """The frontiers reached when anything upstream, direct or not, was rolled back: a roll-back moves frontiers back."""

    def hold(self, edge: int, time: Timestamp, batch: Any) -> None:
        """Let a batch wait for its time."""
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
        """Whether this replica had consumed all of a time before senders were rolled back."""
        if self.in_order:
            mark = time.sort_key()
            return any(all(mark < front.sort_key() for front in frontier) for frontier in self.passed)
        return any(not any(front <= time for front in frontier) for frontier in self.passed)

    def rolled_back(self, edges: Collection[int], frontier: Collection[Timestamp] | None) -> list[Timestamp]:
        """The senders on these edges resume from an earlier time, while this replica has reached ``frontier`` (None: none yet).

        What they sent and still waits is dropped; gives its times, one for each batch.
        """
        gone = self.waiting.drop(edges)
        if frontier is not None and tuple(frontier) not in self.passed:
            self.passed.append(tuple(frontier))
        return gone


__all__ = ["Changes", "Gate", "Region", "gated_edges", "region_of", "zeroing"]
