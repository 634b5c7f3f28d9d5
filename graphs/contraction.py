"""Contraction: from any edges, in any order, to a spanning forest of depth one over the nodes that they touch.

One pair (node, root) for each node says which nodes any number of edges connect. A replica contracts the edges
that it gets, wherever their nodes live, while they arrive; so no edge is exchanged by key or kept. An
edge whose ends have one root is redundant and dropped, soon nearly every one; the others wait until there are enough to
pay for a pass over the nodes.

Sources: McSherry, Isard and Murray, "Scalability! But at what COST?" (HotOS 2015), union-find per worker; Sutton, Ben-Nun and
Barak, "Optimizing parallel graph connectivity computation via subgraph sampling" (IPDPS 2018), for dropping edges inside what is
known to be connected.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from rayad.dataflow.operators.state.stored_columns import narrow, stored, taken_back
from rayad.graphs.disjoint_sets import smallest_reachable
from rayad.graphs.edges import DST, SRC, SRC_NAME, sides
from rayad.graphs.nodes import Nodes, grown
from rayad.graphs.numbers import Ints, to_array
from rayad.graphs.stored_state import joined


class Contraction:
    """The forest of prepared edges (see ``edges.py``), taken in batch by batch."""

    ROWS_MIN = 1 << 15
    """Rows that are processed together: a small epoch is one pass, a large one stays within the processor's cache."""

    def __init__(self) -> None:
        self.nodes = Nodes(0, 1, 1)
        self._root: Ints = np.empty(0, np.int64)
        self._rooted = 0
        self._batches: list[Any] = []
        self._rows = 0
        self._apart: list[tuple[Ints, Ints]] = []
        self._apart_rows = 0

    def checkpoint(self) -> Any:
        """The forest so far and the edges that wait."""
        apart = [narrow(joined([pair[side] for pair in self._apart])) for side in (0, 1)]
        return self.nodes.checkpoint(), narrow(self._root[: self._rooted]), apart, stored(self._batches)

    def restore(self, state: Any) -> None:
        """Take back what :meth:`checkpoint` gave."""
        nodes, root, apart, batches = state
        self.nodes.restore(nodes)
        self._root, self._rooted = root.astype(np.int64), len(root)
        if len(apart[0]):
            self._apart = [(apart[0].astype(np.int64), apart[1].astype(np.int64))]
        self._apart_rows = len(apart[0])
        self._batches = taken_back(batches)
        self._rows = sum(batch.num_rows for batch in self._batches)

    def add(self, batch: Any) -> None:
        """Take in a prepared batch."""
        self._batches.append(batch)
        self._rows += batch.num_rows
        if self._rows >= self.ROWS_MIN:
            self._take_in()

    def forest(self) -> tuple[Ints, Ints]:
        """The number of every node, and the dense index (the place among these) of its root, with equal roots where the edges
        connect. ``nodes`` has their names."""
        self._take_in()
        self._contract()
        return self.nodes.numbers, self._root[: len(self.nodes)]

    def _take_in(self) -> None:
        batches, self._batches, self._rows = self._batches, [], 0
        if not batches:
            return
        src, dst = (np.concatenate([to_array(batch.column(side)) for batch in batches], dtype=np.int64) for side in (SRC, DST))
        known = len(self.nodes)
        left, right = self.nodes.add_unnamed(src), self.nodes.add_unnamed(dst)
        self._grow()
        if self.nodes.names or any(SRC_NAME in batch.schema.names for batch in batches):
            ends = ((batch.column(side), names) for batch in batches for side, names in sides(batch))
            self.nodes.learn(((self.nodes.find(to_array(numbers).astype(np.int64)), names) for numbers, names in ends), known)
        left, right = self._root.take(left, mode="clip"), self._root.take(right, mode="clip")
        apart = np.flatnonzero(left != right)
        if len(apart):
            self._apart.append((left[apart], right[apart]))
            self._apart_rows += len(apart)
            if 2 * self._apart_rows > len(self.nodes) and self._apart_rows >= self.ROWS_MIN:
                self._contract()

    def _grow(self) -> None:
        count = len(self.nodes)
        if count == self._rooted:
            return
        self._root = grown(self._root, count, 0)
        self._root[self._rooted : count] = np.arange(self._rooted, count)
        self._rooted = count

    def _contract(self) -> None:
        if not self._apart:
            return
        left, right = (np.concatenate(side) for side in zip(*self._apart, strict=True))
        self._apart, self._apart_rows = [], 0
        count = len(self.nodes)
        parent = smallest_reachable(count, left, right)
        self._root[:count] = parent.take(self._root[:count], mode="clip")
