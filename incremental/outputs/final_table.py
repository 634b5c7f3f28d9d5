"""The table of a collection when its input has ended."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from rayad.dataflow.operators.state.by_key.dicts import KeyedDict
from rayad.dataflow.vertex import EndVertex
from rayad.incremental.moment_vertex import Arrived, MomentVertex
from rayad.incremental.traces import add
from rayad.progress import DataflowError, Timestamp, show

SENT_ROWS = 4096
"""The records of a batch that leaves, at most."""


class FinalTable(MomentVertex, EndVertex):
    """Gives each record as often as it is there, at the end. Records come as keys.

    Args:
        epoch: the last one whose changes count; None: all.
    """

    def __init__(self, epoch: int | None) -> None:
        super().__init__()
        self.there = KeyedDict()
        """How often each record is there."""
        self._epoch = epoch

    def keeps(self) -> str:
        """See there."""
        return "the records that are there"

    def on_moment(self, time: Timestamp, arrived: list[Arrived], scheduled: Collection[Any]) -> None:
        """See there."""
        if self._epoch is not None and time.epoch > self._epoch:
            return
        with self.there.changing([record for record, _ in arrived[0]]) as counts:
            for (record, _), weight in arrived[0].items():
                add(counts, record, weight)

    def on_end(self, time: Timestamp) -> None:
        """All of it. Raises DataflowError for a record that was removed more often than it was inserted."""
        rows: list[Any] = []
        for record, count in self.there.kept.items():
            if count < 0:
                raise DataflowError(f"{show(record, 80)} is there {count} times at the end: what is removed must have been inserted before")
            rows += [record] * count
        for at in range(0, len(rows), SENT_ROWS):
            self.send_by(0, rows[at : at + SENT_ROWS], time)


__all__ = ["FinalTable"]
