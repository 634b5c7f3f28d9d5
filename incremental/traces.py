"""What a vertex keeps of one input: values by key, with the weights by which they have changed, and when.

Of the epochs before, only the moment of a change inside its epoch still matters, so their weights are added up by inner counters; what of
that comes to nothing is forgotten. The changes of the epoch under way are apart from them: what an operator gives is how its result differs
between the two.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, MutableMapping
from typing import Any, TypeAlias

from rayad.dataflow.operators.state.by_key.dicts import KeyedDict
from rayad.dataflow.operators.state.keyed_state import KeyedState, WholeState
from rayad.dataflow.records.key_hashing import key_group
from rayad.incremental.moments import Counters, counts_at
from rayad.progress import Timestamp

Weights: TypeAlias = dict[Counters, int]
"""By moment: how often a value was inserted then, less how often it was removed."""
Values: TypeAlias = dict[Any, Weights]
Keys: TypeAlias = dict[Any, Any]


class ThisEpoch(WholeState):
    """What belongs to the epoch under way, by key: it is small, or soon gone.

    Args:
        is_over: whether an epoch is over at this replica.
    """

    is_in_flight = True

    def __init__(self, is_over: Callable[[int], bool]) -> None:
        self.kept: Keys = {}
        self.time: Timestamp | None = None
        """Any time of the epoch, while something is kept."""
        self.late: list[Keys] = []
        """What siblings gave of an epoch that is over here."""
        self._is_over = is_over

    def clear(self) -> None:
        """The epoch is over."""
        self.kept, self.time = {}, None

    def checkpoint(self) -> Any:
        return self.time, self.kept

    def restore(self, stored: Any) -> None:
        self.time, self.kept = stored

    def give(self, groups: frozenset[int], key_groups: int) -> Any:
        leave = [key for key in self.kept if key_group(key, key_groups) in groups]
        return (self.time, {key: self.kept.pop(key) for key in leave}) if leave else None

    def take(self, given: Any) -> None:
        time, kept = given
        if self._is_over(time.epoch):
            self.late.append(kept)
        else:
            self.kept.update(kept)
            self.time = time


class Kept(ABC):
    """Of one input: the epochs before, and the one under way.

    Args:
        is_over: see :class:`ThisEpoch`.
    """

    def __init__(self, is_over: Callable[[int], bool]) -> None:
        self.before = KeyedDict()
        self.now = ThisEpoch(is_over)

    def states(self, name: str) -> dict[str, KeyedState]:
        """Both, by name."""
        return {f"{name}.before": self.before, f"{name}.now": self.now}

    @abstractmethod
    def add(self, key: Any, value: Any, time: Timestamp, weight: int) -> None:
        """A change of the epoch under way."""

    @abstractmethod
    def moments(self, key: Any) -> Iterator[Counters]:
        """When a key has changed."""

    @abstractmethod
    def accumulated(self, key: Any, moment: Counters) -> tuple[Any, Any]:
        """What a key has at a moment, after the epochs before, and with the epoch under way; what is false is nothing."""

    @abstractmethod
    def merge(self, kept: Any, changes: Any) -> Any:
        """What is kept of a key with some changes; what is false is nothing."""

    # -- to be read, outside of loops and between epochs: see ``reads.InRows`` -------------------------------
    def keys(self) -> Iterable[Any]:
        """All keys."""
        return self.before.kept

    def there(self, key: Any) -> Any:
        """What a key has; the reader's own."""
        return self.accumulated(key, ())[0]

    @abstractmethod
    def changed(self, there: Any, value: Any, weight: int, vector: Any) -> Any:
        """What a key has with one more change; ``vector``: where sums are kept, that of the value if it is known."""

    @property
    def is_used(self) -> bool:
        """Whether there is anything."""
        return bool(self.before.kept or self.now.kept)

    def keep(self, keys: Keys) -> None:
        """More of epochs that are over."""
        self.now.late.append(keys)
        self.settle()

    def end_epoch(self) -> None:
        """The epoch under way is over."""
        self.now.late.append(self.now.kept)
        self.now.clear()
        self.settle()

    def settle(self) -> None:
        """Take in what belongs to epochs that are over."""
        for keys in self.now.late:
            with self.before.changing(list(keys)) as before:
                for key, changes in keys.items():
                    merged = self.merge(before.get(key), changes)
                    if merged:
                        before[key] = merged
                    else:
                        before.pop(key, None)
        self.now.late = []


class Trace(Kept):
    """Keeps values and their weights."""

    def add(self, key: Any, value: Any, time: Timestamp, weight: int) -> None:
        self.now.time = time
        kept = self.now.kept
        values = kept[key] if key in kept else kept.setdefault(key, {})
        weights = values.get(value)
        if weights is None:
            values[value] = {time.counters: weight}
        else:
            add(weights, time.counters, weight)

    def changes(self, key: Any) -> Iterator[tuple[Any, Counters, int]]:
        """All changes of a key: value, moment, weight."""
        for part in (self.before.kept, self.now.kept):
            for value, weights in part.get(key, {}).items():
                for moment, weight in weights.items():
                    yield value, moment, weight

    def moments(self, key: Any) -> Iterator[Counters]:
        for part in (self.before.kept, self.now.kept):
            for weights in part.get(key, {}).values():
                yield from weights

    def accumulated(self, key: Any, moment: Counters) -> tuple[dict[Any, int], dict[Any, int]]:
        before = _sums(self.before.kept.get(key, {}), moment, {})
        return before, _sums(self.now.kept.get(key, {}), moment, before)

    def changed(self, there: dict[Any, int] | None, value: Any, weight: int, vector: Any) -> dict[Any, int]:
        weights = {} if there is None else there
        add(weights, value, weight)
        return weights

    def merge(self, kept: Values | None, changes: Values) -> Values:
        merged = {} if kept is None else kept
        for value, weights in changes.items():
            sums = merged.get(value)
            if sums is None:
                if weights:
                    merged[value] = weights
                continue
            for moment, weight in weights.items():
                add(sums, moment, weight)
            if not sums:
                del merged[value]
        return merged


def add(sums: MutableMapping[Any, int], of: Any, weight: int) -> None:
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


def _sums(values: Values, moment: Counters, begin: dict[Any, int]) -> dict[Any, int]:
    sums = dict(begin)
    for value, weights in values.items():
        weight = sum(weight for at, weight in weights.items() if counts_at(at, moment))
        if weight:
            add(sums, value, weight)
    return sums


__all__ = ["Kept", "Keys", "ThisEpoch", "Trace", "Values", "Weights", "add"]
