"""The as-of join's half in rows."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from typing import Any, Literal

from rayad.dataflow.operators.joins.kept_rows import TICK, KeptRows, placed
from rayad.dataflow.records.event_times import exact_moment
from rayad.dataflow.windows import AsOf

AsOfHow = Literal["left", "inner"]
Entries = list[Any]


class AsOfRows(KeptRows):
    """Left records that are not settled, and right records that they or later ones may meet. The last field of an entry is its epoch."""

    more = "epoch"

    def __init__(self, rule: AsOf, how: AsOfHow) -> None:
        super().__init__()
        self.rule = rule
        self.how = how
        self._reach = None if rule.tolerance is None else exact_moment(rule.tolerance)
        self._behind = rule.direction != "forward"
        self._ahead = rule.direction != "backward"

    def ends_of(self, side: int, tick: Any) -> tuple[Any, ...]:
        """Looking backward a left record is settled at its tick, and for the nearest one it is known then how long it has to wait. A right
        record settles left ones before it that look ahead, makes right ones before it needless, and is too old beyond the tolerance."""
        if side == 0:
            return (tick,) if self._behind else () if self._reach is None else (tick + self._reach,)
        if self._reach is None or not self._behind:
            return (tick,)
        return (tick, tick + self._reach)

    def put(self, side: int, batch: Any, *told: Any) -> tuple[list[Any], list[Any]]:
        """Take records in; ``told`` are the watermark and the epoch. Gives those that are late, as ``(key, record)``, and no results."""
        mark, epoch = told
        limit = None if mark is None else exact_moment(mark)
        late: list[Any] = []
        records = placed(batch)
        self.fetch(key for key, _ in records)
        for key, (time, record) in records:
            if self.rule.scale is not None:
                self.rule.scale.admit(time)
            entry = [exact_moment(time), time, record, epoch]
            if limit is not None and entry[0] < limit:
                late.append((key, record))
            elif side == 0 or not self._replaces(key, entry):
                self.keep(side, key, entry)
        self.note(side, batch, told, len(records))
        return late, []

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
        limit = None if mark is None else exact_moment(mark)
        for ended in self.ended(mark):
            out = self._looked_at(ended, limit)
            if mark is None:  # nothing comes any more that others would wait for
                for key, sides in list(self.kept.items()):
                    out += self._answers(key, sides, 0, len(sides[0]))
                    self.is_empty(key)
            if out:
                yield out

    def _looked_at(self, ended: Iterator[tuple[int, Any, Any, Any]], limit: Any) -> list[Any]:
        out: list[Any] = []
        for side, key, tick, end in ended:
            sides = self.kept.get(key)
            if sides is None:  # it has gone to another replica, or nothing of it is left
                continue
            if side == 0:
                out += self._if_settled(key, sides, tick, end)
            elif self._ahead and end == tick:
                before = (bisect_right if self.rule.exact else bisect_left)(sides[0], tick, key=TICK)
                out += self._answers(key, sides, 0, before)
            self._forget(*sides, limit)
            self.is_empty(key)
        return out

    def _if_settled(self, key: Any, sides: tuple[Entries, Entries], tick: Any, end: Any) -> list[Any]:
        """The results of the left records of a tick, if they are settled; else they are looked at again when they are."""
        lefts, rights = sides
        first, behind = bisect_left(lefts, tick, key=TICK), bisect_right(lefts, tick, key=TICK)
        if first == behind:
            return []
        settled: Any = tick
        if self._ahead:
            found = self._met(rights, tick)
            reach = self._reach if found is None else abs(found[0] - tick)
            if reach is None:
                return []
            settled = tick + reach
        if settled > end:
            self.look_again(0, key, tick, settled)
            return []
        return self._answers(key, sides, first, behind)

    def _answers(self, key: Any, sides: tuple[Entries, Entries], first: int, behind: int) -> list[Any]:
        """The results of some left records, which are forgotten."""
        lefts, rights = sides
        gone = lefts[first:behind]
        del lefts[first:behind]
        met = [(record, self._met(rights, tick)) for tick, _, record, _ in gone]
        return [(key, (record, found and found[2])) for record, found in met if found is not None or self.how == "left"]

    def _met(self, rights: Entries, tick: Any) -> Any:
        """The entry that a left record of a tick meets, of those known; None: none."""
        found = None
        if self._behind and (at := self._last_before(rights, tick)) >= 0:
            found = rights[at]
        if self._ahead:
            at = (bisect_left if self.rule.exact else bisect_right)(rights, tick, key=TICK)
            if at < len(rights) and (found is None or rights[at][0] - tick < tick - found[0]):
                found = rights[at]
        return found if found is None or self._reach is None or abs(found[0] - tick) <= self._reach else None

    def _last_before(self, rights: Entries, tick: Any) -> int:
        return (bisect_right if self.rule.exact else bisect_left)(rights, tick, key=TICK) - 1

    def _forget(self, lefts: Entries, rights: Entries, limit: Any) -> None:
        """The watermark is at ``limit`` (None: nothing is known of it): of the right records behind it those go that no left record meets
        any more. Those to come meet the last one, or one ahead; those that wait may meet earlier ones."""
        if limit is None:
            return
        first = bisect_left(rights, limit, key=TICK) - self._behind
        if self._behind and self._reach is not None:
            first = max(first, bisect_left(rights, limit - self._reach, key=TICK))
        if lefts:
            first = min(first, self._first_to_meet(rights, lefts[0][0]))
        del rights[: max(0, first)]

    def _first_to_meet(self, rights: Entries, tick: Any) -> int:
        """The first right record that a left one of a tick may meet."""
        if not self._behind:
            return bisect_left(rights, tick, key=TICK)
        first = self._last_before(rights, tick)
        return first if self._reach is None else max(first, bisect_left(rights, tick - self._reach, key=TICK))

    def forget(self, mark: Any) -> None:
        """Forget what is needless at a watermark (None: nothing is known of it)."""
        limit = None if mark is None else exact_moment(mark)
        for key, sides in list(self.kept.items()):
            self._forget(*sides, limit)
            self.is_empty(key)


__all__ = ["AsOfHow", "AsOfRows"]
