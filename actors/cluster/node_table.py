"""Ray's table of the nodes that are alive: what each has, what of it is free, and which of them drain.

No public call gives what is free on each node, or which nodes drain; Ray Data and Ray Train read them here. A Ray that does not say is
taken to mean that nothing is known of what is free, and that no node drains.
"""

from __future__ import annotations

import time as clock
from collections.abc import Mapping
from math import inf
from typing import Any

import ray

from rayad.actors.lead.nodes.node import Node


def nodes_now() -> list[Node]:
    """Those that Ray counts as alive."""
    state = _state()
    free: Mapping[str, Mapping[str, float]] = state.available_resources_per_node() if state is not None else {}
    leaving = drains()
    alive = [node for node in ray.nodes() if node["Alive"]]
    return [
        Node(node["NodeID"], node["NodeManagerAddress"], node["Resources"], free.get(node["NodeID"]), leaving.get(node["NodeID"]))
        for node in alive
    ]


def drains() -> dict[str, float]:
    """In how many seconds each node that drains goes, by its id; inf where nobody has said when."""
    state = _state()
    deadlines_ms: Mapping[str, int] = state.get_draining_nodes() if state is not None else {}
    return {node: max(0.0, at_ms / 1000 - clock.time()) if at_ms else inf for node, at_ms in deadlines_ms.items()}


def label_of_ids() -> str:
    """The label by which each node has its own id; its name has changed between versions of Ray."""
    labels = ((node.get("Labels") or {}, node["NodeID"]) for node in ray.nodes())
    return next((label for has, node in labels for label, value in has.items() if value == node), "ray.io/node-id")


def _state() -> Any:
    from ray._private.state import state

    return state if hasattr(state, "available_resources_per_node") and hasattr(state, "get_draining_nodes") else None


__all__ = ["drains", "label_of_ids", "nodes_now"]
