"""What an aggregation is: how values become an accumulator, how accumulators merge, what comes out.

Merging must be associative and commutative: batches are combined before the exchange and merged in any order. The built-in ones also have a
columnar form that gives the same: *partials* (``partial``) made by a group-by in the sender, merged in numpy arrays by the receiver.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from types import MappingProxyType
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc

from rayad.dataflow.operators.aggregates.held import is_ordered, is_summed
from rayad.dataflow.operators.aggregates.known_functions import known
from rayad.dataflow.operators.aggregates.partial import COUNT_ALL, COUNT_VALID, LARGEST, MEANT, SMALLEST, TOTAL, Partial, of_names
from rayad.dataflow.operators.aggregates.sums import added, exact_total, mean_decimals, mean_durations, mean_of, means_of, summand
from rayad.dataflow.operators.keys.keyed import distinct_names
from rayad.dataflow.records.content_codes import has_contents, plain_form
from rayad.dataflow.records.moments import PLAIN, moment
from rayad.dataflow.records.selectors import ValueSelector
from rayad.progress import DataflowError, show

_NUMBERS = frozenset({int, float})
_NO_VALUES = (None, 0)
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

    With ``columns`` it stays in columns, too: then an accumulator is the value of the one column, or a tuple of those of several, and
    ``create_columns`` and ``result_columns`` do for many what ``create`` and ``result`` do for one. ``rayad.testing.check_aggregator``
    tells whether they do.

    >>> class Spread(Aggregator):
    ...     columns = {"low": "min", "high": "max"}
    ...     def create(self, value):
    ...         return (value, value)
    ...     def merge(self, left, right):
    ...         known = [part for part in (left, right) if part[0] is not None]
    ...         return (min(low for low, _ in known), max(high for _, high in known)) if known else left
    ...     def result(self, accumulator):
    ...         low, high = accumulator
    ...         return None if low is None else high - low
    ...     def create_columns(self, values):
    ...         return {"low": values, "high": values}
    ...     def result_columns(self, columns):
    ...         return pc.subtract(columns["high"], columns["low"])
    """

    name: str = "aggregate"

    state_version: ClassVar[int] = 1
    """Of its accumulators, kept with snapshots beside the class' name: raise it when those of before cannot be merged any more."""

    @abstractmethod
    def create(self, value: Any) -> Any:
        """Return the accumulator of one value."""

    def add(self, accumulator: Any, value: Any) -> Any:
        """Return the accumulator with one more value. May change and return ``accumulator``."""
        return self.merge(accumulator, self.create(value))

    @abstractmethod
    def merge(self, left: Any, right: Any) -> Any:
        """Return the accumulator of both. May change and return ``left``, never ``right``."""

    def result(self, accumulator: Any) -> Any:
        """Return what is emitted for an accumulator, which must not be changed."""
        return accumulator

    def emitted(self, accumulator: Any) -> Any:
        """Return :meth:`result` as a value that later merges do not change: a copy if it is a container, which may be the accumulator
        itself."""
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

    # -- as a table -----------------------------------------------------------------
    state_columns: tuple[str, ...] = ("value",)
    """What its accumulators are called as columns of a table (:func:`rayad.read_state`): of one column each is a value, of several a tuple
    of them. A subclass that does not say it has one column ``value``."""

    def opened(self, values: list[Any]) -> list[list[Any]]:
        """Split accumulators into the columns that ``columns`` names."""
        width = len(self.state_columns)
        return [values] if width == 1 else [list(part) for part in zip(*values, strict=True)] or [[] for _ in range(width)]

    def closed(self, columns: Sequence[Sequence[Any]]) -> list[Any]:
        """Join columns into accumulators: the inverse of :meth:`opened`."""
        return list(columns[0]) if len(columns) == 1 else list(zip(*columns, strict=True))

    # -- when the program is written ------------------------------------------------
    is_tried: ClassVar[bool] = False
    """Whether :meth:`refusal` may run it: a built-in, which calls no function of the user."""

    def refusal(self, values: Sequence[Any]) -> str | None:
        """Say why values like these are refused; None if they are accepted, or cannot be tried."""
        if not self.is_tried or not values:
            return None
        try:
            self.result(reduce(self.merge, map(self.create, values)))
        except (DataflowError, TypeError) as error:
            return str(error)
        return None

    # -- columnar form ------------------------------------------------------------
    takes_value: ClassVar[bool] = True
    """False: it is of records, whatever is in them."""
    takes_record: ClassVar[bool] = False
    """Whether a value that is not named is the whole record."""
    gives_records: ClassVar[bool] = False
    """Whether its result is one of the values as it came."""
    columns: ClassVar[Mapping[str, str]] = MappingProxyType({})
    """What columns keep for it: names, each with how two of them become one, ``"sum"``, ``"min"`` or ``"max"``, which pass null over.
    Empty: rows only, as for each subclass that does not say it itself."""

    def create_columns(self, values: pa.Array) -> Mapping[str, pa.Array]:
        """Create the accumulators of many values at once: one column for each name in ``columns``, as long as ``values``, some of which
        may be null.

        Columns hold numbers, or other types that the aggregation of that name supports in columns (docs/design/totals.md). Sums that leave
        64 bits, or 38 digits, continue in rows.
        """
        raise NotImplementedError(f"{type(self).__name__} has columns and no create_columns(self, values)")

    def result_columns(self, columns: Mapping[str, pa.Array]) -> pa.Array:
        """Return the :meth:`result` of many accumulators, given as merged columns of equal lengths; null where there were only nulls."""
        raise NotImplementedError(f"{type(self).__name__} has columns and no result_columns(self, columns)")

    partials: Sequence[Partial] = ()
    """What columns keep for it (``partial``), over its one value; empty: rows only, as for each subclass that does not say it itself."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "columns" not in vars(cls):
            cls.columns = {}  # create() or merge() may have been defined anew: only the class itself is known to be what columns compute
        if "partials" not in vars(cls):
            cls.partials = of_names(cls.columns, f"{cls.__name__}.columns")
        cls.is_tried = vars(cls).get("is_tried", False)
        if "state_columns" not in vars(cls):
            cls.state_columns = Aggregator.state_columns

    @property
    def rows_reason(self) -> str:
        """Say why this aggregator has no columnar form; None if it has one."""
        return f"{self.name} handles rows"

    @property
    def makes_input(self) -> bool:
        """Tell whether its partials are computed from :meth:`input_of` instead of directly from the column of its value."""
        return bool(self.columns)

    def input_of(self, batch: pa.RecordBatch, value: ValueSelector, column: str | None) -> pa.Array | str:
        """Return the array, shape (rows,), that partials are computed from, or the reason why such a batch is handled in rows.

        Args:
            value: where the value is.
            column: the column of that name, if the value is a column.
        """
        if column is None:
            return f"the value of {self.name} is a {'record' if value.is_record else 'function'}"
        found = batch.column(column)
        if not has_contents(found.type):
            return f"{self.name} of {found.type} ({column!r}) handles rows"
        return created_columns(self, plain_form(found))

    def shown_as(self, value: ValueSelector) -> str | None:
        """Return the name that a column made by :meth:`input_of` has in results."""
        return value.column

    def takes_type(self, kind: pa.DataType) -> bool:
        """Tell whether partials in columns give the same as rows for values of this type: numbers, unless a subclass says more."""
        return bool(self.columns) or bool(pa.types.is_integer(kind) or pa.types.is_float32(kind) or pa.types.is_float64(kind))

    def accumulator(self, partials: Sequence[Any]) -> Any:
        """Return the accumulator that one row of the columns of partials stands for."""
        parts = tuple(value if count else None for value, count in zip(partials[::2], partials[1::2], strict=True))
        return parts[0] if len(parts) == 1 else parts

    def opened_partials(self, partials: Sequence[pa.Array]) -> list[pa.Array] | None:
        """Return what :meth:`opened` gives of the accumulators of many rows of partials, without making them; None: it takes rows."""
        return None

    def finish(self, totals: Sequence[Any]) -> pa.Array:
        """Return the result of each key from the arrays of merged partials, each of shape (keys,): numpy arrays of numbers and bools,
        Arrow arrays of the other types that :meth:`takes_type` accepts."""
        each = zip(self.columns, totals[::2], totals[1::2], strict=True)
        return finished_columns(self, {name: _where(total, count) for name, total, count in each}, len(totals[0]))

    def has_type_of_values(self, kinds: Sequence[pa.DataType]) -> bool:
        """Tell whether the type of :meth:`finish` depends on the values, for partials of these types."""
        return False

    def results(self, names: Sequence[str], totals: Sequence[Any]) -> list[tuple[str, pa.Array]]:
        """Return named result columns: the results of :meth:`finish`, named after the first column of the partials."""
        return [("".join([self.name, *names[0].partition("(")[1:]]), self.finish(totals))]


def created_columns(aggregator: Aggregator, values: pa.Array) -> pa.StructArray:
    """What a user's ``create_columns`` gives, checked."""
    made = aggregator.create_columns(values)
    what = f"{type(aggregator).__name__}.create_columns"
    if not isinstance(made, Mapping) or set(made) != set(aggregator.columns):
        given = sorted(made) if isinstance(made, Mapping) else _told(made)
        raise DataflowError(f"{what} gave {given}: it must give a column for each of {sorted(aggregator.columns)}")
    arrays = {name: made[name].combine_chunks() if isinstance(made[name], pa.ChunkedArray) else made[name] for name in aggregator.columns}
    for name, array in arrays.items():
        how = aggregator.columns[name]
        if not isinstance(array, pa.Array) or len(array) != len(values):
            raise DataflowError(f"{what} gave {_told(array)} for {name!r} of {len(values)} values: give a pyarrow.Array of that length")
        kind = array.type
        number = pa.types.is_integer(kind) or pa.types.is_float32(kind) or pa.types.is_float64(kind)
        if not (number or (is_summed(kind) if how == "sum" else is_ordered(kind))):
            raise DataflowError(f"{what} gave a column of {kind} for {name!r}, for which there is no {how} in columns: cast it")
    return pa.StructArray.from_arrays(list(arrays.values()), names=list(arrays))


