"""Moments inside an epoch: the counters of the loops around a vertex, and their product order.

The engine's own order of times compares counters lexicographically, which is the order in which moments happen. What has accumulated at a
moment is another question: a change of round ``<i, j>`` counts at ``<k, l>`` where ``i <= k`` and ``j <= l``, both at once, since the inner
loop of an outer round begins with what the rounds before it began with. ``Timestamp.join`` is therefore not used here.

Source: Murray et al., *Naiad* (SOSP 2013), 2.1, for the order in which moments happen; McSherry et al., *Differential dataflow* (CIDR
2013), 3, for the product order.
"""

from __future__ import annotations

from typing import TypeAlias

Counters: TypeAlias = tuple[int, ...]
"""Of the loops around a vertex, the outermost first; () outside of all."""
END = 1 << 62
"""The counter of the end of a loop: greater than any round."""


def counts_at(change: Counters, moment: Counters) -> bool:
    """Whether a change of one moment of an epoch has accumulated at another.

    >>> counts_at((0, 3), (1, 3)), counts_at((0, 3), (1, 2))
    (True, False)
    """
    return all(map(int.__le__, change, moment))


def join(one: Counters, other: Counters) -> Counters:
    """The first moment at which two changes have both accumulated.

    >>> join((0, 3), (1, 2))
    (1, 3)
    """
    return tuple(map(max, one, other))


__all__ = ["END", "Counters", "counts_at", "join"]
