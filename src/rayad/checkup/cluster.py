"""A cluster: every node looks at itself, and the nodes are compared with this machine and with each other."""

from __future__ import annotations

import os
import socket
import time as clock
from collections.abc import Mapping
from contextlib import suppress

from rayad.actors.cluster.each_node import EachNode, Silence, size_told
from rayad.actors.cluster.joining import NoCluster, join_ray, own_address
from rayad.checkup import machine, storage
from rayad.checkup.finding import Finding, Level, fail, ok, warn
from rayad.checkup.machine import Facts
from rayad.checkup.rules import compare, judge

NODE_S = 60.0
"""How long a node may take to start a worker and answer."""
ASK_S = 30.0
SKEW_MOST_S = 1.0
JOIN = "ray start --head on one node, ray start --address=HEAD:6379 on the others; all with the same token"
OPEN_PORTS = "open all TCP ports between the nodes: replicas connect to each other on ports that the system chooses"
SHARED = "give a bucket, or a folder of a file system that all nodes mount at the same path"


class Examiner:
    """An actor on each node."""

    def __init__(self) -> None:
        self._listener = socket.create_server((own_address(None), 0))

    def facts(self) -> Facts:
        """Of this node."""
        return machine.look()

    def now_s(self) -> float:
        """By the node's clock."""
        return clock.time()

    def address(self) -> tuple[str, int]:
        """Where this node listens: a job's actors listen on such ports, which the system chooses."""
        host, port = self._listener.getsockname()[:2]
        return host, port

    def unreachable(self, addresses: Mapping[str, tuple[str, int]]) -> dict[str, str]:
        """The nodes that cannot be connected to, and why."""
        found = {}
        for node, address in addresses.items():
            try:
                socket.create_connection(address, timeout=5).close()
            except OSError as error:
                found[node] = str(error)
        return found

    def put(self, path: str, name: str) -> str:
        """Write a file into a store; what is wrong."""
        try:
            storage.put(path, name)
        except (OSError, ValueError) as error:
            return str(error)
        return ""


def check_cluster(address: str | None, here: Facts, store: str | None) -> list[Finding]:
    """Join the cluster and look at each of its nodes."""
    where = address or os.environ.get("RAY_ADDRESS") or "auto"
    try:
        join_ray(address)
    except NoCluster as error:
        return [fail("cluster", str(error), JOIN)]
    found = [ok("cluster", f"{where}: {size_told()}")]
    nodes = EachNode(Examiner)
    try:
        found += _check_nodes(nodes, here)
        found += [_check_clocks(nodes), _check_ports(nodes)]
        if store is not None:
            found.append(_check_shared(nodes, store))
    finally:
        nodes.end()
    return found


def _check_nodes(nodes: EachNode, here: Facts) -> list[Finding]:
    """What each node is; those that do not answer are not asked again."""
    told = nodes.ask("facts", NODE_S)
    silent = {node: why for node, why in told.items() if isinstance(why, Silence)}
    nodes.end(silent)
    mend = "its workers must start and import rayad: look into /tmp/ray/session_latest/logs on it"
    found = [fail(f"node {nodes.addresses[node]}", why, mend) for node, why in silent.items()]
    answered = [(nodes.addresses[node], facts) for node, facts in told.items() if node not in silent]
    found += compare(here, answered)
    for name, facts in answered:
        wrong = [one for one in judge(facts) if one.level is not Level.OK]
        found += [Finding(one.level, f"{one.what} on {name}", one.seen, one.mend) for one in wrong]
    return found


def _check_clocks(nodes: EachNode) -> Finding:
    most_s, of = 0.0, ""
    for node, name in nodes.addresses.items():
        asked_s = clock.time()
        there_s = nodes.ask_one(node, "now_s", ASK_S)
        answered_s = clock.time()
        if isinstance(there_s, Silence):
            continue
        skew_s = max(asked_s - there_s, there_s - answered_s, 0.0)  # so much at least
        if skew_s > most_s:
            most_s, of = skew_s, name
    if most_s > SKEW_MOST_S:
        return warn("clocks", f"that of {of} is {most_s:.1f} s off", "let chrony or systemd-timesyncd set the clocks of all nodes")
    return ok("clocks", f"at most {most_s:.3f} s apart, as far as can be seen")


def _check_ports(nodes: EachNode) -> Finding:
    """Whether each node can connect to all others, on ports that the system chose."""
    told = nodes.ask("address", ASK_S)
    known = {node: address for node, address in told.items() if not isinstance(address, Silence)}
    tried = nodes.ask("unreachable", ASK_S + 5 * len(known), lambda node: (known,))
    for node, cut in tried.items():
        for other, why in ({node: cut} if isinstance(cut, Silence) else cut).items():
            return fail("ports", f"{nodes.addresses[node]} cannot connect to {nodes.addresses[other]}: {why}", OPEN_PORTS)
    return ok("ports", f"each of {len(known)} nodes connects to each")


def _check_shared(nodes: EachNode, store: str) -> Finding:
    """Whether what each node writes into the store is seen here."""
    files = {node: storage.new_name() for node in nodes.addresses}
    wrote = nodes.ask("put", storage.STORE_S, lambda node: (store, files[node]))
    seen = storage.bounded(lambda: _listed(store))
    for name in files.values():
        with suppress(OSError, ValueError):
            storage.delete(store, name)
    for node, trouble in wrote.items():
        if trouble:
            return fail("shared storage", f"{nodes.addresses[node]} cannot write to {store}: {trouble}", SHARED)
    if isinstance(seen, str):
        return fail("shared storage", f"{store} cannot be listed here: {seen}", SHARED)
    unseen = [nodes.addresses[node] for node in wrote if files[node] not in seen]
    if unseen:
        return fail("shared storage", f"{store}: what {', '.join(unseen)} wrote is not seen here", SHARED)
    return ok("shared storage", f"{store}: what each node writes is seen here")


def _listed(store: str) -> set[str] | str:
    try:
        return storage.names_in(store)
    except (OSError, ValueError) as error:
        return str(error)


__all__ = ["check_cluster"]
