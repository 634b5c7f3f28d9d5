"""What an epoch takes: the most bytes of Python and numpy at one time, and all that Arrow allocates."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable

import pyarrow as pa

WARM = 3
"""The first epochs are not counted: what is made once is made there."""


def least_bytes(epochs: int, epoch: Callable[[int], None]) -> int:
    """Of so many epochs the one that takes least, since now and then runs are merged."""
    for number in range(WARM):
        epoch(number)
    found, pool = list[int](), pa.default_memory_pool()
    tracemalloc.start()
    try:
        for number in range(WARM, epochs):
            before, of_arrow = tracemalloc.get_traced_memory()[0], pool.total_bytes_allocated()
            tracemalloc.reset_peak()
            epoch(number)
            found.append(tracemalloc.get_traced_memory()[1] - before + pool.total_bytes_allocated() - of_arrow)
    finally:
        tracemalloc.stop()
    return min(found)
