"""Functions of two values that ``reduce`` knows, so that it can stay in columns: ``min``, ``max``, ``operator.add``, ``and_`` and ``or_``.

A kernel stands for a function where nobody can tell them apart: the types are those for which both compute the same, and values that the
function would see otherwise (null, NaN, the sign of zero) go through rows. So no sum of floats, whose last digits depend on the order, of
decimals, which ``+`` rounds as the thread's context says, or of bools, of which one alone stays a bool.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from rayad.dataflow.operators.aggregates.held import is_ordered
from rayad.dataflow.operators.aggregates.partial import COUNT_VALID, Largest, Partial, Smallest, Total, Values


class _OfPairs(Partial):
    """For a function that gets whatever is there: null and NaN are not passed over."""

    def needs_rows(self, values: Values) -> bool:
        return bool(values.null_count) or _is_told_apart(values) or super().needs_rows(values)

    def of_each(self, values: Values | None, rows: int, kinds: Sequence[pa.DataType]) -> list[pa.Array] | None:
        assert values is not None
        return None if self.needs_rows(values) else super().of_each(values, rows, kinds)  # type: ignore[safe-super]


class SmallestOfPairs(_OfPairs, Smallest):
    """What ``min`` of two makes of many."""


class LargestOfPairs(_OfPairs, Largest):
    """What ``max`` of two makes of many."""


class TotalOfPairs(_OfPairs, Total):
    """What ``operator.add`` makes of many."""


def _is_told_apart(values: Values) -> bool:
    """Whether there are floats that have no order, or are equal and not the same."""
    if not pa.types.is_floating(values.type):
        return False
    numbers = values.to_numpy() if isinstance(values, pa.ChunkedArray) else values.to_numpy(zero_copy_only=False)
    return bool(np.isnan(numbers).any() or (np.signbit(numbers) & (numbers == 0)).any())


@dataclass(frozen=True, slots=True)
class Known:
    """What columns keep for a function, and the types of which they give the same."""

    partials: tuple[Partial, ...]
    takes_type: Callable[[pa.DataType], bool]


def _compared(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_float32(kind) or pa.types.is_float64(kind)) or is_ordered(kind)


def _added(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind)) or kind == pa.duration("us")


_LEAST, _MOST = Known((SmallestOfPairs(), COUNT_VALID), _compared), Known((LargestOfPairs(), COUNT_VALID), _compared)
_KNOWN: tuple[tuple[Any, Known], ...] = (
    (min, _LEAST),
    (max, _MOST),
    (operator.add, Known((TotalOfPairs(), COUNT_VALID), _added)),
    (operator.and_, Known(_LEAST.partials, pa.types.is_boolean)),
    (operator.or_, Known(_MOST.partials, pa.types.is_boolean)),
)


def known(function: Any) -> Known | None:
    """What stands for a function in columns; None for others.

    >>> known(max) is not None, known(lambda a, b: max(a, b))
    (True, None)
    """
    return next((kept for one, kept in _KNOWN if one is function), None)


__all__ = ["Known", "known"]
