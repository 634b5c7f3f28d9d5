"""The handle of a job on Ray in a process that did not start it: it finds the job by name, and again when its coordinator has died."""

from __future__ import annotations

import time as clock
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from ray.exceptions import GetTimeoutError, RayActorError, RayError

from rayad.actors.cluster import names, ray_calls
from rayad.actors.cluster.joining import join_ray
from rayad.actors.coordinator.outcome import About, Beat, JobOutcome
from rayad.actors.driver.coordinator_line import END_S, GLANCE_S, LOOK_AGAIN_S, CoordinatorLine, Gone, NoAnswer
from rayad.actors.driver.job_handle import CANCEL_S, MOVE_S, STOP_S, RayJobHandle
from rayad.actors.driver.keeper_line import KeeperLine
from rayad.actors.driver.kept_input import KeptInput
from rayad.actors.driver.ray_job import owned
from rayad.actors.inputs.job_input import JobInput
from rayad.actors.job import THE_COORDINATOR, JobProgress, JobState, JobStatistics, Result
from rayad.actors.lead.failure import Failure
from rayad.autoscale import ScalingProgress
from rayad.dataflow.config import CHANGEABLE, REPORT_INTERVAL, configured
from rayad.dataflow.records.calling import did_you_mean
from rayad.progress import ConfigError, DataflowError, RayadError, show

ATTACH_S = 120.0
"""How long a coordinator may take to say what it runs: it may only just have been started."""
ANSWER_S = 10.0
STATE_S = 2.0
"""How long :func:`jobs` waits for who can tell of a job."""
REPLACED_S = 2.0
"""A job may have no coordinator for so long: its owner has to notice that one died, and starts the next one."""
SCALING_S = 0.5
"""How long a look at a job waits for what its autoscaler told the keeper."""


class NoSuchJob(DataflowError, KeyError):
    """There is no job of this name on the cluster; a KeyError, as for any mapping."""

    __str__ = Exception.__str__  # a KeyError shows the repr of its message


@dataclass(frozen=True, slots=True)
class _Found:
    token: str
    actor: Any
    """The coordinator; None when the job has ended, and its keeper has told."""
    about: About


def attach(name: str, *, address: str | None = None) -> AttachedJob:
    """Return the handle of a running job by its name (that of its ``RunConfig``, or of its dataflow), whichever process started it.

    The handle can do everything that the driver's own can, except send to live inputs of a job that was not submitted detached. Dropping it
    does not affect the job. A job ends with its driver, and the handle says so, unless it was submitted with ``detached=True``: its results
    can then be fetched after its end, once, within ``RunConfig.keep_results_s``.

    Args:
        name: the job's.
        address: of the cluster, if this process is in none; default: RAY_ADDRESS, or the cluster of this machine.

    Raises NoSuchJob, naming the jobs that run; ConfigError if there is no cluster; TimeoutError if the job's coordinator does not answer.
    """
    if not isinstance(name, str):
        raise ConfigError(f"attach(name) is {show(name)}: it must be the name of a job, a string")
    join_ray(address)
    deadline_s = clock.monotonic() + ATTACH_S
    there_s = clock.monotonic()
    while True:
        found = _look_up(name)
        if found is not None:
            return AttachedJob(name, found)
        now_s = clock.monotonic()
        if names.find(name) or names.find(name, names.Role.KEEPER):
            there_s = now_s
        elif now_s - there_s > REPLACED_S:
            raise _no_such(name)
        if now_s > deadline_s:
            raise TimeoutError(
                f"attach({name!r}): {THE_COORDINATOR} of the job has not answered for {ATTACH_S:g} s; it is being replaced, or cut off"
            )
        clock.sleep(LOOK_AGAIN_S)


def jobs(*, address: str | None = None) -> dict[str, JobState | None]:
    """List the jobs on the cluster by name, with their states: the names that :func:`attach` accepts.

    Detached jobs whose results nobody has fetched yet are included. A state of None means that no answer came within two seconds. Raises
    ConfigError if there is no cluster.
    """
    join_ray(address)
    asked = {name: [ray_calls.call(actor.ping) for actor in actors] for name, actors in names.known().items()}
    _wait_for([ref for refs in asked.values() for ref in refs], STATE_S)
    found: dict[str, JobState | None] = {}
    for name, refs in asked.items():
        beats: list[Beat] = [beat for ref in refs if (beat := _answer(ref)) is not None]
        newest = max(beats, key=lambda beat: beat.life, default=None)
        if newest is not None or names.find(name) or names.find(name, names.Role.KEEPER):
            found[name] = newest.state if newest is not None else None  # None: nobody answers, or another one takes its place
    return found


