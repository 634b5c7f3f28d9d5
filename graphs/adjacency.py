"""A growing set of directed edges between dense indexes, with the neighbours of whole columns of nodes.

An edge is one int64, ``source << 32 | target``; edges are kept in sorted arrays (each of them a CSR whose row pointers
are found by binary search). New edges become an array of their own, and neighbours of similar size are merged, as in a
log-structured merge tree: adding d edges costs O(d log m) amortised, however many there are already.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from rayad.dataflow.operators.state.stored_columns import narrow
from rayad.dataflow.operators.state.touched_keys import Additions
from rayad.graphs.numbers import Ints

SHIFT = 32
_LOW = (1 << SHIFT) - 1
_PIECE = 1 << 16


def _once(ordered: Ints) -> Ints:
    """The distinct values of a sorted array, moved together within it, piece by piece: no second array of its size is touched."""
    kept = last = 0
    for start in range(0, len(ordered), _PIECE):
        part = ordered[start : start + _PIECE]
        keep = np.empty(len(part), np.bool_)
        keep[0] = start == 0 or part[0] != last
        np.not_equal(part[1:], part[:-1], out=keep[1:])
        last = int(part[-1])
        once = part[keep]
        ordered[kept : kept + len(once)] = once
        kept += len(once)
    return ordered[:kept] if 2 * kept > len(ordered) else ordered[:kept].copy()


class Adjacency:
    """A growing set of directed edges.

    >>> edges = Adjacency()
    >>> [part.tolist() for part in edges.add(np.array([0, 0, 0]), np.array([2, 1, 2]))]
    [[0, 0], [1, 2]]
    >>> [part.tolist() for part in edges.add(np.array([0, 1]), np.array([2, 0]))]
    [[1], [0]]
    >>> [part.tolist() for part in edges.neighbours(np.array([1, 0]))]
    [[0, 1, 1], [0, 1, 2]]
    """

    MERGE_RATIO = 4

    def __init__(self) -> None:
        self._layers: list[Ints] = []  # largest first
        self._pointers: tuple[Ints | None, Ints] = (None, np.empty(0, np.int64))  # a layer and its row pointers
        self._added = Additions()

    # -- snapshots -----------------------------------------------------------------
    def checkpoint(self) -> Any:
        """All edges."""
        return _stored(self._layers)

    def restore(self, state: Any) -> None:
        """Take back what :meth:`checkpoint` gave."""
        self._layers = [keys] if len(keys := _taken_back(state)) else []

    def take_changes(self) -> Callable[[], Any] | None:
        """The edges added since the last call; None where these are most of them."""
        added = self._added.take()
        return None if added is None else lambda: _stored(added)

    def restore_changes(self, changes: Any) -> None:
        """Take back what the function of :meth:`take_changes` gave."""
        self.add_keys(_taken_back(changes))

    # -- edges ---------------------------------------------------------------------

    def __len__(self) -> int:
        return sum(map(len, self._layers))

    def add(self, source: Ints, target: Ints) -> tuple[Ints, Ints]:
        """Take edges in; gives those that were not there, sorted and once each."""
        return self.add_keys(source << SHIFT | target)

    def add_keys(self, keys: Ints) -> tuple[Ints, Ints]:
        """As :meth:`add`, for edges ``source << SHIFT | target`` in an array that is given away: it is sorted in place."""
        keys.sort()
        keys = _once(keys)
        for layer in self._layers:
            if len(keys):
                at = np.searchsorted(layer, keys)
                at[at == len(layer)] = 0
                keys = keys[layer[at] != keys]
        if len(keys):
            self._layers.append(keys)
            self._pointers = (None, keys[:0])
            self._added.note(keys, len(keys), len(self))
        while len(self._layers) > 1 and len(self._layers[-2]) < self.MERGE_RATIO * len(self._layers[-1]):
            last = self._layers.pop()
            self._layers[-1] = np.sort(np.concatenate([self._layers[-1], last]))
        return keys >> SHIFT, keys & _LOW

    def all_edges(self) -> tuple[Ints, Ints]:
        """Sources and targets of all edges, in an order that depends on the edges alone."""
        if len(self._layers) > 1:
            self._layers = [np.sort(np.concatenate(self._layers))]
        if not self._layers:
            return np.empty(0, np.int64), np.empty(0, np.int64)
        return self._layers[0] >> SHIFT, self._layers[0] & _LOW

    def neighbours(self, sources: Ints) -> tuple[Ints, Ints]:
        """For each edge that begins in ``sources``: the position of its source there, and its target."""
        ats, targets = [], []
        for layer in self._layers:
            low, high = self._rows(layer, sources)
            length = high - low
            total = int(length.sum())
            if total:
                at = np.repeat(np.arange(len(sources)), length)
                begins = np.cumsum(length) - length
                ats.append(at)
                targets.append(layer[np.arange(total) + (low - begins)[at]] & _LOW)
        if len(ats) == 1:
            return ats[0], targets[0]
        if not ats:
            return np.empty(0, np.int64), np.empty(0, np.int64)
        return np.concatenate(ats), np.concatenate(targets)

    def _rows(self, layer: Ints, sources: Ints) -> tuple[Ints, Ints]:
        """Where in a layer the edges of each source begin and end: for many sources by row pointers, built once, else by bisection."""
        pointed, pointers = self._pointers
        if pointed is not layer and layer is self._layers[0] and len(sources) * 8 > len(layer) >> 4:
            sizes = np.bincount(layer >> SHIFT)
            pointers = np.concatenate([[0], np.cumsum(sizes)])
            pointed, pointers = self._pointers = layer, pointers
        if pointed is layer:
            last = len(pointers) - 1  # sources beyond it have no edges
            return pointers[np.minimum(sources, last)], pointers[np.minimum(sources + 1, last)]
        return np.searchsorted(layer, sources << SHIFT), np.searchsorted(layer, (sources + 1) << SHIFT)


def _stored(layers: list[Ints]) -> Any:
    """Edges, sorted: how many each source has, and their targets; half as many bytes as the keys."""
    keys = np.sort(np.concatenate(layers)) if layers else np.empty(0, np.int64)
    sources = keys >> SHIFT
    first = np.flatnonzero(np.append(True, sources[1:] != sources[:-1])) if len(keys) else sources
    return narrow(np.diff(sources[first], prepend=0)), narrow(np.diff(np.append(first, len(keys)))), narrow(keys & _LOW)


def _taken_back(state: Any) -> Ints:
    steps, sizes, targets = (part.astype(np.int64) for part in state)
    keys: Ints = np.repeat(np.cumsum(steps) << SHIFT, sizes) | targets
    return keys
