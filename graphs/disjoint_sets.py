"""Disjoint sets over dense indexes, merged by whole columns of pairs.

Invariant: ``root[i]`` is the smallest member of the set of i (smallest as ``Nodes.in_order`` says), never
another; so a set's root is its label, and exactly those members whose label has fallen are touched by a merge. A merge
of m pairs contracts them to their distinct roots, hooks each root to a smaller neighbour and shortens pointers until
nothing is left (Shiloach and Vishkin 1982, in numpy), then relabels the members of the sets that lost their root. These
are found through circular lists, one per set, in time proportional to their number; or by one pass over all nodes when
they are many.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from rayad.dataflow.operators.state.stored_columns import narrow
from rayad.dataflow.operators.state.touched_keys import Additions
from rayad.graphs.nodes import Nodes, grown
from rayad.graphs.numbers import Ints, distinct


class DisjointSets:
    """The sets of all nodes of a table; a node joins it as a set of its own."""

    FEW = 256
    """Up to so many merges (or an eighth of the nodes) go through the lists, one by one."""

    def __init__(self, nodes: Nodes) -> None:
        self.nodes = nodes
        self.count = 0
        self._root: Ints = np.empty(0, np.int64)
        self._size: Ints = np.empty(0, np.int64)
        self._next: Ints = np.empty(0, np.int64)
        self._lists_stale = False
        self._changed = Additions()
        self._known = 0

    # -- snapshots -----------------------------------------------------------------
    def checkpoint(self) -> Any:
        """The root of each node; sizes and lists follow from it."""
        return narrow(self.root)

    def restore(self, state: Any) -> None:
        """Take back what :meth:`checkpoint` gave."""
        self.count = len(state)
        self._root = state.astype(np.int64)
        self._size = np.bincount(self._root, minlength=self.count)
        self._next = np.arange(self.count)
        self._lists_stale = True

    def take_changes(self) -> Callable[[], Any] | None:
        """The roots that have changed since the last call; None where these are most of them."""
        changed, known = self._changed.take(), self._known
        self._known = self.count
        return None if changed is None else lambda: self._roots_of(changed, known)

    def _roots_of(self, changed: list[Ints], known: int) -> Any:
        old = distinct(np.concatenate([np.empty(0, np.int64), *changed]))
        old = old[old < known]
        return narrow(old), narrow(self.root[old]), narrow(self.root[known:])

    def restore_changes(self, changes: Any) -> None:
        """Take back what the function of :meth:`take_changes` gave."""
        old, roots, new = changes
        root = np.concatenate([self.root, new.astype(np.int64)])
        root[old] = roots
        self.restore(root)

    # -- sets ----------------------------------------------------------------------
    @property
    def root(self) -> Ints:
        """The smallest member of the set of each node."""
        return self._root[: self.count]

    def grow(self) -> Ints:
        """Take in the nodes that the table has gained; gives them."""
        fresh = np.arange(self.count, len(self.nodes))
        self.count = len(self.nodes)
        for name, fill in (("_root", 0), ("_size", 1), ("_next", 0)):
            setattr(self, name, grown(getattr(self, name), self.count, fill))
        self._root[fresh] = self._next[fresh] = fresh
        self._size[fresh] = 1
        return fresh

    def union(self, left: Ints, right: Ints) -> Ints:
        """Merge the sets of ``left[i]`` and ``right[i]`` for all i; gives the nodes whose root has changed."""
        a, b = self._root[left], self._root[right]
        apart = a != b
        a, b = a[apart], b[apart]
        if not len(a):
            return np.empty(0, np.int64)
        roots = self.nodes.in_order(self._distinct(a, b))
        place = self._place(roots, a, b)
        winner = roots[smallest_reachable(len(roots), *place)]
        lost = roots != winner
        changed = self._merge(roots[lost], winner[lost])
        self._changed.note(changed, len(changed), self.count)
        return changed

    def _distinct(self, a: Ints, b: Ints) -> Ints:
        both = np.concatenate([a, b])
        if len(both) * 8 < self.count:
            return distinct(both)
        mask = np.zeros(self.count, np.bool_)
        mask[both] = True
        return np.flatnonzero(mask)

    def _place(self, roots: Ints, a: Ints, b: Ints) -> tuple[Ints, Ints]:
        """Where in ``roots`` each of ``a`` and ``b`` stands."""
        if len(a) * 8 < self.count:
            order = np.argsort(roots)
            inverse = roots[order]
            return order[np.searchsorted(inverse, a)], order[np.searchsorted(inverse, b)]
        where = np.empty(self.count, np.int64)
        where[roots] = np.arange(len(roots))
        return where[a], where[b]

    def _merge(self, losers: Ints, winners: Ints) -> Ints:
        total = int(self._size[losers].sum())
        np.add.at(self._size, winners, self._size[losers])
        if len(losers) <= self.FEW and total <= max(self.FEW, self.count // 8):
            return self._merge_few(losers, winners)
        target = np.arange(self.count)
        target[losers] = winners
        new = target[self.root]
        changed = np.flatnonzero(new != self.root)
        self._root[changed] = new[changed]
        self._lists_stale = True
        return changed

    def _merge_few(self, losers: Ints, winners: Ints) -> Ints:
        if self._lists_stale:
            self._relink()
        root, following = self._root, self._next
        changed: list[int] = []
        for loser, winner in zip(losers.tolist(), winners.tolist(), strict=True):
            node = loser
            while True:
                changed.append(node)
                node = int(following[node])
                if node == loser:
                    break
            following[loser], following[winner] = following[winner], following[loser]
        for loser, winner in zip(losers.tolist(), winners.tolist(), strict=True):
            root[loser] = winner
        moved = np.array(changed, np.int64)
        root[moved] = root[root[moved]]
        return moved

    def _relink(self) -> None:
        """Make the circular lists anew from the roots."""
        order = np.argsort(self.root, kind="stable")
        ordered = self.root[order]
        first = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1])[: self.count])
        following = np.roll(order, -1)
        ends = np.append(first[1:], self.count) - 1
        following[ends] = order[first]
        self._next[order] = following
        self._lists_stale = False

    def check_invariants(self) -> None:
        """For tests: every root is its own root and the smallest of its set; the lists and sizes agree with the roots."""
        if self._lists_stale:
            self._relink()
        root = self.root
        assert (root[root] == root).all()
        assert (self._root[self._next[: self.count]] == root).all()
        for representative in distinct(root).tolist():
            inside = np.flatnonzero(root == representative)
            assert self.nodes.in_order(inside)[0] == representative
            assert self._size[representative] == len(inside)
            node, seen = representative, 0
            while not seen or node != representative:
                node, seen = int(self._next[node]), seen + 1
            assert seen == len(inside)


def smallest_reachable(count: int, a: Ints, b: Ints) -> Ints:
    """For an undirected graph on 0 .. count - 1 with edges ``(a[i], b[i])``: the smallest vertex of each vertex' component.

    In each round every root that has a smaller neighbour is hooked to the smallest of them, and trees become stars: O(log(n)^2) rounds
    whatever the order (Liu and Tarjan, "Simple concurrent labeling algorithms for connected components", SOSA 2019, algorithm S).

    >>> smallest_reachable(5, np.array([4, 1]), np.array([1, 2])).tolist()
    [0, 1, 1, 3, 1]
    """
    parent = np.arange(count)
    while len(a):
        low, high = np.minimum(a, b), np.maximum(a, b)
        np.minimum.at(parent, high, low)  # not the last one: a star whose leaves come in order would lose one leaf a round
        while True:  # shorten until every pointer leads to a root
            shorter = parent.take(parent, mode="clip")
            if np.array_equal(shorter, parent):
                break
            parent = shorter
        a, b = parent.take(a, mode="clip"), parent.take(b, mode="clip")
        apart = a != b
        a, b = a[apart], b[apart]
    return parent
