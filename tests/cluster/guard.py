"""Runs a command until its starter ends or lets go, then ends all that the command started, and removes its folder.

``python -m tests.cluster.guard FOLDER COMMAND...``, with a pipe as standard input that only the starter has open. The end of the pipe is
the signal: it comes also when the starter is killed, and then no fixture can clean up. Ray's daemons leave their process group and outlive
their parents, so this process adopts them (see ``benchmarks.peer_launcher``).
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path
from types import FrameType
from typing import IO

from benchmarks.peer_launcher import adopt_orphans, end_all

ROOT = Path(__file__).resolve().parents[2]
KINDLY_S = 20.0
"""How long the command has to end by itself."""


def start(folder: str, command: list[str], env: dict[str, str], log: IO[str]) -> subprocess.Popen[bytes]:
    """Start the guard of a command; give it to :func:`let_go` at the end."""
    paths = [str(ROOT), *filter(None, [env.get("PYTHONPATH")])]
    return subprocess.Popen(
        [sys.executable, "-m", "tests.cluster.guard", folder, *command],
        env={**env, "PYTHONPATH": os.pathsep.join(paths)}, stdin=subprocess.PIPE, stdout=log, stderr=log, start_new_session=True,
    )  # fmt: skip


def let_go(guard: subprocess.Popen[bytes]) -> None:
    """Wait until all has ended."""
    assert guard.stdin is not None
    guard.stdin.close()
    guard.wait(2 * KINDLY_S)


def main(folder: str, *command: str) -> None:
    """Run the command, wait for the end of the starter, then end everything."""
    adopt_orphans()
    over = threading.Event()

    def stop(number: int, frame: FrameType | None) -> None:
        over.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL)
    for wait in (sys.stdin.buffer.read, process.wait):
        threading.Thread(target=lambda wait=wait: (wait(), over.set()), daemon=True).start()
    over.wait()
    process.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(KINDLY_S)
    end_all()
    shutil.rmtree(folder, ignore_errors=True)
    os._exit(0)  # a thread may still be reading


if __name__ == "__main__":
    main(*sys.argv[1:])
