"""What the parts of one replica share: its place in the plan and in its worker, its core, what has arrived, and what is sent."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable
from functools import partial
from typing import Any, Protocol

from rayad.actors.plane.batch_codec import decode_batch, encode_batch, payload_bytes
from rayad.actors.plane.credit_grants import FROM_DRIVER
from rayad.actors.plane.credits import Grant
from rayad.actors.plane.protocol import COORDINATOR, PROGRESS, Kind, driver_name, pack_credit
from rayad.actors.plane.replica_id import ReplicaId
from rayad.actors.plane.spilling_queue import SpillFile
from rayad.actors.replica.channel_ends import ChannelEnds
from rayad.actors.replica.core import ReplicaCore
from rayad.actors.replica.output.spilled_batches import OutgoingBound
from rayad.actors.replica.places import Places
from rayad.actors.replica.report import ReplicaReport
from rayad.actors.replica.upstream import gated_edges
from rayad.actors.replica.waiting_batches import Parked
from rayad.actors.worker.arrived import Arrived
from rayad.actors.worker.payloads import IN_ONE_PIECE, frozen, handed, leaving
from rayad.actors.worker.state_files import StateFiles
from rayad.actors.worker.surroundings import Clock, Link
from rayad.dataflow.config import RunConfig
from rayad.dataflow.operators.state.runs.disk import MemoryBound
from rayad.dataflow.operators.stateless import Element
from rayad.dataflow.pacing import Ahead
from rayad.dataflow.plan import Plan
from rayad.progress import InternalError, Timestamp
from rayad.snapshots.store import SnapshotStore


class Sibling(Protocol):
    """A replica of the same worker, as the others see it."""

    stage: int
    """Its vertex, by id."""

    def take(self, kind: int, edge: int, replica: int, payload: Any) -> None:
        """Something has come on a channel: a batch, a mark, or credit."""


class Worksite(Protocol):
    """A worker, as its replicas see it."""

    name: str
    places: Places
    link: Link
    clock: Clock
    config: RunConfig
    is_done: bool
    stopping: Collection[int]
    """The vertices that read no more."""
    rewinding: int
    """Until this incarnation is counted, views still count work that has been rolled back, and are ignored (``upstream.py``)."""
    handed_over: deque[tuple[Sibling, int, int, int, Any]]
    """What replicas have sent to others in this worker: to whom, kind, edge, the sender's number, payload."""

    @property
    def lost(self) -> Iterable[str]:
        """The processes whose connection is lost."""

    def beside(self, stage: int, replica: int) -> Sibling | None:
        """That replica, if it lives in this worker."""

    def touch(self, stage: int) -> None:
        """The replica of this vertex may have something to do: it is looked at in the next turn."""

    def report(self, changes: list[tuple[int, Timestamp, int]]) -> None:
        """This goes into the worker's next report."""

    def flush(self) -> None:
        """Send all that replicas keep back, and the report, now."""

    def connect(self, process: str, address: Any) -> None:
        """A process comes that this one exchanges frames with; the one with the smaller name begins to connect."""

    def admit_process(self, process: str, incarnation: int) -> None:
        """A process is new, perhaps under the name of one that has ended."""


class WorkplaceCarrier:
    """Carries the frames of one replica: to others over the data plane; within the worker, or the process, as they are.

    What stays in the worker waits until the replica that sends it has done what it is doing: so a barrier never takes effect at the
    receiver before its sender has captured.
    """

    def __init__(self, worker: Worksite, plan: Plan, stage: int, replica: int) -> None:
        self.socket_bytes = worker.link.socket_bytes
        self._hands_over = worker.link.hands_over
        self._worker = worker
        self._edges = plan.edge_by_id
        self._stage = stage
        self._replica = replica
        self._ways: dict[tuple[int, int, bool], Sibling | str | None] = {}

    def forget_ways(self) -> None:
        """Replicas have come or gone."""
        self._ways.clear()

    def _way(self, edge: int, replica: int, *, back: bool = False) -> Sibling | str | None:
        """The replica at the other end of a channel, or its process; None: it has retired from this worker. ``back``: to the sender."""
        key = (edge, replica, back)
        if key in self._ways:
            return self._ways[key]
        worker, stage = self._worker, self._edges[edge].source if back else self._edges[edge].target
        way: Sibling | str | None = worker.beside(stage, replica)
        if way is None and (process := worker.places.process_of(stage, replica)) != worker.name:
            way = process
        self._ways[key] = way
        return way

    def encode(self, edge: int, replica: int, time: Timestamp, batch: Any) -> Any:
        """See :class:`rayad.actors.plane.carrier.Carrier`. What waits on disk is read when it is sent, or when a replica here takes it."""
        if type(batch) in IN_ONE_PIECE:
            return batch
        return handed(time, batch) if self._hands_over or type(self._way(edge, replica)) is not str else encode_batch(time, batch)

    def revive(self, edge: int, replica: int, data: bytes) -> Any:
        """An encoded batch as a payload for a channel."""
        return handed(*decode_batch(data)) if self._hands_over or type(self._way(edge, replica)) is not str else [data]

    def size(self, payload: Any) -> int:
        """See :class:`rayad.actors.plane.carrier.Carrier`."""
        return payload.size if type(payload) in IN_ONE_PIECE else payload_bytes(payload)

    def freeze(self, payload: Any, *, is_mark: bool) -> bytes:
        """See :class:`rayad.actors.plane.carrier.Carrier`."""
        return bytes(payload) if is_mark else frozen(payload) if type(payload) in IN_ONE_PIECE else b"".join(payload)

    def thaw(self, data: memoryview, *, is_mark: bool) -> Any:
        """See :class:`rayad.actors.plane.carrier.Carrier`."""
        return data if is_mark else [data]

    def send(self, edge: int, replica: int, kind: int, payload: Any) -> None:
        """See :class:`rayad.actors.plane.carrier.Carrier`."""
        way = self._way(edge, replica)
        if isinstance(way, str):
            self._worker.link.send(way, kind, edge, leaving(payload, as_it_is=self._hands_over))
        elif way is None:
            raise InternalError(f"{self._worker.name} has something for replica {replica} on edge {edge}, which has retired")
        else:
            self._worker.handed_over.append((way, kind, edge, self._replica, payload))

    def grant(self, edge: int, replica: int, grant: Grant, busy_s: float) -> None:
        """See :class:`rayad.actors.plane.carrier.Carrier`."""
        if (edge, replica) == FROM_DRIVER:
            stage = self._stage
            self._worker.link.send(driver_name(stage), Kind.CREDIT, stage, pack_credit(grant.batches, grant.bytes, busy_s))
            return
        way, payload = self._way(edge, replica, back=True), pack_credit(grant.batches, grant.bytes, busy_s)
        if isinstance(way, str):
            self._worker.link.send(way, Kind.CREDIT, edge, payload)
        elif way is not None:
            self._worker.handed_over.append((way, Kind.CREDIT, edge, self._replica, payload))

    def queued_bytes(self, edge: int, replica: int) -> int:
        """See :class:`rayad.actors.plane.carrier.Carrier`."""
        way = self._way(edge, replica)
        return self._worker.link.queued_bytes(way) if isinstance(way, str) else 0


