"""A dict by key of which most is in sorted runs, because it does not fit in memory."""

from __future__ import annotations

from collections.abc import Callable, Container, ItemsView, Iterable, Iterator, KeysView, MutableMapping, ValuesView
from typing import Any

import pyarrow as pa

from rayad.dataflow.operators.state.runs.above_runs import RunsBelow
from rayad.dataflow.operators.state.runs.values_below import ValuesBelow

ABSENT_MAX = 1 << 14
"""Keys that are known not to be in runs, about: so a new key is looked for once."""


class AboveRuns(MutableMapping[Any, Any]):
    """A dict as one that has all rows: what is looked for goes up into it. To be used within one call of a vertex.

    Args:
        kept: the dict.
        absent: keys that are not below.
        fetch: lets what keys have be in the dict.
    """

    __slots__ = ("_absent", "_below", "_fetch", "_kept")

    def __init__(self, kept: dict[Any, Any], below: ValuesBelow, absent: set[Any], fetch: Callable[[Iterable[Any]], None]) -> None:
        self._kept = kept
        self._absent = absent
        self._below = below
        self._fetch = fetch

    def __getitem__(self, key: Any) -> Any:
        if key not in self._kept and key not in self._absent:
            self._fetch((key,))
        return self._kept[key]

    def __setitem__(self, key: Any, value: Any) -> None:
        if key not in self._kept and key not in self._absent:
            self._fetch((key,))
        self._kept[key] = value

    def __delitem__(self, key: Any) -> None:
        if key not in self._kept and key not in self._absent:
            self._fetch((key,))
        del self._kept[key]

    def __contains__(self, key: object) -> bool:
        if key not in self._kept and key not in self._absent:
            self._fetch((key,))
        return key in self._kept

    def __len__(self) -> int:
        return len(self._kept) + self._below.there

    def __iter__(self) -> Iterator[Any]:
        yield from self._kept
        yield from self._below.keys_here()

    def items(self) -> ItemsView[Any, Any]:
        """Nothing goes up for it."""
        return _Items(self)

    def values(self) -> ValuesView[Any]:
        return _Values(self)

    def keys(self) -> KeysView[Any]:
        return KeysView(self)

    def pairs(self) -> Iterator[tuple[Any, Any]]:
        """All keys with their values."""
        yield from self._kept.items()
        yield from self._below.items_here()


class _Items(ItemsView[Any, Any]):
    _mapping: AboveRuns

    def __iter__(self) -> Iterator[tuple[Any, Any]]:
        return self._mapping.pairs()


class _Values(ValuesView[Any]):
    _mapping: AboveRuns

    def __iter__(self) -> Iterator[Any]:
        return (value for _, value in self._mapping.pairs())


class KeysBelow(RunsBelow[ValuesBelow]):
    """The runs below a dict, and what is known not to be there."""

    def __init__(self) -> None:
        super().__init__(ValuesBelow)
        self.absent: set[Any] = set()
        """Keys that were looked for since something was last put into runs, and are not there."""

    def put(self, kept: dict[Any, Any], moments: pa.Array | None) -> None:
        """Keep all that is in a dict, with the moments of its values, in its order."""
        self.made().put_values(kept, moments)
        self.absent = set()

    def up(self, keys: Iterable[Any], kept: Container[Any] = ()) -> dict[Any, Any]:
        """Take out what those of these keys have that are here. ``kept``: keys that are not."""
        absent = self.absent
        missing = [key for key in dict.fromkeys(keys) if key not in kept and key not in absent]
        if not missing or self.runs is None:
            return {}
        if len(absent) > ABSENT_MAX:
            absent.clear()
        came = self.runs.taken_out(missing)
        absent.update(missing)
        self.forget_nothing()
        return came

    def due(self, has_come: Callable[[Any], bool]) -> dict[Any, Any]:
        """Take out what some keys have for whose moments this holds: see :meth:`ValuesBelow.due`."""
        came = {} if self.runs is None else self.runs.due(has_come)
        self.forget_nothing()
        return came

    def restored(self, stored: Any) -> Any:
        self.absent = set()
        return super().restored(stored)

    def taken(self, given: Any) -> Any:
        self.absent = set()
        return super().taken(given)


__all__ = ["AboveRuns", "KeysBelow"]
