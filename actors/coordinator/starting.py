"""How Ray starts a process of a job. It imports little: the coordinator does that before it imports what it needs itself.

Ray is given a node to prefer. Where a node is avoided, Ray is also told to keep away from it, however long that takes: a process then
waits until there is room elsewhere. Of what asks for nothing Ray does not heed that: it is bound to the node that was chosen.
"""

from __future__ import annotations

from typing import Any

from ray.util.scheduling_strategies import In, NodeAffinitySchedulingStrategy, NodeLabelSchedulingStrategy, NotIn

from rayad.actors.cluster import node_table
from rayad.actors.cluster.on_node import on_node
from rayad.actors.coordinator.processes.kinds import PROGRESS_KIND, Kind
from rayad.actors.lead.nodes.node import Site
from rayad.actors.progress_actor import remote_progress
from rayad.actors.vertex_actor import remote_vertex


def new_process(kind: Kind, title: tuple[str, ...], site: Site) -> Any:
    """Start a process of this kind; ``title``: see :func:`actor_title`."""
    cls = remote_progress() if kind.role == PROGRESS_KIND.role else remote_vertex(kind.role, kind.vertices)
    return cls.options(**kind.asks, scheduling_strategy=_strategy(site)).remote(*title)


def _strategy(site: Site) -> Any:
    """How Ray is told where a process goes."""
    if not site.asks and site.node is not None:
        return on_node(site.node)
    if site.avoided:
        label = node_table.label_of_ids()
        prefer = {label: In(site.node)} if site.node is not None else None
        return NodeLabelSchedulingStrategy({label: NotIn(*site.avoided)}, soft=prefer)
    return NodeAffinitySchedulingStrategy(site.node, soft=True, _spill_on_unavailable=True) if site.node is not None else "SPREAD"


__all__ = ["new_process"]
