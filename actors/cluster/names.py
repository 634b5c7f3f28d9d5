"""Names of jobs in a cluster: Ray's own table of named actors is the registry (docs/design/service.md).

A coordinator is called ``job:NAME:TOKEN`` and a keeper ``keeper:NAME:TOKEN``, in a namespace of Rayad's. The table lists those that live,
so there is no record of Rayad's own that could be stale. Ray would also keep plain names unique, but a name is not free again before the
last handle of a dead actor has gone, in any process: hence the token, and who starts a job checks whether another one of its name lives.

An actor keeps its name for good. A coordinator that stays for further jobs is called ``warm:TOKEN``, and which job it runs is a key in
Ray's control store, beside the table: written when a job begins there and deleted when it has ended. A key whose actor is not in the table
is void, so a process that ends leaves nothing behind that counts.
"""

from __future__ import annotations

import random
import secrets
import time as clock
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from typing import Any

from ray.experimental.internal_kv import _internal_kv_del, _internal_kv_list, _internal_kv_put

from rayad.actors.cluster import ray_calls
from rayad.actors.cluster.addressed import Addressed
from rayad.progress import DataflowError

NAMESPACE = "rayad"
WARM = "warm"
_KEYS = b"rayad-jobs"
FREE_S = 10.0
"""How long a job of that name that is ending may take to end."""
LOOK_AGAIN_S = 0.05


class Role(Enum):
    """What a named actor is to its job."""

    COORDINATOR = "job"
    KEEPER = "keeper"


@dataclass(frozen=True, slots=True)
class Entry:
    """A named actor that lives."""

    role: Role
    job: str
    token: str
    within: str = ""
    """The name of an actor that runs jobs of several names; "" where it has the job's own."""

    @property
    def name(self) -> str:
        """In Ray's table."""
        return self.within or f"{self.role.value}:{self.job}:{self.token}"

    @property
    def options(self) -> dict[str, str]:
        """Of Ray, for the actor."""
        return {"name": self.name, "namespace": NAMESPACE}

    @property
    def key(self) -> bytes:
        """What says in Ray's control store which job runs within that actor."""
        return f"{self.job}:{self.token}@{self.within}".encode()

    def register(self) -> None:
        """The job runs within the actor from now on."""
        if self.within:
            _internal_kv_put(self.key, b"", overwrite=True, namespace=_KEYS)

    def withdraw(self) -> None:
        """It does not any more."""
        if self.within:
            _internal_kv_del(self.key, namespace=_KEYS)


class NameTaken(DataflowError):
    """A job of this name runs on the cluster."""


def claim(
    name: str,
    start: Callable[[Mapping[str, str]], Any],
    is_ending: Callable[[Any], bool | None],
    mine: Collection[str] = (),
    *,
    role: Role = Role.COORDINATOR,
    patience_s: float = FREE_S,
    within: str = "",
) -> tuple[Any, Entry]:
    """Start a coordinator, or a keeper, as the only one of its job's name, and give it; waits while another one is ending.

    Two processes that claim a name at the same moment see each other's actor, end their own, and try again after a random delay:
    never do both get the name.

    Args:
        start: creates the actor with the given options of Ray.
        is_ending: whether an actor that has the name is dead, or its job is over; None while it does not say.
        mine: tokens of the keeper that this coordinator belongs to, and of the earlier coordinators that it replaces, which have ended.
        role: what it is.
        patience_s: how long to wait for one that is ending, or does not say.
        within: the name of the actor that is to run the job, which ``start`` then only gives; "" for a new one.

    Raises NameTaken when a job of that name lives.
    """
    deadline_s = clock.monotonic() + patience_s
    while True:
        others = [entry for entry in _entries(name) if entry.token not in mine]
        if not others:
            entry = Entry(role, name, secrets.token_hex(4), within)
            actor = start(entry.options)
            entry.register()
            if not [other for other in _entries(name) if other.token not in (entry.token, *mine)]:
                return actor if role is Role.KEEPER else Addressed(actor, entry.token), entry
            entry.withdraw()
            if not within:
                ray_calls.kill(actor)
        elif clock.monotonic() > deadline_s or any(is_ending(actor) is False for actor in _actors(others).values()):
            raise taken(name)
        clock.sleep(LOOK_AGAIN_S * random.uniform(0.5, 5.0))


def token_of(name: str) -> str:
    """The token in the name of an actor."""
    return name.rpartition(":")[2]


def taken(name: str) -> NameTaken:
    """The error for a second job of that name."""
    return NameTaken(
        f"a job named {name!r} runs on this cluster already: rayad.attach({name!r}) gives its handle; to start another one beside it, give "
        "it a name of its own: RunConfig(name=...)"
    )


def find(name: str, role: Role = Role.COORDINATOR) -> dict[str, Any]:
    """The coordinators (keepers) of the job of that name, by token: one, or none; for a moment two while one takes the place of another."""
    return _actors([entry for entry in _entries(name) if entry.role is role])


def hosts(name: str) -> set[str]:
    """The names of the actors that run the job of that name now, and stay for jobs of other names."""
    return {entry.within for entry in _entries(name) if entry.within}


def lives(entry: Entry) -> bool:
    """Whether this actor is in the table still: one that Ray restarts is."""
    return entry in _listed()


def known() -> dict[str, list[Any]]:
    """By name, in order: who can tell of each job that has an actor now: its keeper first, where it has one, and its coordinators."""
    listed = sorted(_listed(), key=lambda entry: (entry.job, entry.role is not Role.KEEPER))
    actors = _actors(listed)
    found: dict[str, list[Any]] = {}
    for entry in listed:
        if entry.token in actors:
            found.setdefault(entry.job, []).append(actors[entry.token])
    return found


def _listed() -> list[Entry]:
    """All coordinators and keepers that live, by job."""
    roles = {role.value: role for role in Role}
    keys = [key.decode() for key in _internal_kv_list(b"", namespace=_KEYS)]  # before the table: what runs a job is there before its key
    found, warm = [], set()
    for actor in ray_calls.list_named_actors(all_namespaces=True):
        kind, _, rest = actor["name"].partition(":")
        if actor["namespace"] == NAMESPACE and kind in roles:
            name, _, token = rest.rpartition(":")
            found.append(Entry(roles[kind], name, token))
        elif actor["namespace"] == NAMESPACE and kind == WARM:
            warm.add(actor["name"])
    for key in keys:
        job, _, within = key.rpartition("@")
        name, _, token = job.rpartition(":")
        entry = Entry(Role.COORDINATOR, name, token, within)
        if within in warm:
            found.append(entry)
        else:
            entry.withdraw()  # its process has ended
    return found


def _entries(name: str) -> list[Entry]:
    return [entry for entry in _listed() if entry.job == name]


def _actors(entries: Collection[Entry]) -> dict[str, Any]:
    found = {}
    for entry in entries:
        with suppress(ValueError):  # it has just ended
            actor = ray_calls.get_actor(entry.name, namespace=NAMESPACE)
            found[entry.token] = actor if entry.role is Role.KEEPER else Addressed(actor, entry.token)
    return found


__all__ = ["NAMESPACE", "WARM", "Entry", "NameTaken", "Role", "claim", "find", "hosts", "known", "lives", "taken", "token_of"]
