"""The type variables of streams: what an editor knows of their records. They do nothing at run time.

A stream's are covariant: a stream of bools is one of ints. Each stands for Any where it is left out (PEP 696), so a bare ``Stream`` in a
signature is a stream of anything, also under ``mypy --strict``. Docs: docs/decisions/083-types-of-streams.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import datetime as dt
    from decimal import Decimal
    from fractions import Fraction

    from typing_extensions import TypeVar, TypeVarTuple, Unpack

    T = TypeVar("T", covariant=True, default=Any)
    K = TypeVar("K", covariant=True, default=Any)
    V = TypeVar("V", covariant=True, default=Any)
    L = TypeVar("L", covariant=True, default=Any)
    At = TypeVarTuple("At", default=Unpack[tuple[Any, ...]])
else:
    from typing import TypeVar, TypeVarTuple

    T = TypeVar("T", covariant=True)
    K = TypeVar("K", covariant=True)
    V = TypeVar("V", covariant=True)
    L = TypeVar("L", covariant=True)
    At = TypeVarTuple("At")

U = TypeVar("U")
"""What a function of the user's gives."""
W = TypeVar("W")
"""The records of another stream, or the value of a pair."""
X = TypeVar("X")
"""The key of a pair."""
Plain = TypeVar("Plain", bound="int | float | str | bytes | Decimal | Fraction | dt.date | dt.timedelta")
"""A record that is a value itself: aggregations that are told no value take it."""

__all__ = ["At", "K", "L", "Plain", "T", "U", "V", "W", "X"]
