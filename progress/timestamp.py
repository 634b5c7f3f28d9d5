"""Logical timestamps `(epoch, <c1, ..., ck>)` (Naiad, SOSP 2013, section 2.1).

Invariant: a timestamp is an immutable pair of an epoch and one counter per enclosing loop context, all ints from 0 to `EPOCH_MAX`.

Why a tuple: equality and hash are the tuple's own and run at C speed; they are the hot path of progress tracking.
The comparison operators are NOT the tuple's: `<=` is Naiad's PARTIAL order. So `sorted(times)` and `min(times)` mean nothing;
use `sorted(times, key=Timestamp.sort_key)`, which is a linear extension of the order.
"""

from __future__ import annotations

from typing import NamedTuple

from rayad.progress import arguments
from rayad.progress.arguments import EPOCH_MAX
from rayad.progress.errors import DataflowError, DepthError, show

_new = tuple.__new__


class _Fields(NamedTuple):
    """Gives `epoch` and `counters` their C-speed getters."""

    epoch: int
    counters: tuple[int, ...]


class Timestamp(_Fields):
    """A logical time: an epoch and the counters of the enclosing loops, outermost first.

    Order: `(e, c) <= (f, d)` if and only if `e <= f` and `c <= d` lexicographically, both at once.

    >>> Timestamp(3, (0, 1))
    Timestamp(3, (0, 1))
    >>> str(Timestamp(3, (0, 1))), str(Timestamp(3))
    ('(3, <0, 1>)', '(3)')
    >>> Timestamp(1, (5,)) <= Timestamp(2, (5,)), Timestamp(1, (5,)) <= Timestamp(2, (4,))
    (True, False)
    >>> Timestamp(-1)
    Traceback (most recent call last):
    ...
    rayad.progress.errors.DataflowError: Timestamp(epoch) is -1: it must be an int from 0 to 9223372036854775807
    """

    __slots__ = ()

    def __new__(cls, epoch: int, counters: tuple[int, ...] = ()) -> Timestamp:
        if type(epoch) is not int or not 0 <= epoch <= EPOCH_MAX:
            epoch = arguments.epoch(epoch, "Timestamp(epoch)")
        counters = tuple(counters)
        for counter in counters:
            if type(counter) is not int or not 0 <= counter <= EPOCH_MAX:
                counters = tuple(arguments.epoch(each, f"a loop counter of Timestamp({epoch}, {show(counters)})") for each in counters)
        return _new(cls, (epoch, counters))

    @staticmethod
    def of(epoch: int, counters: tuple[int, ...]) -> Timestamp:
        """Make a timestamp without checks, for times derived from valid ones.

        >>> Timestamp.of(3, (1,)) == Timestamp(3, (1,))
        True
        """
        return _new(Timestamp, (epoch, counters))

    @property
    def depth(self) -> int:
        """How many loop contexts enclose this time.

        >>> Timestamp(3, (0, 1)).depth
        2
        """
        return len(self[1])

    def __le__(self, other: Timestamp) -> bool:  # type: ignore[override]
        mine = self[1]
        theirs = other[1]
        if len(mine) != len(theirs):
            raise _depth_error(self, "<=", other)
        return self[0] <= other[0] and mine <= theirs

    def __lt__(self, other: Timestamp) -> bool:  # type: ignore[override]
        mine = self[1]
        theirs = other[1]
        if len(mine) != len(theirs):
            raise _depth_error(self, "<", other)
        return self[0] <= other[0] and mine <= theirs and not (self[0] == other[0] and mine == theirs)

    def __ge__(self, other: Timestamp) -> bool:  # type: ignore[override]
        return Timestamp.__le__(other, self)

    def __gt__(self, other: Timestamp) -> bool:  # type: ignore[override]
        return Timestamp.__lt__(other, self)

    def less_equal(self, other: Timestamp) -> bool:
        """`self <= other` in the partial order.

        >>> Timestamp(1, (5,)).less_equal(Timestamp(1, (6,)))
        True
        """
        return self <= other

    def less_than(self, other: Timestamp) -> bool:
        """`self < other`: less or equal, and not the same.

        >>> Timestamp(1).less_than(Timestamp(1))
        False
        """
        return self < other

    def join(self, other: Timestamp) -> Timestamp:
        """Least upper bound.

        >>> Timestamp(1, (5,)).join(Timestamp(2, (4,)))
        Timestamp(2, (5,))
        """
        if len(self[1]) != len(other[1]):
            raise _depth_error(self, "join", other)
        return _new(Timestamp, (max(self[0], other[0]), max(self[1], other[1])))

    def meet(self, other: Timestamp) -> Timestamp:
        """Greatest lower bound.

        >>> Timestamp(1, (5,)).meet(Timestamp(2, (4,)))
        Timestamp(1, (4,))
        """
        if len(self[1]) != len(other[1]):
            raise _depth_error(self, "meet", other)
        return _new(Timestamp, (min(self[0], other[0]), min(self[1], other[1])))

    def sort_key(self) -> tuple[int, ...]:
        """A flat tuple whose total order extends the partial one: `a < b` implies `a.sort_key() < b.sort_key()`.

        >>> sorted([Timestamp(2, (0,)), Timestamp(1, (5,))], key=Timestamp.sort_key)
        [Timestamp(1, (5,)), Timestamp(2, (0,))]
        """
        return (self[0], *self[1])

    def enter(self) -> Timestamp:
        """The time after an ingress.

        >>> Timestamp(3, (1,)).enter()
        Timestamp(3, (1, 0))
        """
        return _new(Timestamp, (self[0], (*self[1], 0)))

    def leave(self) -> Timestamp:
        """The time after an egress.

        >>> Timestamp(3, (1, 7)).leave()
        Timestamp(3, (1,))
        """
        if not self[1]:
            raise DataflowError(f"leave() of {self}: it is in no loop; only a time with loop counters can leave one")
        return _new(Timestamp, (self[0], self[1][:-1]))

    def next_round(self) -> Timestamp:
        """The time after the feedback of the innermost loop.

        >>> Timestamp(3, (1, 7)).next_round()
        Timestamp(3, (1, 8))
        """
        counters = self[1]
        if not counters:
            raise DataflowError(f"next_round() of {self}: it is in no loop; only a time with loop counters has a next round")
        return _new(Timestamp, (self[0], (*counters[:-1], counters[-1] + 1)))

    def truncate(self, depth: int) -> Timestamp:
        """The time as seen `self.depth - depth` scopes further out.

        >>> Timestamp(3, (1, 7)).truncate(0)
        Timestamp(3)
        """
        counters = self[1]
        if not 0 <= depth <= len(counters):
            raise DataflowError(f"truncate({depth}) of {self}: it has depth {len(counters)}; ask for a depth from 0 to {len(counters)}")
        return _new(Timestamp, (self[0], counters[:depth]))

    def __repr__(self) -> str:
        return f"Timestamp({self[0]}, {self[1]!r})" if self[1] else f"Timestamp({self[0]})"

    def __str__(self) -> str:
        return f"({self[0]}, <{', '.join(map(str, self[1]))}>)" if self[1] else f"({self[0]})"

    def __reduce__(self) -> tuple[object, ...]:
        return (_of, (self[0], self[1]))


def _of(epoch: int, counters: tuple[int, ...]) -> Timestamp:
    """Unpickle: a module-level function keeps the pickle short."""
    return _new(Timestamp, (epoch, counters))


def _depth_error(left: Timestamp, verb: str, right: Timestamp) -> DepthError:
    return DepthError(
        f"{left!r} {verb} {right!r}: they have loop depths {len(left[1])} and {len(right[1])}; "
        "only times of the same scope can be compared, use enter(), leave() or truncate() first"
    )
