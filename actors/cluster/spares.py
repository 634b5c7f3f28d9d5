"""Processes of jobs that have ended, for the next job of the same coordinator, which owns them; and processes that wait for the first one.

A process is used again when its job was complete and it still answers. It gets another plan, secret and data plane; what it keeps of the
job before is what Python keeps: modules that were imported, with their variables, and the threads that they have started. A module whose
file has changed since the process began is not kept: the process is ended.
"""

from __future__ import annotations

import os
import sys
import sysconfig
import time as clock
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

import ray
from ray.exceptions import GetTimeoutError, RayActorError, RayTaskError

READY_S = 2.0
"""How long spare processes may take to answer when a job begins; those that do not are ended. One that still starts may take longer."""


@dataclass(frozen=True, slots=True)
class Kind:
    """What a process is for.

    >>> Kind("worker", {"num_cpus": 1}, 16).fits(Kind("worker", {"num_cpus": 1}, 8)), Kind("worker", {}).fits(Kind("worker", {}, 8))
    (True, False)
    """

    role: str
    options: Mapping[str, Any] = field(default_factory=dict)
    """Of its Ray actor, but for where it is placed."""
    vertices: int = 0
    """Of a worker: for how many vertices it has threads that wait for changes."""

    def is_like(self, other: Kind) -> bool:
        """Whether both ask Ray for the same."""
        return (self.role, self.options) == (other.role, other.options)

    def fits(self, asked: Kind) -> bool:
        """Whether a process of this kind can do what ``asked`` is for."""
        return self.is_like(asked) and self.vertices >= asked.vertices


@dataclass(slots=True)
class _Spare:
    kind: Kind
    actor: Any
    answers: list[Any]
    title: tuple[str, ...] = ()


class Spares:
    """The spare processes of one coordinator. Each has ``rest()``, which forgets the job before, and ``is_fit()``."""

    def __init__(self, kill: Callable[[Any], None] = lambda actor: ray.kill(actor, no_restart=True)) -> None:
        self._kill = kill
        self._spares: list[_Spare] = []
        self._new: list[_Spare] = []

    def add(self, kind: Kind, actor: Any, title: tuple[str, ...] = ()) -> None:
        """A process that has just been started, for a job that is to come. ``title``: that Ray shows it with."""
        self._new.append(_Spare(kind, actor, [], title))

    def keep(self, kind: Kind, actor: Any) -> None:
        """A process whose job is complete. It forgets that job at once; nobody waits for it."""
        self._spares.append(_Spare(kind, actor, [actor.rest.remote()]))

    def select(self, asked: Collection[Kind]) -> None:
        """A job begins that needs processes of these kinds: end spares that none of them is like, and those that do not answer."""
        self._spares += self._new
        self._new = []
        kept: list[_Spare] = []
        ended: list[_Spare] = []
        for spare in self._spares:
            (kept if any(spare.kind.is_like(kind) for kind in asked) else ended).append(spare)
        deadline_s = clock.monotonic() + READY_S
        self._spares = []
        for spare in kept:
            spare.answers += [spare.actor.is_fit.remote()] if spare.answers else []  # one that still starts is waited for by who uses it
        for spare in kept:
            (self._spares if _has_answered(spare.answers, deadline_s) else ended).append(spare)
        for spare in ended:
            self._kill(spare.actor)

    def take(self, kind: Kind, title: tuple[str, ...] = ()) -> Any:
        """One of those that were selected, the last that had a job first, with this title; None where there is none that fits."""
        found = next((spare for spare in reversed(self._spares) if spare.kind.fits(kind) and spare.title == title), None)
        if found is None:
            return None
        self._spares.remove(found)
        return found.actor

    def end(self) -> None:
        """End all."""
        for spare in (*self._spares, *self._new):
            self._kill(spare.actor)
        self._spares, self._new = [], []

    def __len__(self) -> int:
        return len(self._spares) + len(self._new)


def _has_answered(answers: list[Any], deadline_s: float) -> bool:
    """Whether all have come in time, and none says no."""
    try:
        return False not in ray.get(answers, timeout=max(0.01, deadline_s - clock.monotonic()))
    except (RayActorError, RayTaskError, GetTimeoutError):
        return False


def changed_modules(since_s: float) -> list[str]:
    """Modules of this process, without those that are installed, whose files have changed since a ``time.time()``."""
    installed = tuple(f"{sysconfig.get_path(name)}{os.sep}" for name in ("stdlib", "platstdlib", "purelib", "platlib"))
    found = []
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if isinstance(file, str) and not file.startswith(installed):
            try:
                changed_s = os.stat(file).st_mtime
            except OSError:
                continue  # it is in an archive, or has been removed
            if changed_s > since_s:
                found.append(name)
    return found


__all__ = ["Kind", "Spares", "changed_modules"]