class Workplace:
    """The state that the parts of one replica share.

    Args:
        worker: that holds it.
        plan: the dataflow.
        stage, replica: which one it is.
        config: of the run.
        store: of snapshots; None: there are none.
        pid: the id of its process.
        moment: what the vertices' clock says.
        isolated: see :class:`rayad.actors.replica.output.outputs.Outputs`.
    """

    def __init__(
        self,
        worker: Worksite,
        plan: Plan,
        stage: int,
        replica: int,
        config: RunConfig,
        store: SnapshotStore | None = None,
        *,
        pid: int,
        moment: Callable[[], Any],
        isolated: Callable[[Element], Element | None] | None = None,
    ) -> None:
        self.worker = worker
        self.plan = plan
        self.stage = plan.stage(stage)
        self.replica = replica
        self.config = config
        self.at = ReplicaId(stage, replica)
        self.name = self.at.plane_name
        self.link, self.clock, self.places = worker.link, worker.clock, worker.places
        self.edges = plan.edge_by_id
        self.carrier = WorkplaceCarrier(worker, plan, stage, replica)
        self.ends = ChannelEnds(self.carrier, plan, stage, replica, config)
        self.sender, self.granting = self.ends.sender, self.ends.grants
        self.arrived = Arrived(self.ends.feedback)
        gated = gated_edges(plan) if config.failures.recovery == "upstream" else frozenset()
        parking = partial(Parked, int(config.spill_memory_bytes), partial(SpillFile, config.spill_directory))
        memory = outgoing = None
        if config.state_memory_bytes is not None:
            memory = MemoryBound(int(config.state_memory_bytes), StateFiles(self.stage.name, config.spill_directory, store))
            outgoing = OutgoingBound(memory.gathered_bytes_max, partial(SpillFile, config.spill_directory))
        working = self._tell_working if isolated is not None else None
        waits: dict[str, Any] = {"room": self.sender.room, "gated": gated, "parking": parking, "moment": moment}
        waits |= {"memory": memory, "outgoing": outgoing, "isolated": isolated, "working": working, "ahead": Ahead.of_run(config)}
        self.core = ReplicaCore(plan, self.stage, replica, clock=self.clock.perf_counter, **waits)
        self.core.outputs.outbox.batch_rows = config.batch_rows
        self.ends.attach(self.core)
        self.sender.held_up = self._on_held_up
        self._held_up_since_s = self.held_up_s = 0.0
        self.report = ReplicaReport(self.stage.name, replica, pid, title=plan.called(stage))
        self.input_at_s: float | None = None
        """When the last frame of its live input came, or the replica began."""
        self.is_subscribed = False
        self.hold_until_s: float | None = None
        """Until when combiners may keep back what they have."""

    def _tell_working(self, step: str) -> None:
        """Tell the coordinator which step runs: what has been handed to the kernel arrives, also if the process ends in it."""
        self.link.send(COORDINATOR, Kind.WORKING, self.stage.id, step.encode())

    def touch(self) -> None:
        """The replica may have something to do."""
        self.worker.touch(self.stage.id)

    # -- the way out ---------------------------------------------------------------------
    def send_out(self) -> None:
        """Hand produced batches on, as far as there are credits, and grant credits for what was consumed."""
        if self.core.outputs.outbox:
            self.ends.send_out()
        if self.core.done_tokens:
            self.ends.grant(self.clock.perf_counter())

    def _on_held_up(self, is_held_up: bool) -> None:
        now_s = self.clock.perf_counter()
        if is_held_up:
            self._held_up_since_s = now_s
        else:
            self.held_up_s += now_s - self._held_up_since_s

    def flush_out(self) -> None:
        """Send what views and notifications produced, and what combiners kept back."""
        self.hold_until_s = None
        self.core.outputs.flush()
        self.send_out()

    def tell(self) -> None:
        """Everything that changed goes into the worker's next report."""
        if not self.is_subscribed and self.core.wants_views:
            self.is_subscribed = True
            self.link.send(PROGRESS, Kind.SUBSCRIBE, self.stage.id, b"")
        changes = self.core.take_changes()
        if changes:
            self.worker.report(changes)

    def close(self) -> None:
        """Free all resources."""
        for part in (self.core, self.ends):
            part.close()
