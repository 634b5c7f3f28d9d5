"""Which nodes new replicas of a running job go to. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rayad.actors.replica.places import is_worker
from rayad.dataflow.resources import holds


@dataclass(frozen=True, slots=True)
class Node:
    """A node of the cluster: Ray's id, its address, and all that it has, whoever uses it."""

    id: str
    address: str
    resources: Mapping[str, float]


def places(
    newcomers: Sequence[str], there: Mapping[str, str], nodes: Sequence[Node], needs: Mapping[str, Mapping[str, float]]
) -> dict[str, str]:
    """The node, by its id, for each of these processes: where the fewest of its kind are, workers or replicas of its vertex, then the
    fewest of the job.

    So a machine that has joined gets what it was started for. Ray's turn of nodes, which is for the beginning of a job, may pass it over.
    A process that no node can hold has no place.

    Args:
        newcomers: new processes.
        there: the address of each process that runs.
        nodes: of the cluster.
        needs: what each of the new processes asks for.
    """
    running: Counter[tuple[str, str]] = Counter((_kind(name), address) for name, address in there.items())
    running.update(("", address) for address in there.values())
    placed: Counter[tuple[str, str]] = Counter()
    found = {}
    for name in newcomers:
        kind = _kind(name)
        able = [node for node in nodes if holds(node.resources, needs[name])]
        if able:
            best = min(able, key=lambda node: [running[of, node.address] + placed[of, node.id] for of in (kind, "")])
            placed.update([(kind, best.id), ("", best.id)])
            found[name] = best.id
    return found


def _kind(process: str) -> str:
    """The vertex of a replica with a process of its own; all workers are of one kind."""
    return "worker" if is_worker(process) else process.split(".")[0]


__all__ = ["Node", "places"]
