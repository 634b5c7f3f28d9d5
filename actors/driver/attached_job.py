"""The handle of a job on Ray in a process that did not start it: it finds the job by name, and again when its coordinator has died."""

from __future__ import annotations

import time as clock
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from ray.exceptions import GetTimeoutError, RayActorError

from rayad.actors.cluster import names, ray_calls
from rayad.actors.cluster.joining import join_ray
from rayad.actors.coordinator.outcome import About, JobOutcome
from rayad.actors.driver.coordinator_line import LOOK_AGAIN_S, CoordinatorLine, Gone
from rayad.actors.driver.job_handle import CANCEL_S, RayJobHandle
from rayad.actors.job import THE_COORDINATOR, JobInput, JobProgress, JobState
from rayad.autoscale import ScalingProgress
from rayad.dataflow.config import REPORT_INTERVAL
from rayad.dataflow.records.calling import did_you_mean
from rayad.progress import ConfigError, DataflowError, RayadError, show

ATTACH_S = 120.0
"""How long a coordinator may take to say what it runs: it may only just have been started."""
ANSWER_S = 10.0


class NoSuchJob(DataflowError, KeyError):
    """There is no job of this name on the cluster; a KeyError, as for any mapping."""

    __str__ = Exception.__str__  # a KeyError shows the repr of its message


@dataclass(frozen=True, slots=True)
class _Found:
    token: str
    actor: Any
    about: About


def attach(name: str, *, address: str | None = None) -> AttachedJob:
    """The handle of a running job, whichever process started it, by the name of its ``RunConfig`` or its dataflow.

    It can do everything that the handle of the job's driver can, except send to live inputs. It may be dropped at any time: the job
    continues. The job ends with its owner; the handle then says so.

    Args:
        name: the job's.
        address: of the cluster, if this process is in none; by default RAY_ADDRESS, or the cluster of this machine.

    Raises NoSuchJob, naming the jobs that run; ConfigError where there is no cluster; TimeoutError when its coordinator does not answer.
    """
    if not isinstance(name, str):
        raise ConfigError(f"attach(name) is {show(name)}: it must be the name of a job, a string")
    join_ray(address)
    deadline_s = clock.monotonic() + ATTACH_S
    while True:
        found = _look_up(name)
        if found is not None:
            return AttachedJob(name, found)
        if not names.find(name):
            raise _no_such(name)
        if clock.monotonic() > deadline_s:
            raise TimeoutError(f"attach({name!r}): {THE_COORDINATOR} of the job has not answered for {ATTACH_S:g} s")
        clock.sleep(LOOK_AGAIN_S)


def jobs(*, address: str | None = None) -> list[str]:
    """The names of the jobs that run on the cluster, in order: what :func:`attach` takes.

    Raises ConfigError where there is no cluster.
    """
    join_ray(address)
    return names.known()


def _no_such(name: str) -> NoSuchJob:
    there = names.known()
    near = did_you_mean(name, there)
    if not there:
        return NoSuchJob(f"no job named {name!r} runs on this cluster: no job does")
    return NoSuchJob(f"no job named {name!r} runs on this cluster{near}: there are {there}")


def _look_up(name: str, besides: str = "") -> _Found | None:
    """A coordinator of a job whose token is not ``besides``, and what it runs; None when there is none, or it does not answer in time."""
    for token, actor in names.find(name).items():
        if token == besides:
            continue
        with suppress(RayActorError, GetTimeoutError):
            about: About = ray_calls.get(actor.about.remote(), timeout=ANSWER_S)
            if about.outcome is not None:
                return _Found(token, actor, about)
    return None


class AttachedJob(RayJobHandle):
    """The handle of a job on Ray that :func:`attach` gives. It starts no coordinator, and ends one only by :meth:`cancel`."""

    def __init__(self, name: str, found: _Found) -> None:
        about = found.about
        super().__init__(name, about.plan, about.config, JobProgress(JobState.STARTING, (), 0))
        self._line, self._token = self._line_to(found), found.token
        self._gone_since_s: float | None = None

    def _line_to(self, found: _Found) -> CoordinatorLine:
        config = found.about.config
        return CoordinatorLine(found.actor, found.about.outcome, self.name, config.failures.heartbeat_timeout_s, config.start_timeout_s)

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
        found = _look_up(self.name, besides=self._token)
        if found is not None:
            self._line, self._token, self._gone_since_s = self._line_to(found), found.token, None
            if self._stopping:
                found.actor.stop.remote()
            return True
        now_s = clock.monotonic()
        self._gone_since_s = now_s if self._gone_since_s is None else self._gone_since_s
        failures = self._config.failures
        survives = self._config.keeps_snapshots and failures.max_failures > 0 and not self._cancelling
        return survives and now_s - self._gone_since_s < failures.delay_max_s + failures.heartbeat_timeout_s

    def _on_outcome(self, line: CoordinatorLine, outcome: JobOutcome) -> JobOutcome:
        return outcome

    def _on_over(self) -> None:
        pass

    def cancel(self) -> None:
        """See :meth:`Job.cancel`. Raises TimeoutError when the coordinator does not answer: repeat it once the owner has replaced it."""
        if self._outcome is None:
            self._ask_again("cancel", timeout_s=CANCEL_S, successor_s=CANCEL_S)
            self._cancelling = True
            self._settle(CANCEL_S)

    def fail(self, error: RayadError) -> None:
        """See :meth:`Job.fail`: only the process that started a job feeds it, and can fail it."""
        raise DataflowError(f"job {self.name!r} is failed by the process that started it only, which feeds it; cancel() ends it") from error

    def _look_at_scaling(self) -> ScalingProgress | None:
        return None

    def _configure_scaling(self, changes: Mapping[str, Any]) -> Mapping[str, Any]:
        if REPORT_INTERVAL in changes:
            raise ConfigError(
                f"configure({REPORT_INTERVAL}=...): the autoscaler takes it from the handle that started job {self.name!r} only"
            )
        return changes

    def _open_input(self, name: str, stage: int) -> JobInput:
        raise DataflowError(
            f"input {name!r} of job {self.name!r} takes records from the process that started the job only: it keeps what may have to be "
            "sent again after a failure"
        )


__all__ = ["AttachedJob", "NoSuchJob", "attach", "jobs"]
