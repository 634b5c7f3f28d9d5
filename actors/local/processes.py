"""The processes of a local job on its bus: the workers and the progress worker that ship, and the drivers' ends of live inputs.

Events: ``("deliver", way)`` frames arrive, ``("connect", pair)``, ``("turn", name)`` a worker has something to do without frames,
``("write", replica)`` a part of a snapshot is written, ``("feed", stage)`` a live input sends, ``("views", name)`` the progress worker has
room again for views that waited. Nothing here decides anything but the order, which a seed gives.
"""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from rayad.actors.local.bus import Bus, BusLink, Ready, VirtualClock
from rayad.actors.local.part_events import EventWriter
from rayad.actors.plane.frames import Frame
from rayad.actors.plane.protocol import COORDINATOR, PROGRESS, Kind, driver_name, pack_number
from rayad.actors.plane.replica_id import ReplicaId
from rayad.actors.replica.input.source_parts import Resumable
from rayad.actors.replica.places import Places
from rayad.actors.replica.report import ReplicaReport
from rayad.actors.store.input_log import InputLog
from rayad.actors.worker.looking import note_counts
from rayad.actors.worker.payloads import Numbered, handed
from rayad.actors.worker.progress_worker import ProgressWorker
from rayad.actors.worker.replica_host import ReplicaHost
from rayad.actors.worker.surroundings import Surroundings
from rayad.actors.worker.worker import Worker
from rayad.dataflow.compiling.sharing import shared_steps
from rayad.dataflow.config import RunConfig
from rayad.dataflow.logical_graph import NodeKind
from rayad.dataflow.pacing import Ahead
from rayad.dataflow.plan import Plan, Stage
from rayad.progress import Timestamp
from rayad.snapshots.store import SnapshotStore

IDLE_S = 1.0
"""A worker that may wait so long has nothing to do by itself."""
POLLS = 0.75
"""How often a process that gets something gets what all others have sent it, too, as a poll of sockets does."""
SHORT_S = 1e-4
"""The least that passes when nothing happens."""
VIEWS = ("views", PROGRESS)
"""The event that there is room for views that wait."""
KINDS = {"advance": Kind.INPUT_ADVANCE, "note": Kind.INPUT_NOTE, "save": Kind.INPUT_SAVE, "close": Kind.INPUT_CLOSE}


class DriverEnd:
    """The driver's end of one live input: what it has sent, as far as it may have to be sent again."""

    def __init__(self, link: BusLink, process: str, log: InputLog) -> None:
        self.link = link
        self.process = process
        self.log = log


