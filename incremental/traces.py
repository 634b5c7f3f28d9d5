"""What a vertex keeps of one input: values by key, with the weights by which they have changed, and when.

Of the epochs before, only the moment of a change inside its epoch still matters, so their weights are added up by inner counters; what of
that comes to nothing is forgotten. The changes of the epoch under way are apart from them: what an operator gives is how its result differs
between the two.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

from rayad.incremental.moments import Counters, counts_at

Weights: TypeAlias = dict[Counters, int]
"""By moment: how often a value was inserted then, less how often it was removed."""
Values: TypeAlias = dict[Any, Weights]
Keys: TypeAlias = dict[Any, Values]


class Trace:
    """Of one input of one replica."""

    def __init__(self) -> None:
        self.before: Keys = {}
        """The changes of the epochs that are over."""
        self.now: Keys = {}
        """Those of the epoch under way."""

    def add(self, key: Any, value: Any, moment: Counters, weight: int) -> None:
        """A change of the epoch under way."""
        add(self.now.setdefault(key, {}).setdefault(value, {}), moment, weight)

    def changes(self, key: Any) -> Iterator[tuple[Any, Counters, int]]:
        """All changes of a key: value, moment, weight."""
        for part in (self.before, self.now):
            for value, weights in part.get(key, {}).items():
                for moment, weight in weights.items():
                    yield value, moment, weight

    def moments(self, key: Any) -> Iterator[Counters]:
        """When a key has changed."""
        for part in (self.before, self.now):
            for weights in part.get(key, {}).values():
                yield from weights

    def accumulated(self, key: Any, moment: Counters) -> tuple[dict[Any, int], dict[Any, int]]:
        """The values of a key at a moment, by weight: after the epochs before, and with the epoch under way."""
        before = _sums(self.before.get(key, {}), moment, {})
        return before, _sums(self.now.get(key, {}), moment, before)

    def end_epoch(self) -> None:
        """The epoch under way is over."""
        self._add_to_before(self.now)
        self.now = {}

    def _add_to_before(self, keys: Keys) -> None:
        for key, values in keys.items():
            kept = self.before.setdefault(key, {})
            for value, weights in values.items():
                sums = kept.setdefault(value, {})
                for moment, weight in weights.items():
                    add(sums, moment, weight)
                if not sums:
                    del kept[value]
            if not kept:
                del self.before[key]

    def give(self, leaves: Callable[[Any], bool]) -> tuple[Keys, Keys]:
        """Remove keys, and give what was kept of them."""
        return taken_out(self.before, leaves), taken_out(self.now, leaves)

    def take(self, given: tuple[Keys, Keys], *, is_over: bool) -> None:
        """Take over keys; ``is_over``: the epoch that was under way where they were is over here."""
        self.before.update(given[0])
        if is_over:
            self._add_to_before(given[1])
        else:
            self.now.update(given[1])


def add(sums: dict[Any, int], of: Any, weight: int) -> None:
    """Add a weight; what comes to nothing is removed.

    >>> sums = {"a": 1}
    >>> add(sums, "a", -1), add(sums, "b", 2), sums
    (None, None, {'b': 2})
    """
    total = sums.get(of, 0) + weight
    if total:
        sums[of] = total
    else:
        sums.pop(of, None)


def taken_out(kept: dict[Any, Any], leaves: Callable[[Any], bool]) -> dict[Any, Any]:
    """Remove what is kept by these keys, and give it."""
    return {key: kept.pop(key) for key in [key for key in kept if leaves(key)]}


def _sums(values: Values, moment: Counters, begin: dict[Any, int]) -> dict[Any, int]:
    sums = dict(begin)
    for value, weights in values.items():
        weight = sum(weight for at, weight in weights.items() if counts_at(at, moment))
        if weight:
            add(sums, value, weight)
    return sums


__all__ = ["Keys", "Trace", "Values", "Weights", "add", "taken_out"]
