"""A change of layout of a local job, for who looks on: a view of what was asked for, and of who drives it."""

from __future__ import annotations

from rayad.actors.coordinator.rescaling import LayoutWish
from rayad.actors.lead.change_leader import ChangeLeader
from rayad.actors.lead.layouts import RescaleReport, plane_names
from rayad.actors.local.processes import Processes
from rayad.actors.plane.protocol import Kind
from rayad.actors.plane.replica_id import ReplicaId
from rayad.progress import InternalError


class LocalRescale:
    """One change of layout of a local job.

    Args:
        wish: what was asked for.
        processes: of the job.
    """

    def __init__(self, wish: LayoutWish, processes: Processes) -> None:
        self.wish = wish
        self._processes = processes

    @property
    def _leader(self) -> ChangeLeader | None:
        leader = self.wish.driver.leader if self.wish.driver is not None else None
        return leader if isinstance(leader, ChangeLeader) else None

    @property
    def leader(self) -> ChangeLeader:
        """Who leads it, or did so last: after a failure of the job another one does."""
        if self._leader is None:
            raise InternalError("the change of layout has not begun")
        return self._leader

    @property
    def is_waiting(self) -> bool:
        """Whether it waits for the job to run, or for the snapshot under way."""
        leader = self._leader
        return not self.is_done and (leader is None or leader.outcome is not None or leader.is_waiting)

    @property
    def is_done(self) -> bool:
        """Whether it is over, with the new layout or with the old one."""
        return self.wish.is_over

    @property
    def phase(self) -> str:
        """Where it stands, for faults that are to strike in a phase."""
        return "waiting" if self.is_waiting else "leaving" if self.leader.gone else "moving"

    @property
    def refusal(self) -> str:
        """Why the layout stays as it was; "" when it does not."""
        return str(self.wish.error) if self.wish.error is not None else ""

    @property
    def report(self) -> RescaleReport | None:
        """What it came to, when the layout is the one that was asked for."""
        return self.wish.report

    @property
    def joining(self) -> tuple[str, ...]:
        """New processes that do not belong to the job yet."""
        return self._leader.joining if self._leader is not None else ()

    @property
    def has_transfers(self) -> bool:
        """Whether something that a replica hands to a sibling is on its way."""
        return any(frame.kind == Kind.TRANSFER for waiting in self._processes.bus.ways.values() for frame in waiting)

    def explain(self) -> str:
        """Who is waited for, and for what."""
        leader = self._leader
        if leader is None:
            return ""
        title, known = leader.plan.title, plane_names(leader.plan)
        names = [title(*ReplicaId.from_plane_name(name)) if name in known else f"the {name}" for name in sorted(leader.missing)]
        return f"a change of layout waits for {', '.join(names)} {leader.phase.value}" if names else ""


__all__ = ["LocalRescale"]
