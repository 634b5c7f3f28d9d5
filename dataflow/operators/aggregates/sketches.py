"""Aggregates that keep a sketch of the values in place of all of them: quantiles, and how many different ones there are.

Both sketches were chosen because their answer depends on the values alone, not on the order in which they came or were merged, as every
other result here (docs/decisions/059-sketches-of-values.md): DDSketch (Masson, Rim and Lee, "DDSketch: a fast and fully-mergeable quantile
sketch with relative-error guarantees", VLDB 2019, sections 2 and 3) and CPC (Lang, "Back to the future: an even more nearly optimal
cardinality estimation algorithm", 2017) with the estimate that it gives of merged sketches. They are of rows alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

from rayad.dataflow.operators.aggregates.aggregators import Aggregator
from rayad.dataflow.operators.aggregates.sums import summand
from rayad.dataflow.records.key_hashing import stable_hash
from rayad.progress import DataflowError, arguments, show

if TYPE_CHECKING:
    from datasketches import cpc_sketch

Bins: TypeAlias = Iterable[tuple[int, float]]
"""The number of a bucket, and how many values it has."""
LG_K = 12
"""A sketch of different values is a matter of 2 ** 12 rows: up to 2.5 kB, and a standard error of 1.1 %."""


def _import(what: str, package: str) -> Any:
    try:
        return import_module(package)
    except ImportError as error:
        raise DataflowError(f"{what} needs the package {package}, here and on all nodes: pip install 'rayad[sketches]'") from error


class Buckets:
    """How many values are in each bucket of a DDSketch, whose width keeps a value within ``relative_error`` of what its bucket stands for.

    Positive and negative values have a store each; those that are neither are what the count has more than both.
    """

    __slots__ = ("negative", "positive", "relative_error", "sketch")

    def __init__(self, relative_error: float, positive: Bins = (), negative: Bins = (), zeros: float = 0) -> None:
        library = _import("quantile", "ddsketch")
        self.relative_error = relative_error
        self.positive, self.negative = library.store.DenseStore(), library.store.DenseStore()
        for store, bins in ((self.positive, positive), (self.negative, negative)):
            for at, count in bins:
                store.add(at, count)
        mapping = library.LogarithmicMapping(relative_error)
        self.sketch = library.ddsketch.BaseDDSketch(mapping, self.positive, self.negative, zeros)

    def __reduce__(self) -> Any:
        positive, negative = (
            tuple((at, count) for at, count in enumerate(store.bins, store.offset) if count) for store in (self.positive, self.negative)
        )
        zeros = self.sketch.count - self.positive.count - self.negative.count
        return Buckets, (self.relative_error, positive, negative, zeros)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Buckets) and self.__reduce__() == other.__reduce__()

    __hash__ = None  # type: ignore[assignment]  # it changes

    def __repr__(self) -> str:
        return f"Buckets{self.__reduce__()[1]}"


class Quantile(Aggregator):
    """An estimate of the quantile ``q``: a float within ``relative_error`` of the value with rank floor(q * (n - 1)) among n values;
    None of no value. Null and NaN are ignored.

    Args:
        q: from 0 to 1; 0.5 is the median.
        relative_error: between 0 and 1, exclusive. The estimate is between (1 - relative_error) and (1 + relative_error) times the exact
            value. A key takes about log(largest / smallest) / (2 * relative_error) counts.
    """

    name = "quantile"
    is_tried = True
    may_change: ClassVar[frozenset[str]] = frozenset({"q"})

    def __init__(self, q: float, relative_error: float = 0.01) -> None:
        self.q = arguments.number(q, "quantile: q", zero=True)
        if not 0 <= self.q <= 1:
            raise DataflowError(f"quantile was given q={show(q)}: it is a share, from 0 to 1; 0.95 is the 95th percentile")
        self.relative_error = arguments.number(relative_error, "quantile: relative_error")
        if not 0 < self.relative_error < 1:
            raise DataflowError(
                f"quantile was given relative_error={show(relative_error)}: it is more than 0 and less than 1, such as 0.01"
            )
        _import("quantile", "ddsketch")

    def create(self, value: Any) -> Buckets:
        return self.add(Buckets(self.relative_error), value)

    def add(self, accumulator: Buckets, value: Any) -> Buckets:
        if value is None:
            return accumulator
        try:
            number = float(summand(value, self.name))
        except (TypeError, ValueError, OverflowError) as error:
            raise self._refusal(value) from error
        if math.isinf(number):
            raise self._refusal(value)
        if number == number:
            accumulator.sketch.add(number)
        return accumulator

    def _refusal(self, value: Any) -> DataflowError:
        return DataflowError(
            f"quantile was given {show(value, 60)} of type {type(value).__name__}: it takes finite numbers that a float can hold; make one "
            "of it with map() before (of a timedelta x.total_seconds())"
        )

    def merge(self, left: Buckets, right: Buckets) -> Buckets:
        left.sketch.merge(right.sketch)
        return left

    def result(self, accumulator: Buckets) -> float | None:
        found = accumulator.sketch.get_quantile_value(self.q)
        return None if found is None else float(found)


class Different:
    """A CPC sketch of hashes of values."""

    __slots__ = ("sketch",)

    def __init__(self, sketch: cpc_sketch) -> None:
        self.sketch = sketch

    def __reduce__(self) -> Any:
        return _deserialized, (merged(self).serialize(),)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Different) and self.__reduce__() == other.__reduce__()

    __hash__ = None  # type: ignore[assignment]  # it changes

    def __repr__(self) -> str:
        return f"Different{self.__reduce__()[1]}"


def merged(*some: Different) -> cpc_sketch:
    """The sketch of all their values. It holds nothing else: one that has only been added to also knows in which order they came."""
    union = _import(ApproxCountDistinct.name, "datasketches").cpc_union(LG_K)
    for one in some:
        union.update(one.sketch)
    return union.get_result()


def _deserialized(data: bytes) -> Different:
    return Different(_import(ApproxCountDistinct.name, "datasketches").cpc_sketch.deserialize(data))


class ApproxCountDistinct(Aggregator):
    """About how many different values there are; null is passed over, NaN is one. The standard error is 1.1 %, of few values less.

    Values are told apart by a hash of 64 bits that is the same in all processes: numbers, text, bytes, dates, times, UUIDs, and tuples of
    these.
    """

    name = "approx_count_distinct"

    def __init__(self) -> None:
        _import(self.name, "datasketches")

    def create(self, value: Any) -> Different:
        return self.add(Different(_import(self.name, "datasketches").cpc_sketch(LG_K)), value)

    def add(self, accumulator: Different, value: Any) -> Different:
        if value is not None:
            accumulator.sketch.update(self._hash(value))
        return accumulator

    def _hash(self, value: Any) -> int:
        if value != value:
            return 0
        try:
            # An int of 64 bits with a sign, as the library takes it.
            return (stable_hash(value) + (1 << 63)) % (1 << 64) - (1 << 63)
        except DataflowError as error:
            raise DataflowError(
                f"{self.name} was given {show(value, 60)} of type {type(value).__name__}, which has no hash that is the same everywhere; "
                f"name what is compared as its value, for instance {self.name}(lambda record: record.id), or use count_distinct()"
            ) from error

    def merge(self, left: Different, right: Different) -> Different:
        return Different(merged(left, right))

    def result(self, accumulator: Different) -> int:
        estimate: float = merged(accumulator).get_estimate()
        return round(estimate)
