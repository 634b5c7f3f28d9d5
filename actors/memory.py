"""What a process that moves many large buffers asks of its allocators.

glibc gives each large buffer back to the kernel when it is freed and gets a zeroed one for the next, a page fault per 4 KiB: with batches
of half a megabyte that was two thirds of the time of splitting them; Arrow's mimalloc does the same above a few megabytes
(docs/performance.md). Actor processes keep what they have freed, and Arrow takes its memory from glibc, too.
"""

from __future__ import annotations

import ctypes
import os
import sys

import pyarrow as pa

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
    if not (mallopt(_M_MMAP_THRESHOLD, MMAP_THRESHOLD_BYTES) and mallopt(_M_TRIM_THRESHOLD, TRIM_THRESHOLD_BYTES)):
        return False
    if "ARROW_DEFAULT_MEMORY_POOL" not in os.environ:  # the user's choice comes first
        pa.set_memory_pool(pa.system_memory_pool())
    return True
