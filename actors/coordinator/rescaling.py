"""Changes of a job on Ray, of its layout and of its parameters: one at a time, and again after a failure. Any thread may ask.

:class:`ChangeLeader` and :class:`ConfigureLeader` decide; the thread that asked drives them (``change_driver.py``), look by look: a
:class:`Wish` is what somebody asked for, and where that is. The coordinator's own
thread goes on supervising meanwhile. When something fails, that thread stops the change, the job restarts from its last snapshot in the
layout of that snapshot, and the change is asked for again. Design: docs/design/rescaling.md.
"""

from __future__ import annotations

import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from rayad.actors.coordinator.change_driver import LOOK_S, ChangeDriver
from rayad.actors.coordinator.running_job import RunningJob
from rayad.actors.coordinator.surroundings import given
from rayad.actors.job import JobState
from rayad.actors.lead import layouts
from rayad.actors.lead.change_leader import ChangeLeader
from rayad.actors.lead.change_protocol import STEP_TIMEOUT_S, STOP_TIMEOUT_S, Finish, Members, Refuse
from rayad.actors.lead.configure_leader import ConfigureLeader, NotConfigured
from rayad.actors.lead.failure import Failure
from rayad.actors.lead.layouts import RescaleReport
from rayad.actors.plane.protocol import replica_name
from rayad.actors.process.threads import OwnedThread
from rayad.dataflow.config import configured
from rayad.progress import ConfigError, RescaleRefused

_log = logging.getLogger(__name__)


class Wish(ABC):
    """A change of a job that somebody asked for. Whoever drives it looks until it is over: nothing here waits longer than a look may.

    Args:
        rescaler: of the job.
        timeout_s: until then it is to be carried out.
    """

    def __init__(self, rescaler: Rescaler, timeout_s: float) -> None:
        self.timeout_s = timeout_s
        self.is_done = False
        """Whether it is carried out."""
        self.error: Exception | None = None
        """Why it is not."""
        self._rescaler = rescaler
        self.asked_s = rescaler.clock.monotonic()
        self.driver: ChangeDriver | None = None
        """Of the change that has been begun last: after a failure another one is."""
        self._is_driven = False

    @property
    def is_over(self) -> bool:
        """Whether it is carried out, or refused."""
        return self.is_done or self.error is not None

    @property
    def left_s(self) -> float:
        """Seconds until the time for it is over."""
        return self.asked_s + self.timeout_s - self._rescaler.clock.monotonic()

    @property
    def has_more(self) -> bool:
        """Whether a look that waits for nothing goes on with it, whatever happens meanwhile."""
        return not self.is_over and (self.driver is None or not self._is_driven or self.driver.has_more)

    def look(self, wait_s: float) -> None:
        """Go on with it, as soon as that is possible within ``wait_s``."""
        try:
            self._look(wait_s)
        except Exception as error:
            self.error = error

    def _look(self, wait_s: float) -> None:
        driver = self.driver
        if driver is None or not self._is_driven:
            driver = self._begin(wait_s)
            if driver is not None:
                self.driver, self._is_driven = driver, True
            return
        is_over = True
        try:
            self._rescaler.look(driver, wait_s)
            is_over = driver.leader.outcome is not None
            if is_over:
                self._is_driven = False
                self._settle(driver.leader.outcome)
        finally:
            if is_over:
                self._rescaler.is_idle.set()

    @abstractmethod
    def _begin(self, wait_s: float) -> ChangeDriver | None:
        """Begin the change; None: not yet."""

    @abstractmethod
    def _settle(self, outcome: object) -> None:
        """A change is over, and with it this, unless another one has to be begun. Raises what it is refused with."""


