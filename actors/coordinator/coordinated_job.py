"""One job in its coordinator: those who take part in it, and its long call."""

from __future__ import annotations

import time as clock
from collections.abc import Collection

from rayad.actors.coordinator.control import Control
from rayad.actors.coordinator.lease import Lease
from rayad.actors.coordinator.metrics import JobMetrics, Watch
from rayad.actors.coordinator.on_ray import on_ray
from rayad.actors.coordinator.outcome import JobOutcome
from rayad.actors.coordinator.predecessors import await_predecessors
from rayad.actors.coordinator.processes.spares import Spares
from rayad.actors.coordinator.rescaling import Rescaler
from rayad.actors.coordinator.running_job import RunningJob
from rayad.actors.coordinator.supervisor import Supervisor
from rayad.actors.coordinator.told_outcome import ToldOutcome
from rayad.actors.status.stalls import Stalls
from rayad.snapshots.manifest import KeeperId


class CoordinatedJob:
    """One job in its coordinator, from its beginning to its end."""

    def __init__(self, running: RunningJob) -> None:
        self._job = running
        rescaler = Rescaler(running)
        self._supervisor = Supervisor(running, rescaler)
        self.control = Control(running, rescaler)
        self.told = ToldOutcome()
        self._has_begun = False

    def run(
        self,
        run: str | None = None,
        earlier: Collection[str] = (),
        *,
        before: Collection[str] = (),
        has_begun: bool = False,
        keeper: KeeperId | None = None,
        failures: int = 0,
        asked_s: float | None = None,
        delay_s: float = 0.0,
    ) -> JobOutcome | None:
        """See :meth:`Supervisor.run`, which begins after the delay, and when the coordinators of ``earlier`` runs have ended; ``before``:
        the names of those among them that were not the job's alone. Called again, by an owner who does not know whether the first call has
        come, it does nothing and gives None."""
        if self._has_begun:
            return None
        self._has_begun = True
        stalls, metrics = Stalls(self.control.note_event, self.control.holds_up), JobMetrics(self._job.name, succeeds=bool(earlier))
        watch = Watch(self.control.status, [metrics.show, stalls.see])
        lease = Lease(self._job, self.told, earlier)
        watch.start()
        lease.start()
        self._job.drains.start()
        try:
            if earlier:
                began_s = clock.time()
                await_predecessors(self._job, delay_s, before)
                asked_s = asked_s + clock.time() - began_s if asked_s is not None else None
            outcome = self._supervisor.run(run, earlier, has_begun=has_begun, keeper=keeper, failures=failures, asked_s=asked_s)
            self.told.tell(outcome)
            return outcome
        finally:
            watch.stop()
            lease.stop()
            self._job.drains.stop()


__all__ = ["CoordinatedJob", "RunningJob", "Spares", "on_ray"]
