"""The forms that take a ``lateness``: each as collections, and computed from scratch of the changes that are on time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import pyarrow.compute as pc

import rayad as rd
from rayad.dataflow.windows import AsOf, Session, Sliding, Tumbling
from tests.incremental.event_time import from_scratch
from tests.incremental.programs import History

Record = tuple[Any, Any, Any]
"""Key, event time, number; any of them but the number may be None."""
Table = Counter[Record]
FIELDS = ("key", "at", "n")
NOTHING = -1
"""The number of a side that has no record."""
Aggregate = Literal["count", "sum", "max", "top", "rank"]
AGGREGATES: Mapping[Aggregate, tuple[Callable[[rd.KeyedCollection], rd.Collection], Callable[[list[int]], Iterable[int]]]] = {
    "count": (lambda keyed: keyed.count(), lambda numbers: [len(numbers)]),
    "sum": (lambda keyed: keyed.sum("n"), lambda numbers: [sum(numbers)]),
    "max": (lambda keyed: keyed.max("n"), lambda numbers: [max(numbers)]),
    "top": (
        lambda keyed: keyed.top_k(2, "n").select({"0": rd.col("0"), "1": rd.col("1", "n")}),
        lambda numbers: sorted(numbers)[-2:],
    ),
    "rank": (
        lambda keyed: keyed.rank("n").select({"0": rd.col("0"), "1": rd.col("1", "1")}),
        lambda numbers: [1 + sum(other < number for other in numbers) for number in numbers],
    ),
}
"""Of the records of a key: as collections, and of their numbers."""


def time_of(record: Any) -> Any:
    """The event time by a function, which is in rows."""
    return record["at"]


def in_fields(key: pc.Expression, at: pc.Expression, n: pc.Expression) -> dict[str, pc.Expression]:
    """A record of these parts."""
    return dict(zip(FIELDS, (key, at, n), strict=True))


@dataclass(frozen=True)
class Found:
    """What is on time of the sides of a form.

    Args:
        tables: what it gives after each epoch.
        refused: how many changes were late.
    """

    tables: list[Table]
    refused: int


@dataclass(frozen=True)
class Form:
    """A form that forgets.

    Args:
        lateness: how late a change may be.
        by_function: whether event times are told by a function, and so in rows; else they are a field.
    """

    lateness: Any
    by_function: bool

    sides = 2

    @property
    def at(self) -> Any:
        """As what event times are given."""
        return time_of if self.by_function else "at"

    def build(self, sides: Sequence[rd.Collection]) -> rd.Collection:
        """As collections of records with fields."""
        raise NotImplementedError

    def found(self, changes: History) -> Found:
        """From scratch, of the changes of ``(side, *record)``."""
        kept, refused, _ = from_scratch.on_time(changes, sides=self.sides, lateness=self.lateness)
        there, tables = Counter[Any](), []
        for some in kept:
            for record, weight in some:
                there[record] += weight
            tables.append(self.table(+there))
        return Found(tables, refused)

    def table(self, there: Counter[Any]) -> Table:
        """What it gives of all that is there."""
        raise NotImplementedError


@dataclass(frozen=True)
class InWindows(Form):
    """An aggregate of windows or sessions; its records are at the ends of those, or at their starts.

    Args:
        windows: which.
        aggregate: of the numbers of a window.
        at_start: whether a result is at its start.
    """

    windows: Tumbling | Sliding | Session
    aggregate: Aggregate
    at_start: bool

    sides = 1

    def build(self, sides: Sequence[rd.Collection]) -> rd.Collection:
        """See there."""
        windows = sides[0].key_by("key").window(self.windows, self.at, lateness=self.lateness)
        aggregated = AGGREGATES[self.aggregate][0](windows)
        return aggregated.select(in_fields(rd.col("0", "0"), rd.col("0", "1", "0" if self.at_start else "1"), rd.col("1")))

    def found(self, changes: History) -> Found:
        """See there."""
        if isinstance(self.windows, Session):
            return super().found(changes)
        found = from_scratch.of_windows(changes, self.windows, self.lateness)
        return Found([self._aggregated((key, of.elements()) for key, of in table.items()) for table in found.tables], found.refused)

    def table(self, there: Counter[Any]) -> Table:
        """Of sessions."""
        assert isinstance(self.windows, Session)
        return self._aggregated(from_scratch.sessions(there, self.windows.gap))

    def _aggregated(self, windows: Iterable[tuple[tuple[Any, rd.Window], Iterable[Any]]]) -> Table:
        out: Table = Counter()
        for (key, window), records in windows:
            at = window.start if self.at_start else window.end
            out.update((key, at, number) for number in AGGREGATES[self.aggregate][1]([record[3] for record in records]))
        return out


@dataclass(frozen=True)
class OfPairs(Form):
    """A join of two sides.

    Args:
        how: which kind.
        at_right: whether a pair is at the event time of its right record, else of its left one.
    """

    how: Any
    at_right: bool

    def joined(self, left: rd.KeyedCollection, right: rd.KeyedCollection) -> rd.Collection:
        """The pairs."""
        raise NotImplementedError

    def pairs(self, there: Counter[Any]) -> Iterable[from_scratch.Pair]:
        """The same from scratch."""
        raise NotImplementedError

    def build(self, sides: Sequence[rd.Collection]) -> rd.Collection:
        """See there."""
        joined = self.joined(sides[0].key_by("key"), sides[1].key_by("key"))
        if self.how in ("semi", "anti"):
            return joined.select(in_fields(*(rd.col("1", name) for name in FIELDS)))
        left, right = ({name: rd.col("1", side, name) for name in ("at", "n")} for side in ("0", "1"))
        times = (right["at"], left["at"]) if self.at_right else (left["at"], right["at"])
        numbers = pc.coalesce(left["n"], pc.scalar(NOTHING)) * 10 + pc.coalesce(right["n"], pc.scalar(NOTHING))
        return joined.select(in_fields(rd.col("0"), pc.coalesce(*times), numbers))

    def table(self, there: Counter[Any]) -> Table:
        """See there."""
        out: Table = Counter()
        for key, (left, right) in self.pairs(there):
            if self.how in ("semi", "anti"):
                assert left is not None
                out[left[1:]] += 1
                continue
            times = [record[2] for record in ((right, left) if self.at_right else (left, right)) if record and record[2] is not None]
            numbers = [NOTHING if record is None else record[3] for record in (left, right)]
            out[key, times[0] if times else None, 10 * numbers[0] + numbers[1]] += 1
        return out


@dataclass(frozen=True)
class AsOfJoin(OfPairs):
    """An as-of join."""

    rule: AsOf

    def joined(self, left: rd.KeyedCollection, right: rd.KeyedCollection) -> rd.Collection:
        """See there."""
        rule = {"direction": self.rule.direction, "tolerance": self.rule.tolerance, "allow_exact_matches": self.rule.exact}
        return left.join_asof(right, self.at, how=self.how, lateness=self.lateness, **rule)

    def pairs(self, there: Counter[Any]) -> Iterable[from_scratch.Pair]:
        """See there."""
        return from_scratch.as_of_pairs(there, self.rule, self.how)


@dataclass(frozen=True)
class IntervalJoin(OfPairs):
    """An interval join."""

    lower: Any
    upper: Any

    def joined(self, left: rd.KeyedCollection, right: rd.KeyedCollection) -> rd.Collection:
        """See there."""
        within = rd.windows.between(self.lower, self.upper)
        return left.join_interval(right, within, self.at, how=self.how, lateness=self.lateness)

    def pairs(self, there: Counter[Any]) -> Iterable[from_scratch.Pair]:
        """See there."""
        return from_scratch.interval_pairs(there, self.lower, self.upper, self.how)


__all__ = ["AGGREGATES", "FIELDS", "AsOfJoin", "Form", "InWindows", "IntervalJoin", "Record", "Table", "in_fields"]
