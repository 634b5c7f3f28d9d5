"""Whole machines: cut off for a while, slowed, switched off and replaced. Each gives what was seen to happen, or ""."""

from __future__ import annotations

import socket
import time

from tests.chaos.site import Site
from tests.machines import links

CUT_S = (2.0, 9.0)
SLOW_S = 3.0
SLOW_RATE = "200kbit"


def cut(site: Site) -> str:
    """A machine loses everything that it sends and is sent."""
    machine = site.rng.choice(site.others)
    site.network.cut(machine)
    until_s = time.monotonic() + site.rng.uniform(*CUT_S)
    was_gone = not _answers(site, machine)
    time.sleep(max(0.0, until_s - time.monotonic()))
    site.network.mend(machine)
    return "machine cut off and mended" if was_gone and _answers(site, machine) else ""


def _answers(site: Site, machine: int) -> bool:
    """Whether the machine's kernel answers: it refuses a connection to a port on which nothing listens."""
    deadline_s = time.monotonic() + 2.0
    while time.monotonic() < deadline_s:
        try:
            socket.create_connection((site.network.address(machine), 9), timeout=0.5).close()
        except ConnectionRefusedError:
            return True
        except OSError:
            continue
    return False


def slow(site: Site) -> str:
    """A machine is sent little for a while."""
    machine = site.rng.choice(site.others)
    site.network.slow(machine, SLOW_RATE)
    time.sleep(SLOW_S)
    told = links.call("tc", "-s", "qdisc", "show", "dev", site.network.link(machine), "root")
    site.network.slow(machine, "")
    words = told.replace(",", " ").replace(")", " ").split()
    return "machine slowed" if "overlimits" in words and int(words[words.index("overlimits") + 1]) > 0 else ""


def switch_off(site: Site) -> str:
    """All processes of a machine end, and another machine takes its place."""
    machine = site.rng.choice(site.others)
    site.network.kill(machine)
    if links.processes(site.network.name(machine)):
        return ""
    time.sleep(site.rng.uniform(0.0, 3.0))
    site.machines.start(machine)
    return "machine switched off, another one in its place"
