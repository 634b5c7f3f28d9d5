"""Which of Ray's messages a driver does not print: those that say less than Rayad's own, and look like an error."""

from __future__ import annotations

import re

_LEFT_OUT = re.compile(
    r"^A worker died or was killed while executing a task by an unexpected system error|"
    r"^WARNING: \d+ PYTHON worker processes have been started on node|"  # each replica is a process by design
    r"gcs_client\.cc:\d+: GcsClient has no Cluster ID set, and won't fetch from GCS"
)


def leave_out_chatter() -> None:
    """Have Ray not print its paragraph on a process that died, and a remark of each of Spark's Java processes.

    Of a death Rayad says in one line what failed and how the job resumes, or raises. Ray reads its setting for this
    (RAY_DEDUP_LOGS_SKIP_REGEX) when it is imported, which may be before Rayad is: the compiled one is set. A user's own setting stays.
    Other messages, of memory that runs out for one, are printed as before.
    """
    try:
        from ray._private.ray_logging import stderr_deduplicator, stdout_deduplicator
    except ImportError:  # a Ray that keeps it elsewhere prints all of it
        return
    for printing in (stdout_deduplicator, stderr_deduplicator):
        if getattr(printing, "skip_re", _LEFT_OUT) is None:
            printing.skip_re = _LEFT_OUT


__all__ = ["leave_out_chatter"]
