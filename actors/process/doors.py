"""Who has to go where a listener has all the connections that it may have: so that nobody keeps others out by holding many."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import TypeVar

C = TypeVar("C")


def first_to_go(there: Mapping[C, str], is_silent: Callable[[C], bool] = lambda _: True) -> C:
    """The connection of which the least is to be expected.

    Of the source that has the most of them the oldest one; one that has said something only where none of that source is silent.

    Args:
        there: at least one connection, the oldest first, and the source of each.
        is_silent: whether it has said nothing yet.

    >>> first_to_go({1: "10.0.0.7", 2: "10.0.0.9", 3: "10.0.0.9"}), first_to_go({1: "a", 2: "a"}, is_silent=lambda one: one > 1)
    (2, 2)
    """
    counts = Counter(there.values())
    busiest = max(counts, key=counts.__getitem__)
    of_busiest = [connection for connection, source in there.items() if source == busiest]
    return next((connection for connection in of_busiest if is_silent(connection)), of_busiest[0])


__all__ = ["first_to_go"]
