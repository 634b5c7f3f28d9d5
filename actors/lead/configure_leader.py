"""Who leads a change of runtime parameters (``job.configure``): three turns, in each of which all replicas answer. Pure.

First receivers grant by the smaller of two windows, then senders change, then receivers: at no time does a receiver wait for more than
its sender may send (docs/design/rescaling.md, 7). Half a change could block channels, so long activations are waited for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from rayad.actors.lead import change_leader as lead
from rayad.actors.lead.change_leader import GRACE_S, Broke, Died, Done, GiveWay, HoldJob, JobFailed, JobIsOver, ReleaseJob, Tick
from rayad.actors.plane.protocol import PROGRESS

STAGES = ("first", "senders", "receivers")
"""What changes in each turn."""
TURN_TIMEOUT_S = 60.0


@dataclass(frozen=True, slots=True)
class Configure:
    """Replicas take up the parameters, as far as this stage says; each answers."""

    turn: int
    names: tuple[str, ...]
    stage: str


@dataclass(frozen=True, slots=True)
class Configured:
    """All have the new parameters."""


@dataclass(frozen=True, slots=True)
class NotConfigured:
    """Some may not have the new parameters: tell who asked."""

    why: str
    cause: object = None


Outcome: TypeAlias = Configured | NotConfigured | GiveWay
Effect: TypeAlias = HoldJob | Configure | ReleaseJob | Outcome


class ConfigureLeader:
    """One change of runtime parameters; ``turn``: of the last change of this job."""

    def __init__(self, names: Sequence[str], *, turn: int) -> None:
        self.names = tuple(names)
        self.turn = turn
        self.outcome: Outcome | None = None
        self._stages = list(STAGES)
        self._missing: set[str] = set()
        self._deadline_s = 0.0
        self._holds_job = False

    def handle(self, event: lead.Event, now_s: float) -> list[Effect]:
        """What follows."""
        effects: list[Effect] = []
        if self.outcome is not None:
            return effects
        match event:
            case lead.Asked():
                self._enter([PROGRESS], now_s)
                self._holds_job = True
                effects.append(HoldJob(self.turn))
            case JobFailed():
                self._end(GiveWay(), effects)
            case Tick(busy):
                if busy:
                    self._deadline_s = max(self._deadline_s, now_s + GRACE_S)
                if now_s > self._deadline_s:
                    self._end(NotConfigured(f"{len(self._missing)} actors did not answer within {TURN_TIMEOUT_S:g} s"), effects)
            case JobIsOver(turn) if turn == self.turn:
                self._holds_job = False
                self._end(GiveWay(), effects)
            case Done(turn, name) if turn == self.turn and name in self._missing:
                self._missing.discard(name)
                if not self._missing:
                    self._go_on(now_s, effects)
            case Died(turn, name) if turn == self.turn and name in self._missing:
                self._end(GiveWay(), effects)  # those that begin anew begin with it
            case Broke(turn, name, why, cause) if turn == self.turn and name in self._missing:
                self._end(NotConfigured(why, cause), effects)
            case _:
                pass  # of an earlier turn
        return effects

    def _enter(self, names: Sequence[str], now_s: float) -> None:
        self.turn += 1
        self._missing = set(names)
        self._deadline_s = now_s + TURN_TIMEOUT_S

    def _go_on(self, now_s: float, effects: list[Effect]) -> None:
        if self._stages:
            self._enter(self.names, now_s)
            effects.append(Configure(self.turn, self.names, self._stages.pop(0)))
        else:
            self._end(Configured(), effects)

    def _end(self, outcome: Outcome, effects: list[Effect]) -> None:
        if self._holds_job:
            effects.append(ReleaseJob())
        self.outcome = outcome
        effects.append(outcome)
