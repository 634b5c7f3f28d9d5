"""How the processes of a job start beside each other: its coordinator is told of them before it has the job, and before it imports."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ray

from rayad.actors.cluster import node_table, ray_calls
from rayad.actors.coordinator.processes.kinds import Start
from rayad.actors.lead.nodes.known import KnownNodes


def prepare(coordinator: Any, starts: Sequence[Start], *, ahead: bool = False) -> None:
    """Let a new coordinator on this node start processes, each where the coordinator itself would start it. ``ahead``: see
    :mod:`rayad.actors.process.ahead`."""
    own = str(ray.get_runtime_context().get_node_id())
    needs = {start.name: start.needs for start in starts}
    sites = KnownNodes().sites(list(needs), {}, node_table.nodes_now(), needs, own, 0.0)
    ray_calls.call(coordinator.prepare, [(start, sites[start.name]) for start in starts], ahead)


__all__ = ["prepare"]
