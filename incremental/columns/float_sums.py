"""Sums of floating-point numbers in columns that are exact, so that a removal takes away what the insertion has added, bit by bit.

A float is a whole number times a power of two: 53 bits that begin somewhere between bit -1074 and bit 1023. Those bits are cut into
*limbs* of 32 at places that are the same for all floats; a float has bits in at most three of them. Each limb is added by itself, in
64 bits, and carries nothing to the next one. So sums are sums of integers, do not depend on the order, and are zero again when all is
taken away; carries, and the one rounding, are done where a result is read. A column is kept for each limb that has had bits: prices have
three or four.

Source: Kulisch, *Computer Arithmetic and Validity* (2008), the long accumulator; Neal, *Fast exact summation using small and large
superaccumulators* (2015), limbs with room for carries.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import Any

import numpy as np

LIMB_BITS = 32
WEIGHT_MAX = 1 << 30
"""So many numbers a sum may have: limbs, each below 2 ** 32, then stay below 2 ** 62."""
LIMBS_MAX = 16
"""For numbers that are further apart, rows are smaller."""
_MASK = np.int64((1 << LIMB_BITS) - 1)
_FRACTION_BITS = 53
_PAD = 3
"""Limbs below the lowest: what is divided has 64 bits of a quotient in any case."""
_LEAST_NORMAL = float(np.finfo(np.float64).smallest_normal)
_NAME = "float limb "

Limbs = Mapping[int, Any]
"""By place, limb ``i`` counts units of ``2 ** (32 * i)``: shape (rows,), int64."""


def name_of(place: int) -> str:
    """What a limb is called among numbers.

    >>> name_of(-2), places_in([name_of(-2), "n"])
    ('float limb -2', {-2: 'float limb -2'})
    """
    return f"{_NAME}{place}"


def places_in(names: Iterable[str]) -> dict[int, str]:
    """The limbs among numbers."""
    return {int(name.removeprefix(_NAME)): name for name in names if name.startswith(_NAME)}


def limbs_of(values: Any, weights: Any) -> dict[int, Any]:
    """The limbs of finite floats, each so often, of which any has bits.

    Args:
        values: shape (rows,), float64.
        weights: shape (rows,), int64, of at most :data:`WEIGHT_MAX`.

    >>> limbs = limbs_of(np.array([0.1, 3.0]), np.array([1, -2]))
    >>> sorted(limbs), exact(limbs, 0) == Fraction(0.1), exact(limbs, 1)
    ([-2, -1, 0], True, Fraction(-6, 1))
    """
    fractions, exponents = np.frexp(values)
    whole = np.ldexp(np.abs(fractions), _FRACTION_BITS).astype(np.int64)
    place, shift = np.divmod(exponents.astype(np.int64) - _FRACTION_BITS, LIMB_BITS)
    lower, upper = (whole & _MASK) << shift, (whole >> LIMB_BITS) << shift
    upper += lower >> LIMB_BITS
    signed = np.where(fractions < 0, -weights, weights)
    out: dict[int, Any] = {}
    for above, part in enumerate((lower & _MASK, upper & _MASK, upper >> LIMB_BITS)):
        some = np.flatnonzero(part)
        if not len(some):
            continue
        at, counted = place[some] + above, part[some] * signed[some]
        for one in np.unique(at).tolist():
            if one not in out:
                out[one] = np.zeros(len(whole), np.int64)
            here = at == one
            out[one][some[here]] += counted[here]
    return out


def exact(limbs: Limbs, row: int) -> Fraction:
    """The sum of a row."""
    return exactly({place: int(values[row]) for place, values in limbs.items()})


def exactly(limbs: Mapping[int, int]) -> Fraction:
    """A sum whose limbs are numbers of Python."""
    return sum((Fraction(limb) * Fraction(2) ** (LIMB_BITS * place) for place, limb in limbs.items()), Fraction(0))


def with_integers(limbs: Limbs, integers: Any) -> dict[int, Any]:
    """The limbs with these integers added, shape (rows,), int64."""
    nothing = np.zeros(len(integers), np.int64)
    more = {0: integers & _MASK, 1: integers >> LIMB_BITS}
    return {**limbs, **{place: limbs.get(place, nothing) + limb for place, limb in more.items()}}


def rounded(limbs: Limbs, rows: int, divisor: Any = None) -> tuple[Any, Any]:
    """The floats that are nearest to the sums, ties to even, and whether each is that: it may be beyond all floats, or be a quotient
    that is smaller than normal ones.

    Args:
        limbs: with an absolute value of at most ``2 ** 62``.
        rows: how many there are.
        divisor: from 1 to :data:`WEIGHT_MAX`, shape (rows,); None: 1.

    >>> tenths = limbs_of(np.array([0.1]), np.array([3]))
    >>> rounded(tenths, 1)[0].tolist(), rounded(tenths, 1, np.array([3]))[0].tolist()
    ([0.30000000000000004], [0.1])
    """
    if not limbs:
        return np.zeros(rows), np.ones(rows, np.bool_)
    base = min(limbs) - _PAD
    nothing = np.zeros(rows, np.int64)
    parts = [limbs.get(place, nothing) for place in range(base, max(limbs) + 1)]
    negative = _carried(parts)[-1] < 0
    sign = np.where(negative, -1, 1)
    digits = _carried([part * sign for part in parts])
    rest: Any = False
    if divisor is not None:
        left = nothing
        for at in reversed(range(len(digits))):
            whole = (left << LIMB_BITS) | digits[at]
            digits[at], left = np.divmod(whole, divisor)
        rest = left != 0
    found, is_zero = _nearest(np.stack(digits), base, rest)
    fine = np.isfinite(found)
    if divisor is not None:
        fine &= is_zero | (found >= _LEAST_NORMAL)
    return np.where(is_zero, 0.0, found * sign), fine


def _carried(parts: list[Any]) -> list[Any]:
    """Digits from 0 to 2 ** 32 - 1, the lowest first, and then what is carried out of them, which has the sign."""
    out, carry = [], np.zeros_like(parts[0])
    for part in parts:
        total = part + carry
        out.append(total & _MASK)
        carry = total >> LIMB_BITS
    return [*out, carry]


def _nearest(digits: Any, base: int, rest: Any) -> tuple[Any, Any]:
    """The nearest floats of positive numbers, and which of these are zero. ``rest``: whether there is more below the lowest digit."""
    there = digits != 0
    rows = np.arange(digits.shape[1])
    is_zero = ~there.any(axis=0)
    top = np.where(is_zero, 2, len(digits) - 1 - np.argmax(there[::-1], axis=0))
    high, middle, low = (digits[top - below, rows].astype(np.uint64) for below in range(3))
    high[is_zero] = 1
    bits = np.frexp(high.astype(np.float64))[1].astype(np.uint64)
    word = (high << (np.uint64(64) - bits)) | (middle << (np.uint64(LIMB_BITS) - bits)) | (low >> bits)
    inexact = (np.argmax(there, axis=0) < top - 2) | ((low & ((np.uint64(1) << bits) - np.uint64(1))) != 0) | rest
    word |= inexact.astype(np.uint64)  # far below the 53 bits: it breaks ties as what was cut off would
    with np.errstate(over="ignore", under="ignore"):
        return np.ldexp(word.astype(np.float64), (bits.astype(np.int64) + LIMB_BITS * (top - 2 + base)).astype(np.int32)), is_zero


__all__ = [
    "LIMBS_MAX", "WEIGHT_MAX", "Limbs", "exact", "exactly", "limbs_of", "name_of", "places_in", "rounded", "with_integers",
]  # fmt: skip