def finished_columns(aggregator: Aggregator, columns: Mapping[str, pa.Array], keys: int) -> pa.Array:
    """What a user's ``result_columns`` gives, checked."""
    out = aggregator.result_columns(columns)
    out = out.combine_chunks() if isinstance(out, pa.ChunkedArray) else out
    if not isinstance(out, pa.Array) or len(out) != keys:
        raise DataflowError(
            f"{type(aggregator).__name__}.result_columns gave {_told(out)} for {keys} keys: give a pyarrow.Array of as many"
        )
    return out


def _told(given: Any) -> str:
    return f"a {type(given).__name__} of {len(given)}" if isinstance(given, pa.Array) else show(given, 60)


def _where(total: Any, count: Any) -> pa.Array:
    """A merged partial as a column, null where it is of no value."""
    if isinstance(total, pa.Array):
        return pc.if_else(pa.array(count > 0), total, pa.scalar(None, total.type))
    return pa.array(total, mask=count == 0)


class _Plain(Aggregator):
    """A built-in whose accumulators are never changed in place."""

    def emitted(self, accumulator: Any) -> Any:
        return self.result(accumulator)


def _where_any(values: pa.Array, counts: pa.Array) -> pa.Array:
    """Values, null where they are of no value."""
    return pc.if_else(pc.greater(counts, 0), values, pa.scalar(None, values.type))


