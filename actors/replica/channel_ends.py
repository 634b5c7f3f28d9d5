"""One replica's ends of its channels: what it sends, what it grants, what came round a loop. Both runtimes drive it.

The shell provides the carrier, the arrivals and the time.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from rayad.actors.plane.carrier import Carrier
from rayad.actors.plane.credit_grants import FROM_DRIVER, CreditGrants
from rayad.actors.plane.feedback_queue import FeedbackQueue
from rayad.actors.plane.on_demand import ANY
from rayad.actors.plane.replica_id import ReplicaId
from rayad.actors.plane.send_windows import SendWindows
from rayad.actors.replica.core import ReplicaCore
from rayad.actors.replica.output.outbox import Outgoing
from rayad.actors.replica.output.spilled_batches import SpilledBatch
from rayad.dataflow.config import RunConfig, configured
from rayad.dataflow.plan import Plan
from rayad.progress import InternalError


class ChannelEnds:
    """One replica's ends of its channels. ``attach`` connects the core, which asks them for room.

    Args:
        carrier: what carries frames to other replicas.
        plan, stage, replica: which one it is.
        config: of the run.
    """

    def __init__(self, carrier: Carrier, plan: Plan, stage: int, replica: int, config: RunConfig) -> None:
        self.name = ReplicaId(stage, replica).plane_name
        self.sender = SendWindows(carrier, plan, stage, config)
        self.grants = CreditGrants(carrier, plan.edge_by_id, config)
        self.feedback = FeedbackQueue(int(config.spill_memory_bytes), config.spill_directory)
        self._carrier = carrier
        self._edges = plan.edge_by_id
        self._stage = stage
        self._replica = replica
        self._core: ReplicaCore

    def attach(self, core: ReplicaCore) -> None:
        """Connect this replica's core: the sender tells it how to cut on-demand batches, and counts what is joined and sent."""
        self._core = core
        outputs, sender = core.outputs, self.sender
        outputs.routes.piece_rows, outputs.routes.binds_late = sender.piece_rows, True

        def sent(edge: int, size_bytes: int) -> None:
            outputs.counters.sent_bytes[edge] += size_bytes

        sender.joined = lambda edge, time, fewer: core.count_waiting(edge, time, -fewer)
        sender.sent = sent

    # -- out ---------------------------------------------------------------------------------------
    def send_out(self) -> None:
        """Send what the core has produced, as far as there are credits; the rest waits."""
        for outgoing in self._core.outputs.outbox.take():
            self._send_one(outgoing)

    def _send_one(self, outgoing: Outgoing) -> None:
        edge = outgoing.edge
        if outgoing.replica == ANY:
            self.sender.offer(edge, outgoing.time, outgoing.batch)
            return
        if outgoing.replica != self._replica or self._edges[edge].target != self._stage:
            size = self.sender.send(edge, outgoing.replica, self._carrier.encode(edge, outgoing.replica, outgoing.time, outgoing.batch))
            outputs = self._core.outputs
            if not outgoing.replica or edge not in outputs.copied:
                outputs.counters.sent_bytes[edge] += size
        elif self._edges[edge].is_feedback:
            if type(outgoing.batch) is SpilledBatch:
                self.feedback.push_encoded(edge, self._replica, outgoing.batch.read())
            else:
                self.feedback.push(edge, self._replica, outgoing.time, outgoing.batch)
        else:
            raise InternalError(f"edge {edge} of {self.name} leads to itself without a feedback")

    def send_mark(self, edge: int, replica: int, payload: Any, *, overtake: bool = False, binds: bool = True) -> None:
        """Send a barrier or marker on a channel: see :meth:`SendWindows.send_mark`."""
        if (self._edges[edge].target, replica) == (self._stage, self._replica):
            self.feedback.push_mark(edge, self._replica, self._carrier.freeze(payload, is_mark=True))
        else:
            self.sender.send_mark(edge, replica, payload, overtake=overtake, binds=binds)

    # -- in ----------------------------------------------------------------------------------------
    def grant(self, now_s: float) -> None:
        """Grant credits for what the core has consumed."""
        core = self._core
        if core.done_tokens:
            received = core.outputs.counters.received_bytes
            for edge, _, size in core.done_tokens:
                received[edge] += size
            self.grants.grant(core.done_tokens, now_s)
            core.done_tokens.clear()

    # -- who is there --------------------------------------------------------------------------------
    def admit(self, stage: int, replica: int) -> None:
        """Admit a new replica, perhaps in the place of one that has retired: the channels from and to it start anew."""
        self.forget_senders({(stage, replica)})
        self.sender.open(stage, replica)

    def close_all_but(self, plan: Plan) -> None:
        """Close the channels of replicas that are not in this plan: nothing is in flight to them, and nothing they sent is granted."""
        self.sender.close_all_but(plan)
        senders = {(self._edges[edge].source, replica) for edge, replica in self.grants.windows if (edge, replica) != FROM_DRIVER}
        self.forget_senders({(stage, replica) for stage, replica in senders if replica >= plan.stage(stage).parallelism})

    def forget_senders(self, senders: Collection[tuple[int, int]]) -> None:
        """Forget these senders, by stage and replica, with everything in flight from them: they are gone, and others take their places."""
        tokens, edges = self._core.done_tokens, self._edges
        tokens[:] = [token for token in tokens if (edges[token[0]].source, token[1]) not in senders]  # their grants would have no receiver
        self.grants.forget(senders)

    def configure(self, before: RunConfig, after: RunConfig, turn: str) -> None:
        """Change windows, in three turns of all replicas: receivers take the smaller window, senders the new one, receivers the new one.

        A receiver grants when half of its window is consumed: with a larger window than its sender's, both could wait for ever.
        """
        if turn == "first":
            batches, size = min(before.window_batches, after.window_batches), min(before.window_bytes, after.window_bytes)
            self.grants.configure(configured(before, {"window_batches": batches, "window_bytes": size}))
        elif turn == "senders":
            self.sender.configure(after)
        else:
            self.grants.configure(after)

    def close(self) -> None:
        """Give up the disk space."""
        self.feedback.close()
        self.sender.close()


__all__ = ["ChannelEnds"]
