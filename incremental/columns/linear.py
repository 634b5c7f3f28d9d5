"""What is computed of the records of a key where it follows from sums of their weights: counts, sums, means, presence."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rayad.incremental.columns.float_sums import (
    LIMBS_MAX,
    WEIGHT_MAX,
    exactly,
    limbs_of,
    name_of,
    places_in,
    rounded,
    with_integers,
)
from rayad.incremental.columns.form import DIFF, RECORD, NotColumns, field_of, is_integer_key
from rayad.incremental.columns.kept import COUNT
from rayad.incremental.columns.weighted_runs import ABOUT

_SUM_MAX = 2.0**62
_EXACT_FLOAT_MAX = 2.0**53
_WORD = 1 << 64
FLOATS = "floats"
"""The number of values that are floats."""
Numbers = dict[str, Any]
"""By name, one for each key."""


class Linear(ABC):
    """One kind of result."""

    numbers: tuple[str, ...] = (COUNT,)
    vector: Callable[..., Any] | None = None
    """Of the numbers of a key, the vector that the row form keeps; None: it keeps weights by value."""
    takes_negative: ClassVar[bool] = False
    """Whether there may be less than nothing of a key."""

    def numbers_of(self, batch: pa.RecordBatch) -> Numbers:
        """What is added of each change. Raises NotColumns."""
        return {COUNT: batch.column(DIFF).to_numpy()}

    def present(self, numbers: Numbers) -> Any:
        """Which keys have a result, as a mask."""
        return numbers[COUNT] != 0

    def often(self, keys: pa.Array, numbers: Numbers) -> Any:
        """How often each key has its result, shape (keys,), int64."""
        return self.present(numbers).astype(np.int64)

    def of_key(self, key: str) -> str:
        """What is counted, for errors."""
        return f"what has the key {key}"

    @abstractmethod
    def results(self, numbers: Numbers) -> pa.Array:
        """The result of each key; of one that has none anything. Raises NotColumns where a column does not hold it."""


class Counted(Linear):
    """How many records."""

    vector = staticmethod(lambda numbers: (numbers[COUNT],))

    def results(self, numbers: Numbers) -> pa.Array:
        return pa.array(numbers[COUNT])


class AnyOfKey(Linear):
    """None for each key that has any."""

    vector = staticmethod(lambda numbers: (numbers[COUNT],))

    def results(self, numbers: Numbers) -> pa.Array:
        return pa.nulls(len(numbers[COUNT]))


class Present(Linear):
    """Whether there is any. Records are keys."""

    def of_key(self, key: str) -> str:
        return key

    def present(self, numbers: Numbers) -> Any:
        return numbers[COUNT] > 0

    def results(self, numbers: Numbers) -> pa.Array:
        return pa.nulls(len(numbers[COUNT]))


@dataclass(frozen=True)
class Summed(Linear):
    """The sum of a field of integers or floats, null where no record has a value.

    Integers in 64 bits: sums wrap around, and a float beside each tells. Floats exactly (``float_sums.py``): besides how many there are,
    each limb that has had bits is a number of its own.

    Args:
        field: of the record.
        mean: whether the sum is divided by how many have a value.
    """

    field: str
    mean: bool = False
    numbers = (COUNT, "valid", "sum", ABOUT)

    @staticmethod
    def vector(numbers: Mapping[str, Any]) -> tuple[int, int, int | Fraction, int]:
        """See there."""
        total: int | Fraction = _unwrapped(numbers["sum"], numbers[ABOUT])
        of_floats = exactly({place: numbers[name] for place, name in places_in(numbers).items()})
        return numbers[COUNT], numbers["valid"], total + of_floats if of_floats else total, numbers.get(FLOATS, 0)

    def numbers_of(self, batch: pa.RecordBatch) -> Numbers:
        record, weights = batch.column(RECORD), batch.column(DIFF).to_numpy()
        values = field_of(record, self.field)
        is_float = pa.types.is_floating(values.type)
        if not is_float and (pa.types.is_struct(values.type) or not is_integer_key(values.type)):
            raise NotColumns
        valid = weights if not values.null_count else np.where(values.is_valid().to_numpy(zero_copy_only=False), weights, 0)
        numbers = pc.fill_null(values, 0).to_numpy(zero_copy_only=False)
        if is_float:
            nothing = np.zeros(len(weights), np.int64)
            return {COUNT: weights, "valid": valid, "sum": nothing, ABOUT: nothing, **_floats(numbers.astype(np.float64), valid)}
        numbers = numbers.astype(np.int64, copy=False)
        about = weights.astype(np.float64) * numbers.astype(np.float64)
        with np.errstate(over="ignore"):
            return {COUNT: weights, "valid": valid, "sum": weights * numbers, ABOUT: about}

    def present(self, numbers: Numbers) -> Any:
        there = (numbers[COUNT] != 0) | (numbers["valid"] != 0) | (numbers["sum"] != 0)
        if FLOATS in numbers and not there.all():
            there |= self._of_floats(numbers, None) != 0
        return there

    def results(self, numbers: Numbers) -> pa.Array:
        valid, total, about = numbers["valid"], numbers["sum"], np.abs(numbers[ABOUT])
        if (about >= _SUM_MAX).any():
            raise NotColumns
        nothing = valid == 0
        if FLOATS in numbers:
            if ((numbers[FLOATS] == 0) & ~nothing).any():
                raise NotColumns  # integers alone, beside floats of other keys
            return pa.array(self._of_floats(numbers, np.where(valid > 0, valid, 1) if self.mean else None), mask=nothing)
        if not self.mean:
            return pa.array(total, mask=nothing)
        with np.errstate(divide="ignore", invalid="ignore"):
            means = total / valid
        for i in np.flatnonzero((about >= _EXACT_FLOAT_MAX) & ~nothing).tolist():  # where numpy would round twice
            means[i] = float(Fraction(int(total[i]), int(valid[i])))
        return pa.array(means, mask=nothing)

    def _of_floats(self, numbers: Numbers, divisor: Any) -> Any:
        """Sums or means where floats are among them, shape (keys,). Raises NotColumns where rows must find or refuse them."""
        limbs = {place: numbers[name] for place, name in places_in(numbers).items()}
        if len(limbs) > LIMBS_MAX or (np.abs(numbers["valid"]) > WEIGHT_MAX).any() or (self.mean and (numbers["valid"] < 0).any()):
            raise NotColumns
        if numbers["sum"].any():
            limbs = with_integers(limbs, numbers["sum"])
        found, fine = rounded(limbs, len(numbers[COUNT]), divisor)
        if not fine.all():
            raise NotColumns
        return found


def _floats(values: Any, weights: Any) -> Numbers:
    """How many floats there are, and their limbs. Raises NotColumns for infinities, which rows refuse."""
    if not np.isfinite(values).all() or (np.abs(weights) > WEIGHT_MAX).any():
        raise NotColumns
    return {FLOATS: weights, **{name_of(place): limb for place, limb in limbs_of(values, weights).items()}}


def _unwrapped(total: int, about: float) -> int:
    """The sum that wraps around to ``total`` and is near ``about``.

    >>> _unwrapped(-(1 << 63), 2.0**63) == 1 << 63
    True
    """
    return total + _WORD * round((Fraction(about) - total) / _WORD)


__all__ = ["AnyOfKey", "Counted", "Linear", "Present", "Summed"]
