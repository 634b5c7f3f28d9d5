"""Path summaries: what a path through the dataflow does to a timestamp (Naiad, section 2.3; McSherry's `PathSummary` trait).

Every path of ingress, egress and feedback has one canonical form: keep the first `keep` counters, add `increment` to the last kept one, add
`epoch_increment` to the epoch, append constants. This is closed under composition, because only the innermost counter of a scope is ever
incremented: whatever lies deeper has been dropped or is a constant. A loop with a bound of rounds lets nothing through beyond it:
`limits` holds, for source counters, exclusive upper bounds; outside them a path results in nothing.

The form is exact, also for bounds on counters that a later egress drops, so the laws hold as equalities: composition is associative,
`a.followed_by(b).results_in(t) == b.results_in(a.results_in(t))`, and `a <= b` holds exactly if `a` results in something less or equal at
every time (where "nothing" counts as infinitely late).

Trap: a bound is monotone only on the outermost counter. Counters are ordered lexicographically, so of `<1, 9>` and the later `<2, 0>` a
bound of 10 rounds on the inner loop stops the first and lets the second pass. A frontier `{<1, 9>}` stands for everything later too, and
pushing it through such a bound would lose `<2, 1>`: unsafe. So trackers use `feedback_bound_below`, which ignores the bounds of inner
loops.
"""

from __future__ import annotations

from dataclasses import dataclass

from rayad.progress.errors import DataflowError, DepthError
from rayad.progress.timestamp import Timestamp


