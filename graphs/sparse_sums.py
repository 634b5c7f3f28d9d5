"""Sums over the edges of each target: the product of a sparse matrix of ones with a vector, in numpy.

Edges are sorted by target. One gather brings the sources' values into the order of the edges, one segmented sum adds them up, in
pieces of so many edges that the values stay within the processor's cache. The order of additions depends on the edges alone.
"""

from __future__ import annotations

import numpy as np

from rayad.graphs.numbers import Floats, Ints

PIECE_EDGES = 1 << 16


class SparseSums:
    """The edges ``source[i] -> target[i]`` between ``count`` nodes, sorted by target; both shape (edges,).

    >>> sums = SparseSums(3, source=np.array([0, 1, 1]), target=np.array([0, 0, 2]))
    >>> sums.of(np.array([10.0, 1.0, 5.0])).tolist()
    [11.0, 0.0, 1.0]
    """

    def __init__(self, count: int, source: Ints, target: Ints) -> None:
        self.count = count
        self._pieces: list[tuple[Ints, Ints, Ints]] = []  # sources; where the targets begin; the targets
        for start in range(0, len(source), PIECE_EDGES):
            part = target[start : start + PIECE_EDGES]
            begins = np.flatnonzero(np.append(True, part[1:] != part[:-1]))
            self._pieces.append((source[start : start + PIECE_EDGES], begins, part[begins]))
        self._values: Floats = np.empty(min(PIECE_EDGES, len(source)))

    def of(self, x: Floats) -> Floats:
        """For each node, the sum of ``x`` over the sources of its edges, shape (count,)."""
        sums = np.zeros(self.count)
        for source, begins, target in self._pieces:
            values = self._values[: len(source)]
            x.take(source, out=values, mode="clip")  # "clip": without a second check of bounds
            sums[target] += np.add.reduceat(values, begins)
        return sums
