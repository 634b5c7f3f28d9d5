"""The process of which Ray's workers are forks: has imported what all of them import, and has started nothing.

``forks.py SOCKET PARENT``: prints "ready", then forks for each worker that asks, until the process PARENT is gone.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import runpy
import signal
import socket
import sys
from typing import Any

os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")  # ALLOCATOR, below

import ray  # noqa: F401
from ray._private.workers import default_worker

import rayad.actors.autoscaler_actor
import rayad.actors.coordinator.coordinated_job
import rayad.actors.coordinator_actor
import rayad.actors.host.progress_process
import rayad.actors.host.replica_process
import rayad.actors.progress_actor
import rayad.actors.vertex_actor  # noqa: F401

PLAIN_EVERY = 40
"""So many workers, and one is started as Ray starts it."""
NO_MATTER = {"RAY_LD_PRELOAD_ON_WORKERS", "LD_PRELOAD", "SPT_NOENV", "PYTHONBREAKPOINT", "SHLVL", "PWD", "OLDPWD", "_"}
"""What Ray sets itself in each process, and shells."""
ALLOCATOR = {"ARROW_DEFAULT_MEMORY_POOL": "system"}
"""What a worker sets when it imports Rayad, before Arrow is loaded (rayad/_worker.py); so does this process."""


def is_like(environment: dict[str, str], own: dict[str, str]) -> bool:
    """Whether a worker with this environment would have imported what this process has, and in the same way."""
    theirs = {**ALLOCATOR, **environment}
    return all(theirs.get(name) == own.get(name) for name in (theirs.keys() | own.keys()) - NO_MATTER)


def become_worker(asked: dict[str, Any], files: list[int]) -> None:
    """In a fork: take what the raylet gave to the process that asked, and run Ray's script; ends with the worker."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    os.chdir(asked["folder"])
    os.nice(asked["nice"] - os.nice(0))
    os.environ.clear()
    os.environ.update({**ALLOCATOR, **asked["environment"]})
    sys.argv = [default_worker.__file__, *asked["arguments"]]
    sys.path[0] = os.path.dirname(default_worker.__file__)
    runpy.run_path(default_worker.__file__, run_name="__main__")


def join_group(group: int) -> None:
    """The raylet has made a process group for the worker, and ends by it what the worker has started. It is there while who asked waits."""
    try:
        os.setpgid(0, group)
    except OSError:  # who asked is gone, or in another session
        os.setpgid(0, 0)


def received(line: socket.socket) -> tuple[dict[str, Any], list[int]]:
    """What a starting worker sends: its arguments and environment, and its three standard files."""
    head, files, _, _ = socket.recv_fds(line, 4, 3)
    size, data = int.from_bytes(head, "big"), b""
    while len(data) < size:
        more = line.recv(size - len(data))
        if not more:
            raise OSError("cut off")
        data += more
    return json.loads(data), files


def serve(server: socket.socket, parent: int) -> tuple[dict[str, Any], list[int]] | None:
    """Fork for each that asks, until the parent is gone. In a fork: gives what it is to become."""
    own, count = dict(os.environ), 0
    while os.getppid() == parent:
        with contextlib.suppress(OSError):  # nobody asks for a second; or who asked is gone, or has become impatient
            line, _ = server.accept()
            with line:
                line.settimeout(10)
                asked, files = received(line)
                count += 1
                forked = is_like(asked["environment"], own) and count % PLAIN_EVERY != 0
                if forked and os.fork() == 0:
                    join_group(asked["group"])
                    line.sendall(b"y")
                    return asked, files
                if not forked:
                    line.sendall(b"n")
                for file in files:
                    os.close(file)
    return None


def main(path: str, parent: int) -> None:
    """Listen until the parent is gone."""
    gc.collect()
    gc.freeze()  # forks share these objects
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for workers
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(path)
        listening.listen(128)
        listening.settimeout(1)
        print("ready", flush=True)
        asked = serve(listening, parent)
    if asked is not None:
        become_worker(*asked)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
