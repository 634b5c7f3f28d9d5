"""Which replica of an edge's target gets a batch: by key, all, the one with the most room, on demand, or always the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from rayad.actors.plane.on_demand import ANY, cut
from rayad.actors.replica.output.actions import Emit
from rayad.actors.replica.output.outbox import Outbox, Outgoing
from rayad.actors.replica.user_errors import raise_located
from rayad.dataflow.logical_graph import PartitionKind
from rayad.dataflow.operators.keys.keyed import import_conversions
from rayad.dataflow.plan import Plan, PlanEdge, Stage
from rayad.dataflow.records.batches import keyed_columns, to_rows
from rayad.dataflow.records.key_hashing import Router
from rayad.dataflow.records.selectors import require_columns
from rayad.progress import Timestamp, show

Push = Callable[[PlanEdge, int, Timestamp, Any], None]


class Routes:
    """The routes from one replica.

    Args:
        plan, stage, replica: which one it is.
        outbox: takes the batches.
        room: for "rebalance" edges: (edge, replica) -> how much room that channel has; the largest wins.
        reenter: takes a batch that comes back to this replica itself, and says whether it did: (edge, time, batch).
    """

    def __init__(
        self,
        plan: Plan,
        stage: Stage,
        replica: int,
        outbox: Outbox,
        room: Callable[[int, int], int] | None,
        reenter: Callable[[PlanEdge, Timestamp, Any], bool],
    ) -> None:
        self.piece_rows: Callable[[int, Any], int] | None = None
        """For on-demand edges: (edge, batch) -> how many records each piece of it holds; None: it is not cut."""
        self.binds_late = False
        """Whether on-demand batches leave without a receiver, for :class:`SendWindows` to choose one."""
        self._plan, self._stage, self._replica = plan, stage, replica
        self._outbox, self._room, self._reenter = outbox, room, reenter
        self._edges = plan.edge_by_id
        self._turn: dict[int, int] = {}

    def lay_out(self, plan: Plan) -> bool:
        """Routes that are compiled from now on are those of another layout; gives whether any of those from here is another one."""
        before, self._plan, self._stage = self._plan, plan, plan.stage(self._stage.id)
        self._edges = plan.edge_by_id
        self._turn.clear()
        edges = before.edges_from(self._stage.id)
        return any(plan.edge_by_id[e.id] is not e or plan.stage(e.target) is not before.stage(e.target) for e in edges)

    def compile(self, edge_id: int) -> Emit:
        """The function that routes the batches of an edge."""
        edge = self._edges[edge_id]
        replicas = self._plan.stage(edge.target).parallelism
        push = self._push_or_reenter if edge.target == self._stage.id else self._outbox.push
        kind = edge.routing
        if kind is PartitionKind.KEYS:
            return self._by_keys(edge, replicas, push)
        if kind is PartitionKind.BROADCAST:

            def everyone(time: Timestamp, batch: Any) -> None:
                for replica in range(replicas):
                    push(edge, replica, time, batch)

            return everyone
        if edge.is_on_demand:
            return self._on_demand(edge, replicas)
        if kind is PartitionKind.REBALANCE and replicas > 1:

            def emptiest(time: Timestamp, batch: Any) -> None:
                push(edge, self._most_room(edge.id, replicas), time, batch)

            return emptiest
        target = self._replica if kind is PartitionKind.FORWARD else 0

        def straight(time: Timestamp, batch: Any) -> None:
            push(edge, target, time, batch)

        return straight

    def _push_or_reenter(self, edge: PlanEdge, replica: int, time: Timestamp, batch: Any) -> None:
        if replica != self._replica or not self._reenter(edge, time, batch):
            self._outbox.push(edge, replica, time, batch)

    def _on_demand(self, edge: PlanEdge, replicas: int) -> Emit:
        outbox = self._outbox

        def offer(time: Timestamp, batch: Any) -> None:
            rows = None if edge.keeps_batches or self.piece_rows is None else self.piece_rows(edge.id, batch)
            for piece in (batch,) if rows is None else cut(batch, rows):
                replica = ANY if self.binds_late else self._most_room(edge.id, replicas)
                outbox.add(edge, Outgoing(edge.id, replica, time, piece))
            outbox.is_large = True  # a receiver may be idle

        return offer

    def _by_keys(self, edge: PlanEdge, replicas: int, push: Push) -> Emit:
        assert edge.key is not None
        target = self._plan.stage(edge.target)
        router = Router(replicas, self._plan.key_groups, target.owners)
        selector = edge.key
        if selector.columns:
            import_conversions()
        row_key = selector.row_key()
        place = f"{self._stage.name!r}[{self._replica}] ({self._stage.where}) failed in key_by before {target.name!r}"

        def keys(time: Timestamp, batch: Any) -> None:
            if isinstance(batch, pa.RecordBatch):
                leading = keyed_columns(batch.schema) if selector.pairs else None
                columns = batch.schema.names[:leading] if leading else list(selector.columns)
                if columns:
                    parts: list[Any] = []
                    try:
                        require_columns(batch, tuple(columns))
                        parts = router.split_columns(batch, columns)
                    except Exception as error:
                        raise_located(f"{place} at {time}", error)
                    for replica, part in enumerate(parts):
                        if part.num_rows:
                            push(edge, replica, time, part)
                    return
                batch = to_rows(batch)
            try:
                parts = router.split_rows(batch, row_key)
            except Exception as error:
                culprit = router.culprit(batch, row_key)
                raise_located(f"{place} at {time} on record {show(culprit, 120)}", error)
            for replica, part in enumerate(parts):
                if part:
                    push(edge, replica, time, part)

        return keys

    def _most_room(self, edge: int, replicas: int) -> int:
        start = self._turn.get(edge, self._replica)
        self._turn[edge] = start + 1
        if self._room is None:
            return start % replicas
        room = self._room
        return max(((start + i) % replicas for i in range(replicas)), key=lambda replica: room(edge, replica))
