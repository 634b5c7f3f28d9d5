"""What readers ask the replicas of a running job, what they are told, and how both travel.

On the way they are tuples of plain values behind a number for their kind: those are read in a third of the time that their classes take.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any, NamedTuple

from rayad.actors.plane.replica_id import ReplicaId
from rayad.dataflow.operators.state.tables import Entries
from rayad.dataflow.records.key_hashing import key_group


class Look(NamedTuple):
    """Which epochs can be read? From now on former values are kept.

    Args:
        reader: who asks, by a name of its own.
        state: which state of the vertex; None: the only one.
        from_epoch: the reader will ask for no epoch before this one.
    """

    reader: str
    state: str | None
    from_epoch: int


class Read(NamedTuple):
    """What was there when an epoch was over?

    Args:
        reader, state: as of :class:`Look`.
        epoch: :data:`LAST` is when all input has ended; None: the newest that can be read, which only one replica may be asked for.
        least: with None: no epoch before this one.
        groups: the key-groups that are asked for.
        keys: the keys in these that are asked for; None: all.
    """

    reader: str
    state: str | None
    epoch: int | None
    groups: frozenset[int]
    keys: tuple[Any, ...] | None
    least: int = -1


class Begun(NamedTuple):
    """A source, or a live input: of which epochs may it have given something by now?"""


class Begins(NamedTuple):
    """To :class:`Begun`: the last of these epochs, -1: none; and the epoch in which a live input is open, None: a source has none."""

    last: int
    open_in: int | None


class Standing(NamedTuple):
    """To :class:`Look`: the epochs from ``oldest`` to ``passed`` can be read (none where the first is larger). ``end``: the last epoch of
    the input, where it is known."""

    oldest: int
    passed: int
    end: int | None


class Rows(NamedTuple):
    """To :class:`Read`: the rows, and the epoch that they are of; ``has_one``: a key has one at most."""

    entries: Entries
    has_one: bool
    epoch: int


class Elsewhere(NamedTuple):
    """To :class:`Read`: some of the key-groups are not here, or on their way here. ``owners``: of all, as this replica knows it."""

    owners: tuple[int, ...]


class Refused(NamedTuple):
    """It cannot be read, and why."""

    why: str


Ask = Look | Read | Begun
Answer = Standing | Rows | Elsewhere | Refused | Begins
Asked = tuple[ReplicaId, Ask]
_ASKS: tuple[type[Any], ...] = (Look, Read, Begun)
_ANSWERS: tuple[type[Any], ...] = (Standing, Rows, Elsewhere, Refused, Begins)
_NUMBERS = {kind: number for kinds in (_ASKS, _ANSWERS) for number, kind in enumerate(kinds)}


def packed_questions(questions: Iterable[Asked]) -> list[Any]:
    """As they travel.

    >>> questions = [(ReplicaId(3, 0), Look("me", None, 7)), (ReplicaId(1, 2), Begun())]
    >>> packed_questions(questions)
    [(3, 0, 0, 'me', None, 7), (1, 2, 2)]
    >>> unpacked_questions(packed_questions(questions)) == questions
    True
    """
    return [(*to, _NUMBERS[type(ask)], *ask) for to, ask in questions]


def unpacked_questions(packed: Iterable[Any]) -> list[Asked]:
    """The inverse of :func:`packed_questions`."""
    return [(ReplicaId(stage, replica), _ASKS[number](*fields)) for stage, replica, number, *fields in packed]


def packed_answers(answers: Iterable[Answer | None]) -> list[Any]:
    """As they travel.

    >>> answers = [Rows(Entries(["a"], {"value": [1]}), True, 4), None, Refused("no")]
    >>> packed_answers(answers)
    [(1, (['a'], {'value': [1]}), True, 4), None, (3, 'no')]
    >>> unpacked_answers(packed_answers(answers)) == answers
    True
    """
    return [None if answer is None else _packed(answer) for answer in answers]


def _packed(answer: Answer) -> tuple[Any, ...]:
    number = _NUMBERS[type(answer)]
    if isinstance(answer, Rows):
        entries = answer.entries
        return number, (entries.keys, entries.columns), answer.has_one, answer.epoch
    return number, *answer


def unpacked_answers(packed: Sequence[Any]) -> list[Answer | None]:
    """The inverse of :func:`packed_answers`."""
    return [None if each is None else _unpacked(*each) for each in packed]


def _unpacked(number: int, *fields: Any) -> Answer:
    kind = _ANSWERS[number]
    answer: Answer = kind(Entries(*fields[0]), *fields[1:]) if kind is Rows else kind(*fields)
    return answer


def groups_of(keys: Collection[Any], key_groups: int) -> dict[int, list[Any]]:
    """Keys by their key-group. Raises DataflowError for what can be no key."""
    found: dict[int, list[Any]] = {}
    for key in keys:
        found.setdefault(key_group(key, key_groups), []).append(key)
    return found


__all__ = [
    "Answer",
    "Ask",
    "Asked",
    "Begins",
    "Begun",
    "Elsewhere",
    "Look",
    "Read",
    "Refused",
    "Rows",
    "Standing",
    "groups_of",
    "packed_answers",
    "packed_questions",
    "unpacked_answers",
    "unpacked_questions",
]
