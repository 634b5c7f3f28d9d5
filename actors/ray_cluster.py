"""Joining the Ray cluster that a driver is in, or starting one; and what cannot work, said in seconds."""

from __future__ import annotations

import os
import socket

import ray

from rayad.progress import ConfigError


def ensure_ray(cpus_needed: float, what: str) -> None:
    """Join the cluster that this process is in, or start one; refuse what cannot work, in seconds."""
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
    cpus = ray.cluster_resources().get("CPU", 0.0)
    if cpus_needed > cpus + 1e-6:
        raise ConfigError(
            f"{what} asks for {cpus_needed:g} CPUs, the cluster has {cpus:g}: lower the parallelism or RunConfig(cpus_per_replica=...), "
            "or start Ray with more"
        )


def own_address(host: str | None) -> str:
    """Where an actor listens: at ``host`` if one is given, else at the address by which Ray knows the node that it runs on.

    Each process asks for itself: only the node that has an address can listen there, and only the node's own address means the same
    to all others. Loopback would do on a single node, until a second one joins.
    """
    return host or ray.util.get_node_ip_address()


def is_ray_client() -> bool:
    """Whether this process talks to its cluster through Ray Client."""
    from ray.util.client import ray as client

    return bool(client.is_connected())


def join_or_start_ray() -> None:
    """``ray.init`` joins where an address is known (RAY_ADDRESS, a job, ``ray start`` on this machine), else starts a Ray for this
    process."""
    address = os.environ.get("RAY_ADDRESS", "")
    host, _, port = address.rpartition(":")
    if host and port.isdigit():
        try:
            socket.create_connection((host, int(port)), timeout=5).close()
        except OSError as error:
            raise ConfigError(
                f"RAY_ADDRESS is {address!r}, but nothing answers there ({error}); is the cluster up, and is this machine part of it? "
                "Unset RAY_ADDRESS to start a Ray here, or use runtime='local'"
            ) from error
    try:
        ray.init(include_dashboard=False, logging_level="ERROR")
    except Exception as error:
        raise ConfigError(
            f"Ray could not be joined or started: {error}; start it with `ray start --head`, or use runtime='local'"
        ) from error
