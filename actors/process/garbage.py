"""What is left of a job that has ended, found quickly.

Python's collector visits every container of the process, and most of them are of modules: 110,000 where Arrow and pandas are loaded, which
takes it 25 to 60 ms, on each processor, while the next job would begin. They stay as long as the process, so they are frozen
(:func:`gc.freeze`): a collection then visits what came later.

What is frozen is freed when nobody refers to it, but a circle of such objects is never found. So this is done when no job is there.
"""

from __future__ import annotations

import gc
import sys

_modules = 0


def freeze_modules() -> None:
    """Let later collections pass over what is here now, if modules have come since the last call."""
    global _modules
    if len(sys.modules) != _modules:
        _modules = len(sys.modules)
        gc.freeze()


def forget_job() -> None:
    """Free what a job has left, to which nothing here refers any more; then :func:`freeze_modules`, those that it has imported too."""
    gc.collect()
    freeze_modules()


__all__ = ["forget_job", "freeze_modules"]
