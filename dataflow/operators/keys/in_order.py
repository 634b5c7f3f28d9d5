"""The records of one key and one time, in an order that does not depend on how they arrived."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from operator import itemgetter
from typing import Any

from rayad.dataflow.records.calling import mapped
from rayad.dataflow.records.moments import moments
from rayad.progress import DataflowError, say, show


def values_by_key(batches: Iterable[list[tuple[Any, Any]]]) -> dict[Any, list[Any]]:
    """The values of each key in batches of ``(key, value)`` pairs."""
    out: dict[Any, list[Any]] = {}
    for pairs in batches:
        for key, value in pairs:
            out.setdefault(key, []).append(value)
    return out


def _has(by: Callable[[Any], Any], value: Any) -> bool:
    try:
        by(value)
    except (TypeError, KeyError, IndexError):
        return False
    return True


def in_order(values: list[Any], by: Callable[[Any], Any], what: str) -> list[Any]:
    """The values, ordered by what ``by`` gives for each; equal ones by their representation. Raises DataflowError where that has no order.

    >>> in_order([-3, 1, 3, -1], abs, "lag")
    [-1, 1, -3, 3]
    """
    try:
        found = moments(mapped(by, values))
    except (TypeError, KeyError, IndexError) as error:
        if not isinstance(by, itemgetter):
            raise
        first = next(value for value in values if not _has(by, value))
        raise DataflowError(
            f"{what} was told by which field to order, and {show(first, 80)} has no such field ({say(error)}); where value= says what is "
            "kept, by= is of that: give a function of it, such as by=lambda value: value"
        ) from error
    for place, value in zip(found, values, strict=True):
        if place is None or place != place:
            raise DataflowError(
                f"{what} was given {show(place)} as the place of {show(value)}: null and NaN have no order; filter them out"
            )
    placed = sorted(zip(found, values, strict=True), key=lambda pair: repr(pair[1]))
    try:
        placed.sort(key=itemgetter(0))
    except TypeError as error:
        kinds = sorted({type(place).__name__ for place in found})
        raise DataflowError(f"{what} cannot order records by values of types {kinds}: {error}; give a by= whose values compare") from error
    return [value for _, value in placed]
