"""Antichains: sets of mutually incomparable elements, the shape of every frontier.

`Antichain` keeps the minimal elements of what was inserted. `MutableAntichain` counts elements and keeps the minimal ones among those with
a positive count. Negative counts are legal: a receiver's -1 may overtake the sender's +1 on its way to the tracker, and only positive
counts hold a frontier back (Abadi, McSherry, Murray, Rodeheffer: Formal analysis of a distributed algorithm for tracking progress, 2013).

Invariant: no element of a frontier is <= another one, and every element with a positive count is >= some element of the frontier.

Both are generic over any partial order with `<=`, `==` and a hash. This is the hot path: an update that leaves the frontier alone costs
one dictionary access, and nothing is scanned unless an element of the frontier went away while others were hidden behind it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Generic, Protocol, TypeVar

from rayad.progress.errors import InternalError


class PartiallyOrdered(Protocol):
    """What an element must support: `<=`, and the `==` and hash of an immutable value."""

    def __le__(self, other: Any, /) -> bool: ...

    def __hash__(self) -> int: ...


T = TypeVar("T", bound=PartiallyOrdered)


class Antichain(Generic[T]):
    """The minimal elements of everything inserted.

    >>> from rayad.progress import Timestamp
    >>> frontier = Antichain([Timestamp(1, (5,)), Timestamp(2, (4,))])
    >>> frontier.insert(Timestamp(3, (9,)))
    False
    >>> frontier.insert(Timestamp(1, (0,))), frontier.elements
    (True, (Timestamp(1, (0,)),))
    """

    __slots__ = ("_elements",)

    def __init__(self, elements: Iterable[T] = ()) -> None:
        self._elements: tuple[T, ...] = ()
        for element in elements:
            self.insert(element)

    def insert(self, element: T) -> bool:
        """Add `element` unless something less or equal is there; drop what it makes redundant. True if it was added."""
        for present in self._elements:
            if present <= element:
                return False
        self._elements = (*(present for present in self._elements if not element <= present), element)
        return True

    @property
    def elements(self) -> tuple[T, ...]:
        """The minimal elements, in the order of their insertion."""
        return self._elements

    def less_equal(self, element: T) -> bool:
        """Is some element of the antichain <= `element`? (Could `element` still appear?)

        >>> Antichain([3]).less_equal(3), Antichain([3]).less_equal(2)
        (True, False)
        """
        return any(present <= element for present in self._elements)

    def less_than(self, element: T) -> bool:
        """Is some element of the antichain < `element`?

        >>> Antichain([3]).less_than(3)
        False
        """
        return any(present <= element and present != element for present in self._elements)

    def dominates(self, other: Antichain[T]) -> bool:
        """Is every element of `other` >= some element of this one? (Is `other` at least as far?)

        >>> Antichain([3]).dominates(Antichain([4])), Antichain([3]).dominates(Antichain()), Antichain().dominates(Antichain([3]))
        (True, True, False)
        """
        return all(self.less_equal(element) for element in other)

    def __iter__(self) -> Iterator[T]:
        return iter(self._elements)

    def __len__(self) -> int:
        return len(self._elements)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Antichain):
            return NotImplemented
        return set(self._elements) == set(other)

    __hash__ = None  # type: ignore[assignment]  # it changes

    def __repr__(self) -> str:
        return f"Antichain([{', '.join(map(repr, self._elements))}])"

    def check_invariants(self) -> None:
        """Raise InternalError if two elements are comparable."""
        _check_incomparable(self._elements)


class MutableAntichain(Generic[T]):
    """Counted elements and the frontier of those with a positive count.

    >>> times = MutableAntichain()
    >>> times.update(5, +1)
    [(5, 1)]
    >>> times.update(3, +2)
    [(5, -1), (3, 1)]
    >>> times.update(3, -1)
    []
    >>> times.update(3, -1), times.frontier
    ([(3, -1), (5, 1)], (5,))
    """

    __slots__ = ("_counts", "_frontier")

    def __init__(self, elements: Iterable[tuple[T, int]] = ()) -> None:
        self._counts: dict[T, int] = {}  # non-zero counts only
        self._frontier: tuple[T, ...] = ()
        self.update_many(elements)

    @property
    def frontier(self) -> tuple[T, ...]:
        """The minimal elements with a positive count."""
        return self._frontier

    def update(self, element: T, delta: int) -> list[tuple[T, int]]:
        """Add `delta` to the count of `element`; return what left (-1) and what entered (+1) the frontier."""
        counts = self._counts
        old = counts.get(element, 0)
        new = old + delta
        if new:
            counts[element] = new
        elif old:
            del counts[element]
        frontier = self._frontier
        if old > 0:
            if new > 0 or element not in frontier:
                return []
            survivors = [present for present in frontier if present != element]
            if len(counts) == len(survivors):
                self._frontier = tuple(survivors)
                return [(element, -1)]
            self._frontier = _minimal_positive(survivors, counts)
        elif new > 0:
            for present in frontier:
                if present <= element:
                    return []
            if not frontier:
                self._frontier = (element,)
                return [(element, 1)]
            self._frontier = (*[present for present in frontier if not element <= present], element)
        else:
            return []
        return _difference(frontier, self._frontier)

    def update_many(self, changes: Iterable[tuple[T, int]]) -> list[tuple[T, int]]:
        """Apply all `changes`, then return the net changes of the frontier.

        >>> MutableAntichain([(5, 1)]).update_many([(5, -1), (6, 1), (4, 1), (4, -1)])
        [(5, -1), (6, 1)]
        """
        counts = self._counts
        frontier = self._frontier
        gained, lost = self._count(changes)
        if any(map(frontier.__contains__, lost)):
            survivors = [present for present in frontier if counts.get(present, 0) > 0]
            if len(counts) > len(survivors):
                self._frontier = _minimal_positive(survivors, counts)
            else:
                self._frontier = tuple(survivors)
        elif gained:
            grown = list(frontier)
            for element in gained:
                if counts.get(element, 0) > 0:
                    _insert_minimal(grown, element)
            self._frontier = tuple(grown)
        else:
            return []
        return _difference(frontier, self._frontier)

    def _count(self, changes: Iterable[tuple[T, int]]) -> tuple[list[T], list[T]]:
        """Apply the changes to the counts; gives the elements whose counts became positive, and those whose counts ceased to be: one
        entry for each change that did so. (`update` is the same for one change, without a call more.)"""
        counts = self._counts
        gained: list[T] = []
        lost: list[T] = []
        for element, delta in changes:
            old = counts.get(element, 0)
            new = old + delta
            if new:
                counts[element] = new
            elif old:
                del counts[element]
            if old <= 0 < new:
                gained.append(element)
            elif new <= 0 < old:
                lost.append(element)
        return gained, lost

    def less_equal(self, element: T) -> bool:
        """Is some element of the frontier <= `element`?"""
        return any(present <= element for present in self._frontier)

    def less_than(self, element: T) -> bool:
        """Is some element of the frontier < `element`?"""
        return any(present <= element and present != element for present in self._frontier)

    def is_empty(self) -> bool:
        """Is every count zero?"""
        return not self._counts

    def count(self, element: T) -> int:
        """The count of `element`; it may be negative."""
        return self._counts.get(element, 0)

    def counts(self) -> list[tuple[T, int]]:
        """All non-zero counts."""
        return list(self._counts.items())

    def __repr__(self) -> str:
        return f"MutableAntichain({self.counts()!r})"

    def check_invariants(self) -> None:
        """Raise InternalError if the frontier is not the minimal positive elements."""
        if 0 in self._counts.values():
            raise InternalError(f"{self!r} stores a zero count; zero counts must be deleted")
        expected = set(_minimal_positive([], self._counts))
        if set(self._frontier) != expected or len(self._frontier) != len(expected):
            raise InternalError(f"{self!r} has frontier {self._frontier}, but the minimal positive elements are {expected}")


def _insert_minimal(minimal: list[T], element: T) -> None:
    """Insert `element` into the list of incomparable elements `minimal`, in place."""
    for present in minimal:
        if present <= element:
            return
    minimal[:] = [present for present in minimal if not element <= present]
    minimal.append(element)


def _minimal_positive(survivors: list[T], counts: dict[T, int]) -> tuple[T, ...]:
    """The minimal elements with positive count; `survivors` are known to be some of them."""
    for element, count in counts.items():
        if count > 0:
            _insert_minimal(survivors, element)
    return tuple(survivors)


def _difference(old: tuple[T, ...], new: tuple[T, ...]) -> list[tuple[T, int]]:
    """What left (-1) and what entered (+1), in this order."""
    if len(old) == 1 and len(new) == 1:
        return [] if old == new else [(old[0], -1), (new[0], 1)]
    changes = [(element, -1) for element in old if element not in new]
    changes.extend((element, 1) for element in new if element not in old)
    return changes


def _check_incomparable(elements: tuple[T, ...]) -> None:
    for index, left in enumerate(elements):
        for right in elements[index + 1 :]:
            if left <= right or right <= left:
                raise InternalError(f"antichain {elements} holds the comparable elements {left} and {right}; only minimal ones may stay")
