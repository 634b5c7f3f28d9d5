"""Waits until whoever started it has ended or lets go, however it ended, and then removes what it has made.

``python -m tests.machines.guard PREFIX FOLDER``, with a pipe as standard input that only the starter holds (see tests/cluster/guard.py).
"""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys

from tests.machines import links


def start(prefix: str, folder: str) -> subprocess.Popen[bytes]:
    """The guard of all that is named so; give it to :func:`let_go` in the end."""
    command = [sys.executable, "-m", "tests.machines.guard", prefix, folder]
    return subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True)


def let_go(guard: subprocess.Popen[bytes]) -> None:
    """Wait until all has been removed."""
    assert guard.stdin is not None
    guard.stdin.close()
    guard.wait(60)


def main(prefix: str, folder: str) -> None:
    """The guard's own life."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # whoever asks it to end asks its starter, too
    sys.stdin.buffer.read()
    links.remove(prefix)
    shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
