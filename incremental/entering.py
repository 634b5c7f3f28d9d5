"""Changes that come into a loop at a later round than the first."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rayad.dataflow.vertex import Vertex
from rayad.progress import DataflowError, Timestamp, show


class EnterAt(Vertex):
    """Sends each change at the round that a function of its record says, counted from the round at which it came. It keeps nothing."""

    def __init__(self, round_of: Callable[[Any], int]) -> None:
        self._round_of = round_of

    def on_recv(self, edge: int, batch: Any, time: Timestamp) -> None:
        """Raises DataflowError for a round before the first."""
        by_round: dict[int, list[tuple[Any, int]]] = {}
        for change in batch:
            turn = self._round_of(change[0])
            if isinstance(turn, bool) or not isinstance(turn, int) or turn < 0:
                raise DataflowError(f"enter_at: the round of {show(change[0], 80)} is {show(turn, 40)}: give a whole number from 0 on")
            by_round.setdefault(turn, []).append(change)
        *outer, now = time.counters
        for turn in sorted(by_round):
            self.send_by(0, by_round[turn], Timestamp.of(time.epoch, (*outer, now + turn)))

    def checkpoint(self) -> Any:
        return None

    def restore(self, state: Any) -> None:
        """There is nothing."""

    def give(self, groups: frozenset[int]) -> Any:
        return None

    def take(self, state: Any) -> None:
        """There is nothing."""


__all__ = ["EnterAt"]
