"""Which nodes new replicas of a running job go to. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rayad.actors.plane.replica_id import ReplicaId
from rayad.dataflow.resources import holds


@dataclass(frozen=True, slots=True)
class Node:
    """A node of the cluster: Ray's id, its address, and all that it has, whoever uses it."""

    id: str
    address: str
    resources: Mapping[str, float]


def places(
    newcomers: Sequence[str], there: Mapping[str, str], nodes: Sequence[Node], needs: Mapping[int, Mapping[str, float]]
) -> dict[str, str]:
    """The node, by its id, for each of these replicas: where the fewest replicas of its vertex are, then the fewest of the job.

    So a machine that has joined gets what it was started for. Ray's turn of nodes, which is for the beginning of a job, may pass it over.
    A replica that no node can hold has no place.

    Args:
        newcomers: new replicas, by plane name.
        there: the address of each replica that runs.
        nodes: of the cluster.
        needs: what a replica of each vertex asks for.
    """
    running: Counter[tuple[int | None, str]] = Counter((ReplicaId.from_plane_name(name).stage, address) for name, address in there.items())
    running.update((None, address) for address in there.values())
    placed: Counter[tuple[int | None, str]] = Counter()
    found = {}
    for name in newcomers:
        stage = ReplicaId.from_plane_name(name).stage
        able = [node for node in nodes if holds(node.resources, needs[stage])]
        if able:
            best = min(able, key=lambda node: [running[of, node.address] + placed[of, node.id] for of in (stage, None)])
            placed.update([(stage, best.id), (None, best.id)])
            found[name] = best.id
    return found


__all__ = ["Node", "places"]
