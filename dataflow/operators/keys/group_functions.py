"""The functions of a group-by: what Arrow calls each, and how it is computed where a group is a place in an array (``dense_groups``).

A function is an object, so a new one needs no edit where groups are made.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Array = npt.NDArray[Any]


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
    """The sum, of integers in 64 bits: who asks for it has looked whether that is wide enough."""

    def is_dense(self, kind: pa.DataType | None) -> bool:
        return bool(pa.types.is_integer(kind) or pa.types.is_float32(kind) or pa.types.is_float64(kind))

    def dense_dtype(self, kind: pa.DataType) -> np.dtype[Any]:
        return np.dtype(np.float64 if pa.types.is_floating(kind) else np.uint64 if pa.types.is_unsigned_integer(kind) else np.int64)

    def neutral(self, dtype: np.dtype[Any]) -> Any:
        return dtype.type(0).item()


class Extreme(Folded):
    """The least or the largest value; in places of integers alone: with floats NaN has rules of its own.

    Args:
        limit: the end of an integer type that changes nothing.
    """

    def __init__(self, arrow: str, fold: Any, limit: Callable[[np.iinfo[Any]], int]) -> None:
        super().__init__(arrow, fold)
        self._limit = limit

    def is_dense(self, kind: pa.DataType | None) -> bool:
        return bool(pa.types.is_integer(kind))

    def neutral(self, dtype: np.dtype[Any]) -> Any:
        """NaN for floats, which ``fmin`` and ``fmax`` pass over."""
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
LIST = GroupFunction("list")