def _wait_for(refs: list[Any], timeout_s: float) -> None:
    """Wait until all of these are answered, for so long at most."""
    if refs:
        ray_calls.wait(refs, num_returns=len(refs), timeout=timeout_s)


def _answer(ref: Any) -> Any:
    """An answer that is there; None where there is none."""
    with suppress(RayActorError, GetTimeoutError):
        return ray_calls.get(ref, timeout=0)
    return None


def _no_such(name: str) -> NoSuchJob:
    there = list(names.known())
    near = did_you_mean(name, there)
    if not there:
        return NoSuchJob(f"no job named {name!r} runs on this cluster: no job does")
    return NoSuchJob(f"no job named {name!r} runs on this cluster{near}: there are {there}")


def _look_up(name: str, besides: str = "") -> _Found | None:
    """A coordinator of a job whose token is not ``besides``, and what it runs; or what the job's keeper tells when the job has ended. None
    when there is none, or it does not answer in time."""
    asked = {token: (actor, ray_calls.call(actor.about)) for token, actor in names.find(name).items() if token != besides}
    refs = [ref for _, ref in asked.values()]
    if refs and ray_calls.wait(refs, num_returns=1, timeout=ANSWER_S)[0]:
        _wait_for(refs, STATE_S)
    told = [_Found(token, actor, about) for token, (actor, ref) in asked.items() if (about := _answer(ref)) is not None]
    told = [one for one in told if one.about.outcome is not None]
    if told:
        return max(told, key=lambda one: len(one.about.runs))  # of two, the one that takes the place of the other
    for token, keeper in names.find(name, names.Role.KEEPER).items():
        with suppress(RayActorError, GetTimeoutError):
            about = ray_calls.get(ray_calls.call(keeper.about), timeout=ANSWER_S)
            if about is not None:
                return _Found(token, None, about)
    return None


def _keeper_of(name: str) -> KeeperLine | None:
    for token, actor in names.find(name, names.Role.KEEPER).items():
        return KeeperLine(names.Entry(names.Role.KEEPER, name, token), actor)
    return None


