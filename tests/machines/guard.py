"""Waits until its starter ends, in whatever way, or lets go; then removes the machines that the starter made.

``python -m tests.machines.guard PREFIX FOLDER``, with a pipe as standard input that only the starter holds (see tests/cluster/guard.py).
"""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys

from tests.machines import links


def start(prefix: str, folder: str) -> subprocess.Popen[bytes]:
    """Start the guard of everything with this prefix; give it to :func:`let_go` at the end."""
    command = [sys.executable, "-m", "tests.machines.guard", prefix, folder]
    return subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True)


def let_go(guard: subprocess.Popen[bytes]) -> None:
    """Wait until all has been removed."""
    assert guard.stdin is not None
    guard.stdin.close()
    guard.wait(60)


def main(prefix: str, folder: str) -> None:
    """Wait for the end of the starter, then remove everything."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # the starter gets the signal, too, and its end ends the guard
    sys.stdin.buffer.read()
    links.remove(prefix)
    shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
