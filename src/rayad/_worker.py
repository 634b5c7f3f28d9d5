"""Imported before everything else: in a Ray worker, Arrow is told to take its memory from the C library.

Arrow decides on its allocator when it is loaded, from the environment. Its default gives buffers of some megabytes back to the kernel and
faults them in anew each time; the C library is told not to by ``rayad.actors.process.allocator``. Elsewhere, and where the user has
chosen, nothing is
changed.
"""

from __future__ import annotations

import os
import sys

_WORKER_MODE = 1  # ray._private.worker.WORKER_MODE


def _is_ray_worker() -> bool:
    worker = sys.modules.get("ray._private.worker")
    return getattr(getattr(worker, "global_worker", None), "mode", None) == _WORKER_MODE


if sys.platform.startswith("linux") and "pyarrow" not in sys.modules and _is_ray_worker():
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
