"""Imported before everything else: in a Ray worker, makes Arrow take its memory from the C library.

Arrow chooses its allocator from the environment when it is loaded. Its default returns buffers of some megabytes to the kernel, and each
new buffer costs page faults; ``rayad.actors.process.allocator`` makes the C library keep them. In other processes, and where the user has
chosen an allocator, nothing is changed.
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
