"""Runs one peer's script to its end, or to its time limit, and leaves none of its processes behind: ``peer_launcher.py '<JSON>'``.

It is a process of its own because a peer may start processes that leave its process group (Ray's daemons, Spark's JVM). On Linux it is
the *subreaper*: processes that the script starts and abandons become children of this process. So all of them can be found, ended
and waited for, and their processor time added up. It uses the standard library alone and runs by path, so that it starts quickly.

Input: ``{"command": [..], "timeout_s": s, "nice": n or null, "stdout": path, "stderr": path}``. Output, one line:
``{"returncode": n or null, "wall_s": .., "cpu_s": .., "left": [names of processes that were still there]}``; null: not finished in time.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import signal
import subprocess
import sys
import time
from typing import Any

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36


def adopt_orphans() -> None:
    """Become the parent of orphans below, and get a signal when the own parent ends, so that nothing outlives the benchmark."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)


def children_of_all() -> dict[int, list[tuple[int, str]]]:
    """The children of every process, from /proc: parent to (pid, name), without zombies."""
    found: dict[int, list[tuple[int, str]]] = {}
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{entry}/stat", encoding="utf-8", errors="replace") as file:
                before, _, after = file.read().rpartition(")")
        except OSError:
            continue
        state, parent = after.split()[:2]
        if state not in "ZX":
            found.setdefault(int(parent), []).append((int(entry), before.partition("(")[2]))
    return found


def processes_below(pid: int) -> list[tuple[int, str]]:
    """Every live process below a process, with its name."""
    children, found, pending = children_of_all(), [], [pid]
    while pending:
        below = children.get(pending.pop(), [])
        found += below
        pending += [child for child, _ in below]
    return found


def end_all() -> list[str]:
    """End every process below this one; gives their names."""
    names: list[str] = []
    while left := processes_below(os.getpid()):
        names = names or sorted(name for _, name in left)
        for pid, _ in left:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        time.sleep(0.01)
    reap()
    return names


def reap() -> None:
    """Wait for all children, which have ended or are about to; their processor time is counted then."""
    try:
        while True:
            os.waitpid(-1, 0)
    except ChildProcessError:
        return


def wait_for(process: subprocess.Popen[bytes], timeout_s: float) -> int | None:
    """The script's return code; None when it did not end in time. Orphans that end meanwhile wait for :func:`reap`."""
    try:
        return process.wait(timeout_s)
    except subprocess.TimeoutExpired:
        return None


def run(request: dict[str, Any]) -> dict[str, Any]:
    """Start, wait, end, count."""
    adopt_orphans()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: (end_all(), os._exit(1)))
    if request["nice"] is not None:
        os.nice(max(0, request["nice"] - os.nice(0)))
    began_s = time.monotonic()
    with open(request["stdout"], "wb") as stdout, open(request["stderr"], "wb") as stderr:
        process = subprocess.Popen(request["command"], stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr, start_new_session=True)
        returncode = wait_for(process, request["timeout_s"])
        wall_s = time.monotonic() - began_s
        left = end_all()
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return {"returncode": returncode, "wall_s": wall_s, "cpu_s": used.ru_utime + used.ru_stime, "left": left}


if __name__ == "__main__":
    print(json.dumps(run(json.loads(sys.argv[1]))))
