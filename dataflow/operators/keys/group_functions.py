"""The functions of a group-by: what Arrow calls each, and how it is computed where a group is a place in an array (``dense_groups``).

A function is an object, so a new one needs no edit where groups are made.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Array = npt.NDArray[Any]
DECIMAL_DIGITS = 38
"""What a decimal128 holds; sums of decimals have so many."""


class GroupFunction:
    """One of Arrow's functions of the values of a group. This class computes it by Arrow alone.

    Args:
        arrow: what Arrow's ``hash_`` functions call it.
    """

    fold: Any = None
    """The ufunc that takes one value more into a place; None for functions that need no array of their own."""

    def __init__(self, arrow: str) -> None:
        self.arrow = arrow

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.arrow!r})"

    def taken_as(self, kind: pa.DataType) -> pa.DataType | None:
        """The type that Arrow's function gets values of this type in, where it has none for the type itself; None: as they are."""
        return None

    def given_as(self, kind: pa.DataType) -> pa.DataType | None:
        """The type of its results of values that were :meth:`taken_as` another; None: as they are."""
        return None

    def is_dense(self, kind: pa.DataType | None) -> bool:
        """Whether it can be computed in places of an array, for values of this type (None: it takes no values)."""
        return False

    def dense_dtype(self, kind: pa.DataType) -> np.dtype[Any]:
        """The type of its array: the one that Arrow gives."""
        out: np.dtype[Any] = np.dtype(kind.to_pandas_dtype())
        return out

    def neutral(self, dtype: np.dtype[Any]) -> Any:
        """What changes nothing, where there is no value."""
        raise NotImplementedError

    def dense(self, rows: Array, valid: Array | None, folded: Array | None) -> pa.Array:
        """Its column, from what the groups have: the number of rows, of values that are not null (None: all are), and the folded
        array. Each of shape (groups,)."""
        raise NotImplementedError


class Counted(GroupFunction):
    """How many rows, or values that are not null, a group has.

    Args:
        of_rows: count rows; it takes no column.
    """

    def __init__(self, arrow: str, *, of_rows: bool) -> None:
        super().__init__(arrow)
        self.of_rows = of_rows

    def is_dense(self, kind: pa.DataType | None) -> bool:
        return True

    def dense(self, rows: Array, valid: Array | None, folded: Array | None) -> pa.Array:
        return pa.array(rows if self.of_rows or valid is None else valid)


class Folded(GroupFunction):
    """Values that are not null put together by a ufunc; null where there is none."""

    def __init__(self, arrow: str, fold: Any) -> None:
        super().__init__(arrow)
        self.fold = fold

    def dense(self, rows: Array, valid: Array | None, folded: Array | None) -> pa.Array:
        return pa.array(folded, mask=None if valid is None else valid == 0)


class Added(Folded):
    """The sum, of integers and durations in 64 bits, of decimals in as many digits as decimal128 has: who asks for it has looked whether
    that is wide enough."""

    def taken_as(self, kind: pa.DataType) -> pa.DataType | None:
        if pa.types.is_duration(kind):
            return pa.int64()
        return pa.decimal128(DECIMAL_DIGITS, kind.scale) if pa.types.is_decimal(kind) else None

    def given_as(self, kind: pa.DataType) -> pa.DataType | None:
        return kind if pa.types.is_duration(kind) else self.taken_as(kind)

    def is_dense(self, kind: pa.DataType | None) -> bool:
        return bool(pa.types.is_integer(kind) or pa.types.is_float32(kind) or pa.types.is_float64(kind))

    def dense_dtype(self, kind: pa.DataType) -> np.dtype[Any]:
        return np.dtype(np.float64 if pa.types.is_floating(kind) else np.uint64 if pa.types.is_unsigned_integer(kind) else np.int64)

    def neutral(self, dtype: np.dtype[Any]) -> Any:
        if dtype.kind == "O":
            return Decimal(0)
        return np.zeros(1, dtype)[0] if dtype.kind == "m" else dtype.type(0).item()


class Extreme(Folded):
    """The least or the largest value; in places of integers alone: with floats NaN has rules of its own.

    Args:
        limit: the end of an integer type that changes nothing.
    """

    def __init__(self, arrow: str, fold: Any, limit: Callable[[np.iinfo[Any]], int]) -> None:
        super().__init__(arrow, fold)
        self._limit = limit

    def taken_as(self, kind: pa.DataType) -> pa.DataType | None:
        if pa.types.is_duration(kind):
            return pa.int64()
        return pa.decimal128(kind.precision, kind.scale) if pa.types.is_decimal(kind) and kind.bit_width < 128 else None

    def given_as(self, kind: pa.DataType) -> pa.DataType | None:
        return kind if self.taken_as(kind) is not None else None

    def is_dense(self, kind: pa.DataType | None) -> bool:
        return bool(pa.types.is_integer(kind))

    def neutral(self, dtype: np.dtype[Any]) -> Any:
        """NaN for floats, and NaT for moments and durations, which ``fmin`` and ``fmax`` pass over; None for objects."""
        if dtype.kind == "O":
            return None
        if dtype.kind in "mM":
            return dtype.type("NaT")
        if dtype.kind == "b":
            return bool(self._limit(np.iinfo(np.int8)) > 0)
        return float("nan") if dtype.kind == "f" else int(self._limit(np.iinfo(dtype)))


def _largest(info: np.iinfo[Any]) -> int:
    return int(info.max)


def _least(info: np.iinfo[Any]) -> int:
    return int(info.min)


COUNT_ROWS = Counted("count_all", of_rows=True)
COUNT_VALUES = Counted("count", of_rows=False)
SUM = Added("sum", np.add)
MIN = Extreme("min", np.minimum, _largest)
MAX = Extreme("max", np.maximum, _least)
MEAN = GroupFunction("mean")
VARIANCE = GroupFunction("variance")
"""Of the whole group: the squares of the distances from the mean, divided by how many there are."""
POSITIONS = GroupFunction("list")
"""The rows of the group, ascending, as a list of numbers; it takes no column."""
