"""The records of both sides that a join over event time keeps in rows, until the watermark is beyond them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from typing import Any

from rayad.dataflow.operators.state.by_key.beyond_memory import NotedRowsBeyondMemory
from rayad.dataflow.operators.state.stored_columns import stored_mixed, taken_back_mixed
from rayad.dataflow.operators.state.touched_keys import Additions

SIDES = ("left", "right")
"""The tables of what a join keeps."""


class RecordsInTime(NotedRowsBeyondMemory):
    """Records in dicts by key. An increment has the batches that have come, and the last watermark: all else follows from them."""

    def __init__(self) -> None:
        super().__init__()
        self._noted: Additions = Additions()
        self._placed = 0  # records since there were none
        self._settled: Any = None  # the last watermark

    @abstractmethod
    def put(self, side: int, batch: Any, *told: Any) -> Any:
        """Take records in; what a join is told besides is stored with the batch, so it has to be the same when that is taken back."""

    @abstractmethod
    def due(self, mark: Any) -> Iterator[list[Any]]:
        """What is settled at a watermark (None: all); it is forgotten."""

    def note(self, side: int, batch: Any, told: tuple[Any, ...], records: int) -> None:
        """A batch of so many records has been put in."""
        self._placed = self._placed + records if self.is_used else 0
        self._size.changed(records)
        self._noted.note((side, batch, *told), records, self._placed)

    def pass_over(self, mark: Any) -> None:
        """Forget what is settled at a watermark, and give nothing."""
        for _ in self.due(mark):
            pass

    def settled(self, mark: Any) -> None:
        """The watermark is there (None: at the end)."""
        self._settled = mark
        if mark is None:
            self._noted.forget()

    def changed(self, noted: list[Any]) -> Any:
        return [(side, stored_mixed([batch]), *told) for side, batch, *told in noted], self._settled

    def restore_changes(self, changes: Any) -> None:
        added, settled = changes
        for side, batch, *told in added:
            self.put(side, taken_back_mixed(batch)[0], *told)
        if settled is not None:
            self.pass_over(settled)


__all__ = ["SIDES", "RecordsInTime"]
