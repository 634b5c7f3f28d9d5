"""How the replicas of a source share its parts when a job resumes with another parallelism.

The position is kept part by part, so nothing has to be divided: each new replica takes the parts that are now its own, with their
positions, whichever replica read them before. Part *n* of a source belongs to replica ``n % replicas``. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rayad.actors.replica.input.source_reader import Position
from rayad.actors.replica.rest import ResumedPart
from rayad.dataflow.logical_graph import NodeKind
from rayad.dataflow.plan import Plan
from rayad.snapshots.manifest import Manifest, ReplicaPart


@dataclass(frozen=True, slots=True)
class SourceShare:
    """What one of ``replicas`` replicas of a source takes from the ``parts`` of a snapshot with another number of replicas."""

    parts: tuple[ReplicaPart, ...]
    replica: int
    replicas: int


@dataclass(frozen=True, slots=True)
class Reopened:
    """A part of the last snapshot of a complete job, from which a run goes on: of a live input that is open again, and ``epoch`` is the one
    in which it was closed; or of a vertex that gets something from one, and it is None."""

    part: ReplicaPart | SourceShare
    epoch: int | None

    def reopen(self, found: ResumedPart) -> ResumedPart:
        """The part as it was read, with the input open."""
        again = {"input_epoch": self.epoch, "input_before": self.epoch} if self.epoch is not None else {}
        return ResumedPart(found.states, {**found.rest, **again, "is_reopened": True})


Resumable = ReplicaPart | SourceShare | Reopened
"""What :func:`read_part` reads."""


def parts_of(manifest: Manifest, plan: Plan) -> dict[tuple[str, int], Resumable]:
    """What each replica of a plan, which is laid out as the manifest says, resumes from; a source may be laid out otherwise."""
    out: dict[tuple[str, int], ReplicaPart | SourceShare] = {(part.vertex, part.replica): part for part in manifest.parts}
    for stage in plan.stages:
        if stage.kind is not NodeKind.SOURCE:
            continue
        before = tuple(sorted((part for part in manifest.parts if part.vertex == stage.name), key=lambda part: part.replica))
        if before and len(before) != stage.parallelism:
            for part in before:
                del out[part.vertex, part.replica]
            out.update({(stage.name, r): SourceShare(before, r, stage.parallelism) for r in range(stage.parallelism)})
    again = manifest.notes.get("reopened", {})
    open_again = plan.reached(stage.id for stage in plan.stages if stage.name in again)
    names = {stage.name for stage in plan.stages if stage.id in open_again}
    return {name: Reopened(part, again.get(name[0])) if name[0] in names else part for name, part in out.items()}


def shared_out(before: Sequence[ResumedPart], replica: int, replicas: int) -> ResumedPart:
    """The share of one replica in the parts of all earlier ones, in their order.

    What each earlier replica still had to send goes to one new replica. The counts, which are for statistics, go to the first.
    """
    mine = before[replica::replicas]
    positions = [part.rest["source"] for part in before]
    counts = [part.rest["counts"] for part in mine]
    rest = {
        **before[0].rest,
        "source": position_of(positions, replica, replicas),
        "begun": sorted({epoch for part in before for epoch in part.rest.get("begun", ())}),
        "furthest": max(part.rest.get("furthest", 0) for part in before),
        "outbox": [entry for part in mine for entry in part.rest["outbox"]],
        "counts": tuple(map(sum, zip(*counts, strict=True))) if counts else (0, 0, 0),
    }
    return ResumedPart((), rest)


def position_of(positions: Sequence[Position | None], replica: int, replicas: int) -> Position | None:
    """Where one of ``replicas`` begins, from where each earlier one stood; None: all parts that are now its own have been read.

    >>> position_of([(3, [1], [(0, 3, "offset")]), None], 0, 1)  # part 2 waits, of part 0 something was read; the other replica was done
    (3, [2], [(0, 3, 'offset')])
    >>> position_of([(3, [1], [(0, 3, "offset")]), None], 1, 3), position_of([(3, [1], [(0, 3, "offset")]), None], 2, 3)
    (None, (3, [0], []))
    """
    waiting: dict[int, int] = {}
    opened: dict[int, tuple[int, Any]] = {}
    for at, position in enumerate(positions):
        if position is None:
            continue
        epoch, numbers, reading = position
        waiting.update({number * len(positions) + at: epoch for number in numbers})
        opened.update({number * len(positions) + at: (max(last, epoch), offset) for number, last, offset in reading})
    waiting = _mine(waiting, replica, replicas)
    opened = _mine(opened, replica, replicas)
    if not waiting and not opened:
        return None
    epoch = min([*waiting.values(), *(last for last, _ in opened.values())])
    return epoch, sorted(waiting), [(number, *opened[number]) for number in sorted(opened)]


def _mine(parts: Mapping[int, Any], replica: int, replicas: int) -> dict[int, Any]:
    return {part // replicas: found for part, found in parts.items() if part % replicas == replica}


__all__ = ["Reopened", "Resumable", "SourceShare", "parts_of", "position_of", "shared_out"]
