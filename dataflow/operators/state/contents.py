"""Values compared by what they hold, so that records can be told apart that Python cannot hash, or takes for equal: dicts, lists, arrays,
NaN, datetimes in an hour that comes twice."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable
from typing import Any

import numpy as np

from rayad.dataflow.records.moments import moment, moments

_HASHABLE = frozenset({int, str, bytes, bool, type(None), dt.date, dt.time, dt.timedelta})
"""Types whose values are compared as they are."""


class Contents:
    """A value that is equal to another one when both hold the same; two NaN are, and a dict whatever the order of its fields.

    >>> Contents({"a": [1, float("nan")], "b": 2}) == Contents({"b": 2.0, "a": [1, float("nan")]})
    True
    >>> Contents([1]) == Contents((1,))
    False
    """

    __slots__ = ("form", "value")

    def __init__(self, value: Any) -> None:
        self.value = value
        self.form = _form(value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Contents) and bool(self.form == other.form)

    def __hash__(self) -> int:
        return hash(self.form)


class Told(Contents):
    """A value that is compared as :func:`moment` has it, also with values that are so already."""

    __slots__ = ()

    def __init__(self, value: Any, form: Any) -> None:
        self.value = value
        self.form = form

    def __eq__(self, other: object) -> bool:
        return bool(self.form == (other.form if isinstance(other, Contents) else other))

    __hash__ = Contents.__hash__


def _form(value: Any) -> Any:
    """Something that can be hashed, and is equal where the values are."""
    if isinstance(value, dict):
        return "dict", frozenset((key, _form(item)) for key, item in value.items())
    if isinstance(value, (list, tuple)):
        return "list" if isinstance(value, list) else "tuple", tuple(map(_form, value))
    if isinstance(value, (set, frozenset)):
        return "set", frozenset(map(_form, value))
    if isinstance(value, np.ndarray):
        return "array", value.shape, tuple(map(_form, value.ravel().tolist()))
    return ("nan",) if isinstance(value, float) and value != value else moment(value)


def _is_plain(value: Any) -> bool:
    kind = type(value)
    if kind in _HASHABLE:
        return True
    if isinstance(value, float):
        return bool(value == value)
    if isinstance(value, tuple):
        return all(map(_is_plain, value))
    return not isinstance(value, (dict, list, set, frozenset, np.ndarray))


def _comparable(value: Any) -> Any:
    if not _is_plain(value):
        return Contents(value)
    form = moment(value)
    return value if form is value else Told(value, form)


def comparable(pairs: list[Any]) -> list[Any]:
    """``(key, value)`` pairs with values that can be told apart: as they are, or as :class:`Contents`.

    >>> comparable([("a", 1)]), comparable([("a", {"b": 1})])[0][1].value
    ([('a', 1)], {'b': 1})
    """
    kinds = {type(value) for _, value in pairs}
    if kinds <= _HASHABLE or (kinds == {dt.datetime} and moments(values := [value for _, value in pairs]) is values):
        return pairs
    return [(key, _comparable(value)) for key, value in pairs]


def originals(pairs: Iterable[Any]) -> list[Any]:
    """What :func:`comparable` was given."""
    return [(pair[0], pair[1].value) if isinstance(pair[1], Contents) else pair for pair in pairs]
