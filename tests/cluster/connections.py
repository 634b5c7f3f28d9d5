"""Single TCP connections between processes, broken from outside: both ends get a reset, or the end of the stream, and nothing else happens.

The socket of one process is duplicated into this one (``pidfd_getfd``, which needs the right to trace that process, as its parent or root
has) and shut down. No packet filter, and no other connection is touched.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import socket

import psutil
import ray

_LIBC = ctypes.CDLL(None, use_errno=True)
PIDFD_GETFD = 438
"""Number of the system call, the same on all architectures."""


def why_not() -> str:
    """Try it on this process; gives the reason why that is not possible here, or ""."""
    left, right = socket.socketpair()
    try:
        _shut(os.getpid(), left.fileno())
    except OSError as error:
        return str(error)
    finally:
        left.close()
        right.close()
    return ""


def break_between(pid: int, other: int) -> int:
    """Break the TCP connections that the process ``pid`` has made to the process ``other``; gives how many there were."""
    ports = {one.laddr.port for one in psutil.Process(other).net_connections("tcp") if one.status == psutil.CONN_LISTEN}
    made = [one for one in psutil.Process(pid).net_connections("tcp") if one.raddr and one.raddr.port in ports]
    broken = 0
    for one in made:
        with contextlib.suppress(OSError):  # it has just ended by itself
            _shut(pid, one.fd)
            broken += 1
    return broken


def pid_of(actor: ray.actor.ActorHandle) -> int:
    """The process of an actor."""
    return int(ray.get(actor.__ray_call__.remote(lambda _: os.getpid()), timeout=60))


def _shut(pid: int, fd: int) -> None:
    pidfd = os.pidfd_open(pid)
    try:
        mine = _LIBC.syscall(PIDFD_GETFD, pidfd, fd, 0)
        if mine < 0:
            raise OSError(ctypes.get_errno(), f"pidfd_getfd of process {pid}: {os.strerror(ctypes.get_errno())}")
        with socket.socket(fileno=mine) as broken:
            broken.shutdown(socket.SHUT_RDWR)
    finally:
        os.close(pidfd)
