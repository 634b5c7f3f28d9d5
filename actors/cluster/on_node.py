"""How Ray is told to start an actor that reserves nothing on one node.

Ray starts an actor that asks for no resource on a random node, whatever node or label it is to prefer: of what it is told it heeds a hard
affinity alone (`ClusterResourceScheduler::GetBestSchedulableNode`, Ray 2.60). A node that drains refuses such an actor for good.
"""

from __future__ import annotations

from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from rayad.actors.cluster import node_table


def on_node(node: str) -> Any:
    """The scheduling strategy of an actor that goes to this node, by its id, and nowhere else."""
    return NodeAffinitySchedulingStrategy(node, soft=False)


def on_this_node() -> Any:
    """The scheduling strategy of an actor that goes to the node of this process; anywhere while that drains."""
    own = str(ray.get_runtime_context().get_node_id())
    return "SPREAD" if own in node_table.drains() else on_node(own)


__all__ = ["on_node", "on_this_node"]
