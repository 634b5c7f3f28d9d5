"""The records of both sides that a join over event time keeps, in rows, until the watermark is beyond them."""

from __future__ import annotations

from abc import abstractmethod
from bisect import insort
from collections.abc import Collection, Iterator, Mapping
from heapq import heappop, heappush
from math import floor
from operator import itemgetter
from typing import Any, ClassVar

import pyarrow as pa

from rayad.dataflow.operators.joins.records_in_time import SIDES, RecordsInTime
from rayad.dataflow.operators.keys.key_first import pairs_of
from rayad.dataflow.operators.state.by_key.beyond_memory import moments_of
from rayad.dataflow.operators.state.by_key.rows import Named
from rayad.dataflow.operators.state.tables import Entries
from rayad.dataflow.records.batches import keyed_columns
from rayad.dataflow.records.event_times import exact_moment

TICK = _SIDE = itemgetter(0)


class KeptRows(RecordsInTime):
    """``{key: ([entry], [entry])}``, the entries of each side in the order of event times.

    An entry is ``[tick, event time, record, more]``: the time as an exact number, and what the join has to know besides (:attr:`more`).
    Each entry has ticks at which the join looks at its key again, when the watermark is beyond them (:meth:`ends_of`, :meth:`due`).
    """

    more: ClassVar[str]
    """What the last field of an entry is, as the column of a table."""

    def __init__(self) -> None:
        super().__init__()
        self.kept: dict[Any, tuple[list[Any], list[Any]]] = {}
        self._ends: dict[Any, list[tuple[int, Any, Any]]] = {}
        """The sides, keys and ticks of entries that are to be looked at when the watermark is beyond a tick."""
        self._order: list[Any] = []

    @property
    def is_used(self) -> bool:
        return bool(self.kept) or self.is_beyond_memory

    @abstractmethod
    def ends_of(self, side: int, tick: Any) -> tuple[Any, ...]:
        """The ticks at which an entry is to be looked at."""

    # -- entries -------------------------------------------------------------------
    def keep(self, side: int, key: Any, entry: list[Any]) -> list[Any]:
        """Put an entry in its place."""
        sides = self.kept.get(key)
        if sides is None:
            sides = self.kept[key] = ([], [])
        insort(sides[side], entry, key=TICK)
        self._note_end(side, key, entry[0])
        return entry

    def ended(self, mark: Any) -> Iterator[Iterator[tuple[int, Any, Any, Any]]]:
        """``(side, key, tick, end)`` of the entries to be looked at at a watermark (None: all), those of some keys after those of others:
        of these lowest end and then the left side first; each once. What :meth:`look_again` asks for meanwhile is among them."""
        self.settled(mark)
        limit = None if mark is None else exact_moment(mark)
        parts = self.last_parts() if limit is None else self.due_parts(lambda end: bool(end < limit))
        for _ in parts:
            yield self._ended(limit)

    def _ended(self, limit: Any) -> Iterator[tuple[int, Any, Any, Any]]:
        while self._order and (limit is None or self._order[0] < limit):
            end = heappop(self._order)
            for side, key, tick in sorted(self._ends.pop(end), key=_SIDE):
                yield side, key, tick, end

    def is_empty(self, key: Any) -> bool:
        """Whether nothing of a key is left; then it is forgotten."""
        sides = self.kept[key]
        if sides[0] or sides[1]:
            return False
        del self.kept[key]
        self._indices.removed(self.kept, [key])
        return True

    def _note_end(self, side: int, key: Any, tick: Any) -> None:
        for end in self.ends_of(side, tick):
            self.look_again(side, key, tick, end)

    def look_again(self, side: int, key: Any, tick: Any, end: Any) -> None:
        """Look at an entry when the watermark is beyond a tick."""
        if end not in self._ends:
            self._ends[end] = []
            heappush(self._order, end)
        self._ends[end].append((side, key, tick))

    # -- beyond memory ---------------------------------------------------------------
    def in_memory(self) -> Collection[Any]:
        return self.kept

    def by_key(self) -> dict[Any, Any]:
        return self.kept

    def moments(self, kept: dict[Any, Any]) -> pa.Array:
        """The lowest end of an entry of each key that is not over, or before it: fractions of a tick have no column. Of right records that
        wait for nothing but others there is none."""
        lowest: dict[Any, int] = {}
        for end in sorted(self._ends, reverse=True):
            lowest.update(dict.fromkeys((key for _, key, _ in self._ends[end]), floor(end)))
        return moments_of(lowest.get(key) for key in kept)

    def all_gone_down(self) -> None:
        self.kept, self._ends, self._order = {}, {}, []

    def go_up(self, came: Mapping[Any, Any]) -> None:
        self._come(came)

    # -- snapshots, and other replicas ---------------------------------------------
    def named(self) -> Named:
        return {"": self.kept}

    def put_in(self, name: str, some: Any) -> None:
        self._come(some)
        self._placed += _records_of(some)

    def _come(self, some: Mapping[Any, Any]) -> None:
        self.kept.update(some)
        for key, sides in some.items():
            for side, entries in enumerate(sides):
                for entry in entries:
                    self._note_end(side, key, entry[0])

    def left(self, given: Named) -> None:
        self._placed -= sum(map(_records_of, given.values()))

    # -- as tables -------------------------------------------------------------------
    def entries(self) -> dict[str, Entries]:
        """The records of each side with their event times, and what is known besides."""
        out, kept = {}, [*self.kept.items(), *self.below()]
        for side, name in enumerate(SIDES):
            rows = [(key, *entry) for key, sides in kept for entry in sides[side]]
            columns = {"at": [row[2] for row in rows], "value": [row[3] for row in rows], self.more: [row[4] for row in rows]}
            out[name] = Entries([row[0] for row in rows], columns)
        return out

    def put_entries(self, name: str, entries: Entries) -> None:
        side, columns = SIDES.index(name), entries.columns
        self.fetch(entries.keys)
        for key, time, record, more in zip(entries.keys, columns["at"], columns["value"], columns[self.more], strict=True):
            self.keep(side, key, [exact_moment(time), time, record, more])
        self._placed += len(entries.keys)


def placed(batch: Any) -> list[tuple[Any, tuple[Any, Any]]]:
    """The records of a batch, as ``(key, (event time, record))``."""
    if not isinstance(batch, pa.RecordBatch):
        return batch  # type: ignore[no-any-return]
    times = batch.column(keyed_columns(batch.schema) or 0).to_pylist()
    return [(key, (time, record)) for time, (key, record) in zip(times, pairs_of(batch), strict=True)]


def _records_of(kept: dict[Any, Any]) -> int:
    return sum(len(entries) for sides in kept.values() for entries in sides)


__all__ = ["TICK", "KeptRows", "placed"]