class Count(_Plain):
    """Number of records."""

    name = "count"
    takes_value = False
    takes_record = True
    partials = (COUNT_ALL,)
    state_columns = ("count",)

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

    def accumulator(self, partials: Sequence[Any]) -> Any:
        return partials[0]

    def opened_partials(self, partials: Sequence[pa.Array]) -> list[pa.Array]:
        return [partials[0]]

    def finish(self, totals: Sequence[Any]) -> pa.Array:
        return pa.array(totals[0])


class _OverValues(_Plain):
    """An aggregation of the values that are not null; None where there is none."""

    def create(self, value: Any) -> Any:
        return value

    def accumulator(self, partials: Sequence[Any]) -> Any:
        return partials[0] if partials[1] else None

    def opened_partials(self, partials: Sequence[pa.Array]) -> list[pa.Array]:
        return [_where_any(*partials)]

    def finish(self, totals: Sequence[Any]) -> pa.Array:
        if isinstance(totals[0], pa.Array):
            return pc.if_else(pa.array(totals[1] > 0), totals[0], pa.scalar(None, totals[0].type))
        return pa.array(totals[0], mask=totals[1] == 0)


class Sum(_OverValues):
    """Sum; null values are passed over. Exact for integers, decimals and fractions, up to rounding for floats; see ``sums``."""

    name = "sum"
    is_tried = True
    partials = (TOTAL, COUNT_VALID)
    state_columns = ("sum",)

    def takes_type(self, kind: pa.DataType) -> bool:
        return super().takes_type(kind) or is_summed(kind)

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

    name = "min"
    is_tried = True
    partials = (SMALLEST, COUNT_VALID)
    state_columns = ("min",)

    def takes_type(self, kind: pa.DataType) -> bool:
        return super().takes_type(kind) or is_ordered(kind)

    def merge(self, left: Any, right: Any) -> Any:
        if left is None or left != left:
            return left if right is None else right
        if right.__class__ not in PLAIN:
            return left if right != right or moment(left) <= moment(right) else right
        return left if right is None or right != right or left <= right else right


