"""Changes of a job on Ray, of its layout and of its parameters: one at a time, and again after a failure. Any thread may ask.

:class:`ChangeLeader` and :class:`ConfigureLeader` decide; the thread that asked drives them (``change_driver.py``). The coordinator's own
thread goes on supervising meanwhile. When something fails, that thread stops the change, the job restarts from its last snapshot in the
layout of that snapshot, and the change is asked for again. Design: docs/design/rescaling.md.
"""

from __future__ import annotations

import logging
import threading
import time as clock
from collections.abc import Mapping
from functools import partial
from typing import Any

import ray

from rayad.actors.coordinator.change_driver import LOOK_S, ChangeDriver
from rayad.actors.coordinator.running_job import RunningJob
from rayad.actors.job import JobState
from rayad.actors.lead import layouts
from rayad.actors.lead.change_leader import ChangeLeader
from rayad.actors.lead.change_protocol import STOP_TIMEOUT_S, Finish, Members, Outcome, Refuse
from rayad.actors.lead.configure_leader import ConfigureLeader, NotConfigured
from rayad.actors.lead.failure import Failure
from rayad.actors.lead.layouts import RescaleReport
from rayad.actors.plane.protocol import replica_name
from rayad.actors.process.threads import OwnedThread
from rayad.dataflow.config import configured
from rayad.progress import ConfigError, RayadError, RescaleRefused

_log = logging.getLogger(__name__)


