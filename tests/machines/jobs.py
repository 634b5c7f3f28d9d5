"""Functions for the driver on machine 1 and for the job's actors; all machines can import this module."""

from __future__ import annotations

import collections
import itertools
import time
from pathlib import Path
from typing import Any

import ray
from ray._private import state

import rayad as rd
from rayad.actors import coordinator_actor
from rayad.actors.cluster.on_node import on_node
from rayad.actors.plane.plane import Address
from rayad.actors.plane.protocol import replica_name
from tests.cluster.recovering import Paced
from tests.machines.driver import KEPT
from tests.patience import PATIENCE_S

Counts = list[tuple[int, int, int]]


def alive() -> list[str]:
    """Addresses of the nodes that Ray believes alive."""
    return sorted(node["NodeManagerAddress"] for node in ray.nodes() if node["Alive"])


def _node(address: str) -> str:
    (node,) = (node["NodeID"] for node in ray.nodes() if node["Alive"] and node["NodeManagerAddress"] == address)
    return str(node)


def addresses_of(kind: str) -> list[str]:
    """Addresses of the nodes of all living actors of a class."""
    of_nodes = {node["NodeID"]: str(node["NodeManagerAddress"]) for node in ray.nodes()}
    table = list(state.actors().values())
    return [
        of_nodes[one["Address"]["NodeID"]] for one in table if one["ActorClassName"].rpartition(".")[2] == kind and one["State"] == "ALIVE"
    ]


def drain(address: str, within_s: float) -> None:
    """Tell Ray that the node of this address goes in so many seconds, as a cloud does that takes a machine back."""
    from ray.core.generated import autoscaler_pb2

    node = _node(address)
    client: Any = ray._private.worker.global_worker.gcs_client  # type: ignore[attr-defined]
    reason = autoscaler_pb2.DrainNodeReason.Value("DRAIN_NODE_REASON_PREEMPTION")
    accepted, why = client.drain_node(node, reason, "a test", int((time.time() + within_s) * 1000))
    assert accepted, why


# -- a keyed count ---------------------------------------------------------------------------------------------------------------------


def submit_counting_from(address: str, *arguments: Any, **config: Any) -> None:
    """As :func:`submit_counting`, with the first coordinator on the machine of this address; later ones are on that of the driver."""
    here = coordinator_actor.on_this_node
    coordinator_actor.on_this_node = lambda: on_node(_node(address))
    try:
        submit_counting(*arguments, **config)
    finally:
        coordinator_actor.on_this_node = here


def _numbers(epochs: int) -> list[list[int]]:
    return [[(31 * epoch + 7 * i) % 23 for i in range(20)] for epoch in range(epochs)]


def submit_counting(name: str, epochs: int, out: str | None = None, parallelism: Any = 2, until: str | None = None, **config: Any) -> None:
    """Submit a keyed count over a paced source, which runs while the caller disturbs the machines; ``out``: also write Parquet;
    ``until``: the second half of the source comes when this file exists."""
    flow = rd.Dataflow(name)
    source = Paced(_numbers(epochs), parts=2, pause_s=0.02, until=Path(until) if until is not None else None)
    ticks = flow.source(source, name="ticks")
    counts = ticks.key_by(lambda n: n % 5).count(name="counts")
    counts.collect("counts")
    if out is not None:
        counts.map(lambda pair: {"key": pair[0], "count": pair[1]}).write_parquet(out, epoch_column="epoch")
    scaling = parallelism if isinstance(parallelism, rd.ScalingConfig) else rd.ScalingConfig(parallelism=parallelism, placement="vertices")
    KEPT[name] = flow.submit(rd.RunConfig(**config), scaling)


def counted(epochs: int) -> Counts:
    """The right result of :func:`submit_counting`: epoch, key, count."""
    seen: collections.Counter[int] = collections.Counter()
    out = []
    for epoch, numbers in enumerate(_numbers(epochs)):
        keys = [n % 5 for n in numbers]
        seen.update(keys)
        out += [(epoch, key, seen[key]) for key in set(keys)]
    return sorted(out)


def addresses(job: Any, patience_s: float = 60.0) -> dict[str, Address]:
    """The address on which each replica of a running job listens, by its name in the plane; ``patience_s``: how long to wait for one."""
    found = dict[str, Address]()
    for stage in job.plan.stages:
        for replica in itertools.count():  # there may be more replicas than at the beginning
            wait_s = patience_s if replica < stage.parallelism else 0.0
            told = job._ask("where", replica_name(stage.id, replica), wait_s, timeout_s=wait_s + 10.0)
            if told is None:
                break
            found[replica_name(stage.id, replica)] = told[0]
    return found


def hosts(name: str) -> dict[str, str]:
    """The host of each replica of a running job."""
    return {replica: address.host for replica, address in addresses(KEPT[name]).items()}


def is_running(name: str) -> bool:
    """Whether all replicas are at work."""
    return KEPT[name].progress().state.value == "running"


def ports(name: str) -> list[int]:
    """The TCP ports on which the replicas of a running job listen."""
    return [address.port for address in addresses(KEPT[name]).values()]


def snapshots(name: str) -> int:
    """The number of snapshots so far."""
    taken = KEPT[name].progress().snapshot
    return taken.number if taken is not None else 0


def told(name: str, kind: str) -> list[str]:
    """What the journal tells of one kind of event."""
    return [event.what for event in KEPT[name].journal() if event.kind == kind]


def told_nodes(name: str) -> tuple[str, ...]:
    """What the status says of nodes."""
    return KEPT[name].status().nodes


def given_up(name: str) -> int:
    """How many attempts at a snapshot were given up."""
    return len(told(name, "snapshot given up"))


def explain_stuck(name: str) -> str:
    """What it waits for."""
    return KEPT[name].explain_stuck()


def failures(name: str) -> int:
    """The number of failures so far."""
    return int(KEPT[name].progress().failures)


def rescale(name: str, vertex: str, replicas: int) -> None:
    """Change the number of replicas of a vertex."""
    KEPT[name].rescale(vertex, replicas)


def finish(name: str, timeout_s: float) -> tuple[Counts, int]:
    """The result of a job that was submitted before, and its failures."""
    result = KEPT.pop(name).wait(timeout_s=timeout_s)
    return sorted((at.epoch, *record) for at, record in result["counts"]), result.statistics.failures


def committed(out: str | Path) -> Counts:
    """The rows that :func:`submit_counting` has committed."""
    return sorted((row["epoch"], row["key"], row["count"]) for row in rd.read_committed(out).to_table().to_pylist())


# -- a loop --------------------------------------------------------------------------------------------------------------------------


def components(parallelism: int) -> list[tuple[int, int]]:
    """Connected components of a ring and of a path, by a loop whose replicas exchange labels in each round."""
    edges = [(i, (i + 1) % 40) for i in range(40)] + [(100 + i, 101 + i) for i in range(30)]
    flow = rd.Dataflow("components")
    rd.graphs.connected_components(flow.from_items(edges, name="edges")).collect("components")
    result = flow.run(rd.RunConfig(), parallelism=parallelism, timeout_s=PATIENCE_S)
    return sorted(record for _, record in result["components"])
