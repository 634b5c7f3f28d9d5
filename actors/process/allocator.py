"""What a process that moves many large buffers asks of the C library's allocator.

glibc gives each large buffer back to the kernel when it is freed and gets a zeroed one for the next, a page fault per 4 KiB: with batches
of a megabyte that is about a third of the time of splitting them (``benchmarks kernels``). Actor processes keep what they have freed.
In them Arrow takes its memory from glibc, too: ``rayad._worker``.
"""

from __future__ import annotations

import ctypes
import sys

MMAP_THRESHOLD_BYTES = 32 << 20
"""Only larger buffers come from the kernel each time; glibc takes no more than this."""
TRIM_THRESHOLD_BYTES = 128 << 20
"""A process keeps at most about this much that it has freed."""
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # malloc.h


def keep_freed_memory() -> bool:
    """Set it for this process, for good; False where there is no glibc, and nothing is changed."""
    if not sys.platform.startswith("linux"):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return False
    return bool(mallopt(_M_MMAP_THRESHOLD, MMAP_THRESHOLD_BYTES)) and bool(mallopt(_M_TRIM_THRESHOLD, TRIM_THRESHOLD_BYTES))
