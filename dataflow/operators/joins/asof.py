"""As-of joins: each left record meets the right record of its key with the latest event time at or before its own.

A left record is *settled* when the watermark has passed its event time: then no earlier right record can come any more, but late, and late
ones are passed over. So each left record is answered once, and nothing has to be taken back. Of the right records of a key the last one
before the watermark stays, for the left records to come, and those after it. Names are those of Polars (``join_asof``) and pandas
(``merge_asof``); SQL: ``ASOF JOIN`` (DuckDB).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from typing import Any, Literal

from rayad.dataflow.operators.joins.in_time import JoinInTime
from rayad.dataflow.operators.joins.kept_rows import TICK, KeptRows, placed
from rayad.dataflow.records.event_times import exact_moment
from rayad.dataflow.windows import AsOf
from rayad.progress import Timestamp

AsOfHow = Literal["left", "inner"]


class AsOfRows(KeptRows):
    """Left records that are not settled, and right records that they or later ones may meet. The last field of an entry is its epoch."""

    more = "epoch"

    def __init__(self, rule: AsOf, how: AsOfHow) -> None:
        super().__init__()
        self.rule = rule
        self.how = how
        self._reach = None if rule.tolerance is None else exact_moment(rule.tolerance)

    def ends_of(self, side: int, tick: Any) -> tuple[Any, ...]:
        """A left record is settled then; a right one makes those before it needless, and is too old when the tolerance is over."""
        return (tick,) if side == 0 or self._reach is None else (tick, tick + self._reach)

    def put(self, side: int, batch: Any, *told: Any) -> list[Any]:
        """Take records in; ``told`` are the watermark and the epoch. Gives those that are late, as ``(key, record)``."""
        mark, epoch = told
        limit = None if mark is None else exact_moment(mark)
        late: list[Any] = []
        records = placed(batch)
        for key, (time, record) in records:
            if self.rule.scale is not None:
                self.rule.scale.admit(time)
            entry = [exact_moment(time), time, record, epoch]
            if limit is not None and entry[0] < limit:
                late.append((key, record))
            elif side == 0 or not self._replaces(key, entry):
                self.keep(side, key, entry)
        self.note(side, batch, told, len(records))
        return late

    def _replaces(self, key: Any, entry: list[Any]) -> bool:
        """Of right records with the same event time the one of the later epoch counts; of one epoch that whose ``repr`` is greater: the
        order in which they come is nobody's."""
        rights = self.kept[key][1] if key in self.kept else []
        at = bisect_left(rights, entry[0], key=TICK)
        if at == len(rights) or rights[at][0] != entry[0]:
            return False
        if entry[3] > rights[at][3] or (entry[3] == rights[at][3] and repr(entry[2]) > repr(rights[at][2])):
            rights[at] = entry
        return True

    def due(self, mark: Any) -> Iterator[list[Any]]:
        """The results of the left records that are settled at a watermark (None: all)."""
        out: list[Any] = []
        for side, key, end in self.ended(mark):
            sides = self.kept.get(key)
            if sides is None:  # it has gone to another replica, or nothing of it is left
                continue
            if side == 0:
                out += self._answers(key, sides, end)
            else:
                self._forget(sides[1], end)
            self.is_empty(key)
        if out:
            yield out

    def _answers(self, key: Any, sides: tuple[list[Any], list[Any]], end: Any) -> Iterator[Any]:
        lefts, rights = sides
        count = bisect_right(lefts, end, key=TICK)
        gone = lefts[:count]
        del lefts[:count]
        for tick, _, record, _ in gone:
            at = (bisect_right if self.rule.exact else bisect_left)(rights, tick, key=TICK) - 1
            found = rights[at] if at >= 0 and (self._reach is None or tick - rights[at][0] <= self._reach) else None
            if found is not None or self.how == "left":
                yield key, (record, found[2] if found is not None else None)

    def _forget(self, rights: list[Any], end: Any) -> None:
        """Left records up to a tick are settled: later ones meet the last right record up to it, or one behind it."""
        del rights[: max(0, bisect_right(rights, end, key=TICK) - 1)]
        if self._reach is not None:
            del rights[: bisect_right(rights, end - self._reach, key=TICK)]


class AsOfJoin(JoinInTime):
    """``(key, (left, right))`` for each left record, when the watermarks of both sides have passed its event time. What comes behind
    that goes to output port 1, as of the other joins over event time."""

    def __init__(self, rule: AsOf, delays: tuple[Any, ...], how: AsOfHow = "inner") -> None:
        super().__init__(delays)
        self.open = AsOfRows(rule, how)

    def _put(self, side: int, batches: list[Any], mark: Any, time: Timestamp) -> list[Any]:
        return [late for batch in batches for late in self.open.put(side, batch, mark, time.epoch)]

    def _fire(self, time: Timestamp, mark: Any) -> None:
        self.send_cut(self.open.due(mark), time)


__all__ = ["AsOfHow", "AsOfJoin", "AsOfRows"]
