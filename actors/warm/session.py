"""``rd.session``: processes that are started once, for all jobs of this driver until the session is closed."""

from __future__ import annotations

import math
import threading
from types import TracebackType
from typing import Any, Self

from rayad.actors.cluster import ray_calls
from rayad.actors.cluster.joining import check_placeable, is_ray_client, join_or_start_ray
from rayad.actors.coordinator.processes.kinds import PROGRESS_KIND, Start, worker_kind
from rayad.actors.plane.protocol import PROGRESS
from rayad.actors.process.ahead import load_ahead
from rayad.actors.warm.sets import OF_THIS_PROCESS, new_set
from rayad.dataflow.config import RunConfig, ScalingConfig
from rayad.dataflow.resources import Need, Resources
from rayad.progress import ConfigError, arguments

_OPEN: list[Session] = []
_LOCK = threading.Lock()


class Session:
    """Processes that wait for the jobs of this driver. See :func:`session`."""

    def __init__(self, workers: int, cpus: float) -> None:
        self.workers = workers
        warm = new_set()
        worker, needs = worker_kind(1, cpus), Resources().by_name(cpus)
        warm.prepare([Start(PROGRESS, PROGRESS_KIND), *(Start(f"w{at}", worker, needs=needs) for at in range(workers))], ahead=True)
        load_ahead()
        OF_THIS_PROCESS.give(warm, math.inf)
        with _LOCK:
            _OPEN.append(self)

    @property
    def is_open(self) -> bool:
        """Whether jobs use it."""
        return self in _OPEN

    def close(self) -> None:
        """End the processes that wait; those of a job that runs end with it. May be called again."""
        with _LOCK:
            if self in _OPEN:
                _OPEN.remove(self)
            is_last = not _OPEN
        if is_last:
            OF_THIS_PROCESS.end_unbounded()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Session(workers={self.workers}, {'open' if self.is_open else 'closed'})"


def session(workers: int = 1, *, cpus_per_worker: float | None = None) -> Session:
    """Start a coordinator, a progress actor and ``workers`` worker processes, and keep them for the jobs of this driver, one after the
    other: ``flow.run`` then starts no process and begins at once. Joins the cluster that this process is in, or starts one.

        with rd.session(workers=2):
            flow.run()        # begins as soon as the workers are there
            other.run()       # begins at once

    Without ``with``, in a notebook: ``session = rd.session(workers=2)``, and ``session.close()`` at the end; else the processes go when the
    driver goes.

    While it is open, a run that gives no ScalingConfig has ``placement="workers"``, and ``parallelism`` of ``workers`` unless it says how
    many. One that asks for more workers, for resources, or for processes of another kind starts what is missing, which then stays as well.
    Only a job that was complete leaves its processes for the next one, with the modules that its functions have imported; a module whose
    file has changed since then is imported anew, in a new process. After a failure, a cancellation or the death of a process the next job
    starts new ones. Two jobs at the same time never share a process: the second has its own.

    Args:
        workers: how many; also how many replicas vertices have.
        cpus_per_worker: what each reserves of its node; default: as ``RunConfig.cpus_per_replica``.
    """
    workers = arguments.whole(workers, "session: workers", least=1, error=ConfigError)
    default = RunConfig().cpus_per_replica
    cpus = (
        default if cpus_per_worker is None else arguments.number(cpus_per_worker, "session: cpus_per_worker", zero=True, error=ConfigError)
    )
    if is_ray_client():
        raise ConfigError("session(): this driver is connected through Ray Client (ray://); it must run inside the cluster")
    if ray_calls.cluster() is None:
        join_or_start_ray()
    check_placeable([Need("workers", workers, Resources().by_name(cpus))], f"session(workers={workers})", None)
    return Session(workers, cpus)


def keep_s_of(config: RunConfig) -> float | None:
    """How long the processes of a job that is complete stay; None: they end with it."""
    if config.keep_warm_s:
        return config.keep_warm_s
    return math.inf if _OPEN else None


def scaling_of(parallelism: Any) -> ScalingConfig | None:
    """For a job that gives no ScalingConfig; None where no session is open."""
    if not _OPEN:
        return None
    return ScalingConfig(parallelism=_OPEN[-1].workers if parallelism is None else parallelism, placement="workers")


__all__ = ["Session", "keep_s_of", "scaling_of", "session"]
