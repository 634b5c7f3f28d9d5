"""Interval joins: records of two streams with equal keys whose event times are so far from each other.

Pairs come out at once, in the epoch of the later of the two. What comes behind the watermark is late, and passed over. So a record is
*settled*, and forgotten, when the watermark has passed the last event time that it could be joined with: nothing in time meets it any more.
Then it is known whether it has met any, and outer and anti joins give what has not; nothing has to be taken back. The results are those of
SQL over all records that were in time, whatever the epochs.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from functools import partial
from typing import Any

from rayad.dataflow.operators.joins.in_time import JoinInTwoForms
from rayad.dataflow.operators.joins.interval_runs import IntervalColumns
from rayad.dataflow.operators.joins.kept_rows import TICK, KeptRows, placed
from rayad.dataflow.operators.joins.matching import ALONE, LEFT_ONLY, OWED, How
from rayad.dataflow.operators.keys.key_first import is_null
from rayad.dataflow.operators.state.two_forms import TwoForms
from rayad.dataflow.records.event_times import exact_moment
from rayad.dataflow.windows import Between
from rayad.progress import Timestamp


class IntervalRows(KeptRows):
    """Records of both sides that are not settled, in rows. The last field of an entry says whether the record is owed a result of its own,
    since it has met none."""

    more = "owed"

    def __init__(self, between: Between, how: How) -> None:
        super().__init__()
        self.between = between
        self.how = how
        lower, upper = exact_moment(between.lower), exact_moment(between.upper)
        self._reach = ((lower, upper), (-upper, -lower))

    def ends_of(self, side: int, tick: Any) -> tuple[Any, ...]:
        """The last tick that it could be joined with."""
        return (tick + self._reach[side][1],)

    def put(self, side: int, batch: Any, *told: Any) -> tuple[list[Any], list[Any]]:
        """Take records in; ``told`` is the watermark. Gives those that are late, as ``(key, record)``, and results."""
        (mark,) = told
        late: list[Any] = []
        out: list[Any] = []
        limit = None if mark is None else exact_moment(mark)
        records = placed(batch)
        self.fetch(key for key, _ in records)
        for key, (time, record) in records:
            self.between.scale.admit(time)
            tick = exact_moment(time)
            if limit is not None and tick < limit:
                late.append((key, record))
            else:
                out += self._meet(side, key, self.keep(side, key, [tick, time, record, OWED[self.how][side]]))
        self.note(side, batch, told, len(records))
        return late, [out] if out else []

    def _meet(self, side: int, key: Any, entry: list[Any]) -> Iterator[Any]:
        """The results of a record with those of the other side within its interval."""
        if is_null(key):
            return
        others = self.kept[key][1 - side]
        low, high = (entry[0] + bound for bound in self._reach[side])
        for other in others[bisect_left(others, low, key=TICK) : bisect_right(others, high, key=TICK)]:
            left, right = (entry, other) if side == 0 else (other, entry)
            if self.how not in LEFT_ONLY:
                yield key, (left[2], right[2])
            elif self.how == "semi" and left[3]:
                yield key, left[2]
            left[3] = right[3] = False

    def due(self, mark: Any) -> Iterator[list[Any]]:
        """The records that are settled at a watermark (None: all) and met none, where the join gives these; they are forgotten."""
        for ended in self.ended(mark):
            out = [gone for side, key, tick, _ in ended for gone in self._drop(side, key, tick)]
            if out:
                yield out

    def _drop(self, side: int, key: Any, tick: Any) -> list[Any]:
        """Forget the records of a key up to a tick; gives those that are owed."""
        sides = self.kept.get(key)
        if sides is None:  # it has gone to another replica
            return []
        count = bisect_right(sides[side], tick, key=TICK)
        gone = sides[side][:count]
        del sides[side][:count]
        self.is_empty(key)
        if not ALONE[self.how][side]:
            return []
        alone = [record for _, _, record, owed in gone if owed]
        if self.how == "anti":
            return [(key, record) for record in alone]
        return [(key, (record, None) if side == 0 else (None, record)) for record in alone]


class IntervalJoin(JoinInTwoForms[IntervalRows, IntervalColumns]):
    """``(key, (left, right))`` for each pair whose event times are within an interval, at the time of the later one, and what outer, semi
    and anti joins give besides. What comes behind the watermark goes to output port 1: ``(key, (record, None))``, or ``(key, (None,
    record))`` from the right."""

    state_version = 3
    """2: what is known of each record was stored without a name."""

    def __init__(self, between: Between, delays: tuple[Any, ...], how: How = "inner") -> None:
        super().__init__(delays, TwoForms(IntervalRows(between, how), partial(IntervalColumns, between, how)))
        self.between = between

    def on_notify(self, time: Timestamp) -> None:
        super().on_notify(time)
        now = self.marks.watermark.now
        if now is not None:  # what has come may be settled already, also where the watermark has not moved
            self._fire(time, now)


class JoinOfRecordsThatEnd(IntervalJoin):
    """The join over all time whose records end: each pair of which neither record had ended at the event time of the other. Nothing is
    late: a record that comes behind the watermark meets what is left, and is forgotten with its time if it has ended by then. ``between``
    is how long right records live, as a negative length, and left ones."""

    may_change = frozenset({"between", "delays"})

    def told(self, mark: Any, time: Timestamp) -> tuple[Any, ...]:
        return (None,)
