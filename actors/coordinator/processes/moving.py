"""Lets processes leave their nodes: carries out what :class:`LeavingLeader` decides, in the coordinator's thread."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from math import inf

from rayad.actors.coordinator.running_job import RunningJob
from rayad.actors.lead.nodes import leaving
from rayad.actors.lead.nodes.leaving import LeavingLeader, Phase

_log = logging.getLogger(__name__)
LOOK_S = 0.5
"""Between two looks at where the processes are."""


class Mover:
    """Of one job."""

    def __init__(self, job: RunningJob) -> None:
        self._job, self._clock = job, job.around.clock
        self._leader = LeavingLeader(job.config.keeps_snapshots)
        self._looked_s = -inf
        self._own_told = False

    def look(self, besides: Collection[str] = ()) -> frozenset[str]:
        """While the job runs: see which nodes drain, and do what follows. Gives who is to leave now. ``besides``: processes that have not
        joined the job."""
        now_s = self._clock.monotonic()
        if now_s - self._looked_s < LOOK_S:
            return frozenset()
        self._looked_s = now_s
        drains, crew = self._job.drains.now, self._job.crew
        if not drains and not crew.to_move and self._leader.phase is Phase.IDLE:
            return frozenset()
        self._tell_of_own(drains)
        on = {name: crew.sites.on[name] for name in crew.actors if name in crew.sites.on and name not in besides}
        names = self._tell(leaving.Look(on, drains, crew.to_move))
        if self._leader.phase is Phase.STARTING and not crew.missing_reliefs():
            names |= self._tell(leaving.Ready())
        return names

    def on_published(self) -> frozenset[str]:
        """A snapshot is in the store. Gives who is to leave now."""
        return self._tell(leaving.Published())

    def share(self, waiting: Collection[str]) -> list[str]:
        """Of these, which do not start: let workers for which nothing has room share the processors that are there. Gives those; they are
        started anew."""
        names = self._job.crew.share(waiting)
        self._note_sharing(names)
        return names

    def _note_sharing(self, names: list[str]) -> None:
        if names:
            told = (
                f"{', '.join(map(self._job.who, names))}: no node has room, so these share the processors that are there; rescale() gives "
                "them processors of their own again when there are nodes for them"
            )
            _log.warning("job %r: %s", self._job.name, told)
            self._job.journal.note("node", told, names=names)

    def _tell(self, event: leaving.Event) -> frozenset[str]:
        job, go = self._job, frozenset[str]()
        for effect in self._leader.handle(event, self._clock.monotonic()):
            match effect:
                case leaving.Tell(node, names, what, leaves_in_s):
                    who = ", ".join(sorted(map(job.who, names)))
                    at = f" in {leaves_in_s:.0f} s" if leaves_in_s < inf else ""
                    told = f"node {job.crew.sites.address(node)}, with {who}, goes{at}: it {what}"
                    _log.warning("job %r: %s", job.name, told)
                    job.journal.note("node", told, node=node, names=list(names))
                case leaving.StartSpares(names):
                    job.crew.start_reliefs(names)
                case leaving.DropSpares(names):
                    job.crew.drop_reliefs(names)
                case leaving.LetShare():
                    self._note_sharing(job.crew.share_reliefs())
                case leaving.TakeSnapshot():
                    if job.snapshots is not None:
                        job.snapshots.hasten()
                case leaving.Go(names):
                    go |= names
        self._leader.check_invariants()
        return go

    def _tell_of_own(self, drains: Mapping[str, float]) -> None:
        """The coordinator itself cannot leave; its owner starts another one when it dies."""
        if not self._own_told and self._job.crew.sites.own in drains:
            self._own_told = True
            self._job.journal.note("node", "the coordinator's own node drains: another coordinator takes its place when it goes")


__all__ = ["Mover"]
