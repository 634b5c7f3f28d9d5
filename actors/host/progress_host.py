"""The shell around the progress core: reports in from the plane, views out. One per job, in the progress actor; it does not use Ray.

All reports that one wake-up brings are applied before any view goes out, so that a burst costs one propagation.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from rayad.actors.lead.diagnosis import Stamp, stamps_of
from rayad.actors.plane.plane import Address, Frame, Plane
from rayad.actors.plane.protocol import PROGRESS, SPIN_S, Kind, pack_view, unpack_report
from rayad.actors.plane.replica_id import ReplicaId, replicas_of
from rayad.actors.process.mailbox import Mailbox
from rayad.actors.replica.places import Places
from rayad.actors.replica.upstream import Region, zeroing
from rayad.dataflow.plan import Plan
from rayad.progress import JobTracker, ProtocolError, Timestamp


@dataclass(slots=True)
class _Switch:
    region: Region
    missing: set[ReplicaId]
    rewinding: set[ReplicaId]
    changes: list[tuple[int, Timestamp, int]] = field(default_factory=list)
    newcomers: list[ReplicaId] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.newcomers = sorted(self.missing)


class ProgressHost:
    """Runs the progress core of one job to its end.

    Args:
        plan, places: the dataflow, and which process holds which replica.
        job, secret, incarnation, seals: for its plane.
        survives: the loss of replicas.
    """

    def __init__(
        self,
        plan: Plan,
        *,
        job: str,
        secret: bytes,
        incarnation: int,
        places: Places | None = None,
        survives: bool = False,
        seals: bool = True,
    ) -> None:
        self.plan = plan
        self.places = places or Places()
        self.tracker = JobTracker(plan.progress)
        self.mailbox = Mailbox()
        self.plane = Plane(name=PROGRESS, job=job, incarnation=incarnation, secret=secret, spin_s=SPIN_S, seals=seals)
        self.mailbox.open(self.plane.wakeup)
        self.expected = set(replicas_of(plan.stages))
        self.names = {
            stage.id: [self.places.process_of(stage.id, replica) for replica in range(stage.parallelism)]
            for stage in plan.stages
            if stage.inputs
        }
        """The processes that are sent the views of a vertex."""
        self.reports = 0
        self.rounds = 0
        self._abandoned = False
        self._survives = survives
        self._switch: _Switch | None = None
        self._joining: set[ReplicaId] = set()
        self._forgotten: set[ReplicaId] = set()
        self._late: dict[tuple[str, int], bytes] = {}
        """The newest view of each replica whose socket has no room for it, by process and stage."""
        self._holds = 0
        self._is_over = False

    def _replica(self, frame: Frame) -> ReplicaId:
        """The replica that a frame is of: its channel says the stage."""
        replica = self.places.replica_at(frame.peer, frame.channel)
        if replica is None:
            raise ProtocolError(
                f"the progress actor got a frame of kind {frame.kind} from {frame.peer!r} of stage {frame.channel}: that is not there"
            )
        return ReplicaId(frame.channel, replica)

    def listen(self, host: str, unix: str = "auto") -> Address:
        """Open the plane; gives the address for the replicas."""
        return self.plane.listen(host, unix=unix)

    def run(self) -> dict[str, int]:
        """Register all replicas, start them, and publish views until nothing is left; gives some counts."""
        try:
            self._register()
            self._loop()
            for (process, node), payload in self._late.items():
                self.plane.send(process, Kind.VIEW, node, payload)
            for process in self._processes():
                self.plane.send(process, Kind.DONE, 0, b"")
            return self._counts()
        finally:
            self.mailbox.close()
            self.plane.close(linger_s=2.0)

    def _processes(self) -> list[str]:
        """All that hold replicas, and those that have held some, which are idle now."""
        known = {self.places.process_of(*replica) for replica in self.expected}
        idle = {one.peer for one in self.plane.statistics().peers if one.peer.startswith("w") and self.plane.connected(one.peer)}
        return sorted(known | idle)

    def _register(self) -> None:
        """Wait until every replica has reported the capabilities that it starts with, then let all run."""
        missing = set(self.expected)
        while missing:
            for frame in self.plane.poll(1.0):
                if frame.kind != Kind.READY or (replica := self._replica(frame)) not in missing:
                    raise ProtocolError(
                        f"the progress actor got a frame of kind {frame.kind} from {frame.peer!r} while it waits for {sorted(missing)}"
                    )
                missing.discard(replica)
                self.tracker.apply(self._ready(frame))
            self.mailbox.serve()
            self._look_for_lost()
            self._look_for_abandonment()
        for stage, number in sorted(self.expected):
            self.plane.send(self.places.process_of(stage, number), Kind.GO, stage, b"")

    def _ready(self, frame: Frame) -> list[tuple[int, Timestamp, int]]:
        """A replica registers: what it holds."""
        wants_views, report = frame.payload[0], frame.payload[1:]
        if wants_views:
            self.tracker.subscribe(frame.channel)
        return unpack_report(report)

    def _loop(self) -> None:
        plane, tracker, mailbox = self.plane, self.tracker, self.mailbox
        while True:
            views = tracker.views()
            for node, view in views.items():
                payload = pack_view(view)
                for name in self.names.get(node, ()):
                    self._show(name, node, payload)
            if self._late:
                self._show_late()
            mailbox.serve()
            if tracker.is_complete() and not self._holds:
                self._is_over = True
                return
            frames = plane.poll(1.0)
            for frame in frames:
                if frame.kind == Kind.REPORT:
                    tracker.apply(unpack_report(frame.payload))
                elif frame.kind == Kind.SUBSCRIBE:
                    tracker.subscribe(frame.channel)
                elif frame.kind == Kind.FENCE:
                    plane.send(frame.peer, Kind.FENCED, frame.channel, b"")  # confirms that its earlier reports are applied
                elif frame.kind == Kind.LEAVE:
                    self._on_leave(self._replica(frame))
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
            self._look_for_abandonment()
            self._look_for_lost()

    def _show(self, name: str, node: int, payload: bytes) -> None:
        """Send a view, unless one before it still waits for the replica's socket: of a busy replica's views only the newest counts."""
        if self.plane.is_behind(name):
            self._late[name, node] = payload
        else:
            self._late.pop((name, node), None)
            self.plane.send(name, Kind.VIEW, node, payload)

    def _show_late(self) -> None:
        """Send the views that waited to the replicas whose sockets have room again; a poll ends when one has."""
        for name, node in [late for late in self._late if not self.plane.is_behind(late[0])]:
            self.plane.send(name, Kind.VIEW, node, self._late.pop((name, node)))

    def _look_for_lost(self) -> None:
        gone = self.plane.take_lost()
        lost = [name for name in gone if not self.expected.isdisjoint(self.places.replicas_at(name, self.plan))] if gone else []
        if lost and not self._survives:  # else the coordinator notices it, too, and decides what to do
            raise ConnectionError(f"the progress actor lost its connection to {lost[0]}: {self.plane.why_lost(lost[0])}")

    def _look_for_abandonment(self) -> None:
        if self._abandoned:
            raise ConnectionError("the progress actor was given up: the job goes on in another incarnation")

    # -- changes of layout -----------------------------------------------------------------------
    def hold(self) -> bool:
        """Control call: the job is not over before :meth:`release`, even if nothing is left to do; False when it is over already."""

        def hold() -> bool:
            self._holds += not self._is_over
            return not self._is_over

        return self.mailbox.ask(hold)  # type: ignore[no-any-return]

    def release(self) -> None:
        """Control call: what :meth:`hold` was asked for is done."""

        def release() -> None:
            self._holds -= 1

        self.mailbox.ask(release)

    def join(self, names: list[str], incarnation: int) -> None:
        """Control call: these replicas will register while the job runs, and may run once they have. ``incarnation``: of the processes
        that are new with them."""
        replicas = [ReplicaId.from_plane_name(name) for name in names]

        def begin() -> None:
            for process in self.places.processes_of(replicas):
                if not self._holds_some(process):
                    self.plane.expect(process, incarnation)
            self._joining.update(replicas)
            self._forgotten.difference_update(replicas)

        self.mailbox.ask(begin)

    def _holds_some(self, process: str) -> bool:
        """Whether a process is there that keeps its incarnation."""
        return process.startswith("w") and self.plane.connected(process)

    def joined(self, names: list[str], timeout_s: float) -> bool:
        """Control call: wait until these replicas have registered."""
        replicas = [ReplicaId.from_plane_name(name) for name in names]
        return self.mailbox.watch(lambda: self.expected.issuperset(replicas), timeout_s)

    def forget(self, names: list[str]) -> None:
        """Control call: these replicas will not register, or not stay."""
        replicas = [ReplicaId.from_plane_name(name) for name in names]

        def forget() -> None:
            self._joining.difference_update(replicas)
            self._forgotten.update(replicas)
            for replica in replicas:
                self._on_leave(replica)

        self.mailbox.ask(forget)

    def _on_join(self, frame: Frame) -> None:
        replica, name, node = self._replica(frame), frame.peer, frame.channel
        self.tracker.apply(self._ready(frame))
        self._joining.discard(replica)
        self.expected.add(replica)
        self.names[node].append(name)
        self.plane.send(name, Kind.VIEW, node, pack_view(self.tracker.view(node)))
        self.plane.send(name, Kind.GO, node, b"")

    def _on_leave(self, replica: ReplicaId) -> None:
        node, name = replica[0], self.places.process_of(*replica)
        self.expected.discard(replica)
        self._late.pop((name, node), None)
        names = self.names.get(node, [])
        if name in names:
            names.remove(name)

    # -- recovery upstream of a failure --------------------------------------------------------
    def switch(self, names: list[str], region: Region, incarnation: int) -> None:
        """Control call: the replicas of a region have been replaced; the new ones will register, the others report what they dropped.

        When all have, the old counts of the region are removed and the new ones added in one step: no frontier is published in between.
        """

        replicas = {ReplicaId.from_plane_name(name) for name in names}

        def begin() -> None:
            for process in self.places.processes_of(replicas):
                self.plane.expect(process, incarnation)
            self._switch = _Switch(region, replicas, self.expected - replicas)

        self.mailbox.ask(begin)

    def _on_switch(self, switch: _Switch, frame: Frame) -> None:
        if frame.kind == Kind.READY:
            switch.changes.extend(self._ready(frame))
            switch.missing.discard(self._replica(frame))
        else:
            switch.changes.extend(unpack_report(frame.payload))
            switch.rewinding.discard(self._replica(frame))
        if switch.missing or switch.rewinding:
            return
        self.tracker.apply([*zeroing(self.plan, self.tracker, switch.region), *switch.changes])
        self._switch = None
        self._late.clear()
        self.tracker.views()  # takes what has changed; every replica is sent all views instead
        views = {node: pack_view(self.tracker.view(node)) for node in self.names}
        for node, names in self.names.items():
            for name in names:
                self.plane.send(name, Kind.SWITCHED, 0, b"")
                self.plane.send(name, Kind.VIEW, node, views[node])
        for stage, replica in switch.newcomers:
            self.plane.send(self.places.process_of(stage, replica), Kind.GO, stage, b"")

    # -- control calls, from other threads ---------------------------------------------------
    def abandon(self) -> None:
        """Control call: the job continues in another incarnation; end."""
        self._abandoned = True
        self.plane.wakeup()

    def look(self, with_blockers: bool = False) -> tuple[dict[int, Any], int, list[Any], tuple[Stamp, ...]]:
        """Views by stage, how many pointstamps are active, and, if asked for, what blocks the pending notifications and the earliest
        pointstamps; all at one moment."""

        def look() -> tuple[dict[int, Any], int, list[Any], tuple[Stamp, ...]]:
            views = {stage.id: tuple(self.tracker.view(stage.id)) for stage in self.plan.stages}
            active = len(self.tracker.active())
            return (views, active, self._blockers(), stamps_of(self.tracker, self.plan)) if with_blockers else (views, active, [], ())

        return self.mailbox.ask(look)  # type: ignore[no-any-return]

    def counts(self) -> dict[str, int]:
        """How much work progress tracking has been."""
        return self.mailbox.ask(self._counts)  # type: ignore[no-any-return]

    def _counts(self) -> dict[str, int]:
        scopes = {f"changes in scope {scope}": count for scope, count in self.tracker.scope_updates().items()}
        return {"reports": self.reports, "rounds": self.rounds, **scopes}

    def frontier(self, node: int) -> tuple[Timestamp, ...]:
        """The frontier at a probe."""
        return self.mailbox.ask(lambda: self.tracker.frontier_at(node, 0))  # type: ignore[no-any-return]

    def wait_epoch(self, node: int, epoch: int, timeout_s: float) -> bool:
        """Wait until ``epoch`` is complete at a probe, for at most ``timeout_s``."""
        return self.mailbox.watch(lambda: all(f.epoch > epoch for f in self.tracker.frontier_at(node, 0)), timeout_s)

    def _blockers(self) -> list[tuple[str, Timestamp, list[tuple[str, Timestamp, int]]]]:
        """For every pending notification: stage, time, and what could still result in it."""
        describe = self.plan.progress.describe_location
        out = []
        for stage in self.plan.stages:
            for time in self.tracker.view(stage.id).notify_frontier:
                found = [(describe(loc), t, n) for loc, t, n in self.tracker.blockers(stage.id, time)]
                out.append((stage.name, time, found))
        return out
