"""Which process holds which replica. Pure.

A replica has a process of its own, named as the replica is, or it lives in a worker that holds at most one replica of each vertex. So an
edge and the two processes at its ends tell which replicas a frame is between.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from rayad.actors.plane.protocol import COORDINATOR, PROGRESS, is_driver, replica_name
from rayad.actors.plane.replica_id import ReplicaId, replicas_of
from rayad.dataflow.plan import Plan


def is_worker(process: str) -> bool:
    """Whether a process is a worker, which stays when it holds nothing."""
    return process[:1] == "w"


@dataclass(frozen=True, slots=True)
class Places:
    """Where the replicas of a job live.

    Args:
        workers: how many workers the job begins with. Replica r of a vertex is on worker (r + offset) mod ``workers``; a replica whose
            number is not below ``workers``, which only a change of layout makes, is on the worker of its own number.
        offsets: by stage whose replicas live in workers; the others have processes of their own.

    >>> places = Places(2, {7: 1})
    >>> [places.process_of(7, replica) for replica in range(3)], places.process_of(8, 0)
    (['w1', 'w0', 'w2'], 'v8.0')
    >>> [places.replica_at(process, 7) for process in ("w0", "w1", "w2", "v8.0")], places.replica_at("v8.0", 8)
    ([1, 0, 2, None], 0)
    """

    workers: int = 0
    offsets: Mapping[int, int] = field(default_factory=dict)

    def process_of(self, stage: int, replica: int) -> str:
        """The process that holds a replica, by its name on the data plane."""
        offset = self.offsets.get(stage)
        if offset is None:
            return replica_name(stage, replica)
        return f"w{(replica + offset) % self.workers if replica < self.workers else replica}"

    def replica_at(self, process: str, stage: int) -> int | None:
        """Which replica of a vertex a process may hold; None where it holds none of it."""
        offset = self.offsets.get(stage)
        if is_worker(process):
            worker = int(process[1:])
            if offset is None:
                return None
            return (worker - offset) % self.workers if worker < self.workers else worker
        if offset is not None or process[:1] != "v":
            return None
        at = ReplicaId.from_plane_name(process)
        return at.replica if at.stage == stage else None

    def replicas_at(self, process: str, plan: Plan) -> tuple[ReplicaId, ...]:
        """The replicas that a process holds in a layout, in the order of the plan."""
        found = ((stage, self.replica_at(process, stage.id)) for stage in plan.stages)
        return tuple(ReplicaId(stage.id, replica) for stage, replica in found if replica is not None and replica < stage.parallelism)

    def processes(self, plan: Plan) -> tuple[str, ...]:
        """All processes of a layout, in the order of the plan."""
        return self.processes_of(replicas_of(plan.stages))

    def processes_of(self, replicas: Iterable[ReplicaId]) -> tuple[str, ...]:
        """The processes of these replicas."""
        return tuple(dict.fromkeys(self.process_of(*replica) for replica in replicas))

    def emptied(self, gone: Iterable[str], plan: Plan) -> tuple[str, ...]:
        """The processes that held only replicas that are ``gone``, by name, and hold nothing in a layout; workers stay."""
        held, there = self.processes_of(map(ReplicaId.from_plane_name, gone)), self.processes(plan)
        return tuple(process for process in held if process not in there and not is_worker(process))

    def partners(self, process: str, plan: Plan, own: Collection[ReplicaId] | None = None) -> set[str]:
        """The processes with which the replicas of a process exchange batches."""
        others: set[int] = set()
        for stage in {stage for stage, _ in (self.replicas_at(process, plan) if own is None else own)}:
            others |= {edge.target for edge in plan.edges_from(stage)} | {edge.source for edge in plan.edges_into(stage)}
        out = {self.process_of(other, replica) for other in others for replica in range(plan.stage(other).parallelism)}
        out.discard(process)
        return out

    def who(self, process: str, plan: Plan) -> str:
        """A process in errors and where Ray shows it: a worker, or the replica, also where that is the only one of its vertex."""
        if is_worker(process):
            return self.title(process, plan)
        (replica,) = self.replicas_at(process, plan)
        return f"{plan.stage(replica.stage).name}[{replica.replica}]"

    def title(self, process: str, plan: Plan) -> str:
        """A process as people know it."""
        if process == PROGRESS:
            return "the progress actor"
        if process == COORDINATOR:
            return "the coordinator"
        if is_driver(process):
            return "the driver"
        if is_worker(process):
            return f"worker {process[1:]}"
        return plan.title(*ReplicaId.from_plane_name(process))


__all__ = ["Places", "is_worker"]
