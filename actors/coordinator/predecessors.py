"""The beginning of a coordinator that takes the place of another one: it ends what is left of those before it, and waits for that."""

from __future__ import annotations

import logging
import time as clock
from collections.abc import Collection
from contextlib import suppress

import ray

from rayad.actors.cluster import names, ray_calls
from rayad.actors.cluster.actor_processes import ActorProcesses
from rayad.actors.coordinator.running_job import RunningJob
from rayad.actors.lead.taking_over import Left, TakingOver, lease_s

LOOK_S = 0.2
"""Seconds between two looks whether those before have ended."""
_log = logging.getLogger(__name__)


def await_predecessors(job: RunningJob, delay_s: float, before: Collection[str] = ()) -> None:
    """Wait until the coordinators before this one have ended, and for the delay; tells by :attr:`RunningJob.waits_for` what is waited for,
    and by :attr:`RunningJob.lease_s` for how long others may hold the store after it is claimed. A cancelled job is not waited for.
    ``before``: the names of those that were not called as this job's."""
    patience_s = job.config.failures.heartbeat_timeout_s
    taking = TakingOver(delay_s=delay_s, patience_s=patience_s, now_s=clock.monotonic())
    own = names.token_of(ray.get_runtime_context().get_actor_name() or "")
    processes = ActorProcesses()
    while told := taking.look(_end_and_look(processes, job.name, own, before), clock.monotonic()):
        job.waits_for = told
        if job.cancelled.wait(LOOK_S):
            break
    job.waits_for = ""
    if taking.unconfirmed:
        job.lease_s = lease_s(patience_s)
        what = "job %r: %s is not known; when the store is claimed, %.1f s are waited for a coordinator that may still live"
        _log.warning(what, job.name, taking.unconfirmed, job.lease_s)


def _end_and_look(processes: ActorProcesses, job: str, own: str, before: Collection[str]) -> list[Left] | None:
    """Who is left of the coordinators before this one; those that Ray does not count as dead are killed. None when Ray does not tell."""
    try:
        left = processes.coordinators_left(job, besides=(own,), named=before)
        for one in left:
            if not one.is_dead:
                with suppress(ValueError):  # it has just ended
                    ray_calls.kill(ray_calls.get_actor(one.name, names.NAMESPACE))
    except Exception:  # of Ray's, which says of its internal calls not what they raise
        _log.debug("job %r: Ray does not tell of coordinators", job, exc_info=True)
        return None
    return left


__all__ = ["await_predecessors"]
