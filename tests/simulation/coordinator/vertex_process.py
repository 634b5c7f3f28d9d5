"""The process that holds replicas, on the bus."""

from __future__ import annotations

import datetime as dt
from typing import Any

from rayad.actors.host.worker_host import WorkerHost
from rayad.actors.lead.failure import failure_of
from rayad.actors.local.part_events import EventWriter
from rayad.actors.replica.places import Places
from rayad.actors.replica.report import told
from rayad.actors.worker.looking import note_counts
from rayad.actors.worker.surroundings import Surroundings
from rayad.dataflow.config import RunConfig
from rayad.dataflow.plan import Plan, Stage
from rayad.dataflow.records.event_times import EPOCH_UTC
from tests.simulation.coordinator.processes import Answers, Process


class VertexProcess(Process):
    """A process that holds replicas."""

    host: WorkerHost | None
    writers: tuple[EventWriter, ...] | list[EventWriter] = ()
    _has_run = True

    def take(
        self, plan: list[Plan], process: str, places: Places, config: RunConfig, job: str, secret: bytes, has_columns: bool = False
    ) -> None:
        self.name, self.who = process, places.who(process, plan[0])
        self._arguments = (plan[0], places, config)
        self._has_run = True

    def rest(self) -> None:
        super().rest()
        self.writers = []

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
            plan = plan.laid_out(layout) if layout is not None else plan
            if not self._has_run:
                self._discard()
            world = self.world
            self.link = world.lines.link(self.name, incarnation)
            self.writers = writers = []

            def writer(stage: Stage, replica: int) -> EventWriter:
                writers.append(EventWriter(store, stage, replica, incarnation, lambda can: None))
                return writers[-1]

            def moment() -> dt.datetime:
                return EPOCH_UTC + dt.timedelta(seconds=world.clock.now_s)

            given: dict[str, Any] = {"mailbox": Answers(lambda: world.clock.now_s), "store": store, "incarnations": incarnations}
            around = Surroundings(self.link, world.clock, moment, writer)
            self.host = WorkerHost(self.name, plan, places, changed or config, around, **given)
            self._has_run = False
            held = places.replicas_at(self.name, plan)
            return self.host.listen(host or "", {at: {"part": (parts or {}).get(at), "is_newcomer": is_newcomer} for at in held})
        except Exception as error:
            self.world.note_error(self.name, error)
            if not self._has_run:
                self._discard()
                self._has_run = True
            return failure_of(self.who, error)

    def _discard(self) -> None:
        assert self.host is not None
        self.host.discard()
        self._look_for_answers()

    def begin(self, addresses: Any) -> None:
        assert self.host is not None
        self._has_run = True
        self.host.begin(addresses)

    def turn(self) -> None:
        assert self.host is not None
        super().turn()
        self.due_s = self.world.clock.now_s + self.host.worker.timeout_s()

    def ended(self) -> tuple[Any, Any] | None:
        assert self.host is not None
        if not self.host.worker.is_over:
            return None
        results = self.host.worker.results()
        return told({at.plane_name: left for at, left in results.items()})

    def close(self, *, aborts: bool) -> None:
        assert self.host is not None
        if aborts:
            self.link.end(f"{self.who} has failed", has_left=False)
        self.host.end(aborts=aborts)

    def free(self) -> None:
        if self.host is not None:
            self.host.worker.close()

    def asked(self, method: str, *arguments: Any) -> Any:
        host = self.host
        assert host is not None
        match method:
            case "has_stopped":
                return host.has_stopped
            case "look":
                return {one.place.at.plane_name: note_counts(one.place, one.snapshots) for one in host.worker.hosts.values()}
            case "readings":
                return [one.statistics.reading(None) for one in host.worker.hosts.values()]
            case _:
                return super().asked(method, *arguments)


__all__ = ["VertexProcess"]
