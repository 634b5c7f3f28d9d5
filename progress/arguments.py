"""Arguments of users as plain values of Python: one copy of each rule, for every public name.

Each function takes the value and what it is called (``"top_k (k)"``, ``"RunConfig.key_groups"``), and gives the value as Python's own
type: numpy's integers and floats are numbers like others, a ``pathlib.Path`` is a path. Anything else is refused with the same words
everywhere: what was given, the rule, and what to do. A bool is no number: ``parallelism=True`` is a slip.
"""

from __future__ import annotations

import math
import os
from datetime import timedelta
from numbers import Integral, Real
from typing import Any, TypeVar

from rayad.progress.errors import DataflowError, RayadError, show

T = TypeVar("T")
SECRET_BYTES_MIN = 16
EPOCH_MAX = 2**63 - 1
"""The largest epoch, and the largest loop counter: each has 8 bytes in frames and in columns, one bit of them for the sign."""


def whole(
    value: Any, what: str, *, least: int | None = None, most: int | None = None, error: type[RayadError] = DataflowError, more: str = ""
) -> int:
    """An int; ``more`` is added to the rule (", or None ...").

    >>> import numpy as np
    >>> whole(np.int64(3), "k", least=1)
    3
    """
    if isinstance(value, Integral) and not isinstance(value, bool):
        number = int(value)
        if (least is None or number >= least) and (most is None or number <= most):
            return number
    bounds = "" if least is None else f" of at least {least}" if most is None else f" from {least} to {most}"
    raise error(f"{what} is {show(value)}: it must be an int{bounds}{more}")


def epoch(value: Any, what: str) -> int:
    """An epoch, or a loop counter.

    >>> epoch(-1, "advance_to(epoch)")
    Traceback (most recent call last):
    ...
    rayad.progress.errors.DataflowError: advance_to(epoch) is -1: it must be an int from 0 to 9223372036854775807
    """
    return whole(value, what, least=0, most=EPOCH_MAX)


def number(value: Any, what: str, *, zero: bool = False, error: type[RayadError] = DataflowError, more: str = "") -> int | float:
    """A finite number above 0, with ``zero`` of at least 0; an int stays one.

    >>> number(0, "timeout_s", zero=True)
    0
    """
    if isinstance(value, Real) and not isinstance(value, bool):
        plain = int(value) if isinstance(value, Integral) else float(value)
        if math.isfinite(plain) and (plain > 0 or (zero and plain == 0)):
            return plain
        finite = "finite " if math.isinf(plain) else ""
    else:
        finite = ""
    if isinstance(value, timedelta):
        more += "; of a timedelta give x.total_seconds()"
    raise error(f"{what} is {show(value)}: it must be a {finite}number {'of at least' if zero else 'above'} 0{more}")


def seconds_or_none(value: Any, what: str, *, error: type[RayadError] = DataflowError) -> int | float | None:
    """A timeout: seconds, or None for as long as it takes."""
    infinite = isinstance(value, float) and math.isinf(value)
    return None if value is None else number(value, what, zero=True, error=error, more=", or None for as long as it takes" * infinite)


def flag(value: Any, what: str, *, error: type[RayadError] = DataflowError, more: str = "") -> bool:
    """True or False, and not what Python takes for it: ``exact="no"`` would be true.

    >>> flag(False, "exact")
    False
    """
    kind = type(value)
    if kind is bool or (kind.__module__ == "numpy" and kind.__name__ in ("bool", "bool_")):
        return bool(value)
    raise error(f"{what} is {show(value)}: it must be True or False{more}")


def text(value: Any, what: str, *, error: type[RayadError] = DataflowError, more: str = "") -> str:
    """A string that is not empty."""
    if isinstance(value, str) and value:
        return value
    raise error(f"{what} is {show(value)}: it must be a string that is not empty{more}")


def choice(value: Any, what: str, *of: str, error: type[RayadError] = DataflowError) -> str:
    """One of a few words.

    >>> choice("graph", "recovery", "graph", "upstream")
    'graph'
    """
    if isinstance(value, str) and value in of:
        return value
    raise error(f"{what} is {show(value)}: it must be {' or '.join((', '.join(map(repr, of[:-1])), repr(of[-1])))}")


def secret(value: Any, what: str, *, error: type[RayadError] = DataflowError, more: str = "") -> bytes:
    """The key of signatures: bytes, at least 16 of them. The error does not show it."""
    if isinstance(value, bytes) and len(value) >= SECRET_BYTES_MIN:
        return value
    told = f" and {len(value)} bytes long" if isinstance(value, bytes) else ""
    raise error(f"{what} is of type {type(value).__name__}{told}: it must be bytes, at least {SECRET_BYTES_MIN} of them{more}")


def path(value: Any, what: str, *, error: type[RayadError] = DataflowError, more: str = "") -> str:
    """A path or URI as a string, from one or from a ``pathlib.Path``.

    >>> import pathlib
    >>> path(pathlib.Path("runs/a"), "storage_path")
    'runs/a'
    """
    if isinstance(value, str | os.PathLike):
        given = os.fspath(value)
        if isinstance(given, str) and given and "\0" not in given:
            return given
    if isinstance(value, bytes):
        more += "; of bytes os.fsdecode(x)"
    raise error(f"{what} is {show(value)}: it must be a path, as a string that is not empty or a pathlib.Path{more}")


def instance(value: Any, what: str, of: type[T], *, error: type[RayadError] = DataflowError, more: str = "") -> T:
    """An instance of one of Rayad's classes; a class itself, or a dict of its arguments, is none."""
    if isinstance(value, of):
        return value
    hint = f": call it, rd.{of.__name__}(...)" if value is of else f": rd.{of.__name__}(...)"
    raise error(f"{what} is {show(value, 60)}: it must be an instance of rd.{of.__name__}{hint}{more}")


__all__ = ["EPOCH_MAX", "choice", "epoch", "flag", "instance", "number", "path", "seconds_or_none", "secret", "text", "whole"]