class LayoutWish(Wish):
    """A change of layout.

    Args:
        rescaler, timeout_s: see :class:`Wish`.
        wanted, decided_for: see :meth:`Rescaler.rescale`.
        groups: how many key-groups a step moves; None: as many as the rescaler says.
        is_again: the job asks itself, after a failure.
    """

    def __init__(
        self,
        rescaler: Rescaler,
        wanted: Mapping[str, int],
        timeout_s: float,
        decided_for: Mapping[str, int] | None = None,
        *,
        groups: int | None = None,
        is_again: bool = False,
    ) -> None:
        super().__init__(rescaler, timeout_s)
        self.wanted, self.decided_for = dict(wanted), decided_for
        self.report: RescaleReport | None = None
        self.groups = groups
        self._is_again = is_again
        self._has_begun = self._is_spread = False

    def look(self, wait_s: float) -> None:
        super().look(wait_s)
        if self.error is not None and self._is_again:
            _log.warning("after a failure the layout stays older than it was: %s", self.error)

    def _look(self, wait_s: float) -> None:
        if self._is_spread:
            super()._look(wait_s)
            return
        begins, self._has_begun = not self._has_begun, True
        self._is_spread = self._rescaler.spread(self, begins=begins, wait_s=wait_s)

    def _begin(self, wait_s: float) -> ChangeDriver | None:
        return self._rescaler.begin(self, wait_s)

    def _settle(self, outcome: object) -> None:
        match outcome:
            case Finish(report):
                self._rescaler.done(self.wanted, report)
                self.report, self.is_done = report, True
            case Refuse(why, lacks_room):
                raise self._rescaler.refused(self.wanted, why, lacks_room)
            case _:
                self._rescaler.check_time(self)


class ConfigureWish(Wish):
    """Other runtime parameters: those that begin anew begin with them, whatever comes of it.

    Args:
        rescaler, timeout_s: see :class:`Wish`; when the time is over it is carried out even if the job does not run.
        changes: see :meth:`rayad.actors.job.Job.configure`.
    """

    def __init__(self, rescaler: Rescaler, changes: Mapping[str, Any], timeout_s: float) -> None:
        super().__init__(rescaler, timeout_s)
        self.changes = dict(changes)

    def _begin(self, wait_s: float) -> ChangeDriver | None:
        return self._rescaler.begin_configure(self, wait_s)

    def _settle(self, outcome: object) -> None:
        self._rescaler.configured(self.changes)
        if isinstance(outcome, NotConfigured):
            raise outcome.cause if isinstance(outcome.cause, Exception) else TimeoutError(outcome.why)
        self.is_done = True


def in_a_thread(rescaler: Rescaler, wish: Wish) -> None:
    """Carry out a wish in a thread of its own; :meth:`Rescaler.stop` waits for what it changes."""
    OwnedThread("rescale", partial(rescaler.carry_out, wish)).start()


