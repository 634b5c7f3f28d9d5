"""Files that tests write are not flushed to the disk.

What a process has written stays with the system when the process is killed; only a machine that loses its power forgets what was not
flushed, and no test takes away the power. A flush waits 4 ms for the disk: half of the time of a job that is disturbed again and again.
That files are flushed is tested by counting the calls (tests/snapshots/test_create.py).

The folders that pytest makes for tests are in memory where there is room: a file that is made and removed on a disk takes 3 ms of a
processor, and tests of state on disk make thousands. Ray's own folders, jobs that are disturbed at length (``make chaos``) and the
benchmarks are on the disk. PYTEST_DEBUG_TEMPROOT=/tmp puts the folders of tests there, too.
"""

from __future__ import annotations

import os
import shutil

IN_MEMORY = "/dev/shm"
ROOM_BYTES = 8 << 30
"""Beside Ray's shared memory. The folders of all tests together are a fiftieth of it."""


def _unflushed(descriptor: int) -> None:
    """In place of ``os.fsync``."""


def leave_files_unsynced() -> None:
    """From now on, in this process."""
    os.fsync = _unflushed


def keep_folders_in_memory() -> None:
    """Those that pytest makes from now on, in this process and below it; what a test that passes leaves behind is removed at once
    (pyproject.toml)."""
    if os.path.isdir(IN_MEMORY) and os.access(IN_MEMORY, os.W_OK) and shutil.disk_usage(IN_MEMORY).free >= ROOM_BYTES:
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", IN_MEMORY)


__all__ = ["keep_folders_in_memory", "leave_files_unsynced"]
