"""The loop around the progress core: reports in, views out. It has no socket, thread or clock.

All reports that one wake-up brings are applied before any view goes out, so that a burst costs one propagation.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from rayad.actors.lead.diagnosis import Stamp, stamps_of
from rayad.actors.plane.frames import Frame
from rayad.actors.plane.protocol import Kind, pack_pace, pack_view, unpack_report
from rayad.actors.plane.replica_id import ReplicaId, replicas_of
from rayad.actors.replica.places import Places, is_worker
from rayad.actors.replica.upstream import Region, zeroing
from rayad.actors.worker.pacing import Pacing
from rayad.dataflow.pacing import FREE, Ahead
from rayad.dataflow.plan import Plan
from rayad.progress import JobTracker, ProtocolError, Timestamp, View

if TYPE_CHECKING:
    from rayad.actors.worker.surroundings import Link


_REPORT = int(Kind.REPORT)


@dataclass(slots=True)
class Switch:
    """What has to come before the counts of a region are replaced: ``missing`` are to register, ``rewinding`` to say what they dropped,
    once for each of these regions; ``changes``: what has come; ``early``: what survivors did with what newcomers had sent them by then."""

    region: Region
    incarnation: int
    newcomers: set[ReplicaId]
    missing: set[ReplicaId]
    rewinding: dict[ReplicaId, list[Region]]
    changes: dict[ReplicaId, list[tuple[int, Timestamp, int]]] = field(default_factory=dict)
    early: list[tuple[int, Timestamp, int]] = field(default_factory=list)

    def take_over(self, before: Switch) -> None:
        """Another failure came before all had answered to one: both regions are replaced at once, and who is new again is heard anew."""
        again, anew = set(self.newcomers), self.region.zeroed
        self.region = self.region.with_(before.region)
        self.newcomers |= before.newcomers
        self.missing |= before.missing
        for replica, regions in before.rewinding.items():
            if replica not in again:
                self.rewinding[replica] = [*regions, *self.rewinding.get(replica, ())]
        self.changes.update({replica: changes for replica, changes in before.changes.items() if replica not in again})
        self.early = [change for change in before.early if change[0] not in anew]

    def on_rewound(self, replica: ReplicaId) -> None:
        """A survivor has rolled back a region. What it told before of batches from the region is void: it has dropped them, and whoever
        sends them again counts them.

        The region's counts in the tracker are removed when they are replaced. This removes what has not been counted there: a survivor that
        is itself a newcomer, because of a failure just before, registers with the batches that were in flight to it at the cut.
        """
        regions = self.rewinding.get(replica)
        if regions:
            gone = regions.pop(0).zeroed
            self.changes[replica] = [change for change in self.changes[replica] if change[0] not in gone]

    def hold_back(self, replica: ReplicaId, changes: list[tuple[int, Timestamp, int]]) -> list[tuple[int, Timestamp, int]]:
        """Of what a survivor reports: keep what it did, since it has rewound, with what newcomers had waiting for it at the cut and have
        sent again: that is counted only when the region's counts are replaced. Gives the rest."""
        old = {location for region in self.rewinding.get(replica, ()) for location in region.zeroed}
        new = self.region.zeroed - old
        self.early += [change for change in changes if change[0] in new]
        return [change for change in changes if change[0] not in new]


