"""What columns keep of the values of a key, and how two of it become one: partial aggregates.

An aggregate names the partials that it is computed from, and finishes their totals (``aggregators.Aggregator``). All that lies between,
combining before the exchange, running totals, panes and sessions, asks the partials and knows none of them: a new one is a subclass of
:class:`Partial`, and nothing else changes. Source: partial aggregates of Gray et al., Data Cube, 1997 ("distributive" and "algebraic").
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from rayad.dataflow.operators.aggregates.held import as_column, held, held_dtype
from rayad.dataflow.operators.aggregates.lists import Lists, lengths_of
from rayad.dataflow.operators.aggregates.sums import added
from rayad.dataflow.operators.keys import group_functions as functions
from rayad.dataflow.operators.keys.group_functions import GroupFunction
from rayad.dataflow.operators.keys.keyed import group, may_overflow
from rayad.dataflow.operators.keys.packing import packed_group
from rayad.dataflow.records.batches import one_array
from rayad.progress import DataflowError, show

Array = npt.NDArray[Any]
_MICROSECONDS = {"s": 1_000_000, "ms": 1_000}
_NOT_A_TIME = np.iinfo(np.int64).min
Values: TypeAlias = "pa.Array | pa.ChunkedArray"


class Partial(ABC):
    """One column, or several that merge together. :meth:`merged` is associative and commutative, for floats up to rounding, and
    :meth:`neutral` changes nothing."""

    columns: ClassVar[tuple[str, ...]]
    """What its columns are called."""
    of_rows: ClassVar[tuple[GroupFunction, ...]]
    """What a group-by makes of the values of each group, one for each of ``columns``; :meth:`made` may make more of it."""
    of_columns: ClassVar[tuple[GroupFunction, ...] | None] = None
    """The functions of a group-by that merge its columns, one for each; None: rows of a group are put together by :meth:`merged`."""

    goes_on: ClassVar[bool] = False
    """Whether :meth:`made` does something."""

    field: str | None = None
    """Of which field of what its aggregation makes of the values it is; None: of the whole."""

    gathers: ClassVar[bool] = False
    """Whether it looks at all values of a group together: ``of_rows`` is ``POSITIONS`` alone, and :meth:`gathered` makes its one column of
    lists, of values and of such lists."""

    # -- of values ------------------------------------------------------------------
    def needs_rows(self, values: Values) -> bool:
        """Whether columns would give another result than rows for these values, because they leave 64 bits or are rounded."""
        return False

    def made(self, columns: Sequence[pa.Array]) -> Sequence[pa.Array]:
        """Its columns, from what the functions ``of_rows`` gave."""
        return columns

    def gathered(self, items: Values, positions: Array, lengths: Array) -> pa.ListArray:
        """Its column, a list for each group.

        Args:
            positions: of the items of each group, one group behind the other.
            lengths: how many items each group has, shape (groups,).
        """
        raise NotImplementedError

    @abstractmethod
    def of_each(self, values: Values | None, rows: int, kinds: Sequence[pa.DataType]) -> list[pa.Array] | None:
        """Its columns, of these types, for each row alone, without a group-by; None where that cannot be. ``values`` is None where it
        takes none."""

    # -- of each other --------------------------------------------------------------
    @abstractmethod
    def neutral(self, at: int, dtype: np.dtype[Any]) -> Any:
        """What stands in its column ``at`` where there was no value."""

    @abstractmethod
    def merged(self, left: Sequence[Array], right: Sequence[Array]) -> list[Array]:
        """Its columns, merged element by element: new arrays."""

    def overflows(self, left: Sequence[Array], right: Sequence[Array]) -> bool:
        """Whether :meth:`merged` could leave the type of a column for some element: rows, whose integers have no bound, go on then."""
        return False

    def may_overflow(self, columns: Sequence[Values]) -> bool:
        """Whether merging any of the rows of its columns could leave their type."""
        return False


class Total(Partial):
    """The sum of the values that are not null: of integers and durations exact, as far as 64 bits go, of decimals as far as 38 digits."""

    columns = ("sum",)
    of_rows = of_columns = (functions.SUM,)

    def needs_rows(self, values: Values) -> bool:
        return may_overflow(values)

    def of_each(self, values: Values | None, rows: int, kinds: Sequence[pa.DataType]) -> list[pa.Array] | None:
        return _cast(values, kinds[0])

    def neutral(self, at: int, dtype: np.dtype[Any]) -> Any:
        return self.of_rows[0].neutral(dtype)

    def merged(self, left: Sequence[Array], right: Sequence[Array]) -> list[Array]:
        if left[0].dtype.kind == "O":
            return [each_of(added, left[0], right[0])]
        return [left[0] + right[0]]

    def overflows(self, left: Sequence[Array], right: Sequence[Array]) -> bool:
        """Decided by the extremes alone, of decimals by the digits of each sum."""
        if left[0].dtype.kind == "f" or not len(left[0]):
            return False
        if left[0].dtype.kind == "O":
            return any(len(total.as_tuple().digits) > functions.DECIMAL_DIGITS for total in self.merged(left, right)[0])
        if left[0].dtype.kind == "m":
            left, right = [left[0].view(np.int64)], [right[0].view(np.int64)]
            return int(abs(left[0]).max()) + int(abs(right[0]).max()) >= 1 << 63
        info = np.iinfo(left[0].dtype)
        highest = int(left[0].max()) + int(right[0].max())
        return bool(highest > info.max or int(left[0].min()) + int(right[0].min()) < info.min)

    def may_overflow(self, columns: Sequence[Values]) -> bool:
        return may_overflow(columns[0])


class Meant(Total):
    """The sum that a mean is made of. A mean of durations is in microseconds: rows handle values that 64 bits do not hold as such."""

    def needs_rows(self, values: Values) -> bool:
        return super().needs_rows(values) or _beyond_microseconds(values)

    def of_each(self, values: Values | None, rows: int, kinds: Sequence[pa.DataType]) -> list[pa.Array] | None:
        assert values is not None
        return None if _beyond_microseconds(values) else super().of_each(values, rows, kinds)


def _beyond_microseconds(values: Values) -> bool:
    if not pa.types.is_duration(values.type) or values.type.unit not in _MICROSECONDS or len(values) == values.null_count:
        return False
    bounds = pc.min_max(values.cast(pa.int64())).as_py()
    return bool(max(abs(bounds["min"]), abs(bounds["max"])) * _MICROSECONDS[values.type.unit] >= 1 << 63)


class _OneExtreme(Partial):
    def of_each(self, values: Values | None, rows: int, kinds: Sequence[pa.DataType]) -> list[pa.Array] | None:
        return _cast(values, kinds[0])

    def needs_rows(self, values: Values) -> bool:
        """Whether one is the moment that numpy takes for none: no Python moment either, so rows refuse it."""
        if not pa.types.is_timestamp(values.type) and not pa.types.is_duration(values.type):
            return False
        return bool(pc.min(values.cast(pa.int64())).as_py() == _NOT_A_TIME)

    def neutral(self, at: int, dtype: np.dtype[Any]) -> Any:
        return self.of_rows[0].neutral(dtype)


class Smallest(_OneExtreme):
    """The smallest value; null and NaN are passed over."""

    columns = ("min",)
    of_rows = of_columns = (functions.MIN,)

    def merged(self, left: Sequence[Array], right: Sequence[Array]) -> list[Array]:
        return [each_of(_least, left[0], right[0]) if left[0].dtype.kind == "O" else np.fmin(left[0], right[0])]


class Largest(_OneExtreme):
    """The largest value; null and NaN are passed over."""

    columns = ("max",)
    of_rows = of_columns = (functions.MAX,)

    def merged(self, left: Sequence[Array], right: Sequence[Array]) -> list[Array]:
        return [each_of(_greatest, left[0], right[0]) if left[0].dtype.kind == "O" else np.fmax(left[0], right[0])]


class _OneCount(Partial):
    columns = ("count",)
    of_columns = (functions.SUM,)

    def neutral(self, at: int, dtype: np.dtype[Any]) -> Any:
        return 0

    def merged(self, left: Sequence[Array], right: Sequence[Array]) -> list[Array]:
        return [left[0] + right[0]]


class CountAll(_OneCount):
    """How many records there were."""

    of_rows = (functions.COUNT_ROWS,)

    def of_each(self, values: Values | None, rows: int, kinds: Sequence[pa.DataType]) -> list[pa.Array] | None:
        return [pa.array(np.ones(rows, dtype=np.int64))]


class CountValid(_OneCount):
    """How many values were not null."""

    of_rows = (functions.COUNT_VALUES,)

    def of_each(self, values: Values | None, rows: int, kinds: Sequence[pa.DataType]) -> list[pa.Array] | None:
        assert values is not None
        return [pc.is_valid(values).cast(kinds[0]) if values.null_count else pa.array(np.ones(rows, dtype=np.int64))]


TOTAL, MEANT, SMALLEST, LARGEST, COUNT_ALL, COUNT_VALID = Total(), Meant(), Smallest(), Largest(), CountAll(), CountValid()


_BY_NAME: dict[str, Partial] = {"sum": TOTAL, "min": SMALLEST, "max": LARGEST}


def of_names(columns: Mapping[str, str], what: str) -> tuple[Partial, ...]:
    """For each name, with ``"sum"``, ``"min"`` or ``"max"``, that partial and a count, of the field of that name.

    >>> [(partial.field, *partial.columns) for partial in of_names({"low": "min"}, "columns")]
    [('low', 'min'), ('low', 'count')]
    """
    out: list[Partial] = []
    for name, how in columns.items():
        if how not in _BY_NAME:
            raise DataflowError(f"{what} has {show(how, 40)} for {show(name, 40)}: two of a column become one by {sorted(_BY_NAME)}")
        for partial in (_BY_NAME[how], COUNT_VALID):
            out.append(copy.copy(partial))
            out[-1].field = name
    return tuple(out)


def each_of(function: Callable[[Any, Any], Any], left: Array, right: Array) -> Array:
    """``function`` of each pair of objects."""
    out = np.empty(len(left), object)
    for at, (a, b) in enumerate(zip(left.tolist(), right.tolist(), strict=True)):
        out[at] = function(a, b)
    return out


def _least(left: Any, right: Any) -> Any:
    return right if left is None else left if right is None or left <= right else right


def _greatest(left: Any, right: Any) -> Any:
    return right if left is None else left if right is None or left >= right else right


def _cast(values: Values | None, kind: pa.DataType) -> list[pa.Array] | None:
    assert values is not None
    try:
        return [values.cast(kind)]
    except pa.ArrowInvalid:
        return None


def _sums(values: Array, lengths: Array) -> Array:
    """The sums of runs of these lengths, none of which is empty."""
    return np.add.reduceat(values, np.cumsum(lengths) - lengths) if len(lengths) else values[:0]


class Partials:
    """Several partials side by side: the columns behind the keys (and places) of a batch.

    >>> Partials([TOTAL, COUNT_VALID]).width
    2
    """

    def __init__(self, each: Sequence[Partial]) -> None:
        self._parts: list[tuple[Partial, slice]] = []
        self._fields: list[tuple[Partial, int]] = []
        for partial in each:
            self._parts.append((partial, slice(len(self._fields), len(self._fields) + len(partial.columns))))
            self._fields += [(partial, at) for at in range(len(partial.columns))]
        self.width = len(self._fields)

    def neutral(self, column: int, dtype: np.dtype[Any]) -> Any:
        """What stands in a column where there was no value."""
        partial, at = self._fields[column]
        return partial.neutral(at, dtype)

    def filled(self, columns: Sequence[pa.Array]) -> list[Array]:
        """The columns as they are held, with what is neutral in place of nulls."""
        return [self._held(i, column) for i, column in enumerate(columns)]

    def _held(self, i: int, column: pa.Array) -> Any:
        return held(column, self.neutral(i, held_dtype(column.type)) if column.null_count else None)

    # -- merged at slots -------------------------------------------------------------
    def merge_at(self, arrays: Sequence[Array], slots: Any, values: Sequence[Array]) -> list[Array]:
        """Merge ``values`` into the elements of ``arrays`` at slots that are all different; gives what stands there now.

        Raises OverflowError, before anything has changed, when an integer could leave its type.
        """
        before = [array[slots] for array in arrays]
        if any(partial.overflows(before[its], values[its]) for partial, its in self._parts):
            raise OverflowError("a partial could leave 64 bits")
        now = [array for partial, its in self._parts for array in partial.merged(before[its], values[its])]
        for array, merged in zip(arrays, now, strict=True):
            array[slots] = merged
        return now

    # -- merged by group ---------------------------------------------------------------
    def may_overflow(self, columns: Sequence[Values]) -> bool:
        """Whether merging any of these rows could leave a type."""
        return any(partial.may_overflow(columns[its]) for partial, its in self._parts)

    def group(self, table: pa.Table, leading: int, schema: pa.Schema, *, pack: bool = False) -> pa.RecordBatch | None:
        """One row for each distinct value of the ``leading`` columns, as a batch of ``schema``; None when an integer could leave its type.

        ``pack``: the leading columns may be made one number; groups come in their order then.
        """
        names = table.schema.names
        keys, values = names[:leading], names[leading:]
        if self.may_overflow(table.columns[leading:]):
            return None
        wanted = [
            (None if function is functions.POSITIONS else name, function) for name, function in zip(values, self._merging(), strict=True)
        ]
        columns = packed_group(table, keys, wanted) if pack else None
        if columns is None:
            columns = group(table, keys, wanted, values).columns
        made = zip([*columns[:leading], *self._from_groups(table.columns[leading:], columns[leading:])], schema.types, strict=True)
        return pa.RecordBatch.from_arrays([c if c.type.equals(kind) else c.cast(kind) for c, kind in made], schema=schema)

    def _merging(self) -> list[GroupFunction]:
        return [f for partial, _ in self._parts for f in partial.of_columns or [functions.POSITIONS] * len(partial.columns)]

    def _from_groups(self, values: Sequence[pa.ChunkedArray], columns: Sequence[pa.Array]) -> list[pa.Array]:
        out: list[pa.Array] = []
        for partial, its in self._parts:
            if partial.of_columns is not None:
                out += columns[its]
                continue
            rows = columns[its][0]
            positions, lengths = rows.flatten().to_numpy(), lengths_of(rows)
            if partial.gathers:
                lists = Lists.of(one_array(values[its.start]))[positions]
                out.append(partial.gathered(lists.items(), np.arange(int(lists.lengths.sum())), _sums(lists.lengths, lengths)))
                continue
            flat = [self._held(its.start + i, one_array(column.take(pa.array(positions)))) for i, column in enumerate(values[its])]
            arrays = merged_runs(partial, flat, lengths)
            out += [as_column(array, column.type) for array, column in zip(arrays, values[its], strict=True)]
        return out


def merged_runs(partial: Partial, columns: list[Array], lengths: Array) -> list[Array]:
    """Each run of rows as one row, neighbours first: as many rounds as the longest run has binary digits, of half as many rows each.

    Args:
        columns: of the partial, each of shape (rows,).
        lengths: of the runs, which lie behind each other; none is empty.

    >>> merged_runs(TOTAL, [np.array([1, 2, 3, 10, 20])], np.array([3, 2]))[0].tolist()
    [6, 30]
    """
    while len(columns[0]) > len(lengths):
        starts = np.cumsum(lengths) - lengths
        is_odd = (np.arange(len(columns[0])) - np.repeat(starts, lengths)) % 2 == 1
        stays = np.flatnonzero(~is_odd)
        right = np.flatnonzero(is_odd)  # each merges with the one before it, which is of the same run
        merged = partial.merged([c[right - 1] for c in columns], [c[right] for c in columns])
        columns = [column.copy() for column in columns]
        for column, now in zip(columns, merged, strict=True):
            column[right - 1] = now
        columns, lengths = [column[stays] for column in columns], (lengths + 1) // 2
    return columns
