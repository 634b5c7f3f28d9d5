"""What waits in a replica for its time: batches that are not in turn, batches of times that are not complete, notifications.

The progress core counts all of it, a notification without capability excepted; its views say what need not wait any more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from rayad.actors.replica.progress_changes import ProgressChanges, Right
from rayad.actors.replica.rest import thaw
from rayad.actors.replica.upstream import Gate
from rayad.actors.replica.waiting_batches import Parked
from rayad.dataflow.plan import Stage
from rayad.dataflow.vertex import Vertex
from rayad.progress import Notification, Notificator, Timestamp, View


class WaitingForTime:
    """Batches and notifications of one replica that wait.

    Args:
        stage: the replica's stage.
        changes: where everything that waits is counted.
        gated: edges on which a batch waits until its time is complete (see :mod:`rayad.actors.replica.upstream`).
        parking: makes the place for batches that wait.
    """

    def __init__(self, stage: Stage, changes: ProgressChanges, gated: frozenset[int], parking: Callable[[], Parked]) -> None:
        self.view = View((), ()) if not stage.inputs else None
        """The newest that the progress core has published of this stage; None: none yet."""
        self.parked = parking()
        """Batches that came before their turn."""
        self.gate = Gate(gated, parking()) if gated and stage.inputs else None
        self.notificator = Notificator()
        self.has_unseen = False
        """Whether a notification without capability has been asked for, which the progress core does not count."""
        self._changes = changes
        self._is_in_loop = bool(stage.depth)

    @property
    def is_empty(self) -> bool:
        """Whether nothing waits."""
        return not (len(self.notificator) or len(self.parked) or (self.gate is not None and len(self.gate.waiting)))

    def is_in_turn(self, time: Timestamp) -> bool:
        """Whether no lexicographically smaller time can still arrive."""
        if self.view is None:
            return False
        mark = time.sort_key()
        if self.gate is not None and (first := self.gate.waiting.first()) is not None and first.sort_key() < mark:
            return False
        return all(f.sort_key() >= mark for f in self.view.input_frontier)

    # -- batches -------------------------------------------------------------------------------------
    def takes(self, vertex: Vertex, edge_id: int, time: Timestamp, batch: Any) -> bool:
        """Let an arriving batch wait if its time has not come; False: it is to be consumed now."""
        if self.gate is not None and edge_id in self.gate.edges:
            # It becomes pending work of the vertex at its time and is no longer input, so that the input frontier can pass it.
            self._changes.on_edge(edge_id, time, -1)
            self._gate_in(edge_id, time, batch)
            return True
        if vertex.in_order and not self.is_in_turn(time):
            self.parked.add(time, edge_id, vertex.on_park(batch))
            return True
        return False

    def _gate_in(self, edge_id: int, time: Timestamp, batch: Any) -> None:
        assert self.gate is not None
        if not self.gate.repeats(time):
            self.gate.hold(edge_id, time, batch)
            self._changes.at_vertex(time, 1)

    def ready(self, vertex: Vertex | None) -> Iterator[tuple[int, Timestamp, Any, bool]]:
        """Take out the batches whose time has come, in order: ``(edge, time, batch, is_gated)``. Each is to be consumed before the next."""
        if self.gate is not None:
            assert vertex is not None
            assert self.view is not None
            for edge_id, time, batch in self.gate.release(self.view.input_frontier, self.is_in_turn if vertex.in_order else None):
                yield edge_id, time, batch, True
        while (first := self.parked.first()) is not None and self.is_in_turn(first):
            for edge_id, batch in self.parked.take(first):
                yield edge_id, first, batch, False

    # -- notifications -------------------------------------------------------------------------------
    def ask(self, guarantee: Timestamp, capability: Timestamp | None) -> None:
        """Ask for a notification."""
        if capability is None:
            self.has_unseen = True
        if self.notificator.request(guarantee, capability):
            self._changes.notification(guarantee, capability, 1)

    def due(self, vertex: Vertex) -> list[Notification]:
        """Take out the notifications that are due; :meth:`done` when each has been delivered."""
        assert self.view is not None
        if vertex.waits_for_siblings or self._is_in_loop:
            return self.notificator.deliverable(self.view, sequential=vertex.sequential)
        return self.notificator.next_by_input(self.view)

    def done(self, notification: Notification) -> None:
        """A notification has been delivered."""
        self._changes.notification(notification.guarantee, notification.capability, -1)

    def rights(self) -> tuple[Right, ...]:
        """Where the notifications with a capability are counted."""
        return tuple(self._changes.right_of(n.guarantee, n.capability) for n in self.notificator.pending() if n.capability is not None)

    def let_go(self) -> None:
        """Drop all notifications."""
        for notification in self.notificator.pending():
            self.done(notification)
        self.notificator = Notificator()

    # -- snapshots and recovery ----------------------------------------------------------------------
    def resume(self, rest: Mapping[str, Any], ids: Mapping[str, int]) -> None:
        """Restore what waited at the cut, as if it had just come or been asked for; but gated batches, which come as input."""
        for guarantee, capability in rest["notifications"]:
            self.ask(guarantee, capability)
        for name, data in rest["parked"]:
            time, batch = thaw(data)
            self.parked.add(time, ids[name], batch)
            self._changes.count_waiting(ids[name], time)
        if self.gate is not None:
            self.gate.passed = list(rest["passed"])

    def roll_back(self, edges: frozenset[int]) -> None:
        """Drop what waits at the gate and came on these edges: their senders resume from a snapshot."""
        if self.gate is None:
            return  # it has no inputs
        for time in self.gate.rolled_back(edges, self.view.input_frontier if self.view is not None else None):
            self._changes.at_vertex(time, -1)

    def gate_again(self, edge_id: int, data: bytes) -> None:
        """Let a batch wait that the senders, rolled back, will not send again: it was in flight at the cut."""
        time, batch = thaw(data)
        self._gate_in(edge_id, time, batch)

    def close(self) -> None:
        """Give up the disk space."""
        self.parked.close()
        if self.gate is not None:
            self.gate.waiting.close()
