"""The shell around the progress core: reports in from the plane, views out. One per job, in the progress actor; it does not use Ray.

All reports that one wake-up brings are applied before any view goes out, so that a burst costs one propagation.
"""

from __future__ import annotations

import marshal
from dataclasses import dataclass, field
from typing import Any

from rayad.actors.lead.diagnosis import Stamp, stamps_of
from rayad.actors.plane.plane import Address, Frame, Plane
from rayad.actors.plane.protocol import PROGRESS, SPIN_S, Kind, pack_view, replica_name, stage_of, unpack_report
from rayad.actors.process.mailbox import Mailbox
from rayad.actors.replica.upstream import Region, zeroing
from rayad.dataflow.plan import Plan
from rayad.progress import JobTracker, ProtocolError, Timestamp


@dataclass(slots=True)
class _Switch:
    region: Region
    missing: set[str]
    rewinding: set[str]
    changes: list[tuple[int, Timestamp, int]] = field(default_factory=list)
    newcomers: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.newcomers = sorted(self.missing)


class ProgressHost:
    """Runs the progress core of one job to its end."""

    def __init__(self, plan: Plan, *, job: str, secret: bytes, incarnation: int, survives: bool = False, seals: bool = True) -> None:
        self.plan = plan
        self.tracker = JobTracker(plan.progress)
        self.mailbox = Mailbox()
        self.plane = Plane(name=PROGRESS, job=job, incarnation=incarnation, secret=secret, spin_s=SPIN_S, seals=seals)
        self.mailbox.open(self.plane.wakeup)
        self.expected = {replica_name(s.id, r) for s in plan.stages for r in range(s.parallelism)}
        self.names = {s.id: [replica_name(s.id, r) for r in range(s.parallelism)] for s in plan.stages if s.inputs}
        self.reports = 0
        self.rounds = 0
        self._abandoned = False
        self._survives = survives
        self._switch: _Switch | None = None
        self._joining: set[str] = set()
        self._forgotten: set[str] = set()
        self._late: dict[str, tuple[int, bytes]] = {}
        """The newest view of each replica whose socket has no room for it."""
        self._holds = 0
        self._is_over = False

    def listen(self, host: str, unix: str = "auto") -> Address:
        """Open the plane; gives the address for the replicas."""
        return self.plane.listen(host, unix=unix)

    def run(self) -> dict[str, int]:
        """Register all replicas, start them, and publish views until nothing is left; gives some counts."""
        try:
            self._register()
            self._loop()
            for name in sorted(self.expected):
                if name in self._late:
                    self.plane.send(name, Kind.VIEW, *self._late.pop(name))
                self.plane.send(name, Kind.DONE, 0, b"")
            return self._counts()
        finally:
            self.mailbox.close()
            self.plane.close(linger_s=2.0)

    def _register(self) -> None:
        """Wait until every replica has reported the capabilities that it starts with, then let all run."""
        missing = set(self.expected)
        while missing:
            for frame in self.plane.poll(1.0):
                if frame.kind != Kind.READY or frame.peer not in missing:
                    raise ProtocolError(
                        f"the progress actor got a frame of kind {frame.kind} from {frame.peer!r} while it waits for {sorted(missing)}"
                    )
                missing.discard(frame.peer)
                wants_views, report = marshal.loads(frame.payload)
                if wants_views:
                    self.tracker.subscribe(stage_of(frame.peer))
                self.tracker.apply(unpack_report(report))
            self.mailbox.serve()
            self._look_for_lost()
            self._look_for_abandonment()
        for name in sorted(self.expected):
            self.plane.send(name, Kind.GO, 0, b"")

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
                    tracker.subscribe(stage_of(frame.peer))
                elif frame.kind == Kind.FENCE:
                    plane.send(frame.peer, Kind.FENCED, 0, b"")  # confirms that its earlier reports are applied
                elif frame.kind == Kind.LEAVE:
                    self._on_leave(frame.peer)
                elif frame.kind == Kind.READY and frame.peer in self._joining:
                    self._on_join(frame)
                elif frame.peer in self._forgotten:
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
            self._late[name] = (node, payload)
        else:
            self._late.pop(name, None)
            self.plane.send(name, Kind.VIEW, node, payload)

    def _show_late(self) -> None:
        """Send the views that waited to the replicas whose sockets have room again; a poll ends when one has."""
        for name in [name for name in self._late if not self.plane.is_behind(name)]:
            node, payload = self._late.pop(name)
            self.plane.send(name, Kind.VIEW, node, payload)

    def _look_for_lost(self) -> None:
        lost = [name for name in self.plane.take_lost() if name in self.expected]
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
        """Control call: these replicas will register while the job runs, and may run once they have."""

        def begin() -> None:
            for name in names:
                self.plane.expect(name, incarnation)
            self._joining.update(names)
            self._forgotten.difference_update(names)

        self.mailbox.ask(begin)

    def joined(self, names: list[str], timeout_s: float) -> bool:
        """Control call: wait until these replicas have registered."""
        return self.mailbox.watch(lambda: self.expected.issuperset(names), timeout_s)

    def forget(self, names: list[str]) -> None:
        """Control call: these replicas will not register, or not stay."""

        def forget() -> None:
            self._joining.difference_update(names)
            self._forgotten.update(names)
            for name in names:
                self._on_leave(name)

        self.mailbox.ask(forget)

    def _on_join(self, frame: Frame) -> None:
        name, node = frame.peer, stage_of(frame.peer)
        wants_views, report = marshal.loads(frame.payload)
        if wants_views:
            self.tracker.subscribe(node)
        self.tracker.apply(unpack_report(report))
        self._joining.discard(name)
        self.expected.add(name)
        self.names[node].append(name)
        self.plane.send(name, Kind.VIEW, node, pack_view(self.tracker.view(node)))
        self.plane.send(name, Kind.GO, 0, b"")

    def _on_leave(self, name: str) -> None:
        self.expected.discard(name)
        self._late.pop(name, None)
        names = self.names.get(stage_of(name), [])
        if name in names:
            names.remove(name)

    # -- recovery upstream of a failure --------------------------------------------------------
    def switch(self, names: list[str], region: Region, incarnation: int) -> None:
        """Control call: the replicas of a region have been replaced; the new ones will register, the others report what they dropped.

        When all have, the old counts of the region are removed and the new ones added in one step: no frontier is published in between.
        """

        def begin() -> None:
            for name in names:
                self.plane.expect(name, incarnation)
            self._switch = _Switch(region, set(names), self.expected - set(names))

        self.mailbox.ask(begin)

    def _on_switch(self, switch: _Switch, frame: Frame) -> None:
        if frame.kind == Kind.READY:
            wants_views, report = marshal.loads(frame.payload)
            if wants_views:
                self.tracker.subscribe(stage_of(frame.peer))
            switch.missing.discard(frame.peer)
        else:
            report = frame.payload
            switch.rewinding.discard(frame.peer)
        switch.changes.extend(unpack_report(report))
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
        for name in switch.newcomers:
            self.plane.send(name, Kind.GO, 0, b"")

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
