"""Whether the processes of named actors have ended, as Ray's control store (GCS) has it.

Ray says that an actor is dead as soon as somebody has killed it. Its process may live on: for five seconds where it is stopped, and for as
long as its node is cut off. That a process has ended is known when the raylet of its node has told the GCS so. No public call of Ray gives
that without the dashboard.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import ray

from rayad.actors.cluster.names import NAMESPACE, Role
from rayad.actors.lead.taking_over import Left


class ActorProcesses:
    """What the GCS knows of the processes of named actors. For an actor, which asks about those of its own Ray job."""

    def __init__(self) -> None:
        self._accessor: Any = None

    def coordinators_left(self, job: str, besides: Collection[str] = (), named: Collection[str] = ()) -> list[Left]:
        """The coordinators of a job, without those of these tokens, and actors of these names, whose processes are not known to have ended.

        Raises whatever Ray's internal calls raise when the GCS does not tell.
        """
        from ray.core.generated import gcs_pb2

        accessor = self._connected()
        alive = {node["NodeID"] for node in accessor.get_node_table() if node["Alive"]}
        left = []
        for row in accessor.get_actor_table(ray.JobID(bytes.fromhex(ray.get_runtime_context().get_job_id())), None):
            told: Any = gcs_pb2.ActorTableData.FromString(row)
            kind, _, rest = told.name.partition(":")
            name, _, token = rest.rpartition(":")
            is_jobs = (kind, name) == (Role.COORDINATOR.value, job) and token not in besides
            if told.ray_namespace != NAMESPACE or not (is_jobs or told.name in named):
                continue
            is_dead = told.state == gcs_pb2.ActorTableData.DEAD
            if not is_dead or self._lives(told.address.worker_id):
                is_lost = bool(told.address.node_id) and told.address.node_id.hex() not in alive
                left.append(Left(told.name, told.address.ip_address, is_dead, is_lost))
        return left

    def _lives(self, worker: bytes) -> bool:
        """Whether a worker process is not known to have ended; one that has never begun has."""
        from ray.core.generated import gcs_pb2

        row = self._accessor.get_worker_info(ray.WorkerID(worker)) if worker else None
        return row is not None and bool(gcs_pb2.WorkerTableData.FromString(row).is_alive)

    def _connected(self) -> Any:
        """The connection to the GCS; one for all questions."""
        if self._accessor is None:
            from ray._private.state import state
            from ray._raylet import GlobalStateAccessor  # type: ignore[attr-defined]

            accessor = GlobalStateAccessor(state.gcs_options)
            if not accessor.connect():
                raise ConnectionError("the GCS does not answer")
            self._accessor = accessor
        return self._accessor


__all__ = ["ActorProcesses"]
