"""A cheap estimate of the memory that an object holds, from a few items of each container."""

from __future__ import annotations

import sys
from collections import OrderedDict, defaultdict, deque
from itertools import islice
from typing import Any

SAMPLED_ITEMS = 4
"""So many items of a container stand for all of them when the size of a state is estimated."""
ESTIMATED_DEPTH = 5
_CONTAINERS = (list, tuple, set, frozenset, deque, dict, defaultdict, OrderedDict)


def estimate_bytes(thing: Any, depth: int = ESTIMATED_DEPTH) -> int:
    """Estimate the memory that an object holds, from a few items of each container; 0 where it cannot be estimated.

    It may be called while another thread changes the object. What belongs to the runtime (``_context`` of a vertex) does not count.

    >>> numbers = {n: "x" * 100 for n in range(10_000)}
    >>> 1_500_000 < estimate_bytes(numbers) < 3_000_000
    True
    """
    size_bytes = getattr(thing, "nbytes", None)
    if isinstance(size_bytes, int):
        return size_bytes
    try:
        total = sys.getsizeof(thing)
        if depth == 0 or callable(thing):
            return total
        if type(thing) in _CONTAINERS:
            values = thing.items() if isinstance(thing, dict) else thing
            sample = list(islice(values, SAMPLED_ITEMS))
            inside = sum(estimate_bytes(item, depth - 1) for item in sample)
            return total + (len(thing) * inside // len(sample) if sample else 0)
        for holder in type(thing).__mro__:
            for name in getattr(holder, "__slots__", ()):
                total += estimate_bytes(getattr(thing, name, None), depth - 1) if isinstance(name, str) and name[:2] != "__" else 0
        for name, value in list(getattr(thing, "__dict__", {}).items()):
            total += estimate_bytes(value, depth - 1) if name != "_context" else 0
        return total
    except Exception:  # the object was being changed, or its own methods failed
        return 0
