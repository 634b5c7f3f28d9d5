"""Where collections begin: changes that somebody sends, and records that replace those before them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rayad.incremental.moment_vertex import MomentVertex
from rayad.incremental.traces import add, taken_out
from rayad.progress import DataflowError, Timestamp, show


class Present(MomentVertex):
    """Lets changes pass that leave of each record as many as there are, or none. Records come as keys."""

    def __init__(self) -> None:
        super().__init__()
        self.there: dict[Any, int] = {}
        """How often each record is there."""

    def on_moment(self, time: Timestamp, arrived: list[dict[tuple[Any, Any], int]], scheduled: set[Any]) -> None:
        """Raises DataflowError for a record that is removed and is not there."""
        out = []
        for (record, _), weight in arrived[0].items():
            add(self.there, record, weight)
            if self.there.get(record, 0) < 0:
                there = self.there[record] - weight
                raise DataflowError(
                    f"{show(record, 80)} was removed {-weight} times in epoch {time.epoch}, and was there {there} times: what is removed "
                    "must have been inserted before, or in the same epoch"
                )
            out.append((record, weight))
        self.send_changes(time, out)

    def give_keys(self, leaves: Callable[[Any], bool]) -> Any:
        """See there."""
        return taken_out(self.there, leaves) or None

    def take_keys(self, given: Any, *, is_over: bool) -> None:
        """See there."""
        self.there.update(given)


class Upsert(MomentVertex):
    """The newest record of each key replaces the one before it.

    Args:
        order: gives what is compared; None: there may be one record of a key in an epoch.
        deleted: whether a record says that its key is gone.
    """

    def __init__(self, order: Callable[[Any], Any] | None, deleted: Callable[[Any], Any] | None) -> None:
        super().__init__()
        self.newest: dict[Any, Any] = {}
        """By key, also of one that is gone where a later record may be older."""
        self._order = order
        self._deleted = deleted

    def on_moment(self, time: Timestamp, arrived: list[dict[tuple[Any, Any], int]], scheduled: set[Any]) -> None:
        """Raises DataflowError for two records of a key in one epoch that have no order."""
        records: dict[Any, list[Any]] = {}
        for key, record in arrived[0]:
            records.setdefault(key, []).append(record)
        out: list[tuple[Any, int]] = []
        for key, some in records.items():
            if self._order is None and len(some) > 1:
                raise DataflowError(
                    f"{len(some)} records of key {show(key, 60)} came in epoch {time.epoch}, {show(some[0], 60)} and {show(some[1], 60)} "
                    "among them: which is the newest? Give as_collection(order=...)"
                )
            before = self.newest.get(key)
            newest = some[0] if self._order is None else max([*some, *([] if before is None else [before])], key=self._order)
            if newest == before:
                continue
            out += [(record, weight) for record, weight in ((before, -1), (newest, 1)) if record is not None and not self._is_gone(record)]
            if self._order is None and self._is_gone(newest):
                self.newest.pop(key, None)
            else:
                self.newest[key] = newest
        self.send_changes(time, out)

    def _is_gone(self, record: Any) -> bool:
        return self._deleted is not None and bool(self._deleted(record))

    def checkpoint(self) -> Any:
        return {name: value for name, value in super().checkpoint().items() if name not in ("_order", "_deleted")}

    def give_keys(self, leaves: Callable[[Any], bool]) -> Any:
        """See there."""
        return taken_out(self.newest, leaves) or None

    def take_keys(self, given: Any, *, is_over: bool) -> None:
        """See there."""
        self.newest.update(given)


__all__ = ["Present", "Upsert"]