class Max(_OverValues):
    """Largest value; null values and NaN are passed over."""

    name = "max"
    is_tried = True
    partials = (LARGEST, COUNT_VALID)
    state_columns = ("max",)

    def takes_type(self, kind: pa.DataType) -> bool:
        return super().takes_type(kind) or is_ordered(kind)

    def merge(self, left: Any, right: Any) -> Any:
        if left is None or left != left:
            return left if right is None else right
        if right.__class__ not in PLAIN:
            return left if right != right or moment(left) >= moment(right) else right
        return left if right is None or right != right or left >= right else right


class Mean(_Plain):
    """Arithmetic mean, of :class:`Sum` and a count; null values are passed over, None when there was none."""

    name = "mean"
    is_tried = True
    partials = (MEANT, COUNT_VALID)
    state_columns = ("sum", "count")

    def takes_type(self, kind: pa.DataType) -> bool:
        """What has a sum, but for nanoseconds: rows have them as pandas does, which rounds their means in its own way."""
        return super().takes_type(kind) or (is_summed(kind) and kind != pa.duration("ns"))

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

    def accumulator(self, partials: Sequence[Any]) -> Any:
        return (partials[0], partials[1]) if partials[1] else _NO_VALUES

    def opened_partials(self, partials: Sequence[pa.Array]) -> list[pa.Array]:
        return [_where_any(*partials), partials[1]]

    def has_type_of_values(self, kinds: Sequence[pa.DataType]) -> bool:
        """Decimals: see :func:`mean_decimals`."""
        return bool(pa.types.is_decimal(kinds[0]))

    def finish(self, totals: Sequence[Any]) -> pa.Array:
        if isinstance(totals[0], pa.Array):
            made = mean_durations if pa.types.is_duration(totals[0].type) else mean_decimals
            return made(totals[0], totals[1])
        return pa.array(means_of(totals[0], totals[1]), mask=totals[1] == 0)


