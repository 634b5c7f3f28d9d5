"""The actors of a job on Ray: the calls of Ray behind :class:`Actors`, and nothing that decides."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ray
from ray.exceptions import ActorUnschedulableError, GetTimeoutError, RayActorError, RayError, RayTaskError

from rayad.actors.cluster import joining, last_words, node_table, parcels
from rayad.actors.coordinator.processes.kinds import Kind
from rayad.actors.coordinator.starting import new_process
from rayad.actors.coordinator.surroundings import Answer, CoordinatorSurroundings, Ended, Gave, NotFetched, Raised
from rayad.actors.lead.nodes.node import Node, Site
from rayad.actors.plane.plane import Plane
from rayad.dataflow.resources import Need, told_resources


class RayActors:
    """See :class:`rayad.actors.coordinator.surroundings.Actors`."""

    def parcel(self, value: Any) -> Any:
        return parcels.parcel(value)

    def start(self, kind: Kind, title: tuple[str, ...], site: Site) -> Any:
        return new_process(kind, title, site)

    def call(self, actor: Any, method: str, *arguments: Any) -> Any:
        return getattr(actor, method).remote(*arguments)

    def run(self, actor: Any, *arguments: Any) -> tuple[Any, Any]:
        summary, staged = actor.run.options(num_returns=2).remote(*arguments)
        return summary, staged

    def wait(self, refs: Sequence[Any], timeout_s: float, count: int = 1) -> list[Any]:
        return list(ray.wait(list(refs), num_returns=count, timeout=timeout_s)[0]) if refs else []

    def take(self, ref: Any, timeout_s: float) -> Answer:
        try:
            return Gave(ray.get(ref, timeout=timeout_s))
        except RayTaskError as error:
            return Raised(error.cause if isinstance(error.cause, Exception) else error)
        except GetTimeoutError:
            return NotFetched()
        except RayActorError as error:
            return Ended(str(error), error.actor_id)
        except ActorUnschedulableError as error:  # the node that it was bound to has gone
            return Ended(str(error))
        except RayError as error:
            return Raised(error)

    def kill(self, actor: Any) -> None:
        ray.kill(actor, no_restart=True)

    def last_words(self, ended: Ended) -> str:
        return last_words.take(ended.actor)

    def nodes(self) -> list[Node]:
        return node_table.nodes_now()

    def own_node(self) -> str:
        return str(ray.get_runtime_context().get_node_id())

    def drains(self) -> dict[str, float]:
        return node_table.drains()

    def check_placeable(self, needs: Sequence[Need], what: str, autoscaling: bool | None) -> None:
        joining.check_placeable(needs, what, autoscaling)

    def free(self) -> str:
        return told_resources(ray.available_resources())

    def own_address(self, host: str | None = None) -> str:
        return joining.own_address(host)


def on_ray() -> CoordinatorSurroundings:
    """What a coordinator on Ray is given."""
    return CoordinatorSurroundings(actors=RayActors(), plane=Plane)


__all__ = ["RayActors", "on_ray"]