class AttachedJob(RayJobHandle):
    """The handle that :func:`attach` and ``submit(detached=True)`` return. It starts no coordinator, and ends one only by
    :meth:`cancel`.

    Requests that later coordinators of a detached job must know go to its keeper: cancel, stop, configure, live inputs.
    """

    def __init__(self, name: str, found: _Found) -> None:
        about = found.about
        super().__init__(name, about.plan, about.config, JobProgress(JobState.STARTING, (), 0))
        self._take_up(found)
        self._gone_since_s: float | None = None
        self._keeper = _keeper_of(name)
        self._has_told_fetched = False
        if found.actor is None:
            self.settle(END_S)

    def _take_up(self, found: _Found) -> None:
        self._line, self._token, self._runs = self._line_to(found), found.token, frozenset(found.about.runs)

    def _line_to(self, found: _Found) -> CoordinatorLine:
        config = found.about.config
        timeouts = config.failures.heartbeat_timeout_s, config.start_timeout_s
        asks_again = partial(self._ask_outcome, found.actor) if found.actor is not None else None
        return CoordinatorLine(found.actor, found.about.outcome, self.name, *timeouts, asks_again)

    def _ask_outcome(self, coordinator: Any) -> Any:
        """The reference to the outcome that the job's owner has now: this process' own, or the owner's, was lost with a connection."""
        outcome = ray_calls.get(ray_calls.call(coordinator.about), timeout=GLANCE_S).outcome
        if self._keeper is None:  # which tells it itself
            self._tell_again(coordinator)
        return outcome

    def _has_successor(self, line: CoordinatorLine, gone: Gone) -> bool:
        """Look for the next coordinator, which the job's owner starts under the same name, after the delay of restarts."""
        if self._line is not line:
            return True
        if not line.is_connected():
            return False
        if not line.given_up and line.has_ended():
            try:
                line.take_outcome()
                return False  # it did not die: the job has ended
            except Gone:
                pass
        if self._keeper is not None and not names.lives(self._keeper.entry):
            return False  # a coordinator of that name is another job's
        found = _look_up(self.name, besides=self._token)
        if found is not None:
            if not self._runs <= {*found.about.runs}:
                return False  # another job has taken the name
            self._take_up(found)
            self._gone_since_s = None
            if self._keeper is None:  # which tells it itself
                self._tell_again(found.actor)
            return True
        if names.find(self.name).keys() - {self._token}:
            self._gone_since_s = None
            return True  # it does not say yet whose it is
        if self._keeper is not None:
            return True  # it is in the table, or Ray starts it again: it starts the next coordinator, or tells how the job has ended
        now_s = clock.monotonic()
        self._gone_since_s = now_s if self._gone_since_s is None else self._gone_since_s
        return self._config.failures_survived > 0 and now_s - self._gone_since_s < self._succession_s()

    def _succession_s(self) -> float:
        """How long a coordinator that died may be without a successor: the owner hears of its death, waits, and starts one."""
        return self._config.failures.delay_max_s + self._config.failures.heartbeat_timeout_s

    def _on_outcome(self, line: CoordinatorLine, outcome: JobOutcome) -> JobOutcome:
        return outcome

    def _on_over(self) -> None:
        pass

    def _lost(self, gone: Gone) -> JobOutcome:
        if self._keeper is None:
            return super()._lost(gone)
        told = (
            "nobody keeps the job any more: another handle has fetched its results, they were kept for RunConfig.keep_results_s, a new job "
            "has taken its name, or its keeper was killed"
        )
        return JobOutcome(JobState.FAILED, {}, JobStatistics(), Failure(THE_COORDINATOR, told, str(gone), None, False))

    def wait(self, timeout_s: float | None = None, *, progress: bool | None = False) -> Result:
        try:
            return super().wait(timeout_s, progress=progress)
        finally:
            if self._outcome is not None and self._keeper is not None and not self._has_told_fetched:
                self._has_told_fetched = True
                with suppress(Gone, NoAnswer, RayError, RayadError):
                    self._keeper.call("fetched", timeout_s=ANSWER_S)  # repeated where the keeper is being replaced: else it keeps them

    def cancel(self) -> None:
        """End the job without results; when this returns it has ended, or can no longer begin. See :meth:`Job.cancel`.

        If the coordinator dies meanwhile, a successor that does not know of the cancellation is waited for, and told. Raises TimeoutError
        if the coordinator or keeper does not answer, or the end does not come in time: call it again after the replacement.
        """
        if self._outcome is not None:
            return
        self._cancelling = True
        if self._keeper is None:
            most_s = self._succession_s() + CANCEL_S
            self._ask_again("cancel", timeout_s=CANCEL_S, successor_s=most_s)
            self.settle(most_s)
        else:
            with suppress(Gone):
                self._keeper.call("cancel", timeout_s=self._config.start_timeout_s + CANCEL_S)
            self.settle(CANCEL_S)

    def drain(self) -> None:
        if self._keeper is None:
            super().drain()
            return
        self._stopping = True
        with suppress(Gone):  # wait() tells how it ended
            self._keeper.call("stop", timeout_s=self._config.start_timeout_s + STOP_S)

    def configure(self, **changes: Any) -> None:
        if self._keeper is None or self._outcome is not None:
            super().configure(**changes)
            return
        try:
            self._keeper.call("configure", changes, timeout_s=self._config.start_timeout_s + MOVE_S)
        except Gone as gone:
            raise ConfigError(f"configure({changes}): {self._why_over(gone)}") from None
        own = {name: value for name, value in changes.items() if name in CHANGEABLE}
        self._config = configured(self._config, own) if own else self._config

    def fail(self, error: RayadError) -> None:
        """Refused: only the process that started a job feeds it, and can declare it failed. See :meth:`Job.fail`."""
        raise DataflowError(f"job {self.name!r} is failed by the process that started it only, which feeds it; cancel() ends it") from error

    def look_at_scaling(self) -> ScalingProgress | None:
        if self._keeper is None:
            return None
        try:
            told: ScalingProgress | None = self._keeper.call("look_at_scaling", timeout_s=SCALING_S)
        except (Gone, NoAnswer):
            return None
        return told

    def _configure_scaling(self, changes: Mapping[str, Any]) -> Mapping[str, Any]:
        if REPORT_INTERVAL in changes:
            raise ConfigError(
                f"configure({REPORT_INTERVAL}=...): the autoscaler takes it from the handle that started job {self.name!r} only"
            )
        return changes

    def _open_input(self, name: str, stage: int) -> JobInput:
        if self._keeper is not None:
            return KeptInput(name, self._keeper)
        owner = owned(self.name, self._token)
        if owner is not None:
            return owner.input(name)
        raise DataflowError(
            f"input {name!r} of job {self.name!r} takes records from the process that started the job only: it keeps what may have to be "
            "sent again after a failure; submit(detached=True) gives a job whose inputs take them from anywhere"
        )


__all__ = ["AttachedJob", "NoSuchJob", "attach", "jobs"]
