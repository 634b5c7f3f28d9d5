"""What a replica has produced for others and has not been sent yet. Each batch is counted in the activation that caused it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from rayad.actors.plane.on_demand import ANY, rows_of
from rayad.actors.replica.output.spilled_batches import OutgoingBound
from rayad.dataflow.config import BATCH_ROWS
from rayad.dataflow.plan import PlanEdge
from rayad.progress import Timestamp


class Outgoing:
    """A batch on its way to one replica of an edge's target."""

    __slots__ = ("batch", "edge", "is_own", "replica", "time")

    def __init__(self, edge: int, replica: int, time: Timestamp, batch: Any) -> None:
        self.edge = edge
        self.replica = replica
        self.time = time
        self.batch = batch
        self.is_own = False
        """Whether the list was made here, so that it may grow."""


class Outbox:
    """Batches for other replicas, in order. Lists of one time for one replica grow together while they wait; beyond a bound all is on disk.

    Args:
        change: counts progress: (location, time, delta).
        sent_items: counts the records that leave, by edge.
        copied: edges whose batches go to all replicas, and are counted once.
        bound: how much of it waits in memory; None: all.
    """

    def __init__(
        self,
        change: Callable[[int, Timestamp, int], None],
        sent_items: dict[int, int],
        copied: frozenset[int],
        bound: OutgoingBound | None = None,
    ) -> None:
        self.is_large = False
        """Whether what waits should be sent now: waiting for more would not pay."""
        self.batches_out = 0
        """How many batches have been put here so far."""
        self.batch_rows = BATCH_ROWS
        """Lists of one time for one replica are joined up to this many records."""
        self._waiting: list[Outgoing] = []
        self._growing: dict[tuple[int, int, Timestamp], Outgoing] = {}
        self._change = change
        self._sent_items, self._copied = sent_items, copied
        self.bound = bound
        self._on_disk = 0  # so many of the first that wait have been looked at

    def __len__(self) -> int:
        return len(self._waiting)

    def __iter__(self) -> Iterator[Outgoing]:
        return iter(self._waiting)

    def push(self, edge: PlanEdge, replica: int, time: Timestamp, batch: Any) -> None:
        """Add a batch for a replica, or its records to a list that waits already."""
        is_too_much = self.bound is not None and self.bound.is_passed_with(batch)
        self._push(edge, replica, time, batch)
        if is_too_much:
            self._put_on_disk()

    def _push(self, edge: PlanEdge, replica: int, time: Timestamp, batch: Any) -> None:
        if type(batch) is list and len(batch) < self.batch_rows:
            key = (edge.id, replica, time)
            waiting = self._growing.get(key)
            if waiting is not None and len(waiting.batch) + len(batch) <= self.batch_rows:
                if waiting.is_own:
                    waiting.batch.extend(batch)
                else:
                    waiting.batch = waiting.batch + batch
                    waiting.is_own = True
                return
            outgoing = self._growing[key] = Outgoing(edge.id, replica, time, batch)
        else:
            outgoing = Outgoing(edge.id, replica, time, batch)
            self.is_large = True
        self.add(edge, outgoing)

    def add(self, edge: PlanEdge, outgoing: Outgoing) -> None:
        """Add a batch as it is, and count it as on its way."""
        time = outgoing.time
        self.batches_out += 1
        self._waiting.append(outgoing)
        counted = time if edge.count_depth == len(time[1]) else time.truncate(edge.count_depth)
        self._change(edge.count_location, counted, 1)

    def _put_on_disk(self) -> None:
        """Put all that waits on disk, but for what has no receiver yet."""
        assert self.bound is not None
        for outgoing in self._waiting[self._on_disk :]:
            if outgoing.replica != ANY:
                outgoing.batch = self.bound.put(outgoing.time, outgoing.batch, rows_of(outgoing.batch))
        self._on_disk = len(self._waiting)
        self._growing.clear()
        self.bound.begin()

    def take(self) -> list[Outgoing]:
        """Take out what waits to be sent, in order. What was too much for memory is a :class:`SpilledBatch` each."""
        taken, self._waiting = self._waiting, []
        if self.bound is not None:
            self.bound.begin()
            self._on_disk = 0
        sent, copied = self._sent_items, self._copied
        for outgoing in taken:
            if not outgoing.replica or outgoing.edge not in copied:  # a broadcast counts once
                sent[outgoing.edge] += rows_of(outgoing.batch)
        self._growing.clear()
        self.is_large = False
        return taken
