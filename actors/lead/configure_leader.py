"""Who leads a change of runtime parameters (``job.configure``): three stages, in each of which all replicas answer. Pure.

First receivers grant by the smaller of two windows, then senders change, then receivers: at no time does a receiver wait for more than
its sender may send (docs/design/rescaling.md, 7). Half a change could block channels, so long activations are waited for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from rayad.actors.lead import calls
from rayad.actors.lead.asking import Answered, Ask, Asked, Broke, Died, Event, JobFailed, Late, NewcomerFailed, Questions, Tick
from rayad.actors.lead.change_protocol import GRACE_S, GiveWay
from rayad.actors.plane.protocol import PROGRESS

STAGES = ("first", "senders", "receivers")
"""What changes one after the other."""
TURN_TIMEOUT_S = 60.0


@dataclass(frozen=True, slots=True)
class Configured:
    """All have the new parameters."""


@dataclass(frozen=True, slots=True)
class NotConfigured:
    """Some may not have the new parameters: tell who asked."""

    why: str
    cause: object = None


Outcome: TypeAlias = Configured | NotConfigured | GiveWay
Effect: TypeAlias = Ask | Outcome


class ConfigureLeader:
    """One change of runtime parameters.

    Args:
        names: the replicas.
        changes: the parameters.
        turn: the last one of this job's earlier changes.
    """

    def __init__(self, names: Sequence[str], changes: Mapping[str, Any], *, turn: int) -> None:
        self.names = tuple(names)
        self.changes = dict(changes)
        self.outcome: Outcome | None = None
        self._questions = Questions(turn)
        self._stages = list(STAGES)
        self._deadline_s = 0.0
        self._holds_job = False

    @property
    def turn(self) -> int:
        """The last one that was used."""
        return self._questions.turn

    def handle(self, event: Event, now_s: float) -> list[Effect]:
        """What follows."""
        if self.outcome is not None:
            return []
        match event:
            case Asked():
                self._holds_job = True
                return [self._ask([PROGRESS], calls.Hold(), now_s)]
            case JobFailed():
                return self._end(GiveWay())
            case Tick(busy):
                if busy:
                    self._deadline_s = max(self._deadline_s, now_s + GRACE_S)
                if now_s > self._deadline_s:
                    return self._end(NotConfigured(f"{len(self._questions.missing)} actors did not answer within {TURN_TIMEOUT_S:g} s"))
            case Late() | NewcomerFailed():
                pass
            case _ if (call := self._questions.call_of(event)) is not None:
                return self._on_answer(event, call, now_s)
        return []

    def _on_answer(self, answer: Answered | Died | Broke, call: calls.Call, now_s: float) -> list[Effect]:
        match answer:
            case Answered(_, _, False) if isinstance(call, calls.Hold):  # the job is over
                self._holds_job = False
                return self._end(GiveWay())
            case Answered(_, name):
                self._questions.close(name)
                return [] if self._questions.missing else self._go_on(now_s)
            case Died():
                return self._end(GiveWay())  # those that begin anew begin with it
            case Broke(_, _, why, cause):
                return self._end(NotConfigured(why, cause))

    def _ask(self, names: Sequence[str], call: calls.Call, now_s: float) -> Ask:
        self._deadline_s = now_s + TURN_TIMEOUT_S
        return self._questions.ask(names, call)

    def _go_on(self, now_s: float) -> list[Effect]:
        if self._stages:
            return [self._ask(self.names, calls.Configure(self.changes, self._stages.pop(0)), now_s)]
        return self._end(Configured())

    def _end(self, outcome: Outcome) -> list[Effect]:
        self.outcome = outcome
        return [*([self._questions.tell(PROGRESS, calls.Release())] if self._holds_job else []), outcome]
