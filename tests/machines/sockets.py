"""TCP connections of other processes, on whichever machine: which there are between two processes, and how to reset one.

A connection is found in ``/proc`` of its process, whose network it is in. To reset it, its socket is taken out of the process
(``pidfd_getfd``, Linux 5.6 or later; needs root) and disconnected (``connect`` to no address): the kernel sends a reset to the peer, and
the process itself reads "connection reset" with its next call.
"""

from __future__ import annotations

import contextlib
import ctypes
import ipaddress
import os
import socket
import time
from pathlib import Path
from typing import NamedTuple

PIDFD_GETFD = 438
"""The number of the system call, the same on all architectures."""
ESTABLISHED = "01"
GONE_S = 5.0


class Connection(NamedTuple):
    """An established connection of a process; ``fd`` is its socket there."""

    here: tuple[str, int]
    there: tuple[str, int]
    fd: int


def connections(pid: int) -> list[Connection]:
    """The established TCP connections of a process; none when it has ended."""
    inodes = dict[str, int]()
    with contextlib.suppress(OSError):
        for link in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                target = os.readlink(link)
                if target.startswith("socket:["):
                    inodes[target[8:-1]] = int(link.name)
    found = []
    for table in ("tcp", "tcp6"):
        with contextlib.suppress(OSError):
            for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
                words = line.split()
                if words[3] == ESTABLISHED and words[9] in inodes:
                    found.append(Connection(_end(words[1]), _end(words[2]), inodes[words[9]]))
    return found


def between(pid: int, other: int) -> list[Connection]:
    """The connections from one process to another one, as the first has them."""
    theirs = {(one.there, one.here) for one in connections(other)}
    return [one for one in connections(pid) if (one.here, one.there) in theirs]


def reset(pid: int, connection: Connection) -> bool:
    """Reset a connection of a process; gives whether it was there before, and is gone from the process' network afterwards."""
    if connection not in connections(pid):
        return False
    library = ctypes.CDLL(None, use_errno=True)
    process = os.pidfd_open(pid)
    try:
        taken = library.syscall(PIDFD_GETFD, process, connection.fd, 0)
    finally:
        os.close(process)
    if taken < 0:
        return False  # it has just been closed
    try:
        nowhere = ctypes.create_string_buffer(socket.AF_UNSPEC.to_bytes(2, "little") + bytes(14), 16)
        if library.connect(taken, nowhere, 16) < 0:
            return False
    finally:
        os.close(taken)
    deadline_s = time.monotonic() + GONE_S
    ends = connection.here, connection.there
    while any((one.here, one.there) == ends for one in connections(pid)):
        if time.monotonic() > deadline_s:
            return False
        time.sleep(0.01)
    return True


def _end(text: str) -> tuple[str, int]:
    """Address and port, as the kernel writes them: words of 32 bits in the order of the machine."""
    packed, _, port = text.partition(":")
    words = bytes.fromhex(packed)
    plain = b"".join(words[at : at + 4][::-1] for at in range(0, len(words), 4))
    address = ipaddress.ip_address(plain)
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return str(mapped or address), int(port, 16)
