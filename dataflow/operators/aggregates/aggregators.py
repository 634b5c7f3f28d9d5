"""What an aggregation is: how values become an accumulator, how accumulators merge, what comes out.

Merging must be associative and commutative: batches are combined before the exchange and merged in any order. The built-in ones also have a
columnar form that gives the same: *partials* made by Arrow's group-by in the sender, merged in numpy arrays by the receiver.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import compress
from operator import itemgetter
from typing import Any, ClassVar

import pyarrow as pa

from rayad.dataflow.operators.aggregates.sums import added, exact_total, mean_of, means_of, summand
from rayad.dataflow.records.calling import checked_function, mapped, require_methods
from rayad.progress import DataflowError, arguments, show

_NUMBERS = frozenset({int, float})
_NO_VALUES = (0, 0)
_PLAIN = frozenset({int, float, str, bytes, bool, type(None), complex})


class Aggregator(ABC):
    """Base class of aggregations; subclass it for ``KeyedStream.aggregate``.

    >>> class Longest(Aggregator):
    ...     def create(self, value):
    ...         return value
    ...     def merge(self, left, right):
    ...         return max(left, right, key=len)
    >>> Longest().merge("to", "be or not")
    'be or not'
    """

    name: str = "aggregate"

    state_version: ClassVar[int] = 1
    """Of its accumulators, kept with snapshots beside the class' name: raise it when those of before cannot be merged any more."""

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

    def emitted(self, accumulator: Any) -> Any:
        """:meth:`result`, as a value that later merges do not change: a copy if it is a container, which may hold the accumulator."""
        out = self.result(accumulator)
        return out if type(out) in _PLAIN else copy.deepcopy(out)

    def new_partials(self) -> dict[Any, Any]:
        """An empty dict for :meth:`combine_into`."""
        return {}

    def combine_into(self, partials: dict[Any, Any], keys: Iterable[Any], values: Iterable[Any]) -> None:
        """Add the values of each key to ``partials``, a dict from key to accumulator."""
        create, add = self.create, self.add
        for key, value in zip(keys, values, strict=True):
            if key in partials:
                partials[key] = add(partials[key], value)
            else:
                partials[key] = create(value)

    def merge_into(self, partials: dict[Any, Any], pairs: Iterable[tuple[Any, Any]]) -> None:
        """Merge ``(key, accumulator)`` pairs into ``partials``."""
        merge = self.merge
        for key, accumulator in pairs:
            if key in partials:
                partials[key] = merge(partials[key], accumulator)
            else:
                partials[key] = accumulator

    # -- columnar form ------------------------------------------------------------
    @property
    def partials(self) -> tuple[tuple[str, str], ...]:
        """Arrow's group-by functions that make the partial columns, and how each merges ("sum", "min", "max"); empty: rows only."""
        return ()

    def accumulator(self, partials: Sequence[Any]) -> Any:
        """The accumulator that one row of partial columns stands for."""
        raise NotImplementedError

    def finish(self, names: Sequence[str], totals: Sequence[Any]) -> list[tuple[str, pa.Array]]:
        """Named result columns from the arrays of merged partials, each of shape (keys,)."""
        raise NotImplementedError


class _Plain(Aggregator):
    """A built-in whose accumulators are never changed in place."""

    def emitted(self, accumulator: Any) -> Any:
        return self.result(accumulator)


class Count(_Plain):
    """Number of records."""

    name = "count"

    def create(self, value: Any) -> int:
        return 1

    def add(self, accumulator: int, value: Any) -> int:
        return accumulator + 1

    def merge(self, left: int, right: int) -> int:
        return left + right

    def new_partials(self) -> dict[Any, Any]:
        return Counter()

    def combine_into(self, partials: dict[Any, Any], keys: Iterable[Any], values: Iterable[Any]) -> None:
        if type(partials) is Counter and type(self) is Count:
            partials.update(keys)  # a loop in C
        else:
            super().combine_into(partials, keys, values)

    def merge_into(self, partials: dict[Any, Any], pairs: Iterable[tuple[Any, Any]]) -> None:
        if type(self) is not Count:
            super().merge_into(partials, pairs)
            return
        get = partials.get
        for key, count in pairs:
            partials[key] = get(key, 0) + count

    @property
    def partials(self) -> tuple[tuple[str, str], ...]:
        return (("count_all", "sum"),) if type(self) is Count else ()

    def accumulator(self, partials: Sequence[Any]) -> Any:
        return partials[0]

    def finish(self, names: Sequence[str], totals: Sequence[Any]) -> list[tuple[str, pa.Array]]:
        return [(names[0], pa.array(totals[0]))]


