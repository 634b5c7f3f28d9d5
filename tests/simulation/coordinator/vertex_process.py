"""The process that holds replicas, on the bus."""

from __future__ import annotations

import datetime as dt
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from rayad.actors.coordinator.surroundings import Gave, Raised
from rayad.actors.lead.failure import failure_of
from rayad.actors.plane.replica_id import ReplicaId
from rayad.actors.replica.places import Places
from rayad.actors.worker import upstream
from rayad.actors.worker.looking import note_counts
from rayad.actors.worker.surroundings import Surroundings
from rayad.actors.worker.worker import Worker
from rayad.dataflow.config import RunConfig
from rayad.dataflow.plan import Plan, Stage
from rayad.dataflow.records.event_times import EPOCH_UTC
from rayad.progress import ProtocolError
from tests.simulation.coordinator.processes import NEVER_S, Asked, Process, Ref, Watched
from tests.simulation.workers.run import EventWriter

if TYPE_CHECKING:
    from tests.simulation.coordinator.world import World


class VertexProcess(Process):
    """A process that holds replicas."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.worker: Worker | None = None
        self.writers: list[EventWriter] = []
        self._has_run = True

    def take(
        self, plan: list[Plan], process: str, places: Places, config: RunConfig, job: str, secret: bytes, has_columns: bool = False
    ) -> None:
        self.name, self.who = process, places.who(process, plan[0])
        self._arguments = (plan[0], places, config)
        self._has_run = True

    def rest(self) -> None:
        super().rest()
        self.worker, self.writers = None, []

    def listen(
        self,
        host: str | None,
        incarnation: int,
        store: Any = None,
        parts: Any = None,
        incarnations: Any = None,
        layout: Any = None,
        is_newcomer: bool = False,
        changed: Any = None,
        ended: int = 0,
    ) -> Any:
        plan, places, config = self._arguments
        try:
            plan = plan.laid_out(layout)
            if not self._has_run:
                self._discard()
            world = self.world
            self.link = world.lines.link(self.name, incarnation)
            self.writers = []
            run: Any = SimpleNamespace(store=SimpleNamespace(store=store), incarnation=incarnation, writers=self.writers)

            def writer(stage: Stage, replica: int) -> EventWriter:
                return EventWriter(run, stage, replica)

            def moment() -> dt.datetime:
                return EPOCH_UTC + dt.timedelta(seconds=world.clock.now_s)

            around = Surroundings(self.link, world.clock, moment, writer)
            self.worker = Worker(self.name, plan, places, changed or config, around, store=store, incarnations=incarnations)
            self.has_host, self._has_run = True, False
            for at in places.replicas_at(self.name, plan):
                self.worker.hold(*at, part=(parts or {}).get(at), is_newcomer=is_newcomer)
            return self.link.listen()
        except Exception as error:
            self.world.note_error(self.name, error)
            if not self._has_run:
                self._discard()
                self._has_run = True
            return failure_of(self.who, error)

    def _discard(self) -> None:
        assert self.worker is not None
        self.worker.close()
        self.link.close()

    def begin(self, addresses: Any) -> None:
        self._has_run = True
        assert self.worker is not None
        self.link.is_polled = True
        self.worker.begin(addresses)

    def turn(self) -> None:
        assert self.worker is not None
        self.is_woken = False
        self.worker.turn(self.link.poll(), self.answer_asked)
        self.look_at_watched()
        self.due_s = self.world.clock.now_s + self.worker.timeout_s()

    def ended(self) -> tuple[Any, Any] | None:
        assert self.worker is not None
        if not self.worker.is_over:
            return None
        results = self.worker.results()
        return {at.plane_name: left.report for at, left in results.items()}, {at.plane_name: left.staged for at, left in results.items()}

    def close(self, *, aborts: bool) -> None:
        assert self.worker is not None
        self.worker.close(aborts=aborts)
        if aborts:
            self.link.end(f"{self.who} has failed", has_left=False)
        else:
            self.link.close()

    def free(self) -> None:
        if self.worker is not None:
            self.worker.close()

    def control(self, ref: Ref) -> None:
        worker, now_s, arguments = self.worker, self.world.clock.now_s, ref.arguments
        match ref.method:
            case "ping":
                ref.settle(Gave(self.pulse()))
            case "abandon":
                if worker is not None and self.link.incarnation <= arguments[0]:
                    worker.is_abandoned = self.is_woken = True
                ref.settle(Gave(None))
            case "stop":
                if worker is not None:
                    worker.stopping = tuple(arguments[0])
                    self.is_woken = True
                ref.settle(Gave(None))
            case "acquit":
                ref.settle(Gave(None))
            case "is_fit":
                ref.settle(Gave(True))
            case "has_stopped":
                ref.settle(Gave(True))
            case "look":
                reports = {} if worker is None else {one.place.at: note_counts(one.place, one.snapshots) for one in worker.hosts.values()}
                ref.settle(Gave({at.plane_name: report for at, report in reports.items()}))
            case "readings":
                hosts = [] if worker is None else list(worker.hosts.values())
                ref.settle(Gave([one.statistics.reading(None) for one in hosts]))
            case "change":
                self._ask(ref, arguments[0], arguments[1], arguments[2:], NEVER_S)
            case "change_within":
                self._ask(ref, arguments[1], arguments[2], arguments[3:], now_s + arguments[0])
            case "await_change":
                replica, method, within_s, *more = arguments
                self._watch(ref, replica, method, within_s, more)
            case "roll_back":
                assert worker is not None
                (host,) = worker.hosts.values()
                function = partial(upstream.roll_back, host.place, host.snapshots, *arguments)  # type: ignore[arg-type]
                self.asked.append(Asked(ref, function, now_s + self._arguments[2].start_timeout_s))
            case _:
                raise AssertionError(f"{self.name} was asked to {ref.method}")

    def _host(self, stage: int) -> Any:
        assert self.worker is not None
        host = self.worker.hosts.get(stage)
        if host is None:
            raise ProtocolError(f"{self.name} holds no replica of vertex {stage}: it has retired, or did not come")
        return host

    def _ask(self, ref: Ref, replica: ReplicaId, method: str, arguments: Any, until_s: float) -> None:
        worker = self.worker
        assert worker is not None

        def function() -> Any:
            if method == "admit":
                return worker.admit(*replica, *arguments)
            if method == "withdraw":
                return worker.forget(replica[0])
            return getattr(self._host(replica[0]).rescale, method)(*arguments)

        if self.running is None:
            self._answer(ref, function)
        else:
            self.asked.append(Asked(ref, function, until_s))

    def _watch(self, ref: Ref, replica: ReplicaId, method: str, within_s: float, arguments: Any) -> None:
        worker = self.worker
        assert worker is not None

        def is_so() -> Any:
            if method == "has_left":
                return worker.left_by(*replica)
            return bool(getattr(self._host(replica[0]).rescale, method)(*arguments))

        if self.running is None:
            value = is_so()
            ref.settle(Gave(value) if value else Raised(ProtocolError("the event loop has ended")))
            return
        self.watched.append(Watched(ref, is_so, self.world.clock.now_s + within_s))
        self.is_woken = True


__all__ = ["VertexProcess"]
