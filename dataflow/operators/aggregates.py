"""What an aggregation is: how values become an accumulator, how accumulators merge, what comes out.

Merging must be associative and commutative: batches are combined before the exchange and merged in any order.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from rayad.progress import DataflowError


class Aggregator(ABC):
    """Base class of aggregations; subclass it for ``KeyedStream.aggregate``."""

    name: str = "aggregate"

    @abstractmethod
    def create(self, value: Any) -> Any:
        """The accumulator of one value."""

    def add(self, accumulator: Any, value: Any) -> Any:
        """The accumulator with one value more; may change and return ``accumulator``."""
        return self.merge(accumulator, self.create(value))

    @abstractmethod
    def merge(self, left: Any, right: Any) -> Any:
        """The accumulator of both; may change and return ``left`` (never ``right``)."""

    def result(self, accumulator: Any) -> Any:
        """What is emitted; must not change the accumulator."""
        return accumulator

    # Columnar form: Arrow group_by functions of the partial columns, and how each merges ("sum", "min", "max"); empty: rows only.
    partials: tuple[tuple[str, str], ...] = ()

    def combine(self, keys: Iterable[Any], values: Iterable[Any]) -> dict[Any, Any]:
        """Accumulators of the values of each key."""
        out: dict[Any, Any] = {}
        create, add = self.create, self.add
        for key, value in zip(keys, values, strict=True):
            if key in out:
                out[key] = add(out[key], value)
            else:
                out[key] = create(value)
        return out


class Count(Aggregator):
    """Number of records."""

    name = "count"
    partials = (("count_all", "sum"),)

    def create(self, value: Any) -> int:
        return 1

    def add(self, accumulator: int, value: Any) -> int:
        return accumulator + 1

    def merge(self, left: int, right: int) -> int:
        return left + right

    def combine(self, keys: Iterable[Any], values: Iterable[Any]) -> dict[Any, Any]:
        return Counter(keys)


class Sum(Aggregator):
    """Sum; null values are passed over."""

    name = "sum"
    partials = (("sum", "sum"), ("count", "sum"))

    def create(self, value: Any) -> Any:
        return value

    def add(self, accumulator: Any, value: Any) -> Any:
        return value if accumulator is None else accumulator if value is None else accumulator + value

    def merge(self, left: Any, right: Any) -> Any:
        return right if left is None else left if right is None else left + right


class Min(Aggregator):
    """Smallest value; null values are passed over."""

    name = "min"
    partials = (("min", "min"), ("count", "sum"))

    def create(self, value: Any) -> Any:
        return value

    def merge(self, left: Any, right: Any) -> Any:
        return right if left is None else left if right is None or left <= right else right


class Max(Aggregator):
    """Largest value; null values are passed over."""

    name = "max"
    partials = (("max", "max"), ("count", "sum"))

    def create(self, value: Any) -> Any:
        return value

    def merge(self, left: Any, right: Any) -> Any:
        return right if left is None else left if right is None or left >= right else right


class Mean(Aggregator):
    """Arithmetic mean; null values are passed over, None when there was none."""

    name = "mean"
    partials = (("sum", "sum"), ("count", "sum"))

    def create(self, value: Any) -> Any:
        return (0, 0) if value is None else (value, 1)

    def merge(self, left: Any, right: Any) -> Any:
        return (left[0] + right[0], left[1] + right[1])

    def result(self, accumulator: Any) -> Any:
        return accumulator[0] / accumulator[1] if accumulator[1] else None


@dataclass
class Reduce(Aggregator):
    """``f(a, b)``, associative and commutative."""

    function: Callable[[Any, Any], Any]
    name: str = "reduce"

    def create(self, value: Any) -> Any:
        return value

    def merge(self, left: Any, right: Any) -> Any:
        return self.function(left, right)


@dataclass
class TopK(Aggregator):
    """The ``k`` largest values, largest first; equal ones by their representation, so that the result does not depend on the order of arrival."""

    k: int
    by: Callable[[Any], Any] | None = None
    name: str = "top_k"

    def create(self, value: Any) -> Any:
        return [value]

    def merge(self, left: Any, right: Any) -> Any:
        by = self.by
        both = sorted(left + right, key=repr)
        return sorted(both, key=by, reverse=True)[: self.k]


@dataclass
class Several(Aggregator):
    """Named aggregations side by side; a value is a tuple with one element for each, the result a dict."""

    parts: dict[str, Aggregator]
    name: str = "aggregate"
    _list: list[Aggregator] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._list = list(self.parts.values())

    def create(self, value: Any) -> Any:
        return [a.create(v) for a, v in zip(self._list, value, strict=True)]

    def add(self, accumulator: Any, value: Any) -> Any:
        for i, a in enumerate(self._list):
            accumulator[i] = a.add(accumulator[i], value[i])
        return accumulator

    def merge(self, left: Any, right: Any) -> Any:
        return [a.merge(x, y) for a, x, y in zip(self._list, left, right, strict=True)]

    def result(self, accumulator: Any) -> Any:
        return {name: a.result(x) for (name, a), x in zip(self.parts.items(), accumulator, strict=True)}


BY_NAME: dict[str, type[Aggregator]] = {"count": Count, "sum": Sum, "min": Min, "max": Max, "mean": Mean}


def by_name(name: Any) -> Aggregator:
    """The built-in aggregation of that name, or ``name`` itself if it is an Aggregator."""
    if isinstance(name, Aggregator):
        return name
    if name not in BY_NAME:
        raise DataflowError(f"there is no aggregation {name!r}: use one of {sorted(BY_NAME)} or an instance of rd.Aggregator")
    return BY_NAME[name]()
