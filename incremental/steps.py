"""Functions of changes, for steps without state. A change is ``(record, weight)``, with a key ``(key, record, weight)``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from rayad.dataflow.records.calling import checked_function
from rayad.incremental.records import as_record


@dataclass(frozen=True, slots=True)
class Mapped:
    """The record is what a function makes of it."""

    function: Callable[[Any], Any]

    def __call__(self, change: tuple[Any, int]) -> tuple[Any, int]:
        return self.function(change[0]), change[1]


@dataclass(frozen=True, slots=True)
class Kept:
    """Whether a predicate is true of the record."""

    predicate: Callable[[Any], Any]

    def __call__(self, change: tuple[Any, int]) -> bool:
        return bool(self.predicate(change[0]))


@dataclass(frozen=True, slots=True)
class FlatMapped:
    """All that a function makes of the record."""

    function: Callable[[Any], Iterable[Any]]

    def __call__(self, change: tuple[Any, int]) -> Iterator[tuple[Any, int]]:
        weight = change[1]
        return ((record, weight) for record in self.function(change[0]))


@dataclass(frozen=True, slots=True)
class Keyed:
    """The record with a key."""

    key: Callable[[Any], Any]

    def __call__(self, change: tuple[Any, int]) -> tuple[Any, Any, int]:
        record, weight = as_record(change[0]), change[1]
        return as_record(self.key(record)), record, weight


@dataclass(frozen=True, slots=True)
class Tagged:
    """The record as the key, and which side it is of."""

    side: int

    def __call__(self, change: tuple[Any, int]) -> tuple[Any, Any, int]:
        return as_record(change[0]), self.side, change[1]


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a record."""

    name: str

    def __call__(self, record: Any) -> Any:
        return record[self.name]


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a record that is a tuple."""

    name: int

    def __call__(self, record: Any) -> Any:
        return record[self.name]


@dataclass(frozen=True, slots=True)
class Fields:
    """Several fields of a record."""

    names: tuple[str, ...]

    def __call__(self, record: Any) -> tuple[Any, ...]:
        return tuple(record[name] for name in self.names)


def selected(of: Any, what: str) -> Callable[[Any], Any]:
    """A function of a record: itself, or that of a field."""
    return Field(of) if isinstance(of, str) else checked_function(of, what, "record")


def inserted(record: Any) -> tuple[Any, int]:
    """A record that comes once."""
    return as_record(record), 1


def negated(change: tuple[Any, int]) -> tuple[Any, int]:
    """A removal for an insertion."""
    return change[0], -change[1]


def negated_keyed(change: tuple[Any, Any, int]) -> tuple[Any, Any, int]:
    """See :func:`negated`."""
    return change[0], change[1], -change[2]


def by_record(change: tuple[Any, int]) -> tuple[Any, Any, int]:
    """The record as the key."""
    return as_record(change[0]), None, change[1]


def by_first(change: tuple[tuple[Any, Any], int]) -> tuple[Any, Any, int]:
    """A pair by its first."""
    (key, value), weight = change
    return as_record(key), as_record(value), weight


def plain(change: tuple[Any, Any, int]) -> tuple[Any, int]:
    """The pair of key and record."""
    return (change[0], change[1]), change[2]


def of_total(change: tuple[Any, tuple[Any, Any]]) -> Iterator[tuple[Any, int]]:
    """A change of a running total, ``(key, (before, after))``, as what goes from the table of totals and what comes."""
    key, (before, after) = change
    if before is not None:
        yield as_record((key, before)), -1
    if after is not None:
        yield as_record((key, after)), 1


def has_key(change: tuple[Any, Any, int]) -> bool:
    """Whether the key is not null, nor any part of it."""
    key = change[0]
    return key is not None and not (type(key) is tuple and None in key)


def lacks_key(change: tuple[Any, Any, int]) -> bool:
    """Whether the key is null, or any part of it."""
    return not has_key(change)


def alone_in_tuple(record: Any) -> tuple[Any]:
    """A key that is never null."""
    return (record,)


def content_of(pair: tuple[tuple[Any], Any]) -> Any:
    """What is alone in the key."""
    return pair[0][0]


def left_of(pair: tuple[Any, tuple[Any, Any]]) -> tuple[Any, Any]:
    """The left one of a joined pair."""
    return pair[0], pair[1][0]


def swapped(pair: tuple[Any, tuple[Any, Any]]) -> tuple[Any, tuple[Any, Any]]:
    """The sides the other way round."""
    key, (left, right) = pair
    return key, (right, left)


def alone(pair: tuple[Any, Any]) -> tuple[Any, tuple[Any, Any]]:
    """A left record that has no match."""
    return pair[0], (pair[1], None)


def alone_right(pair: tuple[Any, Any]) -> tuple[Any, tuple[Any, Any]]:
    """A right record that has no match."""
    return pair[0], (None, pair[1])
