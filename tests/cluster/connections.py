"""Single TCP connections between processes, broken from outside, where both ends get a reset or the end of the stream, or written into.

The socket of one process is duplicated into this one (``pidfd_getfd``, which needs the right to trace that process, as its parent or root
has). No packet filter, and no other connection is touched.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import socket
from collections.abc import Callable

import psutil
import ray

_LIBC = ctypes.CDLL(None, use_errno=True)
PIDFD_GETFD = 438
"""Number of the system call, the same on all architectures."""


def why_not() -> str:
    """Try it on this process; gives the reason why that is not possible here, or ""."""
    left, right = socket.socketpair()
    try:
        _duplicate(os.getpid(), left.fileno()).close()
    except OSError as error:
        return str(error)
    finally:
        left.close()
        right.close()
    return ""


def break_between(pid: int, other: int) -> int:
    """Break the TCP connections that the process ``pid`` has made to the process ``other``; gives how many there were."""
    return _at_each(pid, other, lambda made: made.shutdown(socket.SHUT_RDWR))


def write_between(pid: int, other: int, forged: bytes) -> int:
    """Put bytes into the TCP connections that the process ``pid`` has made to the process ``other``, as somebody on the way can; gives how
    many there were."""
    return _at_each(pid, other, lambda made: made.sendall(forged))


def _at_each(pid: int, other: int, act: Callable[[socket.socket], object]) -> int:
    done = 0
    try:
        ports = {one.laddr.port for one in psutil.Process(other).net_connections("tcp") if one.status == psutil.CONN_LISTEN}
        made = [one for one in psutil.Process(pid).net_connections("tcp") if one.raddr and one.raddr.port in ports]
    except psutil.NoSuchProcess:  # it has just ended, and its connections with it
        return done
    for one in made:
        with contextlib.suppress(OSError), _duplicate(pid, one.fd) as duplicate:  # else it has just ended by itself
            act(duplicate)
            done += 1
    return done


def pid_of(actor: ray.actor.ActorHandle) -> int:
    """The process of an actor."""
    return int(ray.get(actor.__ray_call__.remote(lambda _: os.getpid()), timeout=60))


def _duplicate(pid: int, fd: int) -> socket.socket:
    """The same connection, as a socket of this process."""
    pidfd = os.pidfd_open(pid)
    try:
        mine = _LIBC.syscall(PIDFD_GETFD, pidfd, fd, 0)
        if mine < 0:
            raise OSError(ctypes.get_errno(), f"pidfd_getfd of process {pid}: {os.strerror(ctypes.get_errno())}")
        return socket.socket(fileno=mine)
    finally:
        os.close(pidfd)
