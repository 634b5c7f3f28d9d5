"""Changes that come to nothing at a moment are dropped."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from rayad.incremental.columns.beginning import ConsolidatedColumns
from rayad.incremental.moment_vertex import Arrived, MomentVertex
from rayad.progress import Timestamp


class Consolidate(MomentVertex):
    """Gives each record once in a moment, with its weight. Records come as keys."""

    def __init__(self) -> None:
        super().__init__(ConsolidatedColumns())

    def on_moment(self, time: Timestamp, arrived: list[Arrived], scheduled: Collection[Any]) -> None:
        """See there."""
        self.send_changes(time, [(record, weight) for (record, _), weight in arrived[0].items()])


__all__ = ["Consolidate"]
