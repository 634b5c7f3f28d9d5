"""The coordinator of one job. One Ray actor per job.

It is the owner of all other actors of the job: when it goes, or the driver that owns it, Ray ends them all. ``run`` is one long call; the
other calls come in threads of their own meanwhile (``driver/ray_job.py`` has their concurrency groups).
"""

from __future__ import annotations

import time as clock
from collections.abc import Collection
from typing import Any

from rayad.actors.cluster.actor_class import actor_title
from rayad.actors.coordinator.control import Control
from rayad.actors.coordinator.lease import Lease
from rayad.actors.coordinator.metrics import JobMetrics, Watch
from rayad.actors.coordinator.on_ray import on_ray
from rayad.actors.coordinator.outcome import About, Beat, JobOutcome, Look
from rayad.actors.coordinator.predecessors import await_predecessors
from rayad.actors.coordinator.rescaling import Rescaler
from rayad.actors.coordinator.running_job import RunningJob
from rayad.actors.coordinator.supervisor import Supervisor
from rayad.actors.coordinator.told_outcome import ToldOutcome
from rayad.actors.lead.layouts import RescaleReport
from rayad.actors.lead.saved_inputs import SavedEpochs
from rayad.actors.plane.plane import Address
from rayad.actors.replica.places import Places
from rayad.actors.replica.recent import News
from rayad.actors.status.job_status import JobStatus
from rayad.actors.status.journal import JobEvent
from rayad.actors.status.snapshots_late import SnapshotsLate
from rayad.actors.status.stalls import Stalls
from rayad.actors.status.updates import ReadSoFar
from rayad.dataflow.config import RunConfig
from rayad.dataflow.plan import Plan
from rayad.progress import Timestamp
from rayad.snapshots.attempts import SnapshotStatistics
from rayad.snapshots.manifest import KeeperId


class Coordinator:
    """Runs one job; see :class:`RunningJob` for the arguments."""

    def __init__(self, plan: Plan, config: RunConfig, job: str, secret: bytes, name: str = "", places: Places | None = None) -> None:
        self._shown_as = (job,)
        self._name = name or plan.name
        self._job = running = RunningJob(plan, config, job, secret, name or plan.name, places or Places(), on_ray())
        rescaler = Rescaler(running)
        self._supervisor = Supervisor(running, rescaler)
        self._control = Control(running, rescaler)
        self._told = ToldOutcome()
        self._has_begun = False

    def __repr__(self) -> str:
        return actor_title(self, *getattr(self, "_shown_as", ()))

    def run(
        self,
        run: str | None = None,
        earlier: Collection[str] = (),
        *,
        has_begun: bool = False,
        keeper: KeeperId | None = None,
        failures: int = 0,
        asked_s: float | None = None,
        delay_s: float = 0.0,
    ) -> JobOutcome | None:
        """See :meth:`Supervisor.run`, which begins after the delay, and when the coordinators of ``earlier`` runs have ended. Called again,
        by an owner who does not know whether the first call has come, it does nothing and gives None."""
        if self._has_begun:
            return None
        self._has_begun = True
        stalls = Stalls(self._control.note_event, self._control.holds_up)
        watch = Watch(self._control.status, [JobMetrics(self._name, succeeds=bool(earlier)).show, stalls.see])
        lease = Lease(self._job, self._told, earlier)
        watch.start()
        lease.start()
        self._job.drains.start()
        try:
            if earlier:
                began_s = clock.time()
                await_predecessors(self._job, delay_s)
                asked_s = asked_s + clock.time() - began_s if asked_s is not None else None
            outcome = self._supervisor.run(run, earlier, has_begun=has_begun, keeper=keeper, failures=failures, asked_s=asked_s)
            self._told.tell(outcome)
            return outcome
        finally:
            watch.stop()
            lease.stop()
            self._job.drains.stop()

    def await_outcome(self) -> JobOutcome | None:
        """See :meth:`ToldOutcome.wait`."""
        return self._told.wait()  # ends with the job, or when it is asked again

    # -- control calls: see Control ----------------------------------------------------------------------
    def ping(self) -> Beat:
        return self._control.ping()

    def introduce(self, outcome: list[Any], runs: tuple[str, ...]) -> None:
        self._control.introduce(outcome, runs)

    def about(self) -> About:
        return self._control.about()

    def cancel(self) -> None:
        self._control.cancel()

    def stop(self, cut_inputs: bool = True) -> None:
        self._control.stop(cut_inputs)

    def not_stopped(self) -> list[str]:
        return self._control.not_stopped()

    def where(self, name: str, timeout_s: float) -> tuple[Address, int, dict[str, Any], str] | None:
        return self._control.where(name, timeout_s)

    def saved_inputs(self) -> dict[str, int]:
        return self._control.saved_inputs()

    def saved_epochs(self) -> dict[str, SavedEpochs]:
        return self._control.saved_epochs()

    def wait_saved(self, name: str, epoch: int, hold_s: float) -> bool:
        return self._control.wait_saved(name, epoch, hold_s)

    def hasten_snapshot(self) -> None:
        self._control.hasten_snapshot()

    def savepoint(self, timeout_s: float) -> str:
        return self._control.savepoint(timeout_s)

    def look_at_snapshots(self) -> tuple[SnapshotStatistics | None, float | None, int, SnapshotsLate | None]:
        return self._control.look_at_snapshots()

    def rescale(self, *arguments: Any) -> RescaleReport:
        return self._control.rescale(*arguments)

    def replicas(self) -> tuple[dict[str, int], dict[str, Any]] | None:
        return self._control.replicas()

    def configure(self, changes: dict[str, Any]) -> None:
        self._control.configure(changes)

    def look(self, *arguments: Any) -> Look:
        return self._control.look(*arguments)

    def updates(self, sink: str, seen: ReadSoFar) -> dict[str, News | None]:
        return self._control.updates(sink, seen)

    def journal(self) -> tuple[JobEvent, ...]:
        return self._control.journal()

    def note_decision(self, *arguments: Any) -> None:
        self._control.note_decision(*arguments)

    def status(self) -> JobStatus:
        return self._control.status()

    def frontier(self, node: int) -> tuple[Timestamp, ...] | None:
        return self._control.frontier(node)

    def wait_epoch(self, node: int, epoch: int, hold_s: float) -> bool:
        return self._control.wait_epoch(node, epoch, hold_s)