class Rescaler:
    """The changes of layout of one job.

    Args:
        job: see there.
        carry_out: has what is asked for again carried out, beside the coordinator's thread.
        in_steps: whether a step moves only as much as the job's configuration lets it pause; else all moves in one.
        step_timeout_s: see :class:`ChangeLeader`.
    """

    def __init__(
        self,
        job: RunningJob,
        carry_out: Callable[[Rescaler, Wish], None] = in_a_thread,
        *,
        in_steps: bool = True,
        step_timeout_s: float = STEP_TIMEOUT_S,
    ) -> None:
        self._job = job
        self._in_steps, self._step_timeout_s = in_steps, step_timeout_s
        self.clock = job.around.clock
        self._beside = carry_out
        self._one_at_a_time = threading.Lock()
        self.is_idle = job.around.event()
        """No change is under way."""
        self.is_idle.set()
        self._never = job.around.event()
        self._stop = threading.Event()
        self._turn = 0
        self._driver: ChangeDriver | None = None
        self._wanted: dict[str, int] = {}
        self._failed_newcomers: dict[str, tuple[Any, Failure]] = {}

    # -- from any thread -------------------------------------------------------------------------------
    def rescale(self, wanted: Mapping[str, int], timeout_s: float, decided_for: Mapping[str, int] | None = None) -> RescaleReport:
        """See :meth:`rayad.actors.job.Job.rescale`. Refused if ``decided_for`` another layout than now."""
        wish = self.wish(wanted, timeout_s, decided_for)
        self.carry_out(wish)
        if wish.report is None:
            assert wish.error is not None
            raise wish.error
        return wish.report

    def wish(
        self, wanted: Mapping[str, int], timeout_s: float, decided_for: Mapping[str, int] | None = None, *, groups: int | None = None
    ) -> LayoutWish:
        """As :meth:`rescale`, for who drives it by himself."""
        return LayoutWish(self, wanted, timeout_s, decided_for, groups=groups)

    def carry_out(self, wish: Wish) -> None:
        """Look until it is over, when those before it are."""
        with self._one_at_a_time:
            while not wish.is_over:
                wish.look(LOOK_S)

    # -- for wishes, the one that is being carried out ----------------------------------------------------
    def spread(self, wish: LayoutWish, *, begins: bool, wait_s: float) -> bool:
        """Let workers that share processors have their own again, where nodes have come back; the coordinator's thread does it. Gives
        whether that is over."""
        crew = self._job.crew
        if begins:
            crew.to_move = crew.could_spread()
        if crew.to_move and wish.left_s > 0.0 and self._job.state is JobState.RUNNING:
            self._never.wait(wait_s)
            return False
        crew.to_move = frozenset()
        return True

    def begin(self, wish: LayoutWish, wait_s: float) -> ChangeDriver | None:
        """Begin a change, if the job runs by then; None: not yet. Raises RescaleRefused."""
        job, wanted = self._job, wish.wanted
        job.running.wait(max(0.0, min(wait_s, wish.left_s)))
        self.is_idle.clear()
        driver: ChangeDriver | None = None
        try:
            if job.state is JobState.RUNNING and job.running.is_set():  # else it has failed just now, and stop() may have been called
                self._refuse_unless(wish.decided_for, wanted)
                driver = self._change(wish)
            elif job.running.is_set() or wish.left_s <= 0.0:
                self._refuse_not_running(wanted)
        finally:
            if driver is None:
                self.is_idle.set()
        if driver is None:
            self.check_time(wish)
        return driver

    def _refuse_not_running(self, wanted: Mapping[str, int]) -> None:
        job = self._job
        if job.state is not JobState.RUNNING:
            raise RescaleRefused(f"rescale({dict(wanted)}): job {job.name!r} is {job.state.value}")

    def look(self, driver: ChangeDriver, wait_s: float) -> None:
        """Go on with a change."""
        is_over = True
        try:
            driver.look(wait_s)
            is_over = driver.leader.outcome is not None
        finally:
            self._note(driver, is_over)

    def check_time(self, wish: LayoutWish) -> None:
        """Raises RescaleRefused when there is none left."""
        if wish.left_s < 0.0:
            told = f"job {self._job.name!r} failed meanwhile, and is not back after {wish.timeout_s} s"
            raise RescaleRefused(f"rescale({wish.wanted}): {told}")

    def done(self, wanted: Mapping[str, int], report: RescaleReport) -> None:
        """This is the layout now."""
        self._wanted.update(wanted)
        self._job.journal.on_layout(report)

    def refused(self, wanted: Mapping[str, int], why: str, lacks_room: bool) -> RescaleRefused:
        """The error of a change that is not carried out."""
        free = f"; free resources now: {self._job.crew.sites.told_free()}" if lacks_room else ""
        self._job.journal.note("layout refused", why + free, wanted=dict(wanted))
        return RescaleRefused(why + free)

    def _refuse_unless(self, decided_for: Mapping[str, int] | None, wanted: Mapping[str, int]) -> None:
        now = layouts.asked_of(self._job.plan)
        if decided_for is not None and decided_for != now:
            raise RescaleRefused(f"rescale({dict(wanted)}): decided for the layout {dict(decided_for)}, which is {now} by now")

    def _change(self, wish: LayoutWish) -> ChangeDriver:
        config = self._job.config
        leader = ChangeLeader(
            self._job.plan,
            wish.wanted,
            timeout_s=wish.timeout_s,
            asked_s=wish.asked_s,
            members=self._members(),
            turn=self._turn,
            groups=wish.groups,
            pause_s=config.rescale_pause_s if self._in_steps else None,
            step_timeout_s=self._step_timeout_s,
            holds_by_time=config.failures.recovery == "upstream",
        )
        return self._begin(leader)

    def _members(self) -> Members:
        job = self._job
        return Members(job.incarnation, dict(job.incarnations), dict(job.addresses), dict(job.ended), job.places)

    # -- other parameters ------------------------------------------------------------------------------
    def configure(self, changes: Mapping[str, Any]) -> None:
        """See :meth:`rayad.actors.job.Job.configure`."""
        self._job.await_running(self._job.config.start_timeout_s)
        wish = self.wish_configured(changes)
        self.carry_out(wish)
        if wish.error is not None:
            raise wish.error

    def wish_configured(self, changes: Mapping[str, Any]) -> ConfigureWish:
        """As :meth:`configure`, for who drives it by himself. Raises ConfigError."""
        configured(self._job.config, changes)
        return ConfigureWish(self, changes, self._job.config.start_timeout_s)

    def begin_configure(self, wish: ConfigureWish, wait_s: float) -> ChangeDriver | None:
        """Begin it when the job runs, or its time is over; None: not yet. Raises ConfigError."""
        job = self._job
        if not job.running.wait(max(0.0, min(wait_s, wish.left_s))) and wish.left_s > 0.0:
            return None
        self.is_idle.clear()
        driver: ChangeDriver | None = None
        try:
            if job.state is not JobState.RUNNING:
                raise ConfigError(f"configure({wish.changes}): job {job.name!r} is {job.state.value}")
            driver = self._begin(ConfigureLeader(job.crew.replicas(), wish.changes, turn=self._turn))
        finally:
            if driver is None:
                self.is_idle.set()
        return driver

    def configured(self, changes: Mapping[str, Any]) -> None:
        """These are the parameters now: those that begin anew begin with them."""
        job = self._job
        job.changes.update(changes)
        job.config = job.crew.config = configured(job.config, changes)

    def _begin(self, leader: ChangeLeader | ConfigureLeader) -> ChangeDriver:
        driver, has_begun = ChangeDriver(self._job, leader, self._stop), False
        self._driver = driver
        try:
            driver.begin()
            has_begun = True
        finally:
            self._note(driver, is_over=not has_begun)
        return driver

    def _note(self, driver: ChangeDriver, is_over: bool) -> None:
        self._turn = max(self._turn, driver.leader.turn)
        if is_over and self._driver is driver:
            self._driver = None

    # -- the coordinator's thread ----------------------------------------------------------------------
    def stop(self) -> None:
        """The job has failed or is over; a change under way ends before anything else is done."""
        self._stop.set()
        deadline_s = self.clock.monotonic() + STOP_TIMEOUT_S
        while not self.is_idle.wait(0.01):
            if self.clock.monotonic() > deadline_s:
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
                holder, actors = self._job.crew.holder(replica_name(stage.id, 0)), self._job.around.actors
                asked = actors.call(holder, "change", (stage.id, 0), "may_move")
                why = given(actors.take(asked, self._job.config.start_timeout_s), f"{stage.name!r} was asked whether it can be divided")
                if why:
                    raise RescaleRefused(f"resume={self._job.config.resume!r} with {count} replicas instead of {stage.parallelism}: {why}")

    def again(self) -> None:
        """The job is back from a failure, perhaps in an older layout: what was asked for is done again."""
        lost = layouts.lost_of(self._job.plan, self._wanted)
        if lost:
            self._beside(self, LayoutWish(self, lost, self._job.config.start_timeout_s, is_again=True))

    @property
    def newcomers(self) -> frozenset[str]:
        """Processes that have not joined the job yet: if one fails, the change is refused and the job goes on."""
        leader = self._leader
        return frozenset(leader.joining) if leader is not None else frozenset()

    def on_newcomer_failed(self, name: str, failure: Failure) -> None:
        """One of them has failed."""
        self._failed_newcomers[name] = (self._job.crew.actors.get(name), failure)
        driver = self._driver
        if driver is not None:
            driver.newcomer_failed(name, failure.message)

    def failed_since_they_came(self) -> list[tuple[str, Failure]]:
        """Those that had failed when their change took them in; where it was refused they are gone."""
        over = [name for name in self._failed_newcomers if name not in self.newcomers]
        failed = [(name, *self._failed_newcomers.pop(name)) for name in over]
        return [(name, failure) for name, actor, failure in failed if actor is not None and self._job.crew.actors.get(name) is actor]

    @property
    def failure(self) -> Failure | None:
        """What went wrong in the middle of a change: the job has to restart from its last snapshot."""
        driver = self._driver
        return driver.failure if driver is not None else None

    @property
    def _leader(self) -> ChangeLeader | None:
        driver = self._driver
        return driver.leader if driver is not None and isinstance(driver.leader, ChangeLeader) else None


__all__ = ["ConfigureWish", "LayoutWish", "Rescaler", "Wish"]
