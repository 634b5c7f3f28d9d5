"""Names of jobs in a cluster: Ray's own table of named actors is the registry (docs/design/service.md).

A coordinator is called ``job:NAME:TOKEN``, in a namespace of Rayad's. The table lists those that live, so there is no
record of Rayad's own that could be stale. Ray would also keep plain names unique, but a name is not free again before the last handle of
a dead actor has gone, in any process: hence the token, and a driver that starts a job checks whether another one of its name lives.
"""

from __future__ import annotations

import random
import secrets
import time as clock
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from typing import Any

import ray

from rayad.actors.cluster import ray_calls
from rayad.progress import DataflowError

NAMESPACE = "rayad"
_KIND = "job"
FREE_S = 10.0
"""How long a job of that name that is ending may take to end."""
LOOK_AGAIN_S = 0.05


class NameTaken(DataflowError):
    """A job of this name runs on the cluster."""


def claim(
    name: str, start: Callable[[Mapping[str, str]], Any], is_ending: Callable[[Any], bool], mine: Collection[str] = ()
) -> tuple[Any, str]:
    """Start a coordinator as the only one of its name, and give it with its token; waits while another one is ending.

    Two processes that claim a name at the same moment see each other's coordinator, end their own, and try again after a random delay:
    never do both get the name.

    Args:
        start: creates the actor with the given options of Ray.
        is_ending: whether an actor that has the name is dead, or its job is over.
        mine: tokens of the earlier coordinators that this one replaces, which have been ended.

    Raises NameTaken when a job of that name lives.
    """
    deadline_s = clock.monotonic() + FREE_S
    while True:
        others = [token for token in _tokens(name) if token not in mine]
        if not others:
            token = secrets.token_hex(4)
            actor = start({"name": f"{_KIND}:{name}:{token}", "namespace": NAMESPACE})
            if not [other for other in _tokens(name) if other not in (token, *mine)]:
                return actor, token
            ray_calls.kill(actor)
        elif clock.monotonic() > deadline_s or not all(is_ending(actor) for actor in _actors(name, others).values()):
            raise taken(name)
        clock.sleep(LOOK_AGAIN_S * random.uniform(0.5, 5.0))


def taken(name: str) -> NameTaken:
    """The error for a second job of that name."""
    return NameTaken(
        f"a job named {name!r} runs on this cluster already: rayad.attach({name!r}) gives its handle; to start another one beside it, give "
        "it a name of its own: RunConfig(name=...)"
    )


def find(name: str) -> dict[str, Any]:
    """The coordinators of the job of that name, by token: one, or none; for a moment two while one takes the place of another."""
    return _actors(name, _tokens(name))


def known() -> list[str]:
    """The names of all jobs that have a coordinator now, in order."""
    return sorted({name for name, _ in _listed()})


def _listed() -> list[tuple[str, str]]:
    """Name and token of all coordinators that live."""
    found = []
    for actor in ray.util.list_named_actors(all_namespaces=True):
        kind, _, rest = actor["name"].partition(":")
        if actor["namespace"] == NAMESPACE and kind == _KIND:
            name, _, token = rest.rpartition(":")
            found.append((name, token))
    return found


def _tokens(name: str) -> list[str]:
    return [token for listed, token in _listed() if listed == name]


def _actors(name: str, tokens: Collection[str]) -> dict[str, Any]:
    found = {}
    for token in tokens:
        with suppress(ValueError):  # it has just ended
            found[token] = ray.get_actor(f"{_KIND}:{name}:{token}", namespace=NAMESPACE)
    return found


__all__ = ["NAMESPACE", "NameTaken", "claim", "find", "known", "taken"]