class ProgressWorker:
    """Runs the progress core of one job to its end.

    Args:
        plan, places: the dataflow, and which process holds which replica.
        link: its end of the data plane.
        survives: the loss of replicas.
        ahead: how far inputs may run ahead.
    """

    def __init__(self, plan: Plan, places: Places, link: Link, *, survives: bool = False, ahead: Ahead = FREE) -> None:
        self.plan = plan
        self.places = places
        self.link = link
        self.expected = set(replicas_of(plan.stages))
        """Who is to register at first; then who has, and has not left."""
        self.names: dict[int, list[str]] = {stage.id: [] for stage in plan.stages if stage.inputs}
        """The processes that are sent the views of a vertex."""
        for stage, number in sorted(self.expected):
            if stage in self.names:
                self.names[stage].append(places.process_of(stage, number))
        self.reports = 0
        self.rounds = 0
        self.is_over = False
        """Nothing is left to do, and all have been told."""
        self.is_abandoned = False
        """The job continues in another incarnation. Any thread may set it."""
        self.late: dict[tuple[str, int], bytes | View] = {}
        """The newest view of each replica whose socket has no room for it, by process and stage."""
        self._pacing = Pacing(plan, ahead)
        self._survives = survives
        self._missing = set(self.expected)
        self._is_registering = True
        self._early: list[Frame] = []  # that came while not all had registered
        self._known: set[str] = set()  # processes that hold replicas, or have held some
        self._switch: Switch | None = None
        self._joining: set[ReplicaId] = set()
        self._forgotten: set[ReplicaId] = set()
        self._holds = 0

    @cached_property
    def tracker(self) -> JobTracker:
        """The progress core, made when it is first asked for."""
        return JobTracker(self.plan.progress)

    def turn(self, frames: list[Frame]) -> None:
        """Take these frames, and publish what follows."""
        if self._is_registering:
            self._register(frames)
        else:
            self._take(frames)
            self._publish()
        self._look_for_lost()
        if self.is_abandoned:
            raise ConnectionError("the progress actor was given up: the job goes on in another incarnation")

    def look_whether_over(self) -> None:
        """After control calls: if nothing is left to do, and nobody holds the job, tell everybody."""
        if self._is_registering or self._switch is not None or self.is_over or self._holds or not self.tracker.is_complete():
            return
        self.is_over = True
        for (process, node), payload in self.late.items():
            self.link.send(process, Kind.VIEW, node, payload)
        for process in sorted(self._known):
            if self.link.connected(process):
                self.link.send(process, Kind.DONE, 0, b"")

    # -- registering -----------------------------------------------------------------------------
    def _replica(self, frame: Frame) -> ReplicaId:
        """The replica that a frame is of: its channel says the stage."""
        replica = self.places.replica_at(frame.peer, frame.channel)
        if replica is None:
            raise ProtocolError(
                f"the progress actor got a frame of kind {frame.kind} from {frame.peer!r} of stage {frame.channel}: that is not there"
            )
        return ReplicaId(frame.channel, replica)

    def _register(self, frames: list[Frame]) -> None:
        """Until every replica has reported the capabilities that it starts with; then let all run.

        A change of layout may be asked for meanwhile: what comes of it waits until all have registered.
        """
        for frame in frames:
            if frame.kind == Kind.READY and (replica := self._replica(frame)) in self._missing:
                self._missing.discard(replica)
                self.tracker.apply(self._ready(frame))
            else:
                self._early.append(frame)
        if self._missing:
            return
        self._is_registering = False
        awaited = self._switch.missing if self._switch is not None else frozenset[ReplicaId]()
        for stage, number in sorted(self.expected - awaited):
            self.link.send(self.places.process_of(stage, number), Kind.GO, stage, b"")
        early, self._early = self._early, []
        self._take(early)
        self._publish()

    def _ready(self, frame: Frame) -> list[tuple[int, Timestamp, int]]:
        """A replica registers: what it holds."""
        self._known.add(frame.peer)
        wants_views, report = frame.payload[0], frame.payload[1:]
        if wants_views:
            self.tracker.subscribe(frame.channel)
        return unpack_report(report)

    # -- the loop --------------------------------------------------------------------------------
    def _take(self, frames: list[Frame]) -> None:
        tracker = self.tracker
        for frame in frames:
            if frame.kind == _REPORT:
                changes = unpack_report(frame.payload)
                if self._switch is not None:
                    (replica,) = self.places.replicas_at(frame.peer, self.plan)  # replicas of an upstream recovery have their own processes
                    changes = self._switch.hold_back(replica, changes)
                tracker.apply(changes)
            elif frame.kind == Kind.SUBSCRIBE:
                tracker.subscribe(frame.channel)
            elif frame.kind == Kind.FENCE:
                self.link.send(frame.peer, Kind.FENCED, frame.channel, b"")  # confirms that its earlier reports are applied
            elif frame.kind == Kind.LEAVE:
                self._on_leave(self._replica(frame))
                self.link.send(frame.peer, Kind.FENCED, frame.channel, b"")
            elif frame.kind == Kind.READY and self._replica(frame) in self._joining:
                self._on_join(frame)
            elif self._replica(frame) in self._forgotten:
                continue  # it was in flight when its change was given up
            elif self._switch is not None and frame.kind in (Kind.READY, Kind.REWOUND):
                self._on_switch(self._switch, frame)
            else:
                raise ProtocolError(f"the progress actor got a frame of kind {frame.kind} from {frame.peer!r}: only reports come here")
        self.reports += len(frames)
        self.rounds += 1

    def _publish(self) -> None:
        for node, view in self.tracker.views().items():
            payload = view if self.link.hands_over else pack_view(view)
            for name in self.names.get(node, ()):
                self.show(name, node, payload)
        if self._switch is None:
            for stage, told in self._pacing.news(self.tracker):
                for process in self.places.processes_of(replica for replica in self.expected if replica[0] == stage):
                    self.link.send(process, Kind.PACE, stage, pack_pace(*told))
        if self.late:
            self.show_late()

    def show(self, name: str, node: int, payload: bytes | View) -> None:
        """Send a view, unless one before it still waits for the process' socket: of a busy replica's views only the newest counts."""
        if self._switch is not None and name in self.places.processes_of(self._switch.newcomers):
            return  # it is sent all views when the counts are replaced; until then they are those of who was there before it
        if self.link.is_behind(name):
            self.late[name, node] = payload
        else:
            self.late.pop((name, node), None)
            self.link.send(name, Kind.VIEW, node, payload)

    def show_late(self) -> None:
        """Send the views that waited to the processes whose sockets have room again; a poll ends when one has."""
        for name, node in [late for late in self.late if not self.link.is_behind(late[0])]:
            self.link.send(name, Kind.VIEW, node, self.late.pop((name, node)))

    def _look_for_lost(self) -> None:
        gone = self.link.take_lost()
        lost = [name for name in gone if not self.expected.isdisjoint(self.places.replicas_at(name, self.plan))] if gone else []
        if lost and not self._survives:  # else the coordinator notices it, too, and decides what to do
            raise ConnectionError(f"the progress actor lost its connection to {lost[0]}: {self.link.why_lost(lost[0])}")

    # -- changes of layout: calls of the coordinator, in the loop -----------------------------------
    def hold(self) -> bool:
        """The job is not over before :meth:`release`, even if nothing is left to do; False when it is over already."""
        self._holds += not self.is_over
        return not self.is_over

    def release(self) -> None:
        """What :meth:`hold` was asked for is done; where that was in an incarnation before this one, nothing is held here."""
        self._holds = max(0, self._holds - 1)

    def join(self, names: Sequence[str], incarnation: int) -> None:
        """These replicas will register while the job runs, and may run once they have. ``incarnation``: of the processes that are new with
        them."""
        replicas = [ReplicaId.from_plane_name(name) for name in names]
        there = self.places.processes_of(self.expected)  # of which some may still be about to connect
        for process in self.places.processes_of(replicas):
            if process not in there and not (is_worker(process) and self.link.connected(process)):  # else it keeps its incarnation
                self.link.expect(process, incarnation)
        self._joining.update(replicas)
        self._forgotten.difference_update(replicas)

    def joined(self, names: Sequence[str]) -> bool:
        """Whether these replicas have registered."""
        return self.expected.issuperset(ReplicaId.from_plane_name(name) for name in names)

    def forget(self, names: Sequence[str]) -> None:
        """These replicas will not register, or not stay."""
        replicas = [ReplicaId.from_plane_name(name) for name in names]
        self._joining.difference_update(replicas)
        self._forgotten.update(replicas)
        for replica in replicas:
            self._on_leave(replica)

    def _on_join(self, frame: Frame) -> None:
        replica, name, node = self._replica(frame), frame.peer, frame.channel
        self.tracker.apply(self._ready(frame))
        self._joining.discard(replica)
        self.expected.add(replica)
        self.names[node].append(name)
        self.link.send(name, Kind.VIEW, node, pack_view(self.tracker.view(node)))
        self.link.send(name, Kind.GO, node, b"")

    def _on_leave(self, replica: ReplicaId) -> None:
        node, name = replica[0], self.places.process_of(*replica)
        self.expected.discard(replica)
        self.late.pop((name, node), None)
        names = self.names.get(node, [])
        if name in names:
            names.remove(name)

    # -- recovery upstream of a failure --------------------------------------------------------
    def switch(self, names: Sequence[str], region: Region, incarnation: int) -> None:
        """The replicas of a region have been replaced; the new ones will register, the others report what they dropped.

        When all have, the old counts of the region are removed and the new ones added in one step: no frontier is published in between.
        Raises ProtocolError when nothing is left to do, and all have been told.
        """
        if self.is_over:
            raise ProtocolError(f"{', '.join(names)} are to be replaced, and the job is complete: all begin anew from the last snapshot")
        replicas = {ReplicaId.from_plane_name(name) for name in names}
        processes = self.places.processes_of(replicas)
        for process in processes:
            self.link.expect(process, incarnation)
        self._early = [frame for frame in self._early if frame.peer not in processes]
        self.late = {of: view for of, view in self.late.items() if of[0] not in processes}
        switch = Switch(region, incarnation, set(replicas), replicas, {replica: [region] for replica in self.expected - replicas})
        self._missing -= replicas  # they may fail before all have registered
        if self._switch is not None:
            switch.take_over(self._switch)
        self._switch = switch

    def _on_switch(self, switch: Switch, frame: Frame) -> None:
        replica = self._replica(frame)
        changes = switch.changes.setdefault(replica, [])
        if frame.kind == Kind.READY:
            changes.extend(self._ready(frame))
            switch.missing.discard(replica)
        else:
            changes.extend(unpack_report(frame.payload))
            switch.on_rewound(replica)
        if switch.missing or any(switch.rewinding.values()):
            return
        told = [change for changes in (*switch.changes.values(), switch.early) for change in changes]
        self.tracker.apply([*zeroing(self.plan, self.tracker, switch.region), *told])
        self._switch = None
        self._pacing.forget()
        self.late.clear()
        self.tracker.views()  # takes what has changed; every replica is sent all views instead
        views = {node: pack_view(self.tracker.view(node)) for node in self.names}
        for node, names in self.names.items():
            for name in names:
                self.link.send(name, Kind.SWITCHED, 0, switch.incarnation.to_bytes(8, "little"))
                self.link.send(name, Kind.VIEW, node, views[node])
        for stage, number in sorted(switch.newcomers):
            self.link.send(self.places.process_of(stage, number), Kind.GO, stage, b"")

    # -- what it tells -----------------------------------------------------------------------------
    def look(self, with_blockers: bool = False) -> tuple[dict[int, Any], int, list[Any], tuple[Stamp, ...]]:
        """Views by stage, how many pointstamps are active, and, if asked for, what blocks the pending notifications and the earliest
        pointstamps; all at one moment."""
        views = {stage.id: tuple(self.tracker.view(stage.id)) for stage in self.plan.stages}
        active = len(self.tracker.active())
        return (views, active, self._blockers(), stamps_of(self.tracker, self.plan)) if with_blockers else (views, active, [], ())

    def counts(self) -> dict[str, int]:
        """How much work progress tracking has been."""
        scopes = {f"changes in scope {scope}": count for scope, count in self.tracker.scope_updates().items()}
        return {"reports": self.reports, "rounds": self.rounds, **scopes}

    def frontier(self, node: int) -> tuple[Timestamp, ...]:
        """The frontier at a probe."""
        return self.tracker.frontier_at(node, 0)

    def has_passed(self, node: int, epoch: int) -> bool:
        """Whether an epoch is complete at a probe."""
        return all(front.epoch > epoch for front in self.tracker.frontier_at(node, 0))

    def _blockers(self) -> list[tuple[str, Timestamp, list[tuple[str, Timestamp, int]]]]:
        """For every pending notification: stage, time, and what could still result in it."""
        describe = self.plan.progress.describe_location
        out = []
        for stage in self.plan.stages:
            for time in self.tracker.view(stage.id).notify_frontier:
                found = [(describe(loc), t, n) for loc, t, n in self.tracker.blockers(stage.id, time)]
                out.append((stage.name, time, found))
        return out


__all__ = ["ProgressWorker", "Switch"]
