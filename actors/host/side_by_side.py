"""Several calls at a time, of functions that wait for a disk or a store, or compute digests: none of these holds the interpreter's lock."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")
CALLS_MAX = 4
"""So many at a time: a store that answers slowly is asked for several files, and a digest keeps one processor busy."""


def side_by_side(function: Callable[[T], R], items: Sequence[T]) -> Iterable[R]:
    """What a function gives for each item, in their order, computed in threads that have ended when this returns.

    Raises what the first item in order raises that raises anything; calls that have not begun are then not made.

    >>> list(side_by_side(abs, [-1, 2, -3]))
    [1, 2, 3]
    """
    if len(items) < 2:
        return [function(item) for item in items]
    pool = ThreadPoolExecutor(min(len(items), CALLS_MAX), thread_name_prefix="rayad-read")
    try:
        return list(pool.map(function, items))
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


__all__ = ["side_by_side"]
