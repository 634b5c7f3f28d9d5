"""A cluster: every node looks at itself, and the nodes are compared with this machine and with each other."""

from __future__ import annotations

import os
import socket
import time as clock
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import ray
from ray.exceptions import GetTimeoutError, RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from rayad.actors.cluster import ray_calls
from rayad.actors.cluster.joining import NoCluster, join_ray, own_address
from rayad.checkup import machine, storage
from rayad.checkup.finding import Finding, fail, ok, warn
from rayad.checkup.machine import Facts
from rayad.checkup.rules import compare, judge

NODE_S = 60.0
"""How long a node may take to start a worker and answer."""
ASK_S = 30.0
SKEW_MOST_S = 1.0
JOIN = "ray start --head on one node, ray start --address=HEAD:6379 on the others; all with the same token"
OPEN_PORTS = "open all TCP ports between the nodes: replicas connect to each other on ports that the system chooses"


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
    nodes = {node["NodeID"]: node for node in ray.nodes() if node["Alive"]}
    names = {node_id: node["NodeManagerAddress"] for node_id, node in nodes.items()}
    free = ray.available_resources()
    cpus = f"{free.get('CPU', 0):g} of {ray.cluster_resources().get('CPU', 0):g} CPUs free"
    found = [ok("cluster", f"{where}: {len(nodes)} nodes, {cpus}")]
    examiners = {node_id: _on(node_id) for node_id in nodes}
    try:
        told = _ask({node: one.facts.remote() for node, one in examiners.items()}, NODE_S)
        for node, facts in told.items():
            if isinstance(facts, str):
                examiners.pop(node)
                mend = "its workers must start and import rayad: look into /tmp/ray/session_latest/logs on it"
                found.append(fail(f"node {names[node]}", facts, mend))
        answered = [(names[node], facts) for node, facts in told.items() if isinstance(facts, Facts)]
        found += compare(here, answered)
        for name, facts in answered:
            wrong = [one for one in judge(facts) if one.level.value != "ok"]
            found += [Finding(one.level, f"{one.what} on {name}", one.seen, one.mend) for one in wrong]
        found.append(_check_clocks(examiners, names))
        found.append(_check_ports(examiners, names))
        if store is not None and examiners:
            found.append(_check_shared(examiners, names, store))
    finally:
        for examiner in examiners.values():
            ray_calls.kill(examiner)
    return found


def _on(node: str) -> Any:
    where = NodeAffinitySchedulingStrategy(node, soft=False)
    return ray.remote(num_cpus=0, max_restarts=0)(Examiner).options(scheduling_strategy=where).remote()


def _ask(calls: Mapping[str, Any], timeout_s: float) -> dict[str, Any]:
    """What each node answers; of one that does not, a text that says why."""
    deadline_s = clock.monotonic() + timeout_s
    found: dict[str, Any] = {}
    for node, call in calls.items():
        try:
            found[node] = ray_calls.get(call, timeout=max(0.0, deadline_s - clock.monotonic()))
        except GetTimeoutError:
            found[node] = f"no answer within {timeout_s:g} s"
        except RayError as error:
            found[node] = str(error).strip().splitlines()[-1]
    return found


def _check_clocks(examiners: Mapping[str, Any], names: Mapping[str, str]) -> Finding:
    most_s, of = 0.0, ""
    for node, examiner in examiners.items():
        asked_s = clock.time()
        try:
            there_s = ray_calls.get(examiner.now_s.remote(), timeout=ASK_S)
        except (RayError, GetTimeoutError):
            continue
        answered_s = clock.time()
        skew_s = max(asked_s - there_s, there_s - answered_s, 0.0)  # so much at least
        if skew_s > most_s:
            most_s, of = skew_s, names[node]
    if most_s > SKEW_MOST_S:
        return warn("clocks", f"that of {of} is {most_s:.1f} s off", "let chrony or systemd-timesyncd set the clocks of all nodes")
    return ok("clocks", f"at most {most_s:.3f} s apart, as far as can be seen")


def _check_ports(examiners: Mapping[str, Any], names: Mapping[str, str]) -> Finding:
    """Whether each node can connect to all others, on ports that the system chose."""
    addresses = _ask({node: one.address.remote() for node, one in examiners.items()}, ASK_S)
    known = {node: address for node, address in addresses.items() if not isinstance(address, str)}
    tried = _ask({node: one.unreachable.remote(known) for node, one in examiners.items()}, ASK_S + 5 * len(known))
    for node, cut in tried.items():
        for other, why in ({node: cut} if isinstance(cut, str) else cut).items():
            seen = f"{names[node]} cannot connect to {names[other]}: {why}"
            return fail("ports", seen, OPEN_PORTS)
    return ok("ports", f"each of {len(known)} nodes connects to each")


def _check_shared(examiners: Mapping[str, Any], names: Mapping[str, str], store: str) -> Finding:
    """Whether what each node writes into the store is seen here."""
    files = {node: storage.new_name() for node in examiners}
    wrote = _ask({node: one.put.remote(store, files[node]) for node, one in examiners.items()}, storage.STORE_S)
    seen = storage.bounded(lambda: _listed(store))
    for name in files.values():
        with suppress(OSError, ValueError):
            storage.delete(store, name)
    mend = "give a bucket, or a folder of a file system that all nodes mount at the same path"
    for node, trouble in wrote.items():
        if trouble:
            return fail("shared storage", f"{names[node]} cannot write to {store}: {trouble}", mend)
    if isinstance(seen, str):
        return fail("shared storage", f"{store} cannot be listed here: {seen}", mend)
    unseen = [names[node] for node, name in files.items() if name not in seen]
    if unseen:
        return fail("shared storage", f"{store}: what {', '.join(unseen)} wrote is not seen here", mend)
    return ok("shared storage", f"{store}: what each node writes is seen here")


def _listed(store: str) -> set[str] | str:
    try:
        return storage.names_in(store)
    except (OSError, ValueError) as error:
        return str(error)


__all__ = ["check_cluster"]