class _OverValues(_Plain):
    """An aggregation of the values that are not null; None where there is none."""

    how: str

    def create(self, value: Any) -> Any:
        return value

    @property
    def partials(self) -> tuple[tuple[str, str], ...]:
        # A subclass may define create() or merge() anew: only the class itself is known to be what Arrow computes.
        return ((self.how, self.how), ("count", "sum")) if type(self) in (Sum, Min, Max) else ()

    def accumulator(self, partials: Sequence[Any]) -> Any:
        return partials[0] if partials[1] else None

    def finish(self, names: Sequence[str], totals: Sequence[Any]) -> list[tuple[str, pa.Array]]:
        return [(names[0], pa.array(totals[0], mask=totals[1] == 0))]


class Sum(_OverValues):
    """Sum; null values are passed over. Exact for integers, decimals and fractions, up to rounding for floats; see ``sums``."""

    name = how = "sum"

    def create(self, value: Any) -> Any:
        return value if type(value) in _NUMBERS else summand(value, self.name)

    def merge(self, left: Any, right: Any) -> Any:
        if type(left) in _NUMBERS and type(right) in _NUMBERS:
            return left + right
        return right if left is None else left if right is None else added(left, right)

    def merge_into(self, partials: dict[Any, Any], pairs: Iterable[tuple[Any, Any]]) -> None:
        if type(self) is not Sum:
            super().merge_into(partials, pairs)
            return
        get, merge = partials.get, self.merge
        for key, value in pairs:
            total = get(key)
            if total is None:
                partials[key] = value
            elif type(total) in _NUMBERS and type(value) in _NUMBERS:
                partials[key] = total + value
            else:
                partials[key] = merge(total, value)

    def combine_into(self, partials: dict[Any, Any], keys: Iterable[Any], values: Iterable[Any]) -> None:
        values = list(values)
        if type(self) is not Sum or not _NUMBERS.issuperset(map(type, values)):
            super().combine_into(partials, keys, values)
            return
        get = partials.get
        for key, value in zip(keys, values, strict=True):
            total = get(key)
            partials[key] = value if total is None else total + value


class Min(_OverValues):
    """Smallest value; null values and NaN are passed over."""

    name = how = "min"

    def merge(self, left: Any, right: Any) -> Any:
        if left is None or left != left:
            return left if right is None else right
        return left if right is None or right != right or left <= right else right


class Max(_OverValues):
    """Largest value; null values and NaN are passed over."""

    name = how = "max"

    def merge(self, left: Any, right: Any) -> Any:
        if left is None or left != left:
            return left if right is None else right
        return left if right is None or right != right or left >= right else right


class Mean(_Plain):
    """Arithmetic mean, of :class:`Sum` and a count; null values are passed over, None when there was none."""

    name = "mean"

    def create(self, value: Any) -> Any:
        if type(value) in _NUMBERS:
            return (value, 1)
        return _NO_VALUES if value is None else (summand(value, self.name), 1)

    def merge(self, left: Any, right: Any) -> Any:
        if not left[1] or not right[1]:
            return left if left[1] else right
        return (added(left[0], right[0]), left[1] + right[1])

    def result(self, accumulator: Any) -> Any:
        return mean_of(*accumulator) if accumulator[1] else None

    @property
    def partials(self) -> tuple[tuple[str, str], ...]:
        return (("sum", "sum"), ("count", "sum")) if type(self) is Mean else ()

    def accumulator(self, partials: Sequence[Any]) -> Any:
        return (partials[0] or 0, partials[1])

    def finish(self, names: Sequence[str], totals: Sequence[Any]) -> list[tuple[str, pa.Array]]:
        return [(names[0].replace("sum(", "mean(", 1), pa.array(means_of(totals[0], totals[1]), mask=totals[1] == 0))]


class ExactSum(_Plain):
    """Sum that adds floats exactly and rounds once, so that it does not depend on their order; null values are passed over."""

    name = "sum"

    def create(self, value: Any) -> Any:
        return None if value is None else (exact_total((summand(value, self.name),)), 1)

    def merge(self, left: Any, right: Any) -> Any:
        if left is None or right is None:
            return right if left is None else left
        return (left[0].plus(right[0]), left[1] + right[1])

    def result(self, accumulator: Any) -> Any:
        return None if accumulator is None else accumulator[0].value()

    def combine_into(self, partials: dict[Any, Any], keys: Iterable[Any], values: Iterable[Any]) -> None:
        of_key: dict[Any, list[Any]] = {}
        for key, value in zip(keys, values, strict=True):
            some = of_key.setdefault(key, [])
            if value is not None:
                some.append(summand(value, self.name))
        made = ((key, (exact_total(some), len(some)) if some else None) for key, some in of_key.items())
        self.merge_into(partials, made)


