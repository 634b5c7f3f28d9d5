"""Matching rows by key in bulk: which rows of one side meet which of the other. numpy only; no object for each row."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

import numpy as np

from rayad.dataflow.operators.keys.column_keys import Numbers, beginnings

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
LEFT_ONLY = ("semi", "anti")
PAIRS_MAX = 1 << 19
"""Pairs are made in portions of about so many, so that a product of two frequent keys does not take all memory at once."""

Positions = np.ndarray[Any, np.dtype[np.int64]]


def matches(left: Numbers, right: Numbers) -> Iterator[tuple[Positions, Positions]]:
    """Positions of equal numbers in two sorted arrays: each pair once, in portions.

    >>> [(a.tolist(), b.tolist()) for a, b in matches(np.array([1, 2, 2, 5]), np.array([2, 2, 5, 6]))]
    [([1, 1, 2, 2, 3], [0, 1, 0, 1, 2])]
    """
    if not len(left) or not len(right) or left[-1] < right[0] or right[-1] < left[0]:
        return
    if len(left) > len(right):  # search with the smaller side in the larger
        for found in matches(right, left):
            yield found[1], found[0]
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


def _expanded(heads: Positions, sizes: Positions, low: Positions, counts: Positions) -> Iterator[tuple[Positions, Positions]]:
    """All pairs of ``heads[i] .. + sizes[i]`` with ``low[i] .. + counts[i]``."""
    rows = _ranges(heads, sizes)  # of the left side, each to be repeated
    repeats, firsts = np.repeat(counts, sizes), np.repeat(low, sizes)
    reach = np.cumsum(repeats)
    begin = 0
    while begin < len(rows):
        before = int(reach[begin - 1]) if begin else 0
        end = max(begin + 1, int(np.searchsorted(reach, before + PAIRS_MAX, side="right")))
        some = slice(begin, end)
        yield np.repeat(rows[some], repeats[some]), _ranges(firsts[some], repeats[some])
        begin = end


def _ranges(starts: Positions, lengths: Positions) -> Positions:
    """``starts[0], starts[0] + 1, ..`` for each length, one behind the other."""
    total = int(lengths.sum())
    if total == len(lengths) and (lengths == 1).all():
        return starts
    ends = np.cumsum(lengths)
    out: Positions = np.arange(total, dtype=np.int64)
    out += np.repeat(starts - (ends - lengths), lengths)
    return out


__all__ = ["ALONE", "LEFT_ONLY", "PAIRS_MAX", "How", "matches"]
