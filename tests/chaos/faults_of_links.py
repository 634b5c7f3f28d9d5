"""Links between two machines and between two processes: one direction lost, one pair cut, one connection reset. Each gives what was seen
to happen, or ""."""

from __future__ import annotations

import time
from collections.abc import Sequence

from tests.chaos.site import Site
from tests.machines import sockets

SHORT_S = (3.0, 9.0)
LONG_S = 6.0
"""How much longer than the heartbeat a long one is."""
LONG_SHARE = 0.3
RAYS_PORTS = range(10002, 20000)
"""In which Ray's workers listen, by default; the data plane takes any port of the kernel's choice, which are higher."""
PAIRS = (
    *[("driver", "coordinator")] * 3,
    *[("replica", "replica")] * 2,
    *[("replica", "coordinator")] * 3,
    ("driver", "replica"),
    ("progress", "replica"),
    ("progress", "coordinator"),
)
KEPT_PAIRS = (*[("keeper", "coordinator")] * 3, *[("driver", "keeper")] * 2, ("keeper", "replica"))
"""Of a job that a keeper owns."""


def one_way(site: Site) -> str:
    """What a machine sends, or what it is sent, is lost, to and from all others or one of them; the other direction is not touched."""
    machine = site.rng.choice(site.others)
    peers = [other for other in site.machines.machines if other != machine]
    is_all = site.rng.random() < 0.5
    if not is_all:
        peers = [site.rng.choice(peers)]
    sends = site.rng.random() < 0.5
    lost = _lose(site, [(machine, peer) if sends else (peer, machine) for peer in peers])
    which = f"{'sends' if sends else 'is sent'}{'' if is_all else ' to one other' if sends else ' by one other'}"
    return lost and f"one-way cut: what a machine {which}{lost}"


def pair(site: Site) -> str:
    """Two machines do not reach each other, and both reach the others."""
    here, there = site.rng.sample(site.machines.machines, 2)
    lost = _lose(site, [(here, there), (there, here)])
    return lost and f"one pair cut{', one of them the first machine' if 1 in (here, there) else ''}" + lost


def _lose(site: Site, ways: Sequence[tuple[int, int]]) -> str:
    """Lose what is sent on these ways for a while; tells for how long, or "" if nothing was sent, so that nothing was lost."""
    is_long = site.rng.random() < LONG_SHARE
    for way in ways:
        site.network.lose(*way)
    try:
        time.sleep(site.heartbeat_s + LONG_S if is_long else site.rng.uniform(*SHORT_S))
        lost = [site.network.lost(*way) for way in ways]
    finally:
        for way in ways:
            site.network.find(*way)
    return (", longer than the heartbeat" if is_long else ", short") if all(lost) else ""


def reset(site: Site) -> str:
    """One TCP connection between two processes is reset, at the end of either."""
    names = site.rng.choice((*PAIRS, *(KEPT_PAIRS if site.is_detached else ())))
    here, there = (site.one(name) for name in names)
    if here is None or there is None or here[1].pid == there[1].pid:
        return ""
    ends = here[1].pid, there[1].pid
    if site.rng.random() < 0.5:
        ends = ends[1], ends[0]
    found = sockets.between(*ends)
    if not found:
        return ""
    connection = site.rng.choice(found)
    if not sockets.reset(ends[0], connection):
        return ""
    whose = "Ray's" if {connection.here[1], connection.there[1]} & set(RAYS_PORTS) else "the data plane's"
    return f"connection reset: {names[0]} and {names[1]}, {whose}"
