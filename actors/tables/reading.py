"""One read of keyed state of a running job, of one or several vertices, at one epoch. Pure.

First every replica that owns a part of what is asked for tells which epochs it can read; then all are asked for the newest epoch that all
of them have passed. Where one replica has all of it, that one is asked for its newest epoch at once. Whoever is asked for key-groups that
are not there says who owns them, and is not believed for more than the next question: a reader knows no layout for certain, and needs
none. What is over when it is asked, because the job has gone back to a snapshot or forgotten the epoch meanwhile, begins again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rayad.actors.plane.replica_id import ReplicaId
from rayad.actors.replica.reads.questions import Answer, Elsewhere, Look, Read, Refused, Rows, Standing, groups_of
from rayad.dataflow.operators.state.tables import Entries
from rayad.dataflow.operators.state.versions import LAST
from rayad.progress import DataflowError, InternalError


@dataclass(frozen=True, slots=True)
class Wanted:
    """A table: the vertex by its stage; which of its states, None: the only one; and which keys, None: all."""

    stage: int
    state: str | None
    keys: tuple[Any, ...] | None = None


@dataclass(frozen=True, slots=True)
class Question:
    """What a replica is asked, of one of the tables that are read (by its number)."""

    table: int
    to: ReplicaId
    ask: Look | Read


class Reading:
    """One read, to its end.

    Args:
        reader: by which name replicas know who reads.
        tables: what is read.
        key_groups: of the job.
        owners: by stage, as far as is known.
        least: the epoch that must be complete in the answer: what was read before, or all that has begun.
    """

    def __init__(
        self,
        reader: str,
        tables: Sequence[Wanted],
        *,
        key_groups: int,
        owners: Mapping[int, tuple[int, ...]],
        least: int,
    ) -> None:
        self.epoch: int | None = None
        """The epoch that is asked for; None: not known yet."""
        self.most: int | None = None
        """No epoch after this one can be the answer; None: the newest is wanted."""
        self.need = least
        """No epoch before this one can be the answer."""
        self.passed = -1
        """The last epoch that all have passed, as they told when they were asked last."""
        self.end = -1
        """The last epoch of the input, if it has ended."""
        self.has_learned = False
        """Whether something else is asked now than in the round before, though nothing may have moved: the layout is another one, or the
        epoch that was asked for can be read no more."""
        self._reader = reader
        self._tables = tables
        self._by_group = [None if table.keys is None else groups_of(table.keys, key_groups) for table in tables]
        self._wanted = [frozenset(range(key_groups) if keys is None else keys) for keys in self._by_group]
        self._owners = [dict(enumerate(owners[table.stage])) for table in tables]
        self._standings: dict[tuple[int, ReplicaId], Standing] = {}
        self._left: list[set[int]] = []
        self._rows: list[list[Rows]] = []

    @property
    def is_over(self) -> bool:
        """Whether all has been read."""
        return self.epoch is not None and not any(self._left)

    def _questions(self) -> list[Question]:
        asked = []
        for number, table in enumerate(self._tables):
            owners = self._owners[number]
            by_owner: dict[int, list[int]] = {}
            for group in self._wanted[number] if self.epoch is None else self._left[number]:
                by_owner.setdefault(owners[group], []).append(group)
            for replica in sorted(by_owner):
                ask: Look | Read
                if self.epoch is None and (len(by_owner) > 1 or len(self._tables) > 1 or self.most is not None):
                    ask = Look(self._reader, table.state, self.need)
                else:
                    groups, by_group = frozenset(by_owner[replica]), self._by_group[number]
                    keys = None if by_group is None else tuple(key for group in sorted(groups) for key in by_group[group])
                    ask = Read(self._reader, table.state, self.epoch, groups, keys, self.need)
                asked.append(Question(number, ReplicaId(table.stage, replica), ask))
        return asked

    def lay_out(self, owners: Mapping[int, tuple[int, ...]]) -> None:
        """The job has this layout, as far as is known."""
        for number, table in enumerate(self._tables):
            self._learn(number, owners[table.stage])

    def _learn(self, number: int, owners: tuple[int, ...]) -> None:
        found = dict(enumerate(owners))
        self.has_learned |= found != self._owners[number]
        self._owners[number] = found

    def begin_round(self) -> list[Question]:
        """What is to be asked now, each once; an answer to every one is to be given to :meth:`take`, then :meth:`next` called."""
        self.has_learned = False
        return self._questions()

    def take(self, question: Question, answer: Answer | None) -> None:
        """What a replica has answered; None: there is no such replica (any more). Raises DataflowError that says why it cannot be read."""
        ask, number = question.ask, question.table
        if isinstance(answer, Refused):
            raise DataflowError(answer.why)
        if isinstance(answer, Elsewhere):
            self._learn(number, answer.owners)
        elif isinstance(answer, Standing):
            if isinstance(ask, Read) and ask.epoch is not None:
                self._begin_again()
            else:
                self._standings[number, question.to] = answer
                self.end = max(self.end, -1 if answer.end is None else answer.end)
        elif isinstance(ask, Look):
            pass  # nobody is there
        elif isinstance(answer, Rows) and ask.epoch is None:
            self.epoch, self._left, self._rows = answer.epoch, [set()], [[answer]]
        elif isinstance(answer, Rows) and ask.epoch == self.epoch and ask.groups <= self._left[number]:
            self._rows[number].append(answer)
            self._left[number] -= ask.groups
        elif isinstance(answer, Rows) and ask.epoch == self.epoch:
            raise InternalError(f"{question.to} has answered twice for some of {sorted(ask.groups)}")

    def _begin_again(self) -> None:
        self.epoch = None
        self.has_learned = True
        self._standings.clear()

    def next(self) -> bool:
        """All questions of a round have been answered: decide what comes next. False: the same has to be asked again, later."""
        if self.epoch is not None:
            return self.is_over
        asked = {(question.table, question.to) for question in self._questions()}
        if not asked <= self._standings.keys():
            self._standings.clear()
            return False  # some were not there, or the layout is another one now
        standings = [self._standings[each] for each in asked]
        self.passed = min((one.passed for one in standings), default=LAST)
        self.passed = self.passed if self.most is None else min(self.passed, self.most)
        self.need = max(self.need, *(one.oldest for one in standings)) if standings else self.need
        self._standings.clear()
        if self.passed < self.need:
            return False
        self.epoch = self.passed
        self._left = list(map(set, self._wanted))
        self._rows = [[] for _ in self._tables]
        return True

    def found(self) -> list[tuple[Entries | None, bool]]:
        """By table: the rows (None: no key was asked for), and whether a key has one at most."""
        together = (Entries.together([one.entries for one in rows]) if rows else None for rows in self._rows)
        return [(entries, all(one.has_one for one in rows)) for entries, rows in zip(together, self._rows, strict=True)]


__all__ = ["Question", "Reading", "Wanted"]
