"""Interval joins: records of two streams with equal keys whose event times are so far from each other.

Pairs come out at once, in the epoch of the later of the two. What comes behind the watermark is late, and passed over. So a record is
*settled*, and forgotten, when the watermark has passed the last event time that it could be joined with: nothing in time meets it any more.
Then it is known whether it has met any, and outer and anti joins give what has not; nothing has to be taken back. The results are those of
SQL over all records that were in time, whatever the epochs.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterator
from functools import partial
from heapq import heappop, heappush
from operator import itemgetter
from typing import Any

import pyarrow as pa

from rayad.dataflow.operators.joins.in_time import JoinInTime
from rayad.dataflow.operators.joins.interval_runs import IntervalColumns
from rayad.dataflow.operators.joins.matching import ALONE, LEFT_ONLY, OWED, How
from rayad.dataflow.operators.keys.key_first import is_null, pairs_of
from rayad.dataflow.operators.state.group_index import GroupIndices
from rayad.dataflow.operators.state.stored_columns import stored_mixed, taken_back_mixed
from rayad.dataflow.operators.state.tables import Entries
from rayad.dataflow.operators.state.touched_keys import Additions
from rayad.dataflow.operators.state.two_forms import RowForm, TwoForms
from rayad.dataflow.records.batches import keyed_columns
from rayad.dataflow.records.event_times import exact_moment
from rayad.dataflow.windows import Between
from rayad.progress import Timestamp

SIDES = ("left", "right")
"""The tables of what a join keeps."""
_TICK = itemgetter(0)


class IntervalRows(RowForm):
    """Records of both sides that are not settled, in rows: ``{key: ([entry], [entry])}``, each in the order of event times.

    An entry is ``[tick, event time, record, owed]``: the time as an exact number, and whether the record is owed a result of its own,
    since it has met none.
    """

    def __init__(self, between: Between, how: How) -> None:
        self.between = between
        self.how = how
        lower, upper = exact_moment(between.lower), exact_moment(between.upper)
        self._reach = ((lower, upper), (-upper, -lower))
        self.kept: dict[Any, tuple[list[Any], list[Any]]] = {}
        self._ends: dict[Any, list[tuple[int, Any]]] = {}
        """The sides and keys of the records that are settled when the watermark is beyond a tick."""
        self._order: list[Any] = []
        self._added = Additions()
        self._placed = 0  # records since there were none
        self._settled: Any = None  # the last watermark
        self._indices = GroupIndices()

    @property
    def is_used(self) -> bool:
        return bool(self.kept)

    # -- records and time ------------------------------------------------------------
    def put(self, side: int, batch: Any, mark: Any) -> tuple[list[Any], list[Any]]:
        """Take records in; gives those that are late at a watermark, as ``(key, record)``, and results."""
        late: list[Any] = []
        out: list[Any] = []
        limit = None if mark is None else exact_moment(mark)
        placed = _placed(batch)
        for key, (time, record) in placed:
            self.between.scale.admit(time)
            tick = exact_moment(time)
            if limit is not None and tick < limit:
                late.append((key, record))
            else:
                out += self._meet(side, key, self._keep(side, key, [tick, time, record, OWED[self.how][side]]))
        self._placed = self._placed + len(placed) if self.kept else 0
        self._added.note((side, batch, mark), len(placed), self._placed)
        return late, [out] if out else []

    def _keep(self, side: int, key: Any, entry: list[Any]) -> list[Any]:
        sides = self.kept.get(key)
        if sides is None:
            sides = self.kept[key] = ([], [])
        insort(sides[side], entry, key=_TICK)
        self._note_end(side, key, entry[0])
        return entry

    def _note_end(self, side: int, key: Any, tick: Any) -> None:
        end = tick + self._reach[side][1]
        if end not in self._ends:
            self._ends[end] = []
            heappush(self._order, end)
        self._ends[end].append((side, key))

    def _meet(self, side: int, key: Any, entry: list[Any]) -> Iterator[Any]:
        """The results of a record with those of the other side within its interval."""
        if is_null(key):
            return
        others = self.kept[key][1 - side]
        low, high = (entry[0] + bound for bound in self._reach[side])
        for other in others[bisect_left(others, low, key=_TICK) : bisect_right(others, high, key=_TICK)]:
            left, right = (entry, other) if side == 0 else (other, entry)
            if self.how not in LEFT_ONLY:
                yield key, (left[2], right[2])
            elif self.how == "semi" and left[3]:
                yield key, left[2]
            left[3] = right[3] = False

    def due(self, mark: Any) -> Iterator[list[Any]]:
        """The records that are settled at a watermark (None: all) and met none, where the join gives these; they are forgotten."""
        self._settled = mark
        if mark is None:
            self._added.forget()
        limit = None if mark is None else exact_moment(mark)
        out: list[Any] = []
        while self._order and (limit is None or self._order[0] < limit):
            end = heappop(self._order)
            for side, key in self._ends.pop(end):
                out += self._drop(side, key, end - self._reach[side][1])
        if out:
            yield out

    def _drop(self, side: int, key: Any, tick: Any) -> list[Any]:
        """Forget the records of a key up to a tick; gives those that are owed."""
        sides = self.kept.get(key)
        if sides is None:  # it has gone to another replica
            return []
        count = bisect_right(sides[side], tick, key=_TICK)
        gone = sides[side][:count]
        del sides[side][:count]
        if not sides[0] and not sides[1]:
            del self.kept[key]
            self._indices.removed(self.kept, [key])
        if not ALONE[self.how][side]:
            return []
        alone = [record for _, _, record, owed in gone if owed]
        if self.how == "anti":
            return [(key, record) for record in alone]
        return [(key, (record, None) if side == 0 else (None, record)) for record in alone]

    # -- snapshots -----------------------------------------------------------------
    def checkpoint(self) -> Any:
        return self.kept

    def restore(self, stored: Any) -> None:
        self.kept = {}
        self._ends, self._order = {}, []
        self._keep_all(stored)
        self._placed = _records_of(stored)

    def _keep_all(self, kept: dict[Any, Any]) -> None:
        self.kept.update(kept)
        for key, sides in kept.items():
            for side, entries in enumerate(sides):
                for entry in entries:
                    self._note_end(side, key, entry[0])

    def take_changes(self) -> Callable[[], Any] | None:
        """The batches that have come, and the watermark up to which records are settled: who has met whom follows from them."""
        added, settled = self._added.take(), self._settled
        return None if added is None else lambda: ([(side, stored_mixed([batch]), mark) for side, batch, mark in added], settled)

    def restore_changes(self, changes: Any) -> None:
        added, settled = changes
        for side, batch, mark in added:
            self.put(side, taken_back_mixed(batch)[0], mark)
        if settled is not None:
            for _ in self.due(settled):
                pass

    def forget_changes(self) -> None:
        self._added.forget()

    # -- to other replicas -----------------------------------------------------------
    def index(self, key_groups: int) -> Iterator[None]:
        return self._indices.slices([self.kept], key_groups)

    def give(self, groups: frozenset[int], key_groups: int) -> Any:
        given = self._indices.taken_out(self.kept, groups, key_groups)
        self._placed -= _records_of(given)
        return given or None

    def take(self, given: Any) -> None:
        self._indices.removed(self.kept, given)
        self._keep_all(given)
        self._placed += _records_of(given)

    def gave(self) -> None:
        self._indices.forget()

    # -- as tables -------------------------------------------------------------------
    def entries(self) -> dict[str, Entries]:
        """The records of each side with their event times, and whether each is owed a result of its own."""
        out = {}
        for side, name in enumerate(SIDES):
            rows = [(key, *entry) for key, sides in self.kept.items() for entry in sides[side]]
            columns = {"at": [row[2] for row in rows], "value": [row[3] for row in rows], "owed": [row[4] for row in rows]}
            out[name] = Entries([row[0] for row in rows], columns)
        return out

    def put_entries(self, name: str, entries: Entries) -> None:
        side, columns = SIDES.index(name), entries.columns
        for key, time, record, owed in zip(entries.keys, columns["at"], columns["value"], columns["owed"], strict=True):
            self._keep(side, key, [exact_moment(time), time, record, owed])
        self._placed += len(entries.keys)


class IntervalJoin(JoinInTime[IntervalRows, IntervalColumns]):
    """``(key, (left, right))`` for each pair whose event times are within an interval, at the time of the later one, and what outer, semi
    and anti joins give besides. What comes behind the watermark goes to output port 1: ``(key, (record, None))``, or ``(key, (None,
    record))`` from the right."""

    def __init__(self, between: Between, delays: tuple[Any, ...], how: How = "inner") -> None:
        super().__init__(delays, TwoForms(IntervalRows(between, how), partial(IntervalColumns, between, how)))
        self.between = between

    def on_notify(self, time: Timestamp) -> None:
        super().on_notify(time)
        now = self.marks.watermark.now
        if now is not None:  # what has come may be settled already, also where the watermark has not moved
            self._fire(time, now)

    def _late_of(self, taken: Any, time: Timestamp) -> list[Any]:
        late, results = taken
        self.send_cut(results, time)
        return late  # type: ignore[no-any-return]

    def _fire(self, time: Timestamp, mark: Any) -> None:
        if self.open.columns.is_used:
            self.send_cut(self.open.columns.due(mark), time)
        self.send_cut(self.open.rows.due(mark), time)


def _placed(batch: Any) -> list[tuple[Any, tuple[Any, Any]]]:
    """``(key, (event time, record))``."""
    if not isinstance(batch, pa.RecordBatch):
        return batch  # type: ignore[no-any-return]
    times = batch.column(keyed_columns(batch.schema) or 0).to_pylist()
    return [(key, (time, record)) for time, (key, record) in zip(times, pairs_of(batch), strict=True)]


def _records_of(kept: dict[Any, Any]) -> int:
    return sum(len(entries) for sides in kept.values() for entries in sides)
