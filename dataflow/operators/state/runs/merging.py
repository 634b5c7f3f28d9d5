"""Rows in one order, or on their way into it: runs are merged a piece at a time.

A piece is what lies between two edges in the order of all runs that are merged. What is before the edge is merged, what is
behind it is in slices of the runs that came. So at any time each row is there once, to be searched, stored and moved, and no call of a
vertex waits until a large state is merged.

Prior art: merges with fuel in the spine of differential dataflow.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeAlias

import numpy as np

from rayad.dataflow.operators.state.runs.order import Edge, Order, Places, edges_of, position_of
from rayad.dataflow.operators.state.runs.run import Run

FUEL = 8
"""For each row that comes so many are merged in each merge that is under way: it is over when an eighth as many rows have come as it has.
With less, searches meet more runs; with more, a batch waits longer (decision 119)."""
PIECES_AT_A_TIME = 2
Leading: TypeAlias = Callable[[Run], Order]
"""The columns that lead the order of a run: rows that are equal in these are in one piece."""


class InOrder:
    """Rows in one order, but for those that are still to be merged.

    Args:
        done: the pieces in order.
        rest: to be merged behind them.
        edges: between the pieces that are to come, the last one first.
        fuel: rows that may be merged.
        on_disk: whether pieces go to disk as they are merged.
    """

    __slots__ = ("_edges", "_fuel", "_reach", "done", "on_disk", "rest")

    def __init__(
        self, done: list[Run], rest: Iterable[Run] = (), edges: Iterable[Edge] = (), fuel: int = 0, *, on_disk: bool = False
    ) -> None:
        self.done = done
        self.rest = list(rest)
        self.on_disk = on_disk
        self._edges = list(edges)
        self._fuel = fuel
        self._reach: tuple[Places, Places] | None = None

    @property
    def runs(self) -> list[Run]:
        """All of them."""
        return [*self.done, *self.rest] if self.rest else self.done

    @property
    def rows(self) -> int:
        """How many."""
        return sum(map(len, self.done)) + sum(map(len, self.rest))

    @classmethod
    def of(cls, runs: list[Run], pieces: int, leading: Leading, *, on_disk: bool) -> InOrder:
        """Runs that are to be merged in about so many pieces."""
        return cls([], runs, edges_of(list(map(leading, runs)), pieces)[::-1], on_disk=on_disk)

    def refuelled(self, rows: int) -> Iterator[None]:
        """So many rows have come: each time that this yields a piece is to be merged. At one time two are, or as much as has come: the rest
        of the fuel stays for the next time, or a replica to which many rows move would merge all at once."""
        self._fuel += FUEL * rows
        merged = pieces = 0
        while self.rest and (pieces < PIECES_AT_A_TIME or merged < rows):
            size = sum(map(len, self.rest)) // (len(self._edges) + 1)
            if self._fuel < size:
                return
            self._fuel, merged, pieces = self._fuel - size, merged + size, pieces + 1
            yield

    def next_piece(self, leading: Leading) -> list[Run]:
        """Take the rows of the next piece out of what is to be merged."""
        edge = self._edges.pop() if self._edges else None
        piece, rest = [], []
        for run in self.rest:
            at = len(run) if edge is None else position_of(leading(run), edge)
            piece += [run.cut(0, at)] if at else []
            rest += [run.cut(at, len(run))] if at < len(run) else []
        self.rest, self._reach = rest, None
        return piece

    def append(self, run: Run) -> None:
        """A run goes on behind all others, in the same order; nothing is still to be merged."""
        self.done.append(run)
        self._reach = None

    def near(self, places: Places) -> list[Run]:
        """The runs whose places reach over any of these, which ascend; there are some."""
        runs = self.runs
        if len(runs) == 1:
            return runs
        if self._reach is None:
            self._reach = (np.array([run.place[0] for run in runs]), np.array([run.place[-1] for run in runs]))
        first, last = self._reach
        some = np.flatnonzero(np.searchsorted(places, first) < np.searchsorted(places, last, side="right"))
        return runs if len(some) == len(runs) else [runs[at] for at in some.tolist()]

    def changed(self, change: Callable[[Run], Iterable[Run]]) -> InOrder:
        """With what a function makes of each run, in the same order."""
        done, rest = ([some for run in runs for some in change(run)] for runs in (self.done, self.rest))
        return InOrder(done, rest, self._edges, self._fuel, on_disk=self.on_disk)


__all__ = ["InOrder", "Leading"]
