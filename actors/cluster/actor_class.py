"""What every actor class of a job has in common: concurrency groups, and no restart by Ray.

``run`` of an actor is one long call, whose reference fails when the actor dies. Other calls use threads of their own, so that they are
answered meanwhile: one concurrency group for heartbeats, in which no call ever waits, and others for looking, for changes, and for waiting.
So an actor with many waiting calls still answers heartbeats, and does not look dead.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping
from typing import Any

import ray
from ray._private.ray_constants import LOG_PREFIX_ACTOR_NAME

PULSE = "pulse"
"""The concurrency group of heartbeats, and of other calls that must always be served: no call in it waits for anything."""
WAITING = 8
"""An actor serves at most so many waiting calls at once; further ones queue."""
TAKE_S = 60.0
"""How long the plan of a job may take from the process that has put it into the object store to one that runs it."""
NO_RETRIES = {"max_restarts": 0, "max_task_retries": 0}
"""Never restarted by Ray, because queued calls could reach the new process."""


def remote_class(cls: type, threads: Mapping[str, int], groups: Mapping[str, Collection[str]], **options: Any) -> Any:
    """The Ray class whose methods run in these concurrency groups, each with so many threads; other methods run in the main thread."""
    grouped = {name: ray.method(concurrency_group=group)(_forward(cls, name)) for group, names in groups.items() for name in names}
    return ray.remote(concurrency_groups=dict(threads), **NO_RETRIES, **options)(type(cls.__name__, (cls,), grouped))


def actor_title(actor: object, job: str = "", who: str = "") -> str:
    """What Ray shows of an actor: its class, the job, and which replica. Ray takes it from ``__repr__`` once the actor is made.

    Without a job: of the class, as Ray inherits its own objects from it. Not a Ray name: such a name is not free again before the last
    handle of a dead actor has gone (docs/design/service.md).
    """
    return f"{type(actor).__name__}({job}{f': {who}' if who else ''})"


def show_in_logs(actor: object, job: str, who: str = "") -> None:
    """What Ray's log monitor puts before further lines of this process: its job may be another one than when it was made."""
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            print(f"{LOG_PREFIX_ACTOR_NAME}{actor_title(actor, job, who)}", file=stream, flush=True)


def _forward(cls: type, name: str) -> Any:
    inner = getattr(cls, name)

    def call(self: Any, *args: Any) -> Any:
        return inner(self, *args)

    call.__name__ = name
    return call
