"""Processes of jobs that have ended, for the next job of the same coordinator, which owns them; and processes that wait for the first one.

A process is used again when its job was complete and it still answers. It gets another plan, secret and data plane; what it keeps of the
job before is what Python keeps: modules that were imported, with their variables, and the threads that they have started. A module whose
file has changed since the process began is not kept: the process is ended.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

from rayad.actors.coordinator.processes.kinds import Kind
from rayad.actors.coordinator.surroundings import CoordinatorSurroundings, Gave

READY_S = 2.0
"""How long spare processes may take to answer when a job begins; those that do not are ended. One that still starts may take longer."""


@dataclass(eq=False, slots=True)
class _Spare:
    kind: Kind
    actor: Any
    node: str | None
    title: tuple[str, ...] = ()
    answers: list[Any] = field(default_factory=list)
    is_asked: bool = False


class Spares:
    """The spare processes of one coordinator. Each answers ``rest``, which forgets the job before, and ``is_fit``.

    Args:
        around: how they are asked and ended.
    """

    def __init__(self, around: CoordinatorSurroundings) -> None:
        self._port, self._clock = around.actors, around.clock
        self._spares: list[_Spare] = []
        self._new: list[_Spare] = []

    def add(self, kind: Kind, actor: Any, node: str | None, title: tuple[str, ...] = ()) -> None:
        """A process that has just been started, for a job that is to come. ``node``: where, if that is known; ``title``: that Ray shows it
        with."""
        self._new.append(_Spare(kind, actor, node, title))

    def keep(self, kind: Kind, actor: Any, node: str | None) -> None:
        """A process whose job is complete. It forgets that job at once; nobody waits for it."""
        self._spares.append(_Spare(kind, actor, node, answers=[self._port.call(actor, "rest")]))

    def ask(self) -> None:
        """Ask those that have had a job whether they are fit for another one. :meth:`select` waits for what they answer; who asks before,
        while the job is made, waits less."""
        for spare in self._spares:
            if spare.answers and not spare.is_asked:  # who uses one that still starts waits for it
                spare.is_asked = True
                spare.answers.append(self._port.call(spare.actor, "is_fit"))

    def select(self, asked: Collection[Kind]) -> None:
        """A job begins that needs processes of these kinds: end spares that none of them is like, and those that do not answer."""
        self.ask()
        found = [*self._spares, *self._new]
        self._spares, self._new = [], []
        alike = [spare for spare in found if any(spare.kind.is_like(kind) for kind in asked)]
        deadline_s = self._clock.monotonic() + READY_S
        self._spares = [spare for spare in alike if self._is_fit(spare, deadline_s)]
        for spare in found:
            spare.is_asked = False
            if spare not in self._spares:
                self._port.kill(spare.actor)

    def _is_fit(self, spare: _Spare, deadline_s: float) -> bool:
        """Whether all its answers have come in time, and none says no."""
        for ref in spare.answers:
            answer = self._port.take(ref, max(0.01, deadline_s - self._clock.monotonic()))
            if not isinstance(answer, Gave) or answer.value is False:
                return False
        return True

    def take(self, kind: Kind, title: tuple[str, ...] = ()) -> tuple[Any, str | None] | None:
        """One of those that were selected, the last that had a job first, with this title, and its node; None where there is none that
        fits."""
        found = next((spare for spare in reversed(self._spares) if spare.kind.fits(kind) and spare.title == title), None)
        if found is None:
            return None
        self._spares.remove(found)
        return found.actor, found.node

    def end(self) -> None:
        """End all."""
        for spare in (*self._spares, *self._new):
            self._port.kill(spare.actor)
        self._spares, self._new = [], []

    def __len__(self) -> int:
        return len(self._spares) + len(self._new)


__all__ = ["Spares"]