class Rescaler:
    """The changes of layout of one job."""

    def __init__(self, job: RunningJob) -> None:
        self._job = job
        self._one_at_a_time = threading.Lock()
        self._is_idle = threading.Event()
        self._is_idle.set()
        self._stop = threading.Event()
        self._turn = 0
        self._driver: ChangeDriver | None = None
        self._wanted: dict[str, int] = {}

    # -- from any thread -------------------------------------------------------------------------------
    def rescale(self, wanted: Mapping[str, int], timeout_s: float, decided_for: Mapping[str, int] | None = None) -> RescaleReport:
        """See :meth:`rayad.actors.job.Job.rescale`. Refused if ``decided_for`` another layout than now."""
        asked_s, job = clock.monotonic(), self._job
        with self._one_at_a_time:
            self._spread(asked_s + timeout_s)
            while True:
                job.running.wait(max(0.0, asked_s + timeout_s - clock.monotonic()))
                self._is_idle.clear()
                try:
                    if job.state is not JobState.RUNNING:
                        raise RescaleRefused(f"rescale({dict(wanted)}): job {job.name!r} is {job.state.value}")
                    outcome: Outcome | None = None
                    if job.running.is_set():  # else it has failed just now, and stop() may have been called
                        self._refuse_unless(decided_for, wanted)
                        outcome = self._change(wanted, asked_s, timeout_s)
                finally:
                    self._is_idle.set()
                match outcome:
                    case Finish(report):
                        self._wanted.update(wanted)
                        job.journal.on_layout(report)
                        return report
                    case Refuse(why, lacks_room):
                        free = f"; free resources now: {job.crew.sites.told_free()}" if lacks_room else ""
                        job.journal.note("layout refused", why + free, wanted=dict(wanted))
                        raise RescaleRefused(why + free)
                if clock.monotonic() - asked_s > timeout_s:
                    raise RescaleRefused(f"rescale({dict(wanted)}): job {job.name!r} failed meanwhile, and is not back after {timeout_s} s")
                clock.sleep(LOOK_S)

    def _spread(self, until_s: float) -> None:
        """Let workers that share processors have their own again, where nodes have come back; the coordinator's thread does it."""
        crew = self._job.crew
        crew.to_move = crew.could_spread()
        while crew.to_move and clock.monotonic() < until_s and self._job.state is JobState.RUNNING:
            clock.sleep(LOOK_S)
        crew.to_move = frozenset()

    def _refuse_unless(self, decided_for: Mapping[str, int] | None, wanted: Mapping[str, int]) -> None:
        now = layouts.asked_of(self._job.plan)
        if decided_for is not None and decided_for != now:
            raise RescaleRefused(f"rescale({dict(wanted)}): decided for the layout {dict(decided_for)}, which is {now} by now")

    def _change(self, wanted: Mapping[str, int], asked_s: float, timeout_s: float) -> Outcome | None:
        config = self._job.config
        leader = ChangeLeader(
            self._job.plan,
            wanted,
            timeout_s=timeout_s,
            asked_s=asked_s,
            members=self._members(),
            turn=self._turn,
            pause_s=config.rescale_pause_s,
            holds_by_time=config.failures.recovery == "upstream",
        )
        self._drive(leader)
        return leader.outcome

    def _members(self) -> Members:
        job = self._job
        return Members(job.incarnation, dict(job.incarnations), dict(job.addresses), dict(job.ended), job.places)

    def configure(self, changes: Mapping[str, Any]) -> None:
        """See :meth:`rayad.actors.job.Job.configure`."""
        job = self._job
        config = configured(job.config, changes)
        with self._one_at_a_time:
            job.await_running(job.config.start_timeout_s)
            self._is_idle.clear()
            try:
                if job.state is not JobState.RUNNING:
                    raise ConfigError(f"configure({dict(changes)}): job {job.name!r} is {job.state.value}")
                leader = ConfigureLeader(job.crew.replicas(), changes, turn=self._turn)
                try:
                    self._drive(leader)
                finally:
                    job.changes.update(changes)
                    job.config = job.crew.config = config  # those that begin anew begin with it
            finally:
                self._is_idle.set()
            if isinstance(leader.outcome, NotConfigured):
                cause = leader.outcome.cause
                raise cause if isinstance(cause, Exception) else TimeoutError(leader.outcome.why)

    def _drive(self, leader: ChangeLeader | ConfigureLeader) -> None:
        driver = self._driver = ChangeDriver(self._job, leader, self._stop)
        try:
            driver.run()
        finally:
            self._turn = max(self._turn, leader.turn)
            if self._driver is driver:
                self._driver = None

    # -- the coordinator's thread ----------------------------------------------------------------------
    def stop(self) -> None:
        """The job has failed or is over; a change under way ends before anything else is done."""
        self._stop.set()
        deadline_s = clock.monotonic() + STOP_TIMEOUT_S
        while not self._is_idle.wait(0.01):
            if clock.monotonic() > deadline_s:
                _log.warning("job %r: a change of layout did not end within %s s", self._job.name, STOP_TIMEOUT_S)
                break
        if self._job.snapshots is not None:
            self._job.snapshots.serve()  # what the change has posted is done, or void, before anything begins anew
        self._driver = None
        self._stop.clear()

    def want(self, wanted: Mapping[str, int]) -> None:
        """The run resumes from a snapshot with other numbers of replicas than are asked for."""
        self._wanted.update(wanted)

    def check(self) -> None:
        """The vertices are there and do not run yet. Raises RescaleRefused when one cannot be divided."""
        plan = self._job.plan
        for stage in plan.stages:
            count = self._wanted.get(stage.name, stage.parallelism)
            if count != stage.parallelism:
                ask = self._job.crew.holder(replica_name(stage.id, 0)).change.remote((stage.id, 0), "may_move")
                why = ray.get(ask, timeout=self._job.config.start_timeout_s)
                if why:
                    raise RescaleRefused(f"resume={self._job.config.resume!r} with {count} replicas instead of {stage.parallelism}: {why}")

    def again(self) -> None:
        """The job is back from a failure, perhaps in an older layout: what was asked for is done again."""
        lost = layouts.lost_of(self._job.plan, self._wanted)
        if lost:
            OwnedThread("rescale", partial(self._do_again, lost)).start()  # stop() waits for what it changes

    def _do_again(self, wanted: dict[str, int]) -> None:
        try:
            self.rescale(wanted, self._job.config.start_timeout_s)
        except RayadError as error:
            _log.warning("job %r: after a failure the layout stays older than it was: %s", self._job.name, error)

    @property
    def newcomers(self) -> frozenset[str]:
        """Processes that have not joined the job yet: if one fails, the change is refused and the job goes on."""
        leader = self._leader
        return frozenset(leader.joining) if leader is not None else frozenset()

    @property
    def failure(self) -> Failure | None:
        """What went wrong in the middle of a change: the job has to restart from its last snapshot."""
        driver = self._driver
        return driver.failure if driver is not None else None

    @property
    def _leader(self) -> ChangeLeader | None:
        driver = self._driver
        return driver.leader if driver is not None and isinstance(driver.leader, ChangeLeader) else None


__all__ = ["Rescaler"]
