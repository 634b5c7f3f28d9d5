"""Where a plane listens, and the sockets for it.

Two processes can reach each other's abstract Unix sockets, and each other's loopback, when they share a network namespace: that is what
`node_id` tells (the kernel's boot id and the namespace).  Host names, addresses and Ray's node ids cannot (containers share the first two,
several raylets on one host have different ones).  Machines that were cloned while they ran share even a boot id: connecting
to a Unix socket with an unguessable name then fails, and TCP is used.
"""

from __future__ import annotations

import ipaddress
import os
import secrets
import shutil
import socket
import sys
import tempfile
from dataclasses import dataclass, field, replace
from functools import cache

from rayad.progress import ConfigError

BACKLOG = 1024
UNIX_BUFFER_BYTES = 1024 * 1024
ABSTRACT = "\0"


@dataclass(frozen=True, slots=True)
class Address:
    """Where a plane listens: on a Unix socket for peers on its own node, on TCP for all others.  It pickles."""

    node: str
    """Equal for processes that share a network namespace; "" where that cannot be known."""
    unix: str
    """Name of the Unix socket, "" for none; it begins with a zero byte when it is in the abstract namespace."""
    host: str
    port: int

    def without_unix(self) -> Address:
        """Give this address without its Unix socket, so that even peers on the same node use TCP."""
        return replace(self, unix="")


@dataclass(slots=True)
class Listeners:
    """The listening sockets of one plane."""

    address: Address
    sockets: tuple[socket.socket, ...]
    directory: str = field(default="")

    def close(self) -> None:
        """Stop listening and remove the private directory, if there is one."""
        for listener in self.sockets:
            listener.close()
        if self.directory:
            shutil.rmtree(self.directory, ignore_errors=True)


@cache
def node_id() -> str:
    """Give the id of this node: the boot id and the network namespace; "" where they cannot be known."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            boot = file.read().strip()
        return f"{boot}/{os.stat('/proc/self/ns/net').st_ino}"
    except OSError:
        return _node_id_elsewhere()


def _node_id_elsewhere() -> str:
    """Give a node id on systems without /proc: the boot time and the host, hashed to say neither."""
    if sys.platform.startswith("linux"):
        return ""
    import hashlib
    import uuid

    return hashlib.sha256(f"{uuid.getnode()}/{socket.gethostname()}".encode()).hexdigest()[:32]


def resolve(host: str, port: int) -> tuple[socket.AddressFamily, str]:
    """Give the family and the numeric address to bind to.  Raises ConfigError for 'every interface' and unknown hosts."""
    try:
        family, _, _, _, place = socket.getaddrinfo(host or "0.0.0.0", port, type=socket.SOCK_STREAM)[0]
    except OSError as error:
        raise ConfigError(
            f"listen(host={host!r}): the host cannot be resolved ({error}); give the node's own address or 127.0.0.1"
        ) from None
    numeric = str(place[0])
    if not host or ipaddress.ip_address(numeric.partition("%")[0]).is_unspecified:
        raise ConfigError(
            f"listen(host={host!r}) would listen on every interface: a plane listens on loopback or on one address of its node; "
            "give 127.0.0.1 or ray.util.get_node_ip_address()"
        )
    return family, numeric


def open_listeners(host: str, port: int = 0, *, unix: str = "auto") -> Listeners:
    """Listen on TCP and on a Unix socket: `unix` is "auto", "abstract", "path" or "off"."""
    if unix not in ("auto", "abstract", "path", "off"):
        raise ConfigError(f"unix={unix!r}: it must be 'auto', 'abstract', 'path' or 'off'")
    family, numeric = resolve(host, port)
    tcp = socket.socket(family, socket.SOCK_STREAM)
    opened = [tcp]
    directory = name = ""
    try:
        try:
            tcp.bind((numeric, port))
        except OSError as error:
            raise ConfigError(
                f"listen(host={host!r}, port={port}): cannot bind to {numeric} ({error}); is it an address of this node?"
            ) from None
        tcp.listen(BACKLOG)
        if unix == "auto":
            unix = "off" if not hasattr(socket, "AF_UNIX") else "abstract" if sys.platform.startswith("linux") else "path"
        if unix != "off":
            local = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            opened.append(local)
            if unix == "abstract":
                name = f"{ABSTRACT}rayad-{secrets.token_hex(12)}"
            else:
                directory = tempfile.mkdtemp(prefix="rayad-")  # mode 0700
                name = os.path.join(directory, "plane")
            local.bind(name)
            if directory:
                os.chmod(name, 0o600)
            local.listen(BACKLOG)
    except BaseException:
        for listener in opened:
            listener.close()
        if directory:
            shutil.rmtree(directory, ignore_errors=True)
        raise
    for listener in opened:
        listener.setblocking(False)
    address = Address(node_id(), name, numeric, tcp.getsockname()[1])
    return Listeners(address, tuple(opened), directory)


def is_reachable(address: Address) -> bool:
    """Whether an address leads to the same process here as where it was given: a loopback address is valid on its own node only."""
    if not address.node or address.node == node_id():
        return True
    return not ipaddress.ip_address(address.host.partition("%")[0]).is_loopback


def open_connection(address: Address) -> tuple[socket.socket, str]:
    """Start connecting, without waiting; give the socket and "unix" or "tcp"."""
    if address.unix and address.node and address.node == node_id():
        try:
            return _open(address, "unix")
        except (ConnectionRefusedError, FileNotFoundError):
            pass  # not the same namespace after all, or the process is gone: TCP then reports that
    if not is_reachable(address):
        raise ConfigError(
            f"a process on another node listens at {address.host}, which is loopback and means another place here: "
            "leave RunConfig(host=...) out, so that each node uses its own address, and let Ray know that address "
            "(ray start --node-ip-address=...)"
        )
    return _open(address, "tcp")


def _open(address: Address, transport: str) -> tuple[socket.socket, str]:
    if transport == "unix":
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    else:
        family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
        sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        tune(sock, transport)
        if transport == "unix":
            sock.connect(address.unix)
        else:
            sock.connect((address.host, address.port))
    except BlockingIOError:
        if transport == "unix":  # refused because the backlog is full; unlike TCP, no connection is under way
            sock.close()
            raise
    except BaseException:
        sock.close()
        raise
    return sock, transport


def tune(sock: socket.socket, transport: str) -> None:
    """Make a data socket non-blocking, without delay, with buffers for large batches; TCP probes a peer after 10 s of silence.

    TCP_USER_TIMEOUT is not set: it would also end the connection to a busy receiver that answers but whose buffer is full.
    """
    sock.setblocking(False)
    if transport == "tcp":
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)  # a node that vanished says nothing
        for option, value in (("TCP_KEEPIDLE", 10), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 4)):
            if hasattr(socket, option):
                sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
    else:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, UNIX_BUFFER_BYTES)
