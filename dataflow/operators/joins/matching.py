"""Matching rows by key in bulk: which rows of one side meet which of the other. numpy only; no object for each row."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import numpy as np

from rayad.dataflow.operators.keys.column_keys import Numbers, beginnings
from rayad.dataflow.operators.state.runs.order import Positions, ranges, reaching

How = Literal["inner", "left", "right", "full", "semi", "anti"]
"""What a join gives besides pairs, as in SQL; of a semi or anti join the left record alone."""
ALONE: dict[How, tuple[bool, bool]] = {
    "inner": (False, False),
    "left": (True, False),
    "right": (False, True),
    "full": (True, True),
    "semi": (False, False),
    "anti": (True, False),
}
"""Whether records of the left and of the right side that meet none come out."""
OWED: dict[How, tuple[bool, bool]] = {**ALONE, "semi": (True, False)}
"""Whether a record of the left and of the right side is still to be given once, or forgotten, where pairs are given one by one."""
LEFT_ONLY = ("semi", "anti")
PAIRS_MAX = 1 << 19
"""Pairs are made in portions of about so many, so that a product of two frequent keys does not take all memory at once."""


def matches(left: Numbers, right: Numbers) -> Iterator[tuple[Positions, Positions]]:
    """Positions of equal numbers in two sorted arrays: each pair once, in portions.

    >>> [(a.tolist(), b.tolist()) for a, b in matches(np.array([1, 2, 2, 5]), np.array([2, 2, 5, 6]))]
    [([1, 1, 2, 2, 3], [0, 1, 0, 1, 2])]
    """
    if not len(left) or not len(right) or left[-1] < right[0] or right[-1] < left[0]:
        return
    if len(left) == 1 or len(right) == 1:
        one, more = (left, right) if len(left) == 1 else (right, left)
        begin, end = int(more.searchsorted(one[0], "left")), int(more.searchsorted(one[0], "right"))
        if begin == end:
            return
        if end - begin < PAIRS_MAX:
            alone, met = np.zeros(end - begin, np.int64), np.arange(begin, end)
            yield (alone, met) if one is left else (met, alone)
            return
    if len(left) > len(right):  # search with the smaller side in the larger
        for found in matches(right, left):
            yield found[1], found[0]
        return
    first, last = reaching(left, right)
    if 2 * (last - first) < len(left):  # right is a piece
        for mine, theirs in matches(left[first:last], right):
            yield mine + first, theirs
        return
    heads = beginnings(left)
    values = left[heads]
    low = np.searchsorted(right, values, side="left")
    within = low < len(right)
    within[within] = right[low[within]] == values[within]
    hits = np.flatnonzero(within)
    if not len(hits):
        return
    low = low[hits]
    counts = np.searchsorted(right, values[hits], side="right") - low
    sizes = np.append(heads[1:], len(left))[hits] - heads[hits]
    yield from _expanded(heads[hits], sizes, low, counts)


def matches_within(
    codes: Numbers, low: Positions, high: Positions, others: Numbers, ticks: Positions
) -> Iterator[tuple[Positions, Positions]]:
    """Positions of equal codes where the other's tick is within ``low <= tick <= high``: each pair once, in portions.

    ``others`` are sorted, and the ticks of each code.

    >>> found = matches_within(np.array([7, 8]), np.array([2, 0]), np.array([4, 9]), np.array([7, 7, 7, 9]), np.array([1, 2, 4, 5]))
    >>> [(a.tolist(), b.tolist()) for a, b in found]
    [([0, 0], [1, 2])]
    """
    if not len(codes) or not len(others):
        return
    begin, end = (np.searchsorted(others, codes, side=side) for side in ("left", "right"))
    first = reached(ticks, begin, end, low)
    counts = reached(ticks, first, end, high + 1) - first
    hits = np.flatnonzero(counts)
    if len(hits):
        yield from _expanded(hits, np.ones(len(hits), np.int64), first[hits], counts[hits])


def reached(ticks: Positions, begin: Positions, end: Positions, at: Positions) -> Positions:
    """In each stretch ``begin .. end`` of ticks, which is sorted, the first position whose tick is at or beyond ``at``."""
    while (searched := begin < end).any():
        middle = (begin + end) // 2
        below = searched & (ticks[np.minimum(middle, len(ticks) - 1)] < at)
        begin, end = np.where(below, middle + 1, begin), np.where(searched & ~below, middle, end)
    return begin


class Stretches:
    """An index of sorted codes, and ticks that are sorted within each: to look for a code and a tick at once, by one number where 64 bits
    hold both.

    >>> stretches = Stretches(np.array([7, 7, 9]), np.array([10, 30, 20]))
    >>> hits, where = stretches.of(np.array([9, 8, 7]))
    >>> hits.tolist(), [part.tolist() for part in where], stretches.reached(where, np.array([0, 11])).tolist()
    ([0, 2], [[1, 0], [2, 0], [3, 2]], [2, 1])
    """

    def __init__(self, codes: Numbers, ticks: Positions) -> None:
        heads = beginnings(codes)
        self._codes, self._ticks = codes[heads], ticks
        self._begins, self._ends = heads, np.append(heads[1:], len(codes))
        self._low = int(ticks.min()) if len(ticks) else 0
        self._span = (int(ticks.max()) if len(ticks) else 0) - self._low + 2
        self._both: Positions | None = None
        if self._span * len(heads) < 1 << 62:
            self._both = np.repeat(np.arange(len(heads)) * self._span, self._ends - heads) + (ticks - self._low)

    def of(self, codes: Numbers) -> tuple[Positions, tuple[Positions, Positions, Positions]]:
        """The positions of codes that are here, and their stretches: number, begin, end."""
        numbers = np.searchsorted(self._codes, codes)
        hits = np.flatnonzero(self._codes[np.minimum(numbers, len(self._codes) - 1)] == codes) if len(self._codes) else numbers[:0]
        numbers = numbers[hits]
        return hits, (numbers, self._begins[numbers], self._ends[numbers])

    def reached(self, where: tuple[Positions, Positions, Positions], at: Positions) -> Positions:
        """In each stretch the first position whose tick is at or beyond ``at``, else its end."""
        numbers, begin, end = where
        if self._both is None:
            return reached(self._ticks, begin, end, at)
        return np.searchsorted(self._both, numbers * self._span + np.clip(at - self._low, 0, self._span - 1))


def _expanded(heads: Positions, sizes: Positions, low: Positions, counts: Positions) -> Iterator[tuple[Positions, Positions]]:
    """All pairs of ``heads[i] .. + sizes[i]`` with ``low[i] .. + counts[i]``."""
    rows = ranges(heads, sizes)  # of the left side, each to be repeated
    repeats, firsts = np.repeat(counts, sizes), np.repeat(low, sizes)
    reach = np.cumsum(repeats)
    begin = 0
    while begin < len(rows):
        before = int(reach[begin - 1]) if begin else 0
        end = max(begin + 1, int(np.searchsorted(reach, before + PAIRS_MAX, side="right")))
        some = slice(begin, end)
        yield np.repeat(rows[some], repeats[some]), ranges(firsts[some], repeats[some])
        begin = end


__all__ = ["ALONE", "LEFT_ONLY", "OWED", "PAIRS_MAX", "How", "Stretches", "matches", "matches_within", "reached"]
