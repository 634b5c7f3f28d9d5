"""What each kind of join gives, as sums of what a change of one input gives with each change of another one: so joins of all kinds are
bilinear, and handle changes in any order.

An outer join gives each record of a side alone, and takes that away where the other side has the key. For that it has the keys of the other
side, each once, as one more input (Feldera's ``saturate`` for the same; there the other side is filled with one record more).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Literal

How = Literal["inner", "left", "right", "full", "semi", "anti"]
HOWS = ("inner", "left", "right", "full", "semi", "anti")
LEFT, RIGHT, RIGHT_KEYS, LEFT_KEYS = "left", "right", "keys of right", "keys of left"


class Gives(Enum):
    """What comes out of a left and a right record, or of a record alone."""

    PAIR = "(key, (left, right))"
    LEFT = "(key, left)"
    LEFT_ALONE = "(key, (left, None))"
    RIGHT_ALONE = "(key, (None, right))"


@dataclass(frozen=True, slots=True)
class Meeting:
    """Two inputs whose changes meet where their keys are equal.

    Args:
        records: the number of the input whose record comes out, the left one of pairs.
        other: the number of the other one.
        gives: what comes out.
        sign: 1, or -1 where that is taken away.
    """

    records: int
    other: int
    gives: Gives
    sign: int = 1


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of join.

    Args:
        inputs: what they are.
        meetings: of inputs.
        alone: the inputs of which each record comes out alone, and as what.
    """

    inputs: tuple[str, ...]
    meetings: tuple[Meeting, ...]
    alone: tuple[tuple[int, Gives], ...] = ()

    @property
    def order(self) -> tuple[int, ...]:
        """In which changes of one moment are handled: keys first, so that what is not alone is not given first."""
        return tuple(sorted(range(len(self.inputs)), key=lambda port: (not self.inputs[port].startswith("keys"), port)))

    def of(self, port: int) -> list[Meeting]:
        """The meetings of an input."""
        return [meeting for meeting in self.meetings if port in (meeting.records, meeting.other)]

    def alone_as(self, port: int) -> Gives | None:
        """What an input gives alone; None: nothing."""
        return dict(self.alone).get(port)


@dataclass(frozen=True, slots=True)
class Side:
    """The other side of a join with one that is shared.

    Args:
        is_left: whether it is the left side.
        is_alone: whether its records come out alone, too: the shared side then takes that away, with None and the weight -1 for each key.
    """

    is_left: bool
    is_alone: bool = False


_PAIRS = Meeting(0, 1, Gives.PAIR)
KINDS: dict[str, Kind] = {
    "inner": Kind((LEFT, RIGHT), (_PAIRS,)),
    "semi": Kind((LEFT, RIGHT_KEYS), (Meeting(0, 1, Gives.LEFT),)),
    "anti": Kind((LEFT, RIGHT_KEYS), (Meeting(0, 1, Gives.LEFT, -1),), ((0, Gives.LEFT),)),
    "left": Kind((LEFT, RIGHT, RIGHT_KEYS), (_PAIRS, Meeting(0, 2, Gives.LEFT_ALONE, -1)), ((0, Gives.LEFT_ALONE),)),
    "right": Kind((LEFT, RIGHT, LEFT_KEYS), (_PAIRS, Meeting(1, 2, Gives.RIGHT_ALONE, -1)), ((1, Gives.RIGHT_ALONE),)),
    "full": Kind(
        (LEFT, RIGHT, RIGHT_KEYS, LEFT_KEYS),
        (_PAIRS, Meeting(0, 2, Gives.LEFT_ALONE, -1), Meeting(1, 3, Gives.RIGHT_ALONE, -1)),
        ((0, Gives.LEFT_ALONE), (1, Gives.RIGHT_ALONE)),
    ),
}

__all__ = ["HOWS", "KINDS", "LEFT", "LEFT_KEYS", "RIGHT", "RIGHT_KEYS", "Gives", "How", "Kind", "Meeting", "Side"]
