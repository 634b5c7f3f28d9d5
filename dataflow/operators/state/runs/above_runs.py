"""A dict by key of which most is in sorted runs, because it does not fit in memory."""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, ItemsView, Iterable, Iterator, KeysView, MutableMapping, ValuesView
from typing import Any, NamedTuple

import pyarrow as pa

from rayad.dataflow.operators.state.runs import disk
from rayad.dataflow.operators.state.runs.disk import MemoryBound
from rayad.dataflow.operators.state.runs.files import RunFile
from rayad.dataflow.operators.state.runs.run import Run
from rayad.dataflow.operators.state.runs.runs import StoredRun
from rayad.dataflow.operators.state.runs.size_of_values import SizeOfRows
from rayad.dataflow.operators.state.runs.values_below import ValuesBelow
from rayad.dataflow.operators.state.slot_groups import NotColumns

ABSENT_MAX = 1 << 14
"""Keys that are known not to be in runs, about: so a new key is looked for once."""


class Beyond(NamedTuple):
    """Rows, and runs below them: in a snapshot, or on their way to a sibling."""

    rows: Any
    runs: list[StoredRun]


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


class RunsBelow:
    """The runs below a dict, which there are only beyond a bound on memory.

    Args:
        moments: of the values of a dict, in its order, null where one has none; None: none ever has. Raises NotColumns where Arrow does
            not have them: then all stay in memory.
    """

    def __init__(self, moments: Callable[[dict[Any, Any]], pa.Array | None]) -> None:
        self._moments = moments
        self._memory: MemoryBound | None = None
        self._is_refused = False
        self.size = SizeOfRows()
        self.runs: ValuesBelow | None = None
        """None: all is in the dict."""
        self.absent: set[Any] = set()
        """Keys that were looked for since something was last put into runs, and are not there."""

    @property
    def memory(self) -> MemoryBound | None:
        """The bound on memory; None: there is none."""
        return self._memory

    @memory.setter
    def memory(self, memory: MemoryBound | None) -> None:
        self._memory = memory
        if self.runs is not None:
            self.runs.memory = memory

    def made(self) -> ValuesBelow:
        """The runs, where there are none with nothing in them."""
        if self.runs is None:
            self.runs = ValuesBelow()
            self.runs.memory = self._memory
        return self.runs

    def is_worth_a_run(self, in_memory: Collection[Any]) -> bool:
        """Whether what is in memory may become a run."""
        return not self._is_refused and bool(in_memory) and self.size.of(in_memory) >= disk.FILE_BYTES_MIN

    def put(self, kept: dict[Any, Any]) -> bool:
        """Keep all that is in a dict; gives whether it is here now."""
        try:
            moments = self._moments(kept)
        except NotColumns:
            self._is_refused = True  # it would be asked for again after each batch
            return False
        self.made().put_values(kept, moments)
        self.absent = set()
        return True

    def up(self, keys: Iterable[Any], kept: Container[Any] = ()) -> dict[Any, Any]:
        """Take out what those of these keys have that are here. ``kept``: keys that are not."""
        absent = self.absent
        missing = [key for key in dict.fromkeys(keys) if key not in kept and key not in absent]
        if not missing or self.runs is None:
            return {}
        if len(absent) > ABSENT_MAX:
            absent.clear()
        came = self._out(self.runs.taken_out(missing))
        absent.update(missing)
        return came

    def due(self, has_come: Callable[[Any], bool]) -> dict[Any, Any]:
        """Take out what the keys have for whose moments this holds: see :meth:`ValuesBelow.due`."""
        return {} if self.runs is None else self._out(self.runs.due(has_come))

    def _out(self, came: dict[Any, Any]) -> dict[Any, Any]:
        self.size.changed(len(came))
        if self.runs is not None and not self.runs.there:
            self.runs = None
        return came

    def all(self) -> list[Run]:
        """The runs."""
        return [] if self.runs is None else self.runs.all()

    def files(self) -> list[RunFile]:
        """Of the runs."""
        return [] if self.runs is None else self.runs.files()

    def stored(self, rows: Any) -> Any:
        """Rows with the runs, for a snapshot."""
        return rows if self.runs is None else Beyond(rows, self.runs.checkpoint())

    def restored(self, stored: Any) -> Any:
        """The rows of what :meth:`stored` gave; the runs are here then."""
        if not isinstance(stored, Beyond):
            return stored
        self.made().restore(stored.runs)
        self.absent = set()
        return stored.rows

    def given(self, rows: Any, groups: frozenset[int], key_groups: int) -> Any:
        """Rows of these key-groups with what runs have of them, for a sibling; None: nothing."""
        runs = [] if self.runs is None else self.runs.give(groups, key_groups)
        return Beyond(rows, runs) if runs else rows

    def taken(self, given: Any) -> Any:
        """The rows of what :meth:`given` gave, None of none; the runs are here then."""
        if not isinstance(given, Beyond):
            return given
        self.made().take(given.runs)
        self.absent = set()
        return given.rows


__all__ = ["AboveRuns", "Beyond", "RunsBelow"]