@dataclass(frozen=True, slots=True)
class PathSummary:
    """What a path does to a timestamp, in canonical form: equal summaries are equal functions.

    `limits` are pairs (index of a source counter, exclusive bound), sorted by index.

    >>> round_trip = PathSummary.ingress(0).followed_by(PathSummary.feedback(1)).followed_by(PathSummary.egress(1))
    >>> round_trip == PathSummary.identity(0)
    True
    >>> PathSummary.feedback(1, max_rounds=3).results_in(Timestamp(0, (1,)))
    Timestamp(0, (2,))
    >>> PathSummary.feedback(1, max_rounds=3).results_in(Timestamp(0, (2,))) is None
    True
    """

    source_depth: int
    keep: int
    increment: int = 0
    constants: tuple[int, ...] = ()
    epoch_increment: int = 0
    limits: tuple[tuple[int, int], ...] = ()

    def __post_init__(self) -> None:
        valid = 0 <= self.keep <= self.source_depth and min(self.increment, self.epoch_increment, *self.constants, 0) == 0
        valid = valid and (self.keep > 0 or self.increment == 0) and all(0 <= index < self.source_depth for index, _ in self.limits)
        if not valid or [index for index, _ in self.limits] != sorted({index for index, _ in self.limits}):
            raise DataflowError(
                f"{self!r}: keep must lie between 0 and source_depth, nothing may be negative, an increment needs a kept counter, "
                "limits must name source counters in ascending order; use identity(), ingress(), egress(), feedback() and followed_by()"
            )
        self._normalise()

    def _normalise(self) -> None:
        """Bring equal functions to equal fields."""
        if any(bound <= 0 for _, bound in self.limits):
            fields = {"keep": 0, "increment": 0, "constants": (0,) * self.target_depth, "epoch_increment": 0, "limits": ((0, 0),)}
            for name, value in fields.items():
                object.__setattr__(self, name, value)
            return
        while self.keep > 0 and (self.keep - 1, 1) in self.limits:  # a counter that can only be 0 is a constant
            object.__setattr__(self, "constants", (self.increment, *self.constants))
            object.__setattr__(self, "keep", self.keep - 1)
            object.__setattr__(self, "increment", 0)

    @staticmethod
    def identity(depth: int) -> PathSummary:
        """The path that changes nothing.

        >>> PathSummary.identity(1).results_in(Timestamp(4, (2,)))
        Timestamp(4, (2,))
        """
        return PathSummary(depth, depth)

    @staticmethod
    def ingress(depth: int) -> PathSummary:
        """Into a loop context, from scope depth `depth`: appends a counter 0.

        >>> PathSummary.ingress(1).results_in(Timestamp(4, (2,)))
        Timestamp(4, (2, 0))
        """
        return PathSummary(depth, depth, constants=(0,))

    @staticmethod
    def egress(depth: int) -> PathSummary:
        """Out of a loop context of depth `depth`: drops the last counter.

        >>> PathSummary.egress(1).results_in(Timestamp(4, (2,)))
        Timestamp(4)
        """
        if depth < 1:
            raise DataflowError(f"egress({depth}): a scope of depth {depth} has no loop counter to drop; depth must be >= 1")
        return PathSummary(depth, depth - 1)

    @staticmethod
    def feedback(depth: int, max_rounds: int | None = None) -> PathSummary:
        """Once round the loop at depth `depth`; only rounds 0 .. max_rounds - 1 exist. At depth 0 the epoch advances.

        >>> PathSummary.feedback(2).results_in(Timestamp(4, (2, 7)))
        Timestamp(4, (2, 8))
        >>> PathSummary.feedback(0).results_in(Timestamp(4))
        Timestamp(5)
        """
        if max_rounds is not None and (max_rounds < 1 or depth < 1):
            raise DataflowError(f"feedback({depth}, max_rounds={max_rounds}): max_rounds must be >= 1, and needs a loop of depth >= 1")
        if depth == 0:
            return PathSummary(0, 0, epoch_increment=1)
        return PathSummary(depth, depth, 1, limits=() if max_rounds is None else ((depth - 1, max_rounds - 1),))

    @staticmethod
    def feedback_bound_below(depth: int, max_rounds: int | None = None) -> PathSummary:
        """The greatest monotone summary of this form that is <= `feedback(depth, max_rounds)`: what a tracker may rely on.

        >>> PathSummary.feedback_bound_below(1, 3) == PathSummary.feedback(1, 3)
        True
        >>> PathSummary.feedback_bound_below(2, 3) == PathSummary.feedback(2)
        True
        """
        exact = PathSummary.feedback(depth, max_rounds)
        return exact if depth <= 1 or exact.is_empty else PathSummary.feedback(depth)

    @property
    def is_monotone(self) -> bool:
        """Does a later time never result in something earlier? All but bounds on inner counters are.

        >>> PathSummary.feedback(1, 3).is_monotone, PathSummary.feedback(2, 3).is_monotone
        (True, False)
        """
        return all(index == 0 for index, _ in self.limits)

    @property
    def target_depth(self) -> int:
        """The depth of the times it results in."""
        return self.keep + len(self.constants)

    @property
    def limit(self) -> int | None:
        """Exclusive bound on the incremented counter of the result, if there is one.

        >>> PathSummary.feedback(1, max_rounds=3).limit
        3
        """
        bound = dict(self.limits).get(self.keep - 1)
        return None if bound is None else bound + self.increment

    @property
    def is_empty(self) -> bool:
        """Does it result in nothing at every time?

        >>> PathSummary.feedback(1, max_rounds=1).is_empty
        True
        """
        return self.limits == ((0, 0),)

    @property
    def is_identity(self) -> bool:
        """Does it change nothing?"""
        return self.keep == self.source_depth and not (self.increment or self.constants or self.epoch_increment or self.limits)

    @property
    def strictly_advances(self) -> bool:
        """Is there no time that results in itself or in something earlier? Every cycle must have this property.

        >>> PathSummary.feedback(1).strictly_advances, PathSummary.identity(1).strictly_advances
        (True, False)
        """
        if self.source_depth != self.target_depth:
            return False
        if self.epoch_increment or self.increment or self.is_empty:
            return True
        bounds = dict(self.limits)
        for index, constant in enumerate(self.constants, self.keep):
            bound = bounds.get(index)
            if bound is None or bound - 1 > constant:
                return False
            if bound - 1 < constant:
                return True
        return False

    def results_in(self, time: Timestamp) -> Timestamp | None:
        """The earliest time that may come out if `time` goes in, or None if nothing does. Monotone if `is_monotone`."""
        epoch, counters = time
        if len(counters) != self.source_depth:
            raise DepthError(f"{self}.results_in({time}): the path starts at depth {self.source_depth}, the time has depth {len(counters)}")
        for index, bound in self.limits:
            if counters[index] >= bound:
                return None
        keep = self.keep
        if self.increment:
            counters = (*counters[: keep - 1], counters[keep - 1] + self.increment, *self.constants)
        else:
            counters = counters[:keep] + self.constants
        return Timestamp.of(epoch + self.epoch_increment, counters)

    def followed_by(self, other: PathSummary) -> PathSummary | None:
        """The path along `self` and then along `other`, or None if nothing can come out of it. Associative.

        >>> PathSummary.feedback(1, 2).followed_by(PathSummary.feedback(1, 2)) is None
        True
        """
        if self.target_depth != other.source_depth:
            raise DepthError(f"{self} followed by {other}: the first ends at depth {self.target_depth}, the second starts at another")
        if self.is_empty or other.is_empty:
            return None
        limits = dict(self.limits)
        for index, bound in other.limits:
            if index >= self.keep:
                if self.constants[index - self.keep] >= bound:
                    return None
                continue
            bound -= self.increment if index == self.keep - 1 else 0
            if bound <= 0:
                return None
            limits[index] = min(bound, limits.get(index, bound))
        keep, increment, constants = other.keep, other.increment, other.constants
        if keep == self.keep:
            increment += self.increment
        elif keep > self.keep:
            kept = self.constants[: keep - self.keep]
            constants = (*kept[:-1], kept[-1] + increment, *constants)
            keep, increment = self.keep, self.increment
        epochs = self.epoch_increment + other.epoch_increment
        return PathSummary(self.source_depth, keep, increment, constants, epochs, tuple(sorted(limits.items())))

    def __le__(self, other: PathSummary) -> bool:
        """Does it result, at every time, in something less or equal (nothing being infinitely late)?

        >>> PathSummary.identity(1) <= PathSummary.feedback(1), PathSummary.feedback(1) <= PathSummary.identity(1)
        (True, False)
        """
        if self.source_depth != other.source_depth or self.target_depth != other.target_depth:
            raise DepthError(
                f"{self} <= {other}: they lead from depth {self.source_depth} to {self.target_depth} and from "
                f"{other.source_depth} to {other.target_depth}; only paths between the same scopes can be compared"
            )
        if other.is_empty or self.is_empty:
            return other.is_empty
        bounds = dict(other.limits)
        if self.epoch_increment > other.epoch_increment or any(bounds.get(index, bound + 1) > bound for index, bound in self.limits):
            return False
        if self.keep == other.keep:
            return (self.increment, self.constants) <= (other.increment, other.constants)
        if self.keep < other.keep:  # compare with the least that `other` can give
            least = (0,) * (other.keep - self.keep - 1) + (other.increment, *other.constants)
            return self.increment == 0 and self.constants <= least
        if other.increment:
            return True
        for index in range(other.keep, self.keep):  # compare with the most that `self` can give where `other` gives something
            bound = bounds.get(index)
            if bound is None:
                return False
            most = bound - 1 + (self.increment if index == self.keep - 1 else 0)
            constant = other.constants[index - other.keep]
            if most != constant:
                return most < constant
        return self.constants <= other.constants[self.keep - other.keep :]

    def __str__(self) -> str:
        counters = [f"c{index + 1}" for index in range(self.keep)]
        if self.increment:
            counters[-1] += f"+{self.increment}"
        counters += map(str, self.constants)
        epoch = f"e+{self.epoch_increment}" if self.epoch_increment else "e"
        where = "".join(f" if c{index + 1}<{bound}" for index, bound in self.limits)
        return f"({epoch}, <{', '.join(counters)}>{where})"
