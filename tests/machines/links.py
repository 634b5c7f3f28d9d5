"""Machines made of network namespaces: names, addresses, links, and their removal. Needs Linux, root, iproute2 and util-linux.

Each machine has an address, loopback, /tmp/ray and /dev/shm of its own; a bridge connects them and the host. Unlike several Ray
nodes on one host they do not share the address, abstract Unix sockets and loopback, and their links can be cut, slowed and restored.

Names contain the id of the process that made them: so the next run finds and removes what a killed run and its killed guard have left.
"""

from __future__ import annotations

import contextlib
import ipaddress
import json
import os
import random
import re
import shutil
import signal
import subprocess
import time
from pathlib import Path

import psutil

NAME = re.compile(r"^ry([0-9a-f]+)(?:-\d+|v\d+|br)$")
TOOLS = ("ip", "nsenter", "unshare", "tc", "ss")
END_S = 10.0


def call(*words: str, check: bool = True) -> str:
    """Run one command; gives its output."""
    done = subprocess.run(words, capture_output=True, text=True, timeout=30)
    if check and done.returncode:
        raise OSError(f"{' '.join(words)} ended with {done.returncode}: {done.stderr.strip()}")
    return done.stdout


def why_not() -> str:
    """Try to make a machine; gives the reason why that is not possible here, or ""."""
    missing = [tool for tool in TOOLS if shutil.which(tool) is None]
    if missing:
        return f"not installed: {', '.join(missing)}"
    if os.geteuid() != 0:
        return "network namespaces need root"
    name = f"ry{os.getpid():x}-0"
    try:
        call("ip", "netns", "add", name)
        try:
            call("ip", "netns", "exec", name, "unshare", "-m", "mount", "-t", "tmpfs", "tmpfs", "/mnt")
            call("ip", "-n", name, "link", "add", "br0", "type", "bridge")
            call("ip", "-n", name, "link", "add", "v0", "type", "veth", "peer", "name", "v1")
        finally:
            call("ip", "netns", "del", name, check=False)
    except OSError as error:
        return str(error)
    return ""


def unused_subnet() -> str:
    """The first three bytes of a private /24 that no route of this host knows."""
    routes = [one["dst"] for one in json.loads(call("ip", "-j", "-4", "route")) if one["dst"] != "default"]
    known = [ipaddress.ip_network(route, strict=False) for route in routes]
    for _ in range(200):
        prefix = f"10.{random.randrange(64, 255)}.{random.randrange(256)}"
        if not any(ipaddress.ip_network(f"{prefix}.0/24").overlaps(one) for one in known):
            return prefix
    raise OSError("no unused subnet was found in 10.64.0.0/10")


def namespaces() -> list[str]:
    """All network namespaces with our names."""
    return [name for line in call("ip", "netns", "list").splitlines() if NAME.match(name := line.split()[0])]


def links() -> list[str]:
    """All links of the host with our names."""
    return [one["ifname"] for one in json.loads(call("ip", "-j", "link")) if NAME.match(one["ifname"])]


def processes(namespace: str) -> list[int]:
    """The processes in a namespace."""
    return [int(word) for word in call("ip", "netns", "pids", namespace, check=False).split()]


def titles(namespace: str) -> list[str]:
    """The titles of the processes in a namespace, as Ray sets them."""
    found = []
    for pid in processes(namespace):
        with contextlib.suppress(psutil.Error):
            found.append(" ".join(psutil.Process(pid).cmdline()))
    return found


def end_processes(namespace: str) -> None:
    """Kill all processes in a namespace, also new ones, until there are none."""
    deadline_s = time.monotonic() + END_S
    while (found := processes(namespace)) and time.monotonic() < deadline_s:
        for pid in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.05)


def remove(prefix: str) -> None:
    """End and remove everything with this prefix."""
    for name in namespaces():
        if name.startswith(f"{prefix}-"):
            end_processes(name)
    for name in links():
        if name.startswith((f"{prefix}v", f"{prefix}br")):
            call("ip", "link", "del", name, check=False)
    for name in namespaces():
        if name.startswith(f"{prefix}-"):
            call("ip", "netns", "del", name, check=False)


def remove_stale() -> None:
    """Remove what earlier runs have left, whose processes are gone."""
    owners = {match.group(1) for name in (*namespaces(), *links()) if (match := NAME.match(name))}
    for owner in owners:
        if not psutil.pid_exists(int(owner, 16)):
            remove(f"ry{owner}")


