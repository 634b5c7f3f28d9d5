"""Joins of all kinds with an arranged side: what :class:`rayad.incremental.joins.arranging.Arrangement` matches, and what follows."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from rayad.incremental import steps
from rayad.incremental.columns import steps as columns
from rayad.incremental.joins.kinds import How, Side

if TYPE_CHECKING:
    from rayad.incremental.collection import Collection, KeyedCollection


def joined_by_arrangement(left: KeyedCollection, right: KeyedCollection, how: How) -> Collection:
    """A join of which one side, or both, are arranged. Records that come out alone come out first, and are taken away for each key that the
    other side has."""
    match how:
        case "inner":
            return _matched(left, right)
        case "semi" | "anti":
            met = _stepped(_matched(left, _keys(right)), steps.left_of, columns.left_of)
            return met if how == "semi" else left.plain().concat(met.negate())
        case "left":
            filled = _with_none(right)
            if filled.arrangement is not None:
                return _matched(left, filled, alone=True)
            return _stepped(left.plain(), steps.alone, columns.alone).concat(_matched(left, filled))
        case "right":
            return _stepped(joined_by_arrangement(right, left, "left"), steps.swapped, columns.swapped)
        case _:
            alone = _stepped(joined_by_arrangement(right, left, "anti"), steps.alone_right, columns.alone_right)
            return joined_by_arrangement(left, right, "left").concat(alone)


def _matched(left: KeyedCollection, right: KeyedCollection, *, alone: bool = False) -> Collection:
    """The pairs; ``alone``: left records alone, too."""
    made = type(left.plain())
    if right.arrangement is not None:
        return made(right.arrangement.joined(left, Side(is_left=True, is_alone=alone)), left.loops)
    assert left.arrangement is not None
    return made(left.arrangement.joined(right, Side(is_left=False)), left.loops)


def _keys(keyed: KeyedCollection) -> KeyedCollection:
    """Its keys, each once; shared where it is."""
    shared = keyed.arrangement
    if shared is None:
        return keyed.keys("join.keys")
    return shared.derived("keys", lambda it: it.keys("arrangement.keys").arrange()).within(keyed.loops)


def _with_none(keyed: KeyedCollection) -> KeyedCollection:
    """With None, with the weight -1, for each key that it has; shared where it is."""
    shared = keyed.arrangement
    if shared is None:
        return keyed.concat(keyed.keys("join.keys").negate())
    filled = shared.derived("with none", lambda it: it.concat(it.keys("arrangement.keys").negate()).arrange())
    return filled.within(keyed.loops)


def _stepped(collection: Collection, function: Callable[[Any], Any], in_columns: columns.InColumns) -> Collection:
    return type(collection)(columns.mapped(collection.stream, steps.Mapped(function), in_columns), collection.loops)


__all__ = ["joined_by_arrangement"]
