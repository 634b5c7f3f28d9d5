"""Runs a program as on a machine without POSIX: ``python -m tests.platforms.without_posix program.py arguments...``.

Modules that Windows does not have cannot be imported, and what its modules lack is removed from those of Linux. ``os.name`` and
``sys.platform`` stay, as the standard library and pyarrow would look for the files of another system; and other packages are imported
before, as those of Linux rightly use what Linux has. So this finds what Rayad asks of the
system; it cannot find what Windows does otherwise: paths with backslashes, files that cannot be moved while they are open.
"""

from __future__ import annotations

import os
import runpy
import select
import signal
import socket
import sys
import time
from importlib import import_module

OTHERS = (
    "cloudpickle",
    "concurrent.futures.thread",
    "cryptography.fernet",
    "numpy",
    "obstore",
    "pandas",
    "pyarrow.dataset",
    "rich.console",
)
MODULES = ("fcntl", "grp", "posix_ipc", "pty", "pwd", "resource", "spwd", "syslog", "termios", "tty")
OF_MODULES = {
    os: (
        "O_CLOEXEC", "O_DIRECTORY", "O_NOFOLLOW", "O_NONBLOCK", "O_SYNC", "O_TMPFILE", "WNOWAIT", "chown", "confstr", "eventfd", "fchmod",
        "fchown", "fork", "forkpty", "getegid", "geteuid", "getgid", "getpgid", "getsid", "getuid", "killpg", "memfd_create", "mkfifo",
        "nice", "posix_fadvise", "posix_fallocate", "posix_spawn", "pread", "preadv", "pwrite", "pwritev", "register_at_fork",
        "sched_getaffinity", "sched_yield", "sendfile", "setsid", "statvfs", "sync", "sysconf", "uname", "wait4", "waitid",
    ),
    signal: ("SIGALRM", "SIGCHLD", "SIGHUP", "SIGKILL", "SIGPIPE", "SIGUSR1", "SIGUSR2", "pthread_kill", "pthread_sigmask", "setitimer"),
    socket: ("AF_UNIX", "CMSG_LEN", "MSG_DONTWAIT", "SO_REUSEPORT", "TCP_INFO"),
    select: ("epoll", "poll"),
    time: ("clock_gettime", "clock_gettime_ns", "pthread_getcpuclockid", "tzset"),
}  # fmt: skip


def remove() -> None:
    """Take them away from this process."""
    for name in OTHERS:
        import_module(name)
    for module in MODULES:
        sys.modules[module] = None  # type: ignore[assignment]
    for module, names in OF_MODULES.items():
        for name in names:
            if hasattr(module, name):
                delattr(module, name)


def socket_pair(*_: object) -> tuple[socket.socket, socket.socket]:
    """Two sockets that are connected by TCP, as the standard library of Windows makes them for asyncio."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        one = socket.create_connection(listener.getsockname(), timeout=10)
        other, _ = listener.accept()
    return one, other


if __name__ == "__main__":
    remove()
    socket.socketpair = socket_pair  # type: ignore[assignment]
    sys.argv = sys.argv[1:]
    sys.path.insert(0, os.path.dirname(os.path.abspath(sys.argv[0])))
    runpy.run_path(sys.argv[0], run_name="__main__")