class Processes:
    """Of one job.

    Args:
        plan: the dataflow, in the layout that it begins with.
        places: which process holds which replica.
        config: of the run.
        chance: the seeded generator.
        clock: of all workers.
        check_records: whether batches that several functions see are watched for changes.
        moment: what the vertices' clock says.
        hear: takes what arrives at the coordinator.
        polls: see :data:`POLLS`.
    """

    def __init__(
        self,
        plan: Plan,
        places: Places,
        config: RunConfig,
        chance: random.Random,
        *,
        clock: VirtualClock,
        check_records: bool = True,
        moment: Callable[[], dt.datetime],
        hear: Callable[[list[Frame]], None],
        polls: float = POLLS,
    ) -> None:
        self.places = places
        self.config = config
        self.ready = Ready()
        self.bus = Bus(chance, self.ready)
        self.clock = clock
        self.workers: dict[str, Worker] = {}
        self.progress: ProgressWorker
        self.store: SnapshotStore | None = None
        self.writers: dict[ReplicaId, EventWriter] = {}
        self.logs: dict[int, InputLog] = {}
        """Of live inputs, by stage; they outlive what is lost."""
        self.at = ""
        """The process at which something has happened last."""
        self._drivers: dict[int, DriverEnd] = {}
        self._chance = chance
        self._moment = moment
        self._hear = hear
        self._polls = polls
        self._looked_s: dict[str, float] = {}  # when each worker had its last turn, by its clock
        self._shared = shared_steps(plan) if check_records else {}
        self._survives = config.failures.recovery == "upstream"
        self.begin_progress(plan, 0)

    # -- who is there --------------------------------------------------------------------------------
    def clear(self) -> None:
        """All that was there is gone, with what was on its way."""
        for name in list(self.workers):
            self.close(name)
        self.workers = {}
        self.bus.clear()
        self.ready.clear()
        self._drivers.clear()

    def begin_progress(self, plan: Plan, incarnation: int) -> None:
        """The progress worker of this incarnation is there."""
        given: dict[str, Any] = {"survives": self._survives, "ahead": Ahead.of_run(self.config)}
        self.progress = ProgressWorker(plan, self.places, self.bus.link(PROGRESS, incarnation), **given)

    def come(self, name: str, plan: Plan, incarnation: int, incarnations: Mapping[str, int] | None = None) -> Worker:
        """A process comes; it holds nothing yet."""

        def writer(stage: Stage, replica: int) -> EventWriter:
            assert self.store is not None
            at = ReplicaId(stage.id, replica)
            made = EventWriter(self.store, stage, replica, incarnation, lambda can: self.ready.keep(("write", at), can))
            self.writers[at] = made
            return made

        around = Surroundings(self.bus.link(name, incarnation), self.clock, self._moment, writer)
        options: dict[str, Any] = {"store": self.store, "incarnations": incarnations}
        worker = self.workers[name] = Worker(name, plan, self.places, self.config, around, **options)
        return worker

    def hold(self, name: str, at: ReplicaId, *, part: Resumable | None = None, is_newcomer: bool = False) -> None:
        """A process builds a replica."""
        self.workers[name].hold(*at, part=part, is_newcomer=is_newcomer)
        self._watch(at)

    def admit(self, name: str, at: ReplicaId, *arguments: Any) -> None:
        """See :meth:`Worker.admit`."""
        self.workers[name].admit(*at, *arguments)
        self._watch(at)
        self._wake(name)

    def _watch(self, at: ReplicaId) -> None:
        host = self.host(at)
        assert host is not None
        host.core.outputs.watch_records(self._shared.get(at.stage, {}))

    def begin(self, name: str, addresses: Mapping[str, Any]) -> None:
        """A process connects, registers, and runs."""
        worker = self.workers[name]
        worker.begin(addresses)
        for stage, host in worker.hosts.items():
            if host.place.stage.kind is NodeKind.INPUT:
                taken = host.core.input.frames
                log = self.logs.setdefault(stage, InputLog(taken))
                log.rewind(taken)
                self._drivers[stage] = DriverEnd(BusLink(self.bus, driver_name(stage), worker.link.incarnation), name, log)
        self._wake(name)

    def close(self, name: str, *, aborts: bool = False) -> None:
        """A process ends; what it holds is released."""
        worker = self.workers.pop(name)
        worker.close(aborts=aborts)
        for host in worker.hosts.values():
            self.writers.pop(host.place.at, None)
        self.ready.discard(("turn", name))
        for stage in [stage for stage, end in self._drivers.items() if end.process == name]:
            del self._drivers[stage]
            self.ready.discard(("feed", stage))

    def lose(self, name: str) -> list[Frame]:
        """A process is gone; gives what is lost on its way to or from it."""
        self.close(name)
        return self.bus.leave(name)

    def host(self, at: tuple[int, int]) -> ReplicaHost | None:
        """A replica, if it is there."""
        worker = self.workers.get(self.places.process_of(*at))
        host = worker.hosts.get(at[0]) if worker is not None else None
        return host if host is not None and host.place.replica == at[1] else None

    def hosts(self) -> Iterator[ReplicaHost]:
        """The replicas."""
        for worker in self.workers.values():
            yield from worker.hosts.values()

    # -- what happens --------------------------------------------------------------------------------
    def perform(self, kind: str, what: Any) -> bool:
        """One event; False if it is none of these."""
        if kind == "deliver":
            self._arrive(*what)
        elif kind == "turn":
            self.turn(what, [])
        elif kind == "connect":
            self.bus.connect(what)
            for name in what:
                self._wake(name)
        elif kind == "feed":
            self._feed(what)
        elif kind == "write":
            self.at = self.places.process_of(*what)
            self.writers[what].write()
            self.ready.add(("turn", self.at))  # it tells the coordinator
        elif kind == "views":
            self.at = PROGRESS
            self.progress.show_late()
            self._look_for_room()
        else:
            return False
        return True

    def _arrive(self, sender: str, name: str) -> None:
        """Some of what is on its way to one arrives: from this sender alone, or from all."""
        bus, self.at = self.bus, name
        frames = bus.deliver((sender, name))
        others = [other for other in bus.senders[name] if other != sender]
        if others and self._chance.random() < self._polls:
            for other in others:
                frames += bus.deliver((other, name))
        else:
            others.clear()
        if name == PROGRESS:
            self.progress.turn(frames)
            self.progress.look_whether_over()
        elif name == COORDINATOR:
            self._hear(frames)
        else:
            self.turn(name, frames)
        if sender == PROGRESS or PROGRESS in others:
            self._look_for_room()

    def _look_for_room(self) -> None:
        """There may be room for views that wait."""
        progress = self.progress
        if progress.late or VIEWS in self.ready.place:
            self.ready.keep(VIEWS, any(not progress.link.is_behind(process) for process, _ in progress.late))

    def turn(self, name: str, frames: list[Frame]) -> None:
        """A worker takes these frames, and a turn; one that is over has ended."""
        worker = self.workers.get(name)
        if worker is not None and not worker.is_over:
            self.at = name
            worker.turn(frames)
            self.look(name)

    def _wake(self, name: str) -> None:
        """Something has happened at a worker that it does not know yet: it takes a turn."""
        if name in self.workers:
            self.ready.add(("turn", name))

    def look(self, name: str) -> None:
        """Something has been done at a worker: look whether there is more to do."""
        worker = self.workers.get(name)
        if worker is None:
            return
        self.ready.keep(("turn", name), not worker.is_over and worker.timeout_s() == 0.0)
        self._looked_s[name] = self.clock.now_s
        if self._drivers:
            for stage, end in self._drivers.items():
                if end.process == name:
                    self.look_for_input(stage)

    def look_for_input(self, stage: int) -> None:
        """Whether a live input may send: something waits, and there is room in its window."""
        end = self._drivers.get(stage)
        if end is not None:
            in_flight = end.log.taken - (consumed := self.consumed(stage))
            if self.store is None:
                end.log.trim(consumed)
            self.ready.keep(("feed", stage), end.log.waits > 0 and in_flight < self.config.window_batches)

    def consumed(self, stage: int) -> int:
        """How many frames of a live input have been consumed."""
        return self.workers[self._drivers[stage].process].hosts[stage].core.input.frames if stage in self._drivers else 0

    def _feed(self, stage: int) -> None:
        end = self._drivers[stage]
        number = end.log.taken
        kind, value = end.log.next()
        if kind == "send":
            end.link.send(end.process, Kind.INPUT_BATCH, stage, Numbered(number, handed(Timestamp(0), value)))
        else:
            data = value.encode() if isinstance(value, str) else value.to_bytes(8, "little") if value is not None else b""
            end.link.send(end.process, KINDS[kind], stage, [pack_number(number), data])
        self.look_for_input(stage)

    def pass_time(self) -> bool:
        """Nothing is ready: let time pass until a worker has something to do by itself; False: none ever will."""
        waits = self._waits()
        least_s = min(waits.values(), default=IDLE_S)
        if least_s >= IDLE_S:
            return False
        self.clock.now_s += max(SHORT_S, least_s)
        for name in [name for name, waits_s in waits.items() if waits_s <= least_s]:
            self.turn(name, [])
        return True

    def look_at_clock(self) -> None:
        """Workers that have waited for as long as they may take a turn, also while others always have something to do."""
        for name, waits_s in self._waits().items():
            if waits_s <= 0.0:
                self.ready.add(("turn", name))

    def _waits(self) -> dict[str, float]:
        """Seconds from now until each worker has something to do by itself: less than IDLE_S if it ever has."""
        now_s, found = self.clock.now_s, {}
        for name, worker in self.workers.items():
            if not worker.is_over:
                waits_s = self._waits_s(worker)
                found[name] = waits_s if waits_s >= IDLE_S else max(0.0, waits_s - (now_s - self._looked_s.get(name, now_s)))
        return found

    @staticmethod
    def _waits_s(worker: Worker) -> float:
        """Seconds until a worker has something to do: less than IDLE_S if it ever has."""
        patience = [host.snapshots.due_in_s() for host in worker.hosts.values() if host.snapshots is not None]
        waits_s = min([due_s for due_s in patience if due_s is not None], default=None)
        return worker.timeout_s() if waits_s is None or waits_s < IDLE_S else IDLE_S / 2

    # -- what is asked of all ------------------------------------------------------------------------
    def configured(self, config: RunConfig) -> None:
        """All have other runtime parameters."""
        self.config = config
        for stage in self._drivers:
            self.look_for_input(stage)

    def reports(self) -> dict[ReplicaId, ReplicaReport]:
        """What each replica has done, and what waits; not for how long, which no clock here knows."""
        found = {host.place.at: note_counts(host.place, host.snapshots) for host in self.hosts()}
        return {at: replace(report, waits=replace(report.waits, input_idle_s=None)) for at, report in found.items()}

    def end(self, *, aborts: bool) -> None:
        """The job is over: release what the users' code holds; ``aborts``: what sinks have written is thrown away."""
        for worker in self.workers.values():
            for host in worker.hosts.values():
                if aborts:
                    host.core.abort_sinks()
                host.close()
        self.ready.clear()


__all__ = ["Processes"]