class ExactMean(ExactSum):
    """Mean of an :class:`ExactSum`, rounded once."""

    name = "mean"

    def result(self, accumulator: Any) -> Any:
        return None if accumulator is None else accumulator[0].mean(accumulator[1])


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
class TopK(_Plain):
    """The ``k`` largest values, largest first; equal ones by their representation, so that the result does not depend on the order of
    arrival. Null and NaN, or values with such a ``by``, are passed over.

    >>> top = TopK(2)
    >>> top.result(top.merge(top.merge(top.create(3), top.create(5)), top.create(4)))
    [5, 4]
    """

    k: int
    by: Callable[[Any], Any] | str | None = None
    name: str = "top_k"

    def __post_init__(self) -> None:
        self.k = arguments.whole(self.k, "top_k: k", least=1)
        if not (self.by is None or isinstance(self.by, str) or callable(self.by)):
            raise DataflowError(f"top_k was given by={show(self.by, 60)}: give a function of the record or a column name")
        if callable(self.by):
            checked_function(self.by, "top_k (by)", "record")

    def create(self, value: Any) -> Any:
        return [value]

    def add(self, accumulator: Any, value: Any) -> Any:
        accumulator.append(value)
        return self._pruned(accumulator)

    def merge(self, left: Any, right: Any) -> Any:
        left.extend(right)
        return self._pruned(left)

    def result(self, accumulator: Any) -> Any:
        return self._largest(accumulator)

    def _pruned(self, values: list[Any]) -> list[Any]:
        return self._largest(values) if len(values) >= 4 * self.k + 16 else values

    def _largest(self, values: list[Any]) -> list[Any]:
        by = itemgetter(self.by) if isinstance(self.by, str) else self.by
        found = values if by is None else mapped(by, values)
        there = [not (x is None or x != x) for x in found]
        if not all(there):
            values = list(compress(values, there))
        try:
            return sorted(sorted(values, key=repr), key=by, reverse=True)[: self.k]
        except TypeError as error:
            what = "records" if by is None else "values"
            raise DataflowError(
                f"top_k cannot compare {what} of types {sorted({type(x).__name__ for x in compress(found, there)})}: {error}; name what is "
                "compared with by=, a function of the record or a column name"
            ) from error


@dataclass
class Several(Aggregator):
    """Named aggregations side by side; a value is a tuple with one element for each, the result a dict.

    ``values`` are the selectors (``ValueSelector``) of those elements.
    """

    parts: dict[str, Aggregator]
    values: Sequence[Any] = ()
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

    def emitted(self, accumulator: Any) -> Any:
        return {name: a.emitted(x) for (name, a), x in zip(self.parts.items(), accumulator, strict=True)}

    @property
    def partials(self) -> tuple[tuple[str, str], ...]:
        each = [a.partials for a in self._list]
        return tuple(partial for partials in each for partial in partials) if all(each) else ()

    def accumulator(self, partials: Sequence[Any]) -> Any:
        return [a.accumulator(part) for a, part in zip(self._list, self._cut(partials), strict=True)]

    def finish(self, names: Sequence[str], totals: Sequence[Any]) -> list[tuple[str, pa.Array]]:
        parts = zip(self.parts.items(), self._cut(names), self._cut(totals), strict=True)
        return [(name, a.finish(some, arrays)[0][1]) for (name, a), some, arrays in parts]

    def _cut(self, flat: Sequence[Any]) -> list[Sequence[Any]]:
        out, at = [], 0
        for a in self._list:
            out.append(flat[at : at + len(a.partials)])
            at += len(a.partials)
        return out


BY_NAME: dict[str, type[Aggregator]] = {
    "count": Count,
    "sum": Sum,
    "min": Min,
    "max": Max,
    "mean": Mean,
    "exact_sum": ExactSum,
    "exact_mean": ExactMean,
}


def by_name(name: Any) -> Aggregator:
    """The built-in aggregation of that name, or ``name`` itself if it is an Aggregator."""
    if isinstance(name, Aggregator):
        require_methods(name, Aggregator, ("create", "add", "merge", "result", "emitted"))
        return name
    if not isinstance(name, str) or name not in BY_NAME:
        raise DataflowError(f"there is no aggregation {show(name, 60)}: use one of {sorted(BY_NAME)} or an instance of rd.Aggregator")
    return BY_NAME[name]()
