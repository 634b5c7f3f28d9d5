"""Vertices that change when a change comes, and keep nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from rayad.dataflow.epochs import last_together
from rayad.dataflow.records.batches import rows_at, to_rows
from rayad.dataflow.streams.making import Make
from rayad.dataflow.vertex import Vertex
from rayad.incremental.columns.form import is_changes
from rayad.progress import DataflowError, Timestamp, show

if TYPE_CHECKING:
    from rayad.dataflow.streams.stream import Stream


class KeepsNothing(Vertex):
    """A vertex without state: there is nothing to store, and nothing that moves."""

    def checkpoint(self) -> Any:
        return None

    def restore(self, state: Any) -> None:
        """There is nothing."""

    def give(self, groups: frozenset[int]) -> Any:
        return None

    def take(self, state: Any) -> None:
        """There is nothing."""


class EnterAt(KeepsNothing):
    """Sends each change at the round that a function of its record says, counted from the round at which it came."""

    def __init__(self, round_of: Callable[[Any], int]) -> None:
        self._round_of = round_of

    def on_recv(self, edge: int, batch: Any, time: Timestamp) -> None:
        """Raises DataflowError for a round before the first."""
        by_round: dict[int, list[int]] = {}
        rows = to_rows(batch)
        for at, (record, _) in enumerate(rows):
            turn = self._round_of(record)
            if isinstance(turn, bool) or not isinstance(turn, int) or turn < 0:
                raise DataflowError(f"enter_at: the round of {show(record, 80)} is {show(turn, 40)}: give a whole number from 0 on")
            by_round.setdefault(turn, []).append(at)
        *outer, now = time.counters
        for turn, some in sorted(by_round.items()):
            left = rows_at(batch, np.array(some)) if is_changes(batch) else [rows[at] for at in some]
            self.send_by(0, left, Timestamp.of(time.epoch, (*outer, now + turn)))


class EpochsTogether(KeepsNothing):
    """Sends changes at the last of the epochs that are taken together with theirs. It stands where collections begin.

    Args:
        together: how many: see :class:`rayad.Dataflow`.
    """

    may_change = frozenset({"together"})

    def __init__(self, together: int) -> None:
        self._together = together

    def on_recv(self, edge: int, batch: Any, time: Timestamp) -> None:
        self.send_by(0, batch, Timestamp.of(last_together(time.epoch, self._together), time.counters))


def taken_together(changes: Stream, name: str | None = None) -> Stream:
    """Changes that come to collections from outside, at the times at which these take them. ``name``: of what does it, if anything does."""
    together = changes.flow.graph.epochs_together
    if together == 1:
        return changes
    make = Make(EpochsTogether, together)
    make.__name__ = "epochs-together"
    return changes.flow.vertex(make, inputs=[changes], name=name)


__all__ = ["EnterAt", "EpochsTogether", "taken_together"]
