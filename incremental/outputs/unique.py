"""Collections as tables of sinks that update: one record a key, and what becomes of it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from rayad.dataflow.operators.state.by_key.dicts import KeyedDict
from rayad.dataflow.operators.state.tables import Whole
from rayad.incremental.moment_vertex import Arrived, MomentVertex
from rayad.incremental.traces import add
from rayad.progress import DataflowError, Timestamp, show


class Alone(Whole):
    """A record alone in a tuple."""

    def opened(self, values: list[Any]) -> list[list[Any]]:
        return [[record for (record,) in values]]

    def closed(self, columns: Sequence[Sequence[Any]]) -> list[Any]:
        return [(record,) for record in columns[0]]


class Unique(MomentVertex):
    """Gives of each key that changes in an epoch one change: ``(record, 1)`` where a record comes or replaces the one before it,
    ``(record, -1)`` where it goes and none comes.

    Args:
        what: the sink, for errors.
    """

    why_unreadable = ""

    def __init__(self, what: str) -> None:
        super().__init__()
        self.rows = KeyedDict(opening=Alone())
        """By key: the record, alone in a tuple."""
        self._what = what

    def keeps(self) -> str:
        """See there."""
        return "the record of each key"

    def on_moment(self, time: Timestamp, arrived: list[Arrived], scheduled: Collection[Any]) -> None:
        """Raises DataflowError for a key that has two records, or none (null), or a record that is removed and is not there."""
        changed: dict[Any, dict[Any, int]] = {}
        for (key, record), weight in arrived[0].items():
            changed.setdefault(key, {})[record] = weight
        out: list[tuple[Any, int]] = []
        with self.rows.changing(list(changed)) as rows:
            for key, weights in changed.items():
                before = rows.get(key)
                after = self._after(time, key, before, weights)
                if after is not None:
                    rows[key] = after
                    out.append((after[0], 1))
                elif before is not None:
                    del rows[key]
                    out.append((before[0], -1))
        self.send_changes(time, out)

    def _after(self, time: Timestamp, key: Any, before: tuple[Any] | None, weights: dict[Any, int]) -> tuple[Any] | None:
        there: dict[Any, int] = {} if before is None else {before[0]: 1}
        for record, weight in weights.items():
            add(there, record, weight)
        if not there:
            return None
        several = [record for record, weight in there.items() for _ in range(weight)][:2]
        if min(there.values()) < 0:
            gone = min(there, key=lambda record: there[record])
            raise DataflowError(
                f"{self._what}: {show(gone, 80)} was removed in epoch {time.epoch} and was not there: what is removed must have been "
                "inserted"
            )
        if key is None or (type(key) is tuple and None in key):
            raise DataflowError(
                f"{self._what}: {show(several[0], 80)} has the key {show(key, 40)} in epoch {time.epoch}: a record without a key can "
                "be neither replaced nor deleted; filter such records out"
            )
        if len(several) > 1:
            raise DataflowError(
                f"{self._what}: key {show(key, 60)} has two records after epoch {time.epoch}, {show(several[0], 80)} and "
                f"{show(several[1], 80)}: a sink that updates has one of a key; give key= what tells them apart, or write changes()"
            )
        return (several[0],)


__all__ = ["Unique"]
