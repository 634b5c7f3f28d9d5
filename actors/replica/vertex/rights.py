"""What a vertex may do in its callbacks: send, and ask for notifications. A user's vertex cannot go back in time."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from typing import Any, NoReturn

import pyarrow as pa

from rayad.actors.replica.output.outputs import Outputs
from rayad.actors.replica.vertex.callbacks import Callbacks
from rayad.actors.replica.vertex.waiting_for_time import WaitingForTime
from rayad.dataflow.plan import Plan, Stage
from rayad.dataflow.records.batches import require_distinct
from rayad.dataflow.vertex import VertexContext
from rayad.progress import DataflowError, FlatReachability, Timestamp, show


class VertexRights(VertexContext):
    """The context of one replica's vertex.

    Args:
        plan, stage, replica: which one it is.
        callbacks: say which time is being handled.
        outputs: take what the vertex sends.
        waiting: takes the notifications that it asks for.
        moment: what :meth:`rayad.Vertex.now` gives; None: there is no clock.
    """

    def __init__(
        self,
        plan: Plan,
        stage: Stage,
        replica: int,
        *,
        callbacks: Callbacks,
        outputs: Outputs,
        waiting: WaitingForTime,
        moment: Callable[[], dt.datetime] | None,
    ) -> None:
        self.name, self.replica = stage.name, replica
        self.parallelism, self.key_groups = stage.parallelism, plan.key_groups
        self.came_with_state: tuple[Timestamp, ...] = ()
        """The rights that came with state from a sibling, while the vertex takes that up."""
        self._callbacks, self._outputs, self._waiting = callbacks, outputs, waiting
        self._moment = moment or super().now
        self._progress_graph = plan.progress
        self._stage, self._depth, self._where = stage.id, stage.depth, stage.where
        self._reachability: FlatReachability | None = None

    def now(self) -> dt.datetime:
        """See :meth:`rayad.Vertex.now`."""
        return self._moment()

    def send_by(self, edge: int, batch: Any, time: Timestamp) -> None:
        """See :meth:`rayad.Vertex.send_by`."""
        now = self._callbacks.now
        if now is None or not _comparable(time, self._depth) or not now <= time:
            self._refuse(f"send_by({edge}, ..., {time})", time)
        if not (isinstance(edge, int) and 0 <= edge < len(self._outputs)):
            raise self._misuse(
                f"send_by({show(edge)}, ...)",
                f": it has {len(self._outputs)} outputs, numbered from 0; give outputs= to flow.vertex for more",
            )
        if isinstance(batch, list):
            batch = batch.copy()  # the vertex may change its own list later; what was sent must not change
        elif not isinstance(batch, pa.RecordBatch):
            if isinstance(batch, (str, bytes, dict, pa.Table)) or not hasattr(batch, "__iter__"):
                raise self._misuse(
                    f"send_by({edge}, {show(batch, 60)}, {time})",
                    ": a batch is a list of records or a pyarrow.RecordBatch; for one record, [record]",
                )
            batch = list(batch)
        else:
            require_distinct(batch.schema, f"a batch that {self.name!r} ({self._where}) sends")
        self._outputs.emit(edge, time, batch)

    def notify_at(self, time: Timestamp, capability: Timestamp | None) -> None:
        """See :meth:`rayad.Vertex.notify_at`."""
        if not _comparable(time, self._depth):
            self._refuse(f"notify_at({show(time, 60)})", time)
        if capability is not None:
            if not self._may_wait_for(time):
                self._refuse(f"notify_at({time})", time)
            if capability is not time or self._callbacks.now is None:
                self._check_capability(time, capability)
        self._waiting.ask(time, capability)

    def _check_capability(self, time: Timestamp, capability: Timestamp) -> None:
        if not _comparable(capability, self._depth) or not self._may_act_at(capability):
            self._refuse(f"notify_at({time}, capability={capability}), by its capability,", capability)
        if not time <= capability:
            self._check_not_waiting_for_itself(time, capability)

    def _may_act_at(self, time: Timestamp) -> bool:
        """Whether the vertex may send at a time: at or beyond the time being handled, or at or beyond a right that came with state."""
        now = self._callbacks.now
        if now is not None:
            return now <= time
        return any(right <= time for right in self.came_with_state)

    def _may_wait_for(self, time: Timestamp) -> bool:
        """Whether a notification at a time may be asked for: while state is taken up, at any time, if a right came with it."""
        now = self._callbacks.now
        return now <= time if now is not None else bool(self.came_with_state)

    def _check_not_waiting_for_itself(self, time: Timestamp, capability: Timestamp) -> None:
        """Refuse a capability at which a send could come round the loop to a time before the notification: it would wait for itself."""
        if self._reachability is None:
            self._reachability = FlatReachability(self._progress_graph)
        if self._reachability.blocks_itself(self._stage, time, capability):
            raise self._misuse(
                f"notify_at({time}, capability={capability})",
                ": what it may send at its capability could come round the loop to before the time that it waits for, so it would wait "
                "for itself for ever; use a capability at or beyond that time, or None",
            )

    def _refuse(self, what: str, time: Any) -> NoReturn:
        if not _comparable(time, self._depth):
            raise self._misuse(what, f": a time here is a Timestamp with {self._depth} loop counters, this is {show(time, 60)}")
        if self._callbacks.now is None:
            raise self._misuse(
                what, ": there is no right to send or ask now; do it in on_recv, or in an on_notify that was asked for with a capability"
            )
        raise self._misuse(what, f" goes back in time: {self._callbacks.now} is being handled; use a time at or beyond it")

    def _misuse(self, what: str, rule: str) -> DataflowError:
        return DataflowError(f"{what} from {self.name!r}[{self.replica}] ({self._where}){rule}", located=True)


def _comparable(time: Any, depth: int) -> bool:
    return isinstance(time, Timestamp) and len(time[1]) == depth
