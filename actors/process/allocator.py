"""Settings of the C library's allocator for a process that moves many large buffers.

glibc gives each large buffer back to the kernel when it is freed and gets a zeroed one for the next, a page fault per 4 KiB: with batches
of a megabyte that is about a third of the time of splitting them (``benchmarks kernels``). Actor processes keep what they have freed.
In them Arrow allocates from glibc, too: see ``rayad._worker``.
"""

from __future__ import annotations

import ctypes
import sys

MMAP_THRESHOLD_BYTES = 32 << 20
"""Only larger buffers come from the kernel each time; glibc accepts no higher threshold."""
TRIM_THRESHOLD_BYTES = 128 << 20
"""A process keeps at most about this much that it has freed."""
AHEAD_BYTES = 32 << 20
"""What a process of a session has of it before the first job."""
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # malloc.h


def keep_freed_memory() -> bool:
    """Make this process keep freed memory from now on; False, with nothing changed, where there is no glibc."""
    if not sys.platform.startswith("linux"):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return False
    return bool(mallopt(_M_MMAP_THRESHOLD, MMAP_THRESHOLD_BYTES)) and bool(mallopt(_M_TRIM_THRESHOLD, TRIM_THRESHOLD_BYTES))


def have_freed_memory() -> None:
    """Allocate and free some memory, which this process then keeps: the first batches cost no page faults."""
    if keep_freed_memory():
        pieces = [bytearray(AHEAD_BYTES // 2) for _ in range(2)]
        for piece in pieces:
            piece[:: 1 << 12] = b"\1" * (len(piece) >> 12)
