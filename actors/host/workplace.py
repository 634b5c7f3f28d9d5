"""What the parts of one replica's host share: its place in the plan, its plane, its core, what has arrived, and what is sent."""

from __future__ import annotations

import datetime as dt
import os
import time as clock
from collections.abc import Callable
from functools import partial
from typing import Any

from rayad.actors.host.arrived import Arrived
from rayad.actors.plane.carrier import PlaneCarrier
from rayad.actors.plane.plane import Plane
from rayad.actors.plane.protocol import COORDINATOR, PROGRESS, SPIN_S, Kind, pack_report, replica_name
from rayad.actors.plane.spilling_queue import SpillFile
from rayad.actors.process.mailbox import Mailbox
from rayad.actors.replica.channel_ends import ChannelEnds
from rayad.actors.replica.core import ReplicaCore
from rayad.actors.replica.report import ReplicaReport
from rayad.actors.replica.upstream import gated_edges
from rayad.actors.replica.waiting_batches import Parked
from rayad.dataflow.config import RunConfig
from rayad.dataflow.operators.stateless import Element
from rayad.dataflow.plan import Plan


def _nothing() -> None:
    return None


class Workplace:
    """The state that the parts of one replica's host share.

    Args:
        plan: the dataflow.
        stage, replica: which one it is.
        config: of the run.
        job, secret, incarnation: for its plane.
        isolated: see :class:`rayad.actors.replica.output.outputs.Outputs`.
    """

    def __init__(
        self,
        plan: Plan,
        stage: int,
        replica: int,
        config: RunConfig,
        *,
        job: str,
        secret: bytes,
        incarnation: int,
        isolated: Callable[[Element], Element | None] | None = None,
    ) -> None:
        self.plan = plan
        self.stage = plan.stage(stage)
        self.replica = replica
        self.config = config
        self.name = replica_name(stage, replica)
        self.mailbox = Mailbox()
        reconnect_s = config.failures.heartbeat_timeout_s
        self.plane = Plane(
            name=self.name,
            job=job,
            incarnation=incarnation,
            secret=secret,
            spin_s=SPIN_S,
            reconnect_s=reconnect_s,
            seals=bool(config.encrypt),
        )
        self.mailbox.open(self.plane.wakeup)
        self.edges = plan.edge_by_id
        self.replica_of = {replica_name(s.id, r): r for s in plan.stages for r in range(s.parallelism)}
        self.ends = ChannelEnds(PlaneCarrier(self.plane), plan, stage, replica, config)
        self.sender, self.granting = self.ends.sender, self.ends.grants
        self.arrived = Arrived(self.ends.feedback)
        gated = gated_edges(plan) if config.failures.recovery == "upstream" else frozenset()
        parking = partial(Parked, int(config.spill_memory_bytes), partial(SpillFile, config.spill_directory))
        working = self._tell_working if isolated is not None else None
        waits: dict[str, Any] = {"room": self.sender.room, "gated": gated, "parking": parking, "moment": partial(dt.datetime.now, dt.UTC)}
        self.core = ReplicaCore(plan, self.stage, replica, clock=clock.perf_counter, isolated=isolated, working=working, **waits)
        self.core.outputs.outbox.batch_rows = config.batch_rows
        self.ends.attach(self.core)
        self.sender.held_up = self._on_held_up
        self._held_up_since_s = self.held_up_s = 0.0
        self.report = ReplicaReport(self.stage.name, replica, os.getpid())
        self.lost: dict[str, float] = {}
        """Peers whose connection was lost, and when."""
        self.input_at_s: float | None = None
        """When the last frame of its live input came, or the replica began."""
        self.is_subscribed = False
        self.is_done = False
        """The progress actor has said that the job is complete."""
        self.is_rewinding = False
        """Views that arrive still count work that has been rolled back, and are ignored (``upstream.py``)."""
        self.hold_until_s: float | None = None
        """Until when combiners may keep back what they have."""
        self.after_report: Callable[[], Any] = _nothing
        """Called after each report, even an empty one."""

    def _tell_working(self, step: str) -> None:
        """Tell the coordinator which step runs: what has been handed to the kernel arrives, also if the process ends in it."""
        self.plane.send(COORDINATOR, Kind.WORKING, 0, step.encode())

    def peers(self) -> set[str]:
        """The replicas with which this one exchanges batches."""
        mine = self.stage.id
        out: set[str] = set()
        for edge in self.plan.edges:
            for other, own in ((edge.target, edge.source), (edge.source, edge.target)):
                if own == mine:
                    out.update(replica_name(other, i) for i in range(self.plan.stage(other).parallelism))
        out.discard(self.name)
        return out

    # -- the way out ---------------------------------------------------------------------
    def send_out(self) -> None:
        """Hand produced batches to the plane, as far as there are credits, and grant credits for what was consumed."""
        if self.core.outputs.outbox:
            self.ends.send_out()
        if self.core.done_tokens:
            self.ends.grant(clock.perf_counter())

    def _on_held_up(self, is_held_up: bool) -> None:
        now_s = clock.perf_counter()
        if is_held_up:
            self._held_up_since_s = now_s
        else:
            self.held_up_s += now_s - self._held_up_since_s

    def flush_out(self) -> None:
        """Send what views and notifications produced, and what combiners kept back."""
        self.hold_until_s = None
        self.core.outputs.flush()
        self.send_out()

    def flush(self) -> None:
        """Send what combiners keep back, then everything that changed as one report."""
        self.flush_out()
        if not self.is_subscribed and self.core.wants_views:
            self.is_subscribed = True
            self.plane.send(PROGRESS, Kind.SUBSCRIBE, 0, b"")
        changes = self.core.take_changes()
        if changes:
            self.plane.send(PROGRESS, Kind.REPORT, 0, pack_report(changes))
        self.after_report()

    def close(self, linger_s: float) -> None:
        """Free all resources; what is still queued is sent for at most ``linger_s``."""
        for part in (self.core, self.mailbox, self.ends):
            part.close()
        self.plane.close(linger_s=linger_s)
