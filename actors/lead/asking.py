"""How leaders of changes talk to actors: one effect, :class:`Ask`, and what can come of it. Pure.

A shell delivers the call to each of the named actors and brings back what comes of it: the answer, or that the actor did not get to it in
time, died, or failed at it. It gives back the turn of the :class:`Ask`, a number that is used once in a job. So what comes late, comes
twice, or is of an attempt before a failure is void, and a question that is asked again is another question.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, TypeAlias

from rayad.actors.lead.calls import Call


# -- what has happened -------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class Asked:
    """Somebody wants the change: the first event."""


@dataclass(frozen=True, slots=True)
class Answered:
    """An actor has done what it was asked in that turn; ``value``: what the method gave."""

    turn: int
    name: str
    value: Any = None


@dataclass(frozen=True, slots=True)
class Late:
    """An actor did not get to what it was asked in time, and will not do it."""

    turn: int
    name: str


@dataclass(frozen=True, slots=True)
class Died:
    """An actor is gone."""

    turn: int
    name: str


@dataclass(frozen=True, slots=True)
class Broke:
    """An actor failed at what it was asked; ``cause`` is passed on to whoever reports it."""

    turn: int
    name: str
    why: str
    cause: object = None


@dataclass(frozen=True, slots=True)
class NewcomerFailed:
    """A process that is to come into the job, and was let run, has failed or died: ``why``."""

    name: str
    why: str


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed; ``busy`` names the replica with the longest running activation, and the activation, if that is long."""

    busy: str = ""


@dataclass(frozen=True, slots=True)
class JobFailed:
    """The job has failed or is over, and its supervisor knows: the whole change is void."""


Answer: TypeAlias = Answered | Late | Died | Broke
Event: TypeAlias = Asked | Answer | NewcomerFailed | Tick | JobFailed


# -- what is to be done ------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class Ask:
    """Deliver this call to each of these actors.

    Args:
        turn: of what comes of it.
        names: of actors on the plane.
        call: a method and its arguments.
        within_s: an actor that has not got to it by then withdraws it (:class:`Late`), or says that a condition is not so yet; inf: as
            long as it takes.
    """

    turn: int
    names: tuple[str, ...]
    call: Call
    within_s: float = math.inf


class Questions:
    """Who has been asked what, and has not answered; ``turn``: the last one that was used in the job.

    >>> from rayad.actors.lead.calls import Costs, IsDrained
    >>> questions = Questions(6)
    >>> ask = questions.ask(["v1.0", "v1.1"], IsDrained(), 5.0)
    >>> questions.call_of(Answered(7, "v1.0", True)), questions.call_of(Answered(6, "v1.0", True))
    (IsDrained(), None)
    >>> questions.ask(["v1.0"], Costs()).turn, sorted(questions.missing), questions.call_of(Answered(7, "v1.0", True))
    (8, ['v1.0', 'v1.1'], None)
    """

    def __init__(self, turn: int) -> None:
        self.turn = turn
        self._open: dict[str, tuple[int, Call]] = {}

    @property
    def missing(self) -> frozenset[str]:
        """Who has not answered."""
        return frozenset(self._open)

    @property
    def next_turn(self) -> int:
        """Of what is asked next; for calls that tell it."""
        return self.turn + 1

    def ask(self, names: Iterable[str], call: Call, within_s: float = math.inf) -> Ask:
        """Ask these; what they were asked before is void."""
        ask = Ask(self.next_turn, tuple(names), call, within_s)
        self.turn = ask.turn
        self._open.update(dict.fromkeys(ask.names, (ask.turn, call)))
        return ask

    def tell(self, name: str, call: Call) -> Ask:
        """Let an actor do something; nobody waits for the answer."""
        self.turn = self.next_turn
        return Ask(self.turn, (name,), call)

    def call_of(self, answer: Answer) -> Call | None:
        """What is answered; None when nobody waits for this."""
        turn, call = self._open.get(answer.name, (0, None))
        return call if turn == answer.turn else None

    def asked_of(self, name: str) -> Call | None:
        """What an actor has not answered."""
        return self._open.get(name, (0, None))[1]

    def close(self, name: str) -> None:
        """This actor is waited for no more."""
        self._open.pop(name, None)

    def clear(self) -> None:
        """Nobody is waited for."""
        self._open.clear()
