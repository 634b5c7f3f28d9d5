"""What the leader of a change of layout is told at first and says besides asking, and the phases it goes through. Pure values.

Each effect here changes what the coordinator itself knows of its job, and nobody answers. They are not calls: each has to be done before
the next event is looked at, because the thread that supervises the job acts on it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import TypeAlias

from rayad.actors.lead.asking import Ask
from rayad.actors.lead.layouts import RescaleReport
from rayad.actors.replica.places import Places
from rayad.dataflow.plan import Layout

STOP_TIMEOUT_S = 30.0
"""How long it may take until the job's failure is known to all who deal with it."""
STEP_TIMEOUT_S = 600.0
"""How long one phase of a change that has begun may take; not counted while a replica is in a long activation."""
GRACE_S = 5.0
"""Added to the time that actors have for an answer: the answer travels, and an actor withdraws a late question itself."""
HOLD_S = 5.0
"""How long an actor keeps the question whether something is so yet; then it is asked again."""
HOLD_MIN_S = 0.5
"""The same, when time is nearly up."""


@dataclass(frozen=True, slots=True)
class Members:
    """Who is in the job: its newest incarnation; the incarnation and the address of each process; how often processes of each stage have
    ended in a row; which process holds which replica."""

    incarnation: int = 1
    incarnations: Mapping[str, int] = field(default_factory=dict)
    addresses: Mapping[str, object] = field(default_factory=dict)
    ended: Mapping[int, int] = field(default_factory=dict)
    places: Places = field(default_factory=Places)


@dataclass(frozen=True, slots=True)
class TakeIn:
    """The newcomers belong to the job from now on: the change has begun, and their failures are the job's."""

    names: tuple[str, ...]
    layout: Layout


@dataclass(frozen=True, slots=True)
class Stop:
    """These newcomers will not join, which is no failure; the layout is the old one. The ``processes`` that are new with them are ended."""

    names: tuple[str, ...]
    processes: tuple[str, ...]
    layout: Layout


@dataclass(frozen=True, slots=True)
class LayOut:
    """This is the job's layout now; these are ``gone``, and the ``processes`` that held only them are ended."""

    layout: Layout
    gone: tuple[str, ...] = ()
    processes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Fail:
    """The job has to begin anew from its last snapshot, or to end."""

    why: str
    cause: object = None


@dataclass(frozen=True, slots=True)
class Finish:
    """The layout is the one that was asked for: tell who asked."""

    report: RescaleReport


@dataclass(frozen=True, slots=True)
class Refuse:
    """The layout stays: tell who asked why; ``lacks_room``: with the resources that are free."""

    why: str
    lacks_room: bool = False


@dataclass(frozen=True, slots=True)
class GiveWay:
    """The job has failed or is over: if it comes back, the change can be asked for again."""


Outcome: TypeAlias = Finish | Refuse | GiveWay
Effect: TypeAlias = Ask | TakeIn | Stop | LayOut | Fail | Outcome


class Phase(Enum):
    """What the actors of a phase are asked for."""

    DIVISIBLE = "whether the vertices can be divided"
    SNAPSHOTS = "that the snapshot under way is complete"
    STARTING = "newcomers to start"
    HOLDING = "that the job is not over"
    ADMITTING = "that newcomers are expected"
    TELLING = "to take notice of the newcomers"
    CONNECTING = "to connect, and to make the state ready"
    MOVING = "to settle a step"
    DRAINING = "to consume what was passed on"
    LEAVING = "to leave"
    PARTING = "to meet the last markers of those who have left"
    COMMITTING = "to keep the new layout"
    FORGETTING = "to forget the newcomers"
    UNDOING = "to keep the old layout"
    FAILING = "nothing: the job fails, or is over"
    OVER = "nothing any more"


WAITING = (Phase.DIVISIBLE, Phase.SNAPSHOTS)
UNDONE_BY = (Phase.FORGETTING, Phase.UNDOING)
BEGUN = (Phase.MOVING, Phase.DRAINING, Phase.LEAVING, Phase.PARTING, Phase.COMMITTING)