class ExactSum(_Plain):
    """Sum that adds floats exactly and rounds once, so that it does not depend on their order; null values are passed over."""

    name = "sum"
    is_tried = True

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
    is_tried = True

    def result(self, accumulator: Any) -> Any:
        return None if accumulator is None else accumulator[0].mean(accumulator[1])


@dataclass
class Reduce(_OverValues):
    """``f(a, b)``, associative and commutative; in columns for functions that are :func:`known`."""

    function: Callable[[Any, Any], Any]
    name: str = "reduce"
    takes_record: ClassVar[bool] = True

    def __post_init__(self) -> None:
        self._known = known(self.function)
        self.partials = () if self._known is None else self._known.partials

    def takes_type(self, kind: pa.DataType) -> bool:
        return self._known is not None and self._known.takes_type(kind)

    @property
    def rows_reason(self) -> str:
        return "reduce calls a function for each pair"

    def emitted(self, accumulator: Any) -> Any:
        return Aggregator.emitted(self, accumulator)  # the function may change what it has given

    def merge(self, left: Any, right: Any) -> Any:
        if right.__class__ not in PLAIN and (self.function is min or self.function is max):
            return self.function(left, right, key=moment)
        return self.function(left, right)


@dataclass
class Several(Aggregator):
    """Named aggregations side by side; a value is a tuple with one element for each, the result a dict.

    ``values`` are the selectors (``ValueSelector``) of those elements.
    """

    parts: dict[str, Aggregator]
    values: Sequence[Any] = ()
    name: str = "aggregate"
    _list: list[Aggregator] = field(init=False, repr=False)
    _widths: list[int] = field(init=False, repr=False)  # how many columns the partials of each have

    def __post_init__(self) -> None:
        self._list = list(self.parts.values())
        each = [a.partials for a in self._list]
        self.partials = (
            tuple(partial for some in each for partial in some) if all(each) and not any(isinstance(a, Several) for a in self._list) else ()
        )
        self._widths = [sum(len(partial.columns) for partial in some) for some in each]
        named = [(name, a.state_columns) for name, a in self.parts.items()]
        self.state_columns = tuple(distinct_names([], [name if len(its) == 1 else f"{name}_{part}" for name, its in named for part in its]))

    def opened(self, values: list[Any]) -> list[list[Any]]:
        return [column for at, a in enumerate(self._list) for column in a.opened([value[at] for value in values])]

    def closed(self, columns: Sequence[Sequence[Any]]) -> list[Any]:
        parts, at = [], 0
        for a in self._list:
            parts.append(a.closed(columns[at : at + len(a.state_columns)]))
            at += len(a.state_columns)
        return [list(row) for row in zip(*parts, strict=True)]

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

    def accumulator(self, partials: Sequence[Any]) -> Any:
        return [a.accumulator(part) for a, part in zip(self._list, self._cut(partials), strict=True)]

    def opened_partials(self, partials: Sequence[pa.Array]) -> list[pa.Array] | None:
        opened = [a.opened_partials(part) for a, part in zip(self._list, self._cut(partials), strict=True)]
        return None if None in opened else [column for some in opened for column in some or ()]

    def has_type_of_values(self, kinds: Sequence[pa.DataType]) -> bool:
        return any(a.has_type_of_values(its) for a, its in zip(self._list, self._cut(kinds), strict=True))

    def results(self, names: Sequence[str], totals: Sequence[Any]) -> list[tuple[str, pa.Array]]:
        return [(name, a.finish(arrays)) for (name, a), arrays in zip(self.parts.items(), self._cut(totals), strict=True)]

    def _cut(self, flat: Sequence[Any]) -> list[Sequence[Any]]:
        out, at = [], 0
        for width in self._widths:
            out.append(flat[at : at + width])
            at += width
        return out
