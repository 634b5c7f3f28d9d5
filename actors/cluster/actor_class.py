"""What every actor class of a job has in common: concurrency groups, and no restart by Ray.

``run`` of an actor is one long call; its reference tells of the actor's death. Other calls use threads of their own, so that they are
answered meanwhile: one concurrency group for heartbeats, in which nothing ever waits, and others for looking, for changes, and for waiting.
So no number of calls that wait can look like a death.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import ray

PULSE = "pulse"
"""The concurrency group of heartbeats, and of what must always get through: no call in it waits for anything."""
WAITING = 8
"""So many calls that wait for something an actor holds at once; further ones come after them."""
NO_RETRIES = {"max_restarts": 0, "max_task_retries": 0}
"""Never restarted by Ray, because queued calls could reach a newcomer."""


def remote_class(cls: type, threads: Mapping[str, int], groups: Mapping[str, Collection[str]], **options: Any) -> Any:
    """The Ray class whose methods run in these concurrency groups, each with so many threads; what is in none runs in the main thread."""
    grouped = {name: ray.method(concurrency_group=group)(_forward(cls, name)) for group, names in groups.items() for name in names}
    return ray.remote(concurrency_groups=dict(threads), **NO_RETRIES, **options)(type(cls.__name__, (cls,), grouped))


def _forward(cls: type, name: str) -> Any:
    inner = getattr(cls, name)

    def call(self: Any, *args: Any) -> Any:
        return inner(self, *args)

    call.__name__ = name
    return call
