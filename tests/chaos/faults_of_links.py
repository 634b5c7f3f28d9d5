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
CALLS = (
    *[("driver", "coordinator")] * 3,
    *[("coordinator", "replica")] * 2,
    ("coordinator", "progress"),
    ("coordinator", "driver"),
    ("replica", "coordinator"),
)
"""Who calls whom through Ray: answers, and the end of a long call, come on the same connection."""
KEPT_CALLS = (*[("keeper", "coordinator")] * 3, *[("driver", "keeper")] * 2, ("coordinator", "keeper"))
"""The same of a job that a keeper owns."""
PLANE = (*[("replica", "replica")] * 2, *[("replica", "coordinator")] * 2, ("driver", "replica"), ("progress", "replica"))
"""Who is connected on the data plane."""
KEPT_PLANE = (("keeper", "replica"),)
PLANE_SHARE = 0.4


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
    """One TCP connection between two processes is reset, at the end of either: of calls through Ray, or of the data plane."""
    is_plane = site.rng.random() < PLANE_SHARE
    choice = (*PLANE, *(KEPT_PLANE if site.is_detached else ())) if is_plane else (*CALLS, *(KEPT_CALLS if site.is_detached else ()))
    names = site.rng.choice(choice)
    here, there = (site.one(name) for name in names)
    if here is None or there is None or here[1].pid == there[1].pid:
        return ""
    found = [one for one in sockets.between(here[1].pid, there[1].pid) if is_plane == _is_plane(one) and (is_plane or is_call(one))]
    if not found:
        return ""
    connection = site.rng.choice(found)
    end = here[1].pid
    if site.rng.random() < 0.5:
        end = there[1].pid
        there_too = [one for one in sockets.between(end, here[1].pid) if (one.there, one.here) == (connection.here, connection.there)]
        if not there_too:
            return ""
        connection = there_too[0]
    if not sockets.reset(end, connection):
        return ""
    return f"connection reset: {names[0]} and {names[1]}" if is_plane else f"connection reset: Ray's calls from {names[0]} to {names[1]}"


def _is_plane(connection: sockets.Connection) -> bool:
    """Whether neither end is one of Ray's."""
    return connection.here[1] not in RAYS_PORTS and connection.there[1] not in RAYS_PORTS


def is_call(connection: sockets.Connection) -> bool:
    """Whether the process that has it calls the other one, which listens."""
    return connection.there[1] in RAYS_PORTS
