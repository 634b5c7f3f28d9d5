"""What Ray runs for a worker instead of its ``default_worker.py``: asks for a fork, and if there is none becomes that script.

It imports nothing but a few standard modules: it is run for every worker.
"""

from __future__ import annotations

import json
import os
import socket
import sys
from importlib.util import find_spec


def default_worker() -> str:
    """Where Ray's own script is, without importing Ray."""
    found = find_spec("ray")
    assert found is not None
    assert found.origin is not None
    return os.path.join(os.path.dirname(found.origin), "_private", "workers", "default_worker.py")


def is_forked(arguments: list[str]) -> bool:
    """Ask the process that forks, which listens in the folder of Ray's session, if there is one."""
    of = dict(argument[2:].split("=", 1) for argument in arguments if argument.startswith("--") and "=" in argument)
    asked = {"arguments": arguments, "folder": os.getcwd(), "environment": dict(os.environ), "nice": os.nice(0), "group": os.getpgrp()}
    sent = json.dumps(asked).encode()
    with socket.socket(socket.AF_UNIX) as line:
        line.settimeout(60)
        try:
            line.connect(os.path.join(of["temp-dir"], of["session-name"], "forks"))
            socket.send_fds(line, [len(sent).to_bytes(4, "big")], [0, 1, 2])
            line.sendall(sent)
            return line.recv(1) == b"y"
        except (OSError, KeyError):  # none listens, or it is busy: this process can become the worker as well
            return False


if __name__ == "__main__" and not is_forked(sys.argv[1:]):
    os.execv(sys.executable, [sys.executable, default_worker(), *sys.argv[1:]])
