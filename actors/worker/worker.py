"""A worker: one loop around replicas of several vertices, or around a single one. It has no socket, thread or clock.

Each turn: take the frames that are there, run activations of each replica, downstream first, send one report of everything that changed,
and only then wait. What a replica sends to another of the same worker is handed over as it is, between two activations. A report is
atomic, and so is the sum of several: what one replica produced and another consumed within a turn cancels, and the progress actor never
hears of it.

Source: Murray et al., SOSP 2013, 3.2 and 3.3; docs/design/worker.md.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Mapping
from heapq import heapify, heappop, heappush
from itertools import chain
from typing import Any

from rayad.actors.plane.frames import Frame
from rayad.actors.plane.protocol import COORDINATOR, PROGRESS, Changes, Kind, pack_report
from rayad.actors.plane.replica_id import ReplicaId
from rayad.actors.replica.input.source_parts import Resumable
from rayad.actors.replica.places import Places
from rayad.actors.replica.report import Abandoned, Left
from rayad.actors.worker.lost_peers import LostPeers
from rayad.actors.worker.readers import Readers
from rayad.actors.worker.replica_host import ReplicaHost
from rayad.actors.worker.surroundings import Surroundings
from rayad.actors.worker.workplace import Sibling
from rayad.autoscale.statistics import BUSY
from rayad.dataflow.config import RunConfig
from rayad.dataflow.operators.stateless import Element
from rayad.dataflow.plan import Layout, Plan
from rayad.progress import ProtocolError, Timestamp
from rayad.snapshots.store import SnapshotStore

SLICE_S = 0.002
"""How long activations run before frames are looked at and progress is reported again."""
_OF_EDGES = frozenset(map(int, (Kind.DATA, Kind.BARRIER, Kind.CREDIT)))
_OF_PROCESS = frozenset(map(int, (Kind.READ, Kind.DONE, Kind.SWITCHED)))
_READ, _VIEW = int(Kind.READ), int(Kind.VIEW)


class Worker:
    """Runs replicas to their end.

    Args:
        name: of the process, on the data plane.
        plan: the dataflow, in the layout of now.
        places: which process holds which replica.
        config: of the run.
        around: its plane, clock and writers.
        store: of snapshots; None: there are none.
        incarnations: of other processes, where they differ from this one's.
    """

    def __init__(
        self,
        name: str,
        plan: Plan,
        places: Places,
        config: RunConfig,
        around: Surroundings,
        *,
        store: SnapshotStore | None = None,
        incarnations: Mapping[str, int] | None = None,
    ) -> None:
        self.name = name
        self.places = places
        self.link, self.clock = around.link, around.clock
        self.hosts: dict[int, ReplicaHost] = {}
        """The replicas, by stage; downstream first."""
        self.left: list[tuple[ReplicaId, Left]] = []
        """What replicas that have retired leave behind."""
        self.handed_over: deque[tuple[Sibling, int, int, int, Any]] = deque()
        self.lost = LostPeers(self)
        self.is_done = False
        """The progress actor has said that the job is complete."""
        self.rewinding = 0
        self.stopping: Collection[int] = ()
        """These vertices read no more. Any thread may set it."""
        self.is_abandoned = False
        """The job continues in another incarnation. Any thread may set it."""
        self.turn_s = 0.0
        """When the last turn began."""
        self._plan = plan
        self.config = config
        self._around = around
        self._store = store
        self._edges = plan.edge_by_id
        self._downstream_first = [stage.id for stage in reversed(plan.stages)]
        self._order = {stage: index for index, stage in enumerate(self._downstream_first)}
        self._sources: dict[tuple[str, int, bool], tuple[ReplicaHost, int]] = {}
        self._changes: list[list[tuple[int, Timestamp, int]]] = []
        self._addresses: dict[str, Any] = {}
        self._to_connect: dict[str, Any] = {}
        self._contacts: set[str] = set()
        self._incarnations: dict[str, int] = {}
        self._joining: dict[int, tuple[set[str], float]] = {}  # by stage: whom it waits for before it registers, and until when
        self._has_begun = False
        self._slice_ends_s = 0.0
        self._is_alone = True
        self._readers = Readers(self.link)
        self._is_touched = False
        self._due: set[int] = set()  # the vertices whose replicas here are not at rest
        for process, incarnation in (incarnations or {}).items():
            if incarnation != self.link.incarnation:
                self.admit_process(process, incarnation)

    # -- who is there --------------------------------------------------------------------------------
    def hold(
        self,
        stage: int,
        replica: int,
        *,
        part: Resumable | None = None,
        isolated: Callable[[Element], Element | None] | None = None,
        is_newcomer: bool = False,
    ) -> ReplicaHost:
        """Build a replica here; it runs when all have begun, or if this worker runs, when :meth:`admit` has connected it."""
        options: dict[str, Any] = {"store": self._store, "part": part, "isolated": isolated, "is_newcomer": is_newcomer}
        host = ReplicaHost(self, self._plan, stage, replica, self.config, self._around, **options)
        try:
            host.start()
        except BaseException:
            host.close()
            raise
        self.hosts[stage] = host
        self._due.add(stage)
        if self._has_begun:
            self._settle_hosts()
        return host

    def _settle_hosts(self) -> None:
        """Replicas have come or gone: those that are here are in the order of the graph, and look anew for the ways to others."""
        self.hosts = dict(sorted(self.hosts.items(), key=lambda one: self._order[one[0]]))
        self._is_alone = len(self.hosts) == 1
        self._sources.clear()
        for host in self.hosts.values():
            host.place.carrier.forget_ways()

    def admit(self, stage: int, replica: int, layout: Layout, incarnations: Mapping[str, int], addresses: Mapping[str, Any]) -> None:
        """A new replica of a running job lives here: build it, connect it, and register it as soon as its partners are there."""
        self._plan = self._plan.laid_out(layout)
        for process, incarnation in incarnations.items():
            self.admit_process(process, incarnation)
        host = self.hold(stage, replica, is_newcomer=True)
        host.statistics.begin()
        self._addresses.update(addresses)
        self._await(stage, self._partners_of(host))

    def forget(self, stage: int) -> None:
        """A new replica that was admitted does not stay: its change was refused."""
        host = self.hosts.pop(stage, None)
        self._joining.pop(stage, None)
        if host is not None:
            host.close()
        self._settle_hosts()

    def _partners_of(self, host: ReplicaHost) -> set[str]:
        """The processes that a replica exchanges frames with; in a change of layout also its siblings', which give it state."""
        place = host.place
        mine = self.places.partners(self.name, place.plan, [place.at])
        return mine | host.rescale.siblings() if host.rescale.is_newcomer else mine

    def partners(self) -> set[str]:
        """The processes that this worker connects to at its start."""
        return {process for host in self.hosts.values() for process in self._partners_of(host)}

    def touch(self, stage: int) -> None:
        """The replica of this vertex may have something to do: it is looked at in the next turn."""
        self._due.add(stage)
        self._is_touched = True

    def _looked_at(self) -> list[ReplicaHost]:
        """The replicas that are not at rest, downstream first."""
        hosts = self.hosts
        if len(self._due) == len(hosts):
            return list(hosts.values())
        return [hosts[stage] for stage in sorted(self._due, key=self._order.__getitem__) if stage in hosts]

    def beside(self, stage: int, replica: int) -> Sibling | None:
        """That replica, if it lives in this worker."""
        host = self.hosts.get(stage)
        return host if host is not None and host.place.replica == replica else None

    def admit_process(self, process: str, incarnation: int) -> None:
        """A process is new, perhaps under the name of one that has ended."""
        if self._incarnations.get(process, self.link.incarnation) != incarnation:
            self._incarnations[process] = incarnation
            self.link.expect(process, incarnation)
            self.lost.forget(process)
            self._contacts.discard(process)

    def connect(self, process: str, address: Any) -> None:
        """A process comes that this one exchanges frames with. One connection for a pair, made by the smaller name."""
        if process not in self._contacts:
            self._contacts.add(process)
            if self.name < process or process in (PROGRESS, COORDINATOR):
                self._to_connect[process] = address

    # -- the beginning -------------------------------------------------------------------------------
    def begin(self, addresses: Mapping[str, Any]) -> None:
        """Connect, register all replicas, and run."""
        self._has_begun = True
        self._settle_hosts()
        self._addresses.update(addresses)
        self.connect(PROGRESS, addresses[PROGRESS])
        partners = self.partners()
        for stage in self.hosts:
            self._await(stage, partners)
        for host in self.hosts.values():
            host.statistics.begin()

    def _await(self, stage: int, partners: Collection[str]) -> None:
        for process in sorted(partners):
            self.connect(process, self._addresses.get(process))
        self._joining[stage] = {PROGRESS, *partners}, self.clock.monotonic() + self.config.start_timeout_s

    def _look_for_partners(self) -> None:
        """Register the replicas whose partners have all been found."""
        now_s = self.clock.monotonic()
        for process in list(self._to_connect):
            try:
                self.link.start_connect(process, self._to_connect[process], self.config.start_timeout_s)
            except BlockingIOError:  # a Unix socket's backlog is full: the peer has not polled for a while
                break
            del self._to_connect[process]
        for stage, (awaited, until_s) in list(self._joining.items()):
            missing = sorted(process for process in awaited if not self.link.connected(process))
            if not missing and self._store is not None and COORDINATOR not in awaited:
                self._resend(stage)
                awaited.add(COORDINATOR)  # it begins snapshots when all have come to it, so each comes when it has found the others
                self.connect(COORDINATOR, self._addresses[COORDINATOR])
            elif not missing:
                del self._joining[stage]
                self._register(self.hosts[stage])
            elif (gone := next((process for process in missing if process in self.lost), None)) is not None:
                raise ConnectionError(f"{self.title()} cannot connect to {self.title(gone)}: {self.link.why_lost(gone)}")
            elif now_s > until_s:
                raise ProtocolError(
                    f"{self.name} waited {self.config.start_timeout_s} s for connections from {missing}: did these actors start?"
                )

    def _register(self, host: ReplicaHost) -> None:
        self.link.send(PROGRESS, Kind.READY, host.place.stage.id, host.register())

    def _resend(self, stage: int) -> None:
        """What waited for credit at the cut goes out before the first barrier of this incarnation can be on its channel."""
        snapshots = self.hosts[stage].snapshots
        if snapshots is not None:
            snapshots.resend()

    # -- a turn --------------------------------------------------------------------------------------
    def turn(self, frames: list[Frame], answer: Callable[[], None] | None = None) -> None:
        """Take these frames, and do what can be done within a slice of time. ``answer``: answers control calls, which find all taken that
        came before them: a roll-back drops what the senders that are gone had sent."""
        self.turn_s = self.clock.perf_counter()
        if frames:
            self._take(frames)
            if self.handed_over:
                self._hand_over()
        if answer is not None:
            answer()
        self._readers.answer(self.hosts)
        if self._joining or self._to_connect:
            self._look_for_partners()
        for stage in self.stopping:
            if stage in self.hosts and not self.hosts[stage].has_stopped:
                self.hosts[stage].stop()
                self._due.add(stage)
        self._work()
        self.flush(holds_back=True)
        for host in self._looked_at():
            host.tick()
        if self.handed_over:
            self._hand_over()
        self._look_for_the_left()
        self._settle()
        self.lost.look()
        if self.is_abandoned:
            raise Abandoned(f"{self.name} was given up: the job goes on in another incarnation")

    def timeout_s(self) -> float:
        """How long it may wait for frames."""
        if self.handed_over:
            return 0.0
        timeout_s = 0.005 if self._to_connect else 0.1 if self._joining else 1.0  # a poll ends when a connection is there
        for host in self._looked_at():
            timeout_s = min(timeout_s, host.timeout_s())
        return timeout_s

    def wait(self, timeout_s: float) -> list[Frame]:
        """Poll the plane, as there is nothing to do; until something happens the replicas are idle, or back-pressured.

        Questions of readers are answered here: they change nothing, so there is no turn for them.
        """
        hosts = self.hosts.values()
        while True:
            began_s = self.clock.perf_counter()
            for host in hosts:
                host.statistics.rest(began_s, has_work=False)
            frames = self.link.poll(timeout_s)
            if self._is_alone:
                for host in hosts:
                    host.statistics.counters.turn_to(BUSY, self.link.woke_s)  # reading the sockets is work
            if not frames or frames[0].kind != _READ or any(frame.kind != _READ for frame in frames):
                return frames
            self._is_touched = False
            for frame in frames:
                self._readers.take(frame)
            self._readers.answer(self.hosts)
            timeout_s -= self.clock.perf_counter() - began_s
            if self._is_touched or self.link.was_woken or timeout_s <= 0.0:
                return []

    @property
    def is_over(self) -> bool:
        """Whether all that it holds is finished: the job is complete."""
        if not self.is_done or not self._has_begun or self._joining:
            return False
        return all(host.is_finished for host in self.hosts.values())

    def _take(self, frames: list[Frame]) -> None:
        sources, due = self._sources, self._due
        for frame in frames:
            kind, channel, peer = frame.kind, frame.channel, frame.peer
            if kind in _OF_EDGES:
                found = sources.get((peer, channel, kind == Kind.CREDIT)) or self._other_end(peer, channel, kind == Kind.CREDIT)
                if found is not None:
                    host, replica = found
                    host.take(kind, channel, replica, frame.payload)
                    due.add(host.stage)
                    if host.arrived.regular and host.statistics.watched is None:
                        host.statistics.watch(host.arrived.regular, len(frames))
            elif kind in _OF_PROCESS:
                self._take_of_process(frame)
            elif (for_host := self.hosts.get(channel)) is not None:
                if kind != _VIEW or not self.rewinding:  # else it is from before a roll-back
                    for_host.take_frame(frame)
                    due.add(channel)
            elif kind not in (Kind.VIEW, Kind.PACE) and (kind, peer) not in ((Kind.GIVE_UP, COORDINATOR), (Kind.BEGIN, COORDINATOR)):
                # Those may have been in flight while the replica retired.
                raise ProtocolError(f"{self.name} got a frame of kind {kind} from {peer!r} on channel {channel}: no replica for it is here")

    def _take_of_process(self, frame: Frame) -> None:
        if frame.kind == Kind.READ:
            self._readers.take(frame)
        elif frame.kind == Kind.DONE:
            self._on_done()
        elif int.from_bytes(frame.payload, "little") >= self.rewinding:  # SWITCHED
            self.rewinding = 0

    def _other_end(self, peer: str, edge: int, back: bool) -> tuple[ReplicaHost, int] | None:
        """The replica here that a frame on an edge is for, and the number of the one that sent it; None: it has retired."""
        ends = self._edges[edge]
        mine, theirs = (ends.source, ends.target) if back else (ends.target, ends.source)
        host, replica = self.hosts.get(mine), self.places.replica_at(peer, theirs)
        if replica is None:
            raise ProtocolError(f"{self.name} got a frame on edge {ends.name} from {peer!r}, which holds no replica of it")
        if host is None:
            if back:
                return None  # credit for a replica that has retired
            raise ProtocolError(f"{self.name} got a batch on edge {ends.name} from {peer!r}, and holds no replica for it")
        self._sources[peer, edge, back] = host, replica
        return host, replica

    def _on_done(self) -> None:
        self.is_done = True
        self._due.update(self.hosts)
        if self._store is not None:
            self.link.send(COORDINATOR, Kind.FINISHED, 0, b"")
            for host in self.hosts.values():
                if host.snapshots is not None:
                    host.snapshots.finish()

    def _hand_over(self) -> set[int]:
        """Let replicas of this worker have what others of it have sent them; gives the vertices of those that have got something."""
        handed = self.handed_over
        got: set[int] = set()
        while handed:
            host, kind, edge, replica, payload = handed.popleft()
            host.take(kind, edge, replica, payload)
            got.add(host.stage)
        self._due |= got
        return got

    def _settle(self) -> None:
        """Those that are at rest are not looked at again before something comes for them."""
        if not self._is_alone:
            for stage in list(self._due):
                host = self.hosts.get(stage)
                if host is None or host.is_at_rest:
                    self._due.discard(stage)

    def _is_slice_over(self) -> bool:
        return self.clock.perf_counter() > self._slice_ends_s

    def _work(self) -> None:
        """Activations of each replica, downstream first; what they hand to each other is done in the same turn, if there is time.

        When the slice is over each replica that was due still has one activation: so none waits for ever for those downstream of it.
        """
        clock = self.clock
        self._slice_ends_s = clock.perf_counter() + SLICE_S
        if self._is_alone:
            for alone in self.hosts.values():
                if alone.is_going and alone.has_work():
                    alone.work(self._is_slice_over)
            return
        hosts, order, stages = self.hosts, self._order, self._downstream_first
        waiting = [order[stage] for stage in self._due]
        heapify(waiting)
        while waiting:
            host = hosts.get(stages[heappop(waiting)])
            if host is None or not host.is_going or not host.has_work():
                continue
            host.statistics.counters.turn_to(BUSY, clock.perf_counter())
            host.work(self._is_slice_over)
            host.place.send_out()
            host.statistics.rest(clock.perf_counter(), has_work=host.has_more())
            if self.handed_over:
                got = self._hand_over()
                if not self._is_slice_over():
                    for stage in got:
                        heappush(waiting, order[stage])

    # -- the way out ---------------------------------------------------------------------------------
    def report(self, changes: list[tuple[int, Timestamp, int]]) -> None:
        """This goes into the next report."""
        self._changes.append(changes)

    def _told(self) -> Changes:
        """The sum of what replicas have reported; a source that has ended is a change of 0."""
        told, self._changes = self._changes, []
        if len(told) == 1:
            return Changes(told[0])
        total: dict[tuple[int, Timestamp], int] = {}
        ends = Changes()
        for location, time, delta in chain.from_iterable(told):
            if delta:
                total[location, time] = total.get((location, time), 0) + delta
            else:
                ends.append((location, time, 0))
        return Changes([*((location, time, delta) for (location, time), delta in total.items() if delta), *ends])

    def flush(self, *, holds_back: bool = False) -> None:
        """Send what replicas have produced, then everything that changed as one report; ``holds_back``: combiners may keep gathering."""
        hosts = [host for host in self._looked_at() if host.is_registered and not (holds_back and host.may_hold_back())]
        for host in hosts:
            host.place.flush_out()
        for host in hosts:
            host.place.tell()
        if self._changes and (changes := self._told()):
            self.link.send(PROGRESS, Kind.REPORT, 0, changes if self.link.hands_over else pack_report(changes))
        for host in hosts:
            host.rescale.after_report()

    def _look_for_the_left(self) -> None:
        for stage, host in list(self.hosts.items()):
            if host.rescale.has_left:
                del self.hosts[stage]
                self.left.append((host.place.at, Left(host.last_report(), host.rescale.staged())))
                host.close()
                self._settle_hosts()

    def left_by(self, stage: int, replica: int) -> Left | None:
        """What a replica that retires has left; None: it has not yet."""
        return None if stage in self.hosts else next((left for at, left in reversed(self.left) if at == (stage, replica)), None)

    def results(self) -> dict[ReplicaId, Left]:
        """The job is complete: what each replica here has done and staged."""
        return {host.place.at: Left(host.last_report(), host.staged(), host.recent()) for stage, host in self.hosts.items()}

    def close(self, *, aborts: bool = False) -> None:
        """Free all resources; ``aborts``: what sinks have written is thrown away, unless a snapshot may name it."""
        for host in self.hosts.values():
            if aborts and self._store is None:
                host.core.abort_sinks()
            host.close()

    # -- what it is ----------------------------------------------------------------------------------
    @property
    def plan(self) -> Plan:
        """In the layout of now."""
        host = next(iter(self.hosts.values()), None)
        return host.place.plan if host is not None else self._plan

    def knows(self, process: str) -> bool:
        """Whether a process holds replicas in some layout that a replica here knows."""
        plans = [host.place.plan for host in self.hosts.values()] or [self._plan]
        return any(self.places.replicas_at(process, plan) for plan in plans)

    def title(self, process: str = "") -> str:
        """What a process, or this one, is called by people."""
        return self.places.title(process or self.name, self.plan)


__all__ = ["SLICE_S", "Worker"]