class Network:
    """A bridge and namespaces on it.

    Args:
        prefix: of all names, see :data:`NAME`.
    """

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix
        self.bridge = f"{prefix}br"
        self.net = unused_subnet()
        call("ip", "link", "add", self.bridge, "type", "bridge")
        call("ip", "addr", "add", f"{self.net}.254/24", "dev", self.bridge)
        call("ip", "link", "set", self.bridge, "up")

    @property
    def host(self) -> str:
        """The address of this host, as the machines see it."""
        return f"{self.net}.254"

    def name(self, machine: int) -> str:
        """The name of a machine's namespace."""
        return f"{self.prefix}-{machine}"

    def link(self, machine: int) -> str:
        """The name of the host's end of a machine's link."""
        return f"{self.prefix}v{machine}"

    def address(self, machine: int) -> str:
        """The address of a machine."""
        return f"{self.net}.{machine}"

    def add(self, machine: int) -> None:
        """Make a machine."""
        name = self.name(machine)
        call("ip", "netns", "add", name)
        call("ip", "link", "add", self.link(machine), "type", "veth", "peer", "name", "eth0", "netns", name)
        call("ip", "link", "set", self.link(machine), "master", self.bridge, "up")
        call("ip", "-n", name, "addr", "add", f"{self.address(machine)}/24", "dev", "eth0")
        for device in ("eth0", "lo"):
            call("ip", "-n", name, "link", "set", device, "up")

    def inside(self, machine: int, *words: str) -> list[str]:
        """The command that runs ``words`` on a machine with Ray: in its network, with its /tmp/ray and /dev/shm."""
        found = processes(self.name(machine))
        if not found:
            raise OSError(f"nothing runs on machine {machine}")
        return ["nsenter", f"--net=/run/netns/{self.name(machine)}", f"--mount=/proc/{min(found)}/ns/mnt", f"--wd={Path.cwd()}", *words]

    def cut(self, machine: int) -> None:
        """Take a machine off the network: everything sent to it, or by it, is lost."""
        call("ip", "link", "set", self.link(machine), "down")

    def mend(self, machine: int) -> None:
        """Put a machine back on the network."""
        call("ip", "link", "set", self.link(machine), "up")

    def lose(self, sender: int, receiver: int) -> None:
        """From now on what a machine sends to another one is lost; what the other one sends arrives. See :meth:`lost` and :meth:`find`."""
        filters = ("dev", self.link(sender), "ingress")  # what comes out of the machine comes into the host's end of its link
        call("tc", "qdisc", "add", "dev", self.link(sender), "clsact", check=False)  # it may be there
        to = ("match", "ip", "src", f"{self.address(sender)}/32", "match", "ip", "dst", f"{self.address(receiver)}/32")
        # Not every kernel can drop; what is sent to the loopback device with the hardware address of another one is not taken there.
        away = ("action", "mirred", "egress", "redirect", "dev", "lo")
        call("tc", "filter", "add", *filters, "protocol", "ip", "pref", str(receiver), "u32", *to, *away)

    def lost(self, sender: int, receiver: int) -> int:
        """How many packets have been lost since :meth:`lose`."""
        words = call("tc", "-s", "filter", "show", "dev", self.link(sender), "ingress", "pref", str(receiver)).split()
        counts = [int(words[at + 3]) for at, word in enumerate(words) if word == "Sent" and words[at + 2] == "bytes"]
        return sum(counts)

    def find(self, sender: int, receiver: int) -> None:
        """End :meth:`lose`: what the machine sends arrives again."""
        call("tc", "filter", "del", "dev", self.link(sender), "ingress", "pref", str(receiver), check=False)

    def slow(self, machine: int, rate: str) -> None:
        """Limit the rate of traffic to a machine, for example to 10mbit; "" removes the limit."""
        call("tc", "qdisc", "del", "dev", self.link(machine), "root", check=False)
        if rate:
            call("tc", "qdisc", "add", "dev", self.link(machine), "root", "tbf", "rate", rate, "burst", "64kb", "latency", "400ms")

    def kill(self, machine: int) -> None:
        """Switch a machine off as by a power cut: it sends nothing any more, and all its processes are killed."""
        self.cut(machine)
        end_processes(self.name(machine))

    def connections(self, machine: int, other: int) -> list[tuple[int, int]]:
        """Established TCP connections between two machines, as pairs of ports."""
        words = ["ss", "-Htn", "state", "established", "dst", self.address(other)]
        found = []
        for line in call("ip", "netns", "exec", self.name(machine), *words).splitlines():
            here, there = line.split()[2:4]
            found.append((int(here.rsplit(":", 1)[1]), int(there.rsplit(":", 1)[1])))
        return found

    def close(self, machine: int, other: int, port: int, peer_port: int) -> bool:
        """Close one connection from outside its process, which gets a reset; gives whether it existed."""
        words = ["ss", "-HtnK", "dst", self.address(other), "sport", "=", f":{port}", "dport", "=", f":{peer_port}"]
        return bool(call("ip", "netns", "exec", self.name(machine), *words).strip())
