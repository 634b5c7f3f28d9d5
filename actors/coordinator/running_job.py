"""What is known of a job by those who run it in its coordinator: the supervising thread, control calls, a change of layout.

The supervising thread changes it; a change of layout does so, too, while it has the job to itself (``rescaling.py`` says when).
"""

from __future__ import annotations

from collections.abc import Mapping
from math import inf
from typing import Any

from rayad.actors.coordinator.long_calls import LongCalls
from rayad.actors.coordinator.outcome import Starting
from rayad.actors.coordinator.processes.crew import Crew
from rayad.actors.coordinator.processes.sites import DrainWatch, Sites
from rayad.actors.coordinator.processes.spares import Spares
from rayad.actors.coordinator.stored.kept_job import KeptJob
from rayad.actors.coordinator.surroundings import CoordinatorSurroundings
from rayad.actors.job import JobState
from rayad.actors.lead.taking_over import taking_over_s
from rayad.actors.plane.address import Address
from rayad.actors.plane.protocol import COORDINATOR, PROGRESS
from rayad.actors.plane.replica_id import replicas_of
from rayad.actors.replica.places import Places
from rayad.dataflow.config import RunConfig
from rayad.dataflow.logical_graph import NodeKind
from rayad.dataflow.plan import Plan


class RunningJob(KeptJob):
    """One job.

    Args:
        plan, config, job, secret, name, places: see :class:`KeptJob`.
        around: its actors, and what else is not its own.
        spares: processes of jobs before, or that wait for this one; None: there are none.
        stays: whether its own are spare when it is complete; else they end with it.
    """

    def __init__(
        self,
        plan: Plan,
        config: RunConfig,
        job: str,
        secret: bytes,
        name: str,
        places: Places,
        around: CoordinatorSurroundings,
        spares: Spares | None = None,
        *,
        stays: bool = False,
    ) -> None:
        super().__init__(plan, config, job, secret, name, places, around)
        self.around = around
        self.drains = DrainWatch(around)
        """Which nodes drain."""
        sites = Sites(around, self.journal.note)
        spares = spares if spares is not None else Spares(around)
        self.crew = Crew(plan, places, config, (job, secret), around, sites, spares, stays=stays)
        self.state = JobState.STARTING
        self.incarnation = 1
        self.addresses: dict[str, Address] = {}
        self.incarnations: dict[str, int] = {}
        self.ended: Mapping[int, int] = {}
        """How often processes of a stage have ended in a row, by stage."""
        self.calls = LongCalls()
        self.found: dict[str, tuple[Address, int, dict[str, Any]]] = {}
        """Where each actor listens, its incarnation, and the notes of the snapshot that this one resumed from."""
        self.awaited: tuple[Starting, float] | None = None
        """Actors that are to start, and since when they are waited for."""
        self.running = around.event()
        """All actors run, and no failure is being dealt with."""
        self.is_stopping = False
        self.cuts_inputs = False
        """Stopping closes live inputs where they are; else who feeds them closes them, behind what was sent."""
        self.changes: dict[str, Any] = {}
        """Of the configuration, since the job began."""
        self.runs: tuple[str, ...] = ()
        """Of the job's coordinators, this one's last, once the owner has told them."""
        self.outcome: Any = None
        """The reference of the long call, once the owner has told it."""
        self.waits_for = ""
        """What this coordinator waits for before it begins, in words."""
        self.begun = around.event()
        """It waits for coordinators before it no more."""
        self.superseded = ""
        """Which other run has claimed the store, once that is seen; then this job is over."""
        self.is_deposed = False
        """It is over for that reason, and the long call does not end: its outcome is told to who asks for it."""

    def lay_out(self, plan: Plan) -> None:
        super().lay_out(plan)
        self.crew.plan = plan
        names = set(self.crew.processes())
        self.crew.stop([name for name in self.crew.actors if name != PROGRESS and name not in names])

    def has_work(self) -> bool:
        return PROGRESS in self.calls.names()

    def who(self, name: str) -> str:
        """An actor as people know it."""
        return self.places.title(name, self.plan)

    def told_nodes(self) -> tuple[str, ...]:
        """What is unusual about the nodes now, in words; without asking Ray."""
        sites, sharing = self.crew.sites, sorted(map(self.who, self.crew.sharing))
        drains = self.drains.now.items()
        goes = (f"node {sites.address(node)} drains" + (f", and goes in {left:.0f} s" if left < inf else "") for node, left in drains)
        silent = sites.known.silent(self.around.clock.monotonic())
        mute = (f"node {sites.address(node)} does not answer: nothing is placed there" for node in silent)
        return (
            *goes,
            *mute,
            *([f"{', '.join(sharing)}: no node has room, so these share the processors that are there"] if sharing else []),
        )

    def await_running(self, timeout_s: float) -> bool:
        """Whether all actors run; waits for that for so long, not counting the time until this coordinator begins. From any thread."""
        if timeout_s:
            self.begun.wait(taking_over_s(self.config))
        return self.running.wait(timeout_s)

    def run(self, names: list[str]) -> None:
        """Begin the long calls; keeps for each one's first result its name and second result. Any thread."""
        for name in names:
            arguments = () if name == PROGRESS else (self._addresses_for(name),)
            summary, staged = self.around.actors.run(self.crew.actors[name], *arguments)
            self.calls.post(summary, name, staged)

    def _addresses_for(self, process: str) -> dict[str, Address]:
        """Of all with which a process exchanges frames."""
        mine = self.places.replicas_at(process, self.crew.plan)
        siblings = {self.places.process_of(stage, r) for stage, _ in mine for r in range(self.crew.plan.stage(stage).parallelism)}
        told = {PROGRESS, COORDINATOR, *self.places.partners(process, self.crew.plan), *siblings}
        return {name: self.addresses[name] for name in told if name in self.addresses}

    def admit(self, names: list[str]) -> None:
        """These have come into the running job."""
        notes = self.snapshots.manifest.notes if self.snapshots is not None else {}
        self.found.update({name: (self.addresses[name], self.incarnations[name], notes) for name in names})

    def starts(self) -> dict[str, list[int]]:
        """What stops reading, by process: sources, and live inputs where those are cut."""
        kinds = (NodeKind.SOURCE, NodeKind.INPUT) if self.cuts_inputs else (NodeKind.SOURCE,)
        starts: dict[str, list[int]] = {}
        for stage in self.plan.stages:
            for process in self.places.processes_of(replicas_of([stage])):
                if stage.kind in kinds:
                    starts.setdefault(process, []).append(stage.id)
        return starts

    def stop_reading(self, cut_inputs: bool = False) -> None:
        """Sources read no more, live inputs close if they are cut. Those that begin later are told when they do."""
        self.is_stopping = True
        self.cuts_inputs = self.cuts_inputs or cut_inputs
        if not self.running.is_set():
            return
        for process, stages in self.starts().items():
            actor = self.crew.actors.get(process)
            if actor is not None:
                self.around.actors.call(actor, "stop", stages)
