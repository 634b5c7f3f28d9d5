"""Rows by key that something happens to at a moment: a key ends, a timer fires.

Moments of rows in memory are in a heap. Those of rows that did not fit there are a column of the runs (``runs/due_rows``): a row that
comes due goes up into memory.
"""

from __future__ import annotations

import heapq
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import count
from typing import Any

import pyarrow as pa

from rayad.dataflow.operators.state.by_key.beyond_memory import moments_of
from rayad.dataflow.operators.state.by_key.dicts import KeyedDict

Entry = tuple[Any, int, Any]
"""A moment, a number, so that keys are never compared, and the key."""


class KeyedByMoment(KeyedDict):
    """A value by key, and in which order the moments of the keys come. The order is made when it is first asked for, and again when state
    has come from elsewhere."""

    def __init__(self) -> None:
        super().__init__()
        self._heap: list[Entry] | None = None
        self._scheduled: dict[Any, Entry] = {}
        """The one entry of a key that counts: at the moment of the key or before it."""
        self._numbers = count()

    @abstractmethod
    def moment_of(self, value: Any) -> Any:
        """The moment of a key with this value; None: it has none."""

    def schedule(self, keys: Iterable[Any]) -> None:
        """These keys have values that may have made their moments earlier, or :meth:`come` gave them and they stay."""
        if self._heap is None:
            return  # it is made when it is asked for
        kept, scheduled = self._kept, self._scheduled
        for key in keys:
            moment = self.moment_of(kept[key])
            if moment is not None and (key not in scheduled or moment < scheduled[key][0]):
                self._push(self._heap, key, moment)

    def come(self, has_come: Callable[[Any, Any], bool], mark: Any) -> Iterator[list[Any]]:
        """The keys for whose moments ``has_come(moment, mark)`` holds, some after others, of each the earliest first; it holds for all
        moments before one for which it does. They are to have later moments, or none, before the next ones are asked for."""
        for _ in self.due_parts(lambda moment: has_come(moment, mark)):
            found = self._come(has_come, mark)
            if found:
                yield found

    def _come(self, has_come: Callable[[Any, Any], bool], mark: Any) -> list[Any]:
        kept, heap = self._kept, self._heap
        if heap is None:
            heap = self._heap = []
            moments = [(key, self.moment_of(value)) for key, value in kept.items()]
            heap.extend((moment, next(self._numbers), key) for key, moment in moments if moment is not None)
            self._scheduled = {entry[2]: entry for entry in heap}
            heapq.heapify(heap)
        found = []
        while heap and has_come(heap[0][0], mark):
            entry = heapq.heappop(heap)
            key = entry[2]
            if self._scheduled.get(key) is not entry:
                continue  # it has been scheduled for an earlier moment since
            del self._scheduled[key]
            moment = self.moment_of(kept[key]) if key in kept else None  # else it was given to another replica
            if moment is None:
                continue
            if has_come(moment, mark):
                found.append(key)
            else:
                self._push(heap, key, moment)
        return found

    def _push(self, heap: list[Entry], key: Any, moment: Any) -> None:
        entry = self._scheduled[key] = (moment, next(self._numbers), key)
        heapq.heappush(heap, entry)

    def put_in(self, name: str, some: Any) -> None:
        super().put_in(name, some)
        self._heap = None

    # -- beyond memory ---------------------------------------------------------------
    def moments(self, kept: dict[Any, Any]) -> pa.Array | None:
        return moments_of(map(self.moment_of, kept.values()))

    def all_gone_down(self) -> None:
        super().all_gone_down()
        self._heap, self._scheduled = None, {}

    def go_up(self, came: Mapping[Any, Any]) -> None:
        super().go_up(came)
        self.schedule(came)


__all__ = ["KeyedByMoment"]
