"""A coordinator's lease: it is its job's as long as no other run has a later claim in the store.

A side thread looks there, once per heartbeat interval, because calls of a store may hang and the supervising thread may hang in one. When
another run has claimed the store, the job of this coordinator ends, as failed. Where the supervising thread does not get to that, the owner
is told (:attr:`Beat.is_deposed`), so that it starts no successor. Then the process ends, unless its owner has ended it before, and Ray ends
its actors with it. So a coordinator that lives on behind a cut, with or without its owner, is gone soon after its successor's claim,
provided its store answers. A store that is away, or has nothing readable, proves nothing.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection

from rayad.actors.coordinator.outcome import JobOutcome
from rayad.actors.coordinator.running_job import RunningJob
from rayad.actors.coordinator.told_outcome import ToldOutcome
from rayad.actors.job import JobState, JobStatistics
from rayad.actors.lead.failure import failure_of
from rayad.actors.lead.taking_over import HEARD_S, look_every_s
from rayad.actors.process.ending import end_at_once
from rayad.actors.process.threads import OwnedThread
from rayad.progress import SnapshotError
from rayad.snapshots.store import Superseded

_log = logging.getLogger(__name__)


class Lease:
    """The lease of one coordinator.

    Args:
        job: what it runs; told by :attr:`RunningJob.superseded` that it is over.
        told: who is told how the job ended, when its own thread does not tell.
        earlier: runs of the coordinators before it: what these may still have written is not a later claim.
        end: ends this process.
        heard_s: how long the owner may take to hear of the end of a deposed coordinator.
    """

    def __init__(
        self,
        job: RunningJob,
        told: ToldOutcome,
        earlier: Collection[str] = (),
        end: Callable[[int], object] = end_at_once,
        heard_s: float = HEARD_S,
    ) -> None:
        self._job = job
        self._told = told
        self._earlier = earlier
        self._end = end
        self._heard_s = heard_s
        self._never = threading.Event()
        self._every_s = look_every_s(job.config.failures.heartbeat_timeout_s)
        self._seen = 0
        self._over = threading.Event()
        self._thread = OwnedThread("lease", self._run, stop=self._over.set)

    def start(self) -> None:
        """Begin to look, in a thread."""
        self._thread.start()

    def stop(self) -> None:
        """The job has ended. The thread is not waited for: it may hang in the store, or is about to end this process."""
        self._thread.stop()

    def look(self) -> str:
        """Who else has claimed the store; "" while nobody is known to have. Raises SnapshotError, OSError when that cannot be told."""
        snapshots = self._job.snapshots
        if snapshots is None:
            return ""
        store, run = snapshots.store.store, snapshots.store.run
        numbers = store.numbers()
        if not numbers or numbers[-1] <= max(self._seen, snapshots.manifest.number):
            return ""
        newest = store.load(numbers[-1])
        if newest.run in (run, *self._earlier):
            self._seen = newest.number
            return ""
        return f"another run of job {self._job.name!r} has claimed {store.folder!r} (snapshot {newest.number})"

    def _run(self) -> None:
        while not self._over.wait(self._every_s):
            try:
                told = self.look()
            except (SnapshotError, OSError):
                _log.debug("job %r: a look into the store failed", self._job.name, exc_info=True)
                continue
            if told:
                self._depose(told)
                return

    def _depose(self, why: str) -> None:
        """End the job, and then this process; in the middle of what it is doing, where the job's own thread does not end."""
        job = self._job
        _log.warning("job %r: %s: this coordinator ends", job.name, why)
        job.superseded = why
        if not self._over.wait(self._every_s):
            self._told.tell(JobOutcome(JobState.FAILED, {}, JobStatistics(), failure_of("coordinator", Superseded(why))))
            job.is_deposed = True
        self._never.wait(self._heard_s)  # the owner, if it is there, ends this process
        self._end(1)


__all__ = ["Lease"]
