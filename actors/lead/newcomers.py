"""Who comes in a change of layout: new replicas, and the processes that are new with them; what these and the others are told. Pure."""

from __future__ import annotations

from collections.abc import Collection

from rayad.actors.lead import calls, layouts
from rayad.actors.lead.change_protocol import Members
from rayad.actors.plane.replica_id import ReplicaId
from rayad.dataflow.plan import Plan


class Newcomers:
    """Of one change.

    Args:
        members: who is in the job.
        before: the layout that the job has.
        after: the one with the newcomers; the same as ``before``: nobody comes.
    """

    def __init__(self, members: Members, before: Plan, after: Plan) -> None:
        there = set(layouts.plane_names(before))
        self.names = tuple(name for name in layouts.plane_names(after) if name not in there)
        """Of the replicas."""
        self._members = members
        self._plan = after
        processes = members.places.processes_of(map(ReplicaId.from_plane_name, self.names))
        self.fresh = tuple(process for process in processes if process not in members.addresses)
        """The processes that are new with them."""
        self.addresses: dict[str, object] = dict(members.addresses)
        """Of all processes, of new ones as soon as they are known."""

    @property
    def incarnation(self) -> int:
        """Of new processes, where there are any; else the job's."""
        return self._members.incarnation + bool(self.fresh)

    @property
    def incarnations(self) -> dict[str, int]:
        """Of the new processes."""
        return dict.fromkeys(self.fresh, self.incarnation)

    @property
    def housed(self) -> list[str]:
        """The replicas that come to processes which are there."""
        places = self._members.places
        return [name for name in self.names if places.process_of(*ReplicaId.from_plane_name(name)) not in self.fresh]

    def listen(self, process: str) -> calls.Listen:
        """What a new process is asked for first."""
        members = self._members
        incarnations = {**members.incarnations, **self.incarnations}
        ended = max(members.ended.get(stage, 0) for stage, _ in members.places.replicas_at(process, self._plan))
        return calls.Listen(self.incarnation, incarnations, self._plan.layout, ended)

    def prepare(self, turn: int, stages: Collection[int]) -> calls.Prepare:
        """What the others are told; ``stages``: that change."""
        moving = [name for name in map(ReplicaId.from_plane_name, layouts.plane_names(self._plan)) if name.stage in stages]
        addresses = {one: self.addresses[one] for one in self._members.places.processes_of(moving) if one in self.addresses}
        newcomers = tuple(map(ReplicaId.from_plane_name, self.names))
        return calls.Prepare(turn, self._plan.layout, newcomers, addresses, self.incarnations, frozenset(stages))

    def admit(self) -> calls.Admit:
        """What those are asked for that come to processes which are there."""
        known = {**self._members.incarnations, **self.incarnations}  # a worker that held nothing was not told of those that came meanwhile
        return calls.Admit(self._plan.layout, known, self.addresses)


__all__ = ["Newcomers"]
