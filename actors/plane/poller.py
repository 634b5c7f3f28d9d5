"""Waiting for many sockets at once, and being woken from another thread: epoll and eventfd on Linux, poll and a socket pair elsewhere."""

from __future__ import annotations

import contextlib
import os
import select
import socket
import sys
import threading
from typing import Protocol

READABLE = 0x001  # EPOLLIN == POLLIN
WRITABLE = 0x004  # EPOLLOUT == POLLOUT; hang-ups and errors are always reported


class Poller(Protocol):
    """What a plane needs of epoll."""

    def register(self, fd: int, eventmask: int, /) -> None: ...
    def modify(self, fd: int, eventmask: int, /) -> None: ...
    def unregister(self, fd: int, /) -> None: ...
    def poll(self, timeout: float | None = None, /) -> list[tuple[int, int]]: ...
    def close(self) -> None: ...


class PortablePoller:
    """`select.poll` with the calls of epoll (seconds, `close`)."""

    def __init__(self) -> None:
        self._poll = select.poll()

    def register(self, fd: int, eventmask: int, /) -> None:
        self._poll.register(fd, eventmask)

    def modify(self, fd: int, eventmask: int, /) -> None:
        self._poll.modify(fd, eventmask)

    def unregister(self, fd: int, /) -> None:
        self._poll.unregister(fd)

    def poll(self, timeout: float | None = None, /) -> list[tuple[int, int]]:
        return self._poll.poll(None if timeout is None or timeout < 0 else timeout * 1000)

    def close(self) -> None:
        pass


def new_poller() -> Poller:
    """Give the best poller of this system."""
    if sys.platform.startswith("linux"):
        return select.epoll()
    return PortablePoller()


class Waker:
    """A file descriptor that another thread can make readable; safe to use after it was closed."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # so that wake() never writes to a descriptor that was closed and reused
        self._eventfd = -1
        self._pair: tuple[socket.socket, socket.socket] | None = None
        if sys.platform.startswith("linux"):
            self._eventfd = self.fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        else:
            self._pair = socket.socketpair()
            for end in self._pair:
                end.setblocking(False)
            self.fd = self._pair[0].fileno()

    def wake(self) -> None:
        """Make `fd` readable; any thread may call this."""
        with self._lock, contextlib.suppress(BlockingIOError):  # full: it is readable already
            if self._eventfd >= 0:
                os.eventfd_write(self._eventfd, 1)
            elif self._pair is not None:
                self._pair[1].send(b"!")

    def clear(self) -> None:
        """Make `fd` unreadable."""
        with contextlib.suppress(BlockingIOError):
            if self._eventfd >= 0:
                os.eventfd_read(self._eventfd)
            elif self._pair is not None:
                self._pair[0].recv(4096)

    def close(self) -> None:
        """Release the descriptors."""
        with self._lock:
            if self._eventfd >= 0:
                os.close(self._eventfd)
                self._eventfd = -1
            if self._pair is not None:
                for end in self._pair:
                    end.close()
                self._pair = None
