"""The join of two collections by key.

A change of one side meets all that the other side has accumulated, of each moment on its own: the pair changes at the first moment at which
both changes count. Source: McSherry et al., *Differential dataflow* (CIDR 2013), 3.3 (the join is bilinear).
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from rayad.incremental.columns.joining import JoinColumns
from rayad.incremental.moment_vertex import Arrived, MomentVertex
from rayad.incremental.moments import join
from rayad.incremental.traces import Kept, Trace, add
from rayad.progress import Timestamp


class Join(MomentVertex):
    """Gives ``(key, (left, right))`` for each pair of values of a key."""

    inputs = 2
    adds_up = False

    def __init__(self) -> None:
        super().__init__(JoinColumns())
        self.sides = (Trace(self.epochs.is_over), Trace(self.epochs.is_over))

    def kept(self) -> dict[str, Kept]:
        """See there."""
        return {"left": self.sides[0], "right": self.sides[1]}

    def keeps(self) -> str:
        """See there."""
        return "the records of both sides"

    def on_moment(self, time: Timestamp, arrived: list[Arrived], scheduled: Collection[Any]) -> None:
        """Each change of a side meets what the other one has; those of the same moment meet once."""
        out: dict[Timestamp, dict[Any, int]] = {}
        moment = time.counters
        for side, changes in enumerate(arrived):
            mine, other = self.sides[side], self.sides[1 - side]
            for (key, value), weight in changes.items():
                for met, at, count in other.changes(key):
                    both = (key, (value, met) if side == 0 else (met, value))
                    add(out.setdefault(Timestamp.of(time.epoch, join(moment, at)), {}), both, weight * count)
            for (key, value), weight in changes.items():
                mine.add(key, value, time, weight)
        for then in sorted(out, key=Timestamp.sort_key):
            self.send_changes(then, list(out[then].items()))


__all__ = ["Join"]
