"""``distinct`` whose records end: a value is new again for a record that is more than the time-to-live later than the one that was given.

One record of each value is kept, the latest of the epoch that gave it: repetitions do not prolong its life. Whether it has ended for
another record is a matter of their event times; it is forgotten when a time is complete behind which the watermark has passed its end
(docs/decisions/077-records-that-end.md).
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import count
from typing import Any

import pyarrow as pa

from rayad.dataflow.operators.state.by_key.beyond_memory import moments_of
from rayad.dataflow.operators.state.by_key.dicts import KeyedDict
from rayad.dataflow.operators.state.contents import comparable, originals
from rayad.dataflow.operators.state.keyed_state import KeyedVertex
from rayad.dataflow.operators.state.tables import Entries
from rayad.dataflow.operators.state.waiting_forms import Batches
from rayad.dataflow.operators.state.waiting_in_pieces import Waiting
from rayad.dataflow.operators.stateless import Element
from rayad.dataflow.operators.windows.watermarks import Marks
from rayad.dataflow.records.batches import to_rows
from rayad.dataflow.records.calling import mapped
from rayad.dataflow.records.event_times import event_time, later, watermark_less, watermark_of
from rayad.dataflow.records.selectors import KeySelector, ValueSelector
from rayad.progress import DataflowError, Timestamp


@dataclass(slots=True)
class TimedValues(Element):
    """``(key, (event time, value))``."""

    key: KeySelector
    value: ValueSelector
    times: ValueSelector

    def apply(self, batch: Any) -> Any:
        rows = to_rows(batch)
        moments = [event_time(time, row) for time, row in zip(mapped(self.times.row_value(), rows), rows, strict=True)]
        values = mapped(self.value.row_value(self.key.columns), rows)
        return list(zip(self.key.keys_of(rows), zip(moments, values, strict=True), strict=True))

    def rows_because(self, schema: pa.Schema) -> str | None:
        return "distinct of records that end handles rows"


class LivesOfValues(KeyedDict):
    """The event times of values by key, ``{key: {value: event time}}``, and in which order they come. The order is made when it is first
    asked for, and again when state has come from elsewhere.

    >>> lives = LivesOfValues()
    >>> lives.begin([(("a", 1), 3), (("a", 2), 5)]); lives.end(5); lives.kept
    {'a': {2: 5}}
    """

    has_one_row = False

    def __init__(self) -> None:
        super().__init__()
        self._order: list[tuple[Any, int, Any]] | None = None
        self._numbers = count()  # so that values are never compared

    def of(self, pair: Any) -> Any:
        """The event time of a value that is known, as ``(key, value)``; None: it is not."""
        return self.kept.get(pair[0], {}).get(pair[1])

    def begin(self, lives: list[tuple[Any, Any]]) -> None:
        """Keep values, as ``((key, value), event time)``, or give known ones another event time."""
        with self.changing([key for (key, _), _ in lives]) as kept:
            for (key, value), moment in lives:
                kept.setdefault(key, {})[value] = moment
        self._push(lives)

    def _push(self, lives: Iterable[tuple[Any, Any]]) -> None:
        if self._order is not None:
            for pair, moment in lives:
                heapq.heappush(self._order, (moment, next(self._numbers), pair))

    def end(self, limit: Any) -> None:
        """Forget the values with event times before ``limit``."""
        for _ in self.due_parts(lambda moment: bool(moment < limit)):
            self._end(limit)

    def _end(self, limit: Any) -> None:
        if self._order is None:
            self._order = [(moment, next(self._numbers), pair) for pair, moment in _lives_of(self._kept)]
            heapq.heapify(self._order)
        touched: list[Any] = []
        with self.changing(touched) as kept:
            while self._order and self._order[0][0] < limit:
                moment, _, pair = heapq.heappop(self._order)
                if self.of(pair) != moment:
                    continue  # it has begun again since, or was given to another replica
                key, value = pair
                del kept[key][value]
                if not kept[key]:
                    del kept[key]
                touched.append(key)

    # -- beyond memory ---------------------------------------------------------------
    def moments(self, kept: dict[Any, Any]) -> pa.Array:
        """Of each key the earliest event time of a value."""
        return moments_of(min(lives.values()) for lives in kept.values())

    def all_gone_down(self) -> None:
        super().all_gone_down()
        self._order = None

    def go_up(self, came: Mapping[Any, Any]) -> None:
        super().go_up(came)
        self._push(_lives_of(came))

    def put_in(self, name: str, some: Any) -> None:
        super().put_in(name, some)
        self._order = None

    def entries_of(self, kept: Mapping[Any, Any]) -> dict[str, Entries]:
        lives = list(_lives_of(kept))
        pairs = originals(pair for pair, _ in lives)
        columns = {"at": [moment for _, moment in lives], "value": [value for _, value in pairs]}
        return {"": Entries([key for key, _ in pairs], columns)}

    def put_entries(self, name: str, entries: Entries) -> None:
        pairs = comparable(list(zip(entries.keys, entries.columns["value"], strict=True)))
        self.begin(list(zip(pairs, entries.columns["at"], strict=True)))


def _lives_of(kept: Mapping[Any, dict[Any, Any]]) -> Iterable[tuple[Any, Any]]:
    return (((key, value), moment) for key, some in kept.items() for value, moment in some.items())


class DistinctOfRecords(KeyedVertex):
    """Each ``(key, value)`` when no record that was given for it lives. Ports: what :class:`TimedValues` makes, and the largest event times
    of each side.

    Args:
        after: how long a record lives, by event time.
        delays: as of :class:`Marks`.
    """

    gives_records = True
    sequential = True
    broadcast_may_repeat = True
    may_change = frozenset({"after", "delays"})

    def __init__(self, after: Any, delays: tuple[Any, ...]) -> None:
        self.after = after
        self.pending = Waiting(self, Batches())
        self.marks = Marks(delays, self.pending)
        self.seen = LivesOfValues()

    def on_recv(self, edge: int, batch: Any, time: Timestamp) -> None:
        waiting = self.pending[time]
        if edge == 0:
            waiting.append(batch)
        else:
            self.marks.see(edge - 1, to_rows(batch), time)

    def on_notify(self, time: Timestamp) -> None:
        self.marks.advance(time)  # which says what does not compare
        for batches in self.pending.pieces(time):
            latest = self._latest(batches)
            self.seen.kept_of([key for key, _ in latest])
            fresh = [(pair, moment) for pair, moment in latest.items() if self._is_new(pair, moment)]
            if fresh:
                self.seen.begin(fresh)
                self.send_by(0, originals(pair for pair, _ in fresh), time)
        limit = watermark_less(self.marks.watermark.now, self.after)
        if limit is not None:
            self.seen.end(limit)

    def _latest(self, batches: Iterable[list[Any]]) -> dict[Any, Any]:
        """The largest event time of each ``(key, value)`` of a time."""
        out: dict[Any, Any] = {}
        for batch in batches:
            pairs = comparable([(key, value) for key, (_, value) in batch])
            try:
                for pair, (_, (moment, _)) in zip(pairs, batch, strict=True):
                    out[pair] = later(out.get(pair), moment)
            except TypeError as error:
                raise DataflowError(
                    f"distinct {self.name!r} needs hashable keys and values: {error}; map records to tuples first"
                ) from error
        return out

    def _is_new(self, pair: Any, moment: Any) -> bool:
        known, limit = self.seen.of(pair), watermark_of(moment, self.after)
        return known is None or (limit is not None and bool(known < limit))


__all__ = ["DistinctOfRecords", "LivesOfValues", "TimedValues"]
