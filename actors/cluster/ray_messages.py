"""Which of Ray's messages a driver does not print: those that say less than Rayad's own, and look like an error."""

from __future__ import annotations

import re

_A_DEATH = re.compile(r"^A worker died or was killed while executing a task by an unexpected system error")


def leave_out_deaths() -> None:
    """Have Ray not print its paragraph on a process that died: Rayad says in one line what failed and how the job resumes, or raises.

    Ray reads its setting for this (RAY_DEDUP_LOGS_SKIP_REGEX) when it is imported, which may be before Rayad is: the compiled one is set.
    A user's own setting stays. Other messages, of memory that runs out for one, are printed as before.
    """
    try:
        from ray._private.ray_logging import stdout_deduplicator
    except ImportError:  # a Ray that keeps it elsewhere prints the paragraph
        return
    if getattr(stdout_deduplicator, "skip_re", _A_DEATH) is None:
        stdout_deduplicator.skip_re = _A_DEATH


__all__ = ["leave_out_deaths"]
