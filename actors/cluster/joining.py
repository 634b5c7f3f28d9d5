"""Joining the Ray cluster that a driver is in, or starting one; what cannot work is refused within seconds."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import ray

from rayad.actors.cluster import ray_calls
from rayad.actors.cluster.ray_messages import leave_out_chatter
from rayad.actors.cluster.saying import saying
from rayad.dataflow.resources import Need, told_nodes, unplaceable
from rayad.progress import ConfigError

_STARTUP = "RAY_worker_maximum_startup_concurrency"
STARTUP_MIN = 16
"""How many worker processes a Ray that is started here may start at once, at least."""


def ray_encrypts() -> str:
    """What RAY_USE_TLS says here, where it has Ray encrypt what goes between nodes; "" where it does not."""
    asked = os.environ.get("RAY_USE_TLS", "").strip().lower()
    return asked if asked in ("1", "true", "yes") else ""


def ensure_ray(needs: Callable[[], Sequence[Need]], what: str, autoscaling: bool | None = None) -> None:
    """Join the cluster that this process is in, or start one; refuse within seconds what cannot work. ``needs``: asked then."""
    if is_ray_client():
        raise ConfigError(
            "this driver is connected through Ray Client (ray://): the driver must run inside the cluster, because it talks to the "
            "actors directly; submit the script with `ray job submit`, or run it on the head node"
        )
    if not ray.is_initialized():
        if os.environ.get("RAY_ADDRESS", "").startswith("ray://"):
            raise ConfigError(
                "RAY_ADDRESS names a Ray Client server (ray://): use the cluster's own address (auto or host:6379), or `ray job submit`"
            )
        join_or_start_ray()
    check_placeable(needs(), what, autoscaling)


def check_placeable(needs: Sequence[Need], what: str, autoscaling: bool | None) -> None:
    """Raise ConfigError when no node, and none that an autoscaler may start, has what replicas need. That need not be free now.

    Where nodes may be added nothing is refused: it is waiting replicas that make an autoscaler start nodes, and the wait is bounded.
    """
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    why = unplaceable(needs, nodes)
    if not why or autoscaling:
        return
    more = _nodes_to_come() if autoscaling is None else []
    if more and not unplaceable(needs, [*nodes, *more]):
        return
    to_come = f"; {told_nodes(more).replace('the nodes have', 'those that its autoscaler may start have')}" if more else ""
    raise ConfigError(
        f"{what} cannot be placed: {why}{to_come}. Lower the parallelism or what a replica asks for (num_cpus, num_gpus, memory, "
        "resources, RunConfig.cpus_per_replica), start nodes that have it, or say RunConfig(autoscaling_cluster=True) if such nodes will "
        "come by themselves"
    )


NODES_TO_COME = 64
"""At most so many nodes of a kind are considered."""


def _nodes_to_come() -> list[dict[str, float]]:
    """The resources of nodes that the cluster's autoscaler may start, as it reports them. No public call exists; Ray Data uses this one."""
    try:
        from ray._private.state import state

        config = state.get_cluster_config()
    except Exception:
        return []
    found: list[dict[str, float]] = []
    for group in config.node_group_configs if config is not None else ():
        count = NODES_TO_COME if group.max_count < 0 else min(group.max_count, NODES_TO_COME)
        found += [{name: float(value) for name, value in group.resources.items()}] * count
    return found


def own_address(host: str | None) -> str:
    """Where an actor listens: at ``host`` if one is given, else at the address by which Ray knows the node that it runs on.

    Each process asks for itself: a process can listen only at an address of its own node, and only the node's own address is valid
    for all others. Loopback would do on a single node, until a second one joins.
    """
    return host or ray.util.get_node_ip_address()


def is_ray_client() -> bool:
    """Whether this process talks to its cluster through Ray Client."""
    from ray.util.client import ray as client

    return bool(client.is_connected())


class NoCluster(ConfigError):
    """There is no Ray cluster at the address, or none was found."""


def join_ray(address: str | None = None) -> None:
    """Join a running cluster, unless this process is in it. Raises NoCluster where there is none, or when the process is in another."""
    if ray.is_initialized():
        _check_is_this(address)
        return
    wanted = address or os.environ.get("RAY_ADDRESS") or "auto"
    try:
        _check_answers(wanted)
        ray.init(address=wanted, logging_level="ERROR")
    except Exception as error:
        raise NoCluster(
            f"no Ray cluster could be joined at {wanted!r}: {error}; give its address (host:6379), or set RAY_ADDRESS"
        ) from error


def join_or_start_ray() -> None:
    """``ray.init`` joins where an address is known (RAY_ADDRESS, a job, ``ray start`` on this machine), else starts a Ray for this
    process."""
    address = os.environ.get("RAY_ADDRESS", "")
    try:
        _check_answers(address)
    except OSError as error:
        raise ConfigError(
            f"RAY_ADDRESS is {address!r}, but nothing answers there ({error}); is the cluster up, and is this machine part of it? "
            "Unset RAY_ADDRESS to start a Ray here, or use runtime='local'"
        ) from error
    leave_out_chatter()
    try:
        with _many_workers_are_meant(), saying("Ray, joined or started on this machine"):
            ray.init(include_dashboard=False, logging_level="ERROR")
    except Exception as error:
        raise ConfigError(
            f"Ray could not be joined or started: {error}; start it with `ray start --head`, or use runtime='local'"
        ) from error


def start_ray() -> None:
    """Start a Ray for this process alone, whatever others there are; it ends with the process."""
    with _many_workers_are_meant(), saying("the start of Ray on this machine"):
        ray.init(address="local", include_dashboard=False, logging_level="ERROR", log_to_driver=False)


def _check_is_this(address: str | None) -> None:
    """Raise NoCluster unless ``host:port`` is that of the cluster that this process is in. Another form of address is not looked at."""
    host, _, port = (address or "").rpartition(":")
    here = ray_calls.cluster()
    if here is None or is_ray_client() or not (host and port.isdigit()):
        return
    own_host, _, own_port = here.rpartition(":")
    if port == own_port and (host == own_host or _hosts(host) & {*_hosts(own_host), "127.0.0.1", "::1"}):
        return
    raise NoCluster(f"this process is in the Ray cluster at {here!r}, and cannot join {address!r} too: ask from another process")


def _hosts(host: str) -> set[str]:
    """The addresses of a host; none when its name is not known."""
    try:
        return {str(found[4][0]) for found in socket.getaddrinfo(host, None)}
    except OSError:
        return set()


def _check_answers(address: str) -> None:
    """Raise OSError when nothing listens at ``host:port``: Ray itself would try for minutes, or hang. Another address is not tried."""
    host, _, port = address.rpartition(":")
    if host and port.isdigit():
        socket.create_connection((host, int(port)), timeout=5).close()


@contextmanager
def _many_workers_are_meant() -> Iterator[None]:
    """For a Ray that is started here: each replica is a process by design, most of them waiting. Ray counts how many processes may start
    at once (by default one for each CPU) and warns when there are four times as many: on two CPUs from the eighth process on. A cluster
    that is joined keeps its own setting."""
    if _STARTUP in os.environ:
        yield
        return
    os.environ[_STARTUP] = str(max(STARTUP_MIN, os.cpu_count() or 1))
    try:
        yield
    finally:
        del os.environ[_STARTUP]
